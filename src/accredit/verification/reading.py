r"""An answer's tokens as structure: quantities, lists, intervals, relations, labels.

Runs inside a killable worker. Brackets, commas and relation signs are split here, so
that `(0, 0)` stays a pair and `0,1` two numbers; what is left is one expression, which
is read to its last token or refused.
"""

import contextlib
import re
from collections.abc import Sequence
from itertools import accumulate, pairwise

import sympy
from sympy import MatrixBase

from accredit.verification.arithmetic import DEGREE, Unreadable
from accredit.verification.brackets import depth_change, enclosed, split
from accredit.verification.expressions import MAX_DEPTH, expression
from accredit.verification.naming import label
from accredit.verification.readings import (
    Collection,
    Labelled,
    Numeral,
    Quantity,
    Ratio,
    Reading,
    Region,
    Relation,
    Rounded,
)
from accredit.verification.regions import SET_SIGNS, named_set, region, solutions
from accredit.verification.tokens import Kind, Token, tokenize
from accredit.verification.units import CURRENCIES, Unit, unit, unit_start
from accredit.verification.values import equal

SIGNS = {
    "=": "=",
    "<": "<",
    ">": ">",
    r"\leq": "<=",
    r"\geq": ">=",
    r"\neq": "!=",
    r"\approx": "~",
    r"\in": "in",
}
_JOINERS = ("and", "or")
_WORDS_OF_BASES = {"two": 2, "three": 3, "eight": 8, "ten": 10, "sixteen": 16}


def read(text: str) -> Reading:
    """The structure of one answer.

    Raises:
        Unreadable: Prose, unknown notation, or not well-formed.
    """
    return read_tokens(tokenize(text))


def read_tokens(tokens: Sequence[Token]) -> Reading:
    """`read` of what is tokenized already."""
    if not tokens:
        raise Unreadable("it is empty")
    if max(accumulate(map(depth_change, tokens))) > MAX_DEPTH:
        raise Unreadable("it is nested too deep")
    semicolons, _ = split(tokens, _is_semicolon)
    if len(semicolons) > 1 and any(len(_listed(p)[0]) > 1 for p in semicolons):
        groups = [_list_of(part) for part in semicolons if part]
        return Collection("", tuple(groups))
    return _list_of(tokens)


def _is_semicolon(token: Token) -> bool:
    return token.text == ";"


def _is_joiner(token: Token) -> bool:
    return token.text in (",", ";") or (token.is_letters and token.text in _JOINERS)


def _listed(tokens: Sequence[Token]) -> tuple[list[list[Token]], str]:
    """The parts of a list and how the last two are joined; `, and` joins once."""
    parts, found = split(tokens, _is_joiner)
    kept = [parts[0]]
    for sign, part in zip(found, parts[1:], strict=True):
        if not kept[-1] and sign.text in _JOINERS and len(kept) > 1:
            kept[-1] = part
        else:
            kept.append(part)
    words = {sign.text for sign in found if sign.text in _JOINERS}
    return kept, words.pop() if len(words) == 1 else ","


def _list_of(tokens: Sequence[Token]) -> Reading:
    parts, joined = _listed(tokens)
    if len(parts) == 1:
        return _item(parts[0])
    return Collection("", _flat([_item(part) for part in parts]), joined)


def _flat(items: Sequence[Reading]) -> tuple[Reading, ...]:
    r"""The items, with both values of each `\pm` in its place."""
    flat: list[Reading] = []
    for item in items:
        is_pair = isinstance(item, Collection) and item.joined == "±"
        flat += item.items if is_pair and isinstance(item, Collection) else [item]
    return tuple(flat)


def _item(tokens: Sequence[Token]) -> Reading:
    if not tokens:
        raise Unreadable("a part of it is empty")
    sides, signs = split(tokens, lambda token: token.text in SIGNS)
    if signs:
        return _chain(sides, [SIGNS[sign.text] for sign in signs])
    return _body(tokens)


def _chain(sides: list[list[Token]], signs: list[str]) -> Reading:
    if "~" in signs:
        return _rounded(sides, signs)
    name = label(sides[0])
    if signs == ["in"] and name is not None:
        return Labelled(name.text, name.letters, _body(sides[1]))
    if "in" in signs:
        raise Unreadable("a membership is not a value")
    if set(signs) == {"="}:
        return _equation(sides)
    return Relation(tuple(map(_side, sides)), tuple(signs))


def _rounded(sides: list[list[Token]], signs: list[str]) -> Reading:
    place = signs.index("~")
    about = _body(sides[-1])
    if set(signs[place:]) != {"~"}:
        raise Unreadable("an equation follows an approximation")
    before, between = sides[: place + 1], signs[:place]
    if not before[-1]:
        return about
    name = label(before[0])
    if not between and name is not None:
        return Labelled(name.text, name.letters, about)
    exact = _chain(before, between) if between else _body(before[0])
    return Rounded(exact, about)


def _equation(sides: list[list[Token]]) -> Reading:
    name = label(sides[0])
    if name is None and len(sides) == 2 and label(sides[1]) is not None:
        sides, name = sides[::-1], label(sides[1])
    if name is None:
        values = tuple(map(_side, sides))
        if any(isinstance(v.value, MatrixBase) or v.value.free_symbols for v in values):
            return Relation(values, ("=",) * (len(values) - 1))
        _check_consistent(values)
        return values[-1]
    bodies = [_body(side) for side in sides[1:]]
    if all(isinstance(body, Quantity) for body in bodies):
        _check_consistent([body for body in bodies if isinstance(body, Quantity)])
    elif len(bodies) > 1:
        raise Unreadable("its sides cannot be compared")
    equation = None
    if isinstance(bodies[-1], Quantity):
        try:
            equation = Relation((_side(sides[0]), bodies[-1]), ("=",))
        except Unreadable:
            equation = None
    return Labelled(name.text, name.letters, bodies[-1], name.parts, equation)


def _check_consistent(sides: Sequence[Quantity]) -> None:
    for left, right in pairwise(sides):
        same = left.value == right.value
        if not same and not isinstance(left.value, MatrixBase):
            decimals = (left.is_decimal, right.is_decimal)
            same = equal(left.value, right.value, decimals)
        if not same:
            raise Unreadable("its sides are not equal")


def _side(tokens: Sequence[Token]) -> Quantity:
    side = _quantity(tokens)
    if not isinstance(side, Quantity):
        raise Unreadable("a side of a relation has several values")
    return side


def _body(tokens: Sequence[Token]) -> Reading:
    if not tokens:
        raise Unreadable("a part of it is empty")
    members, found = split(tokens, lambda token: token.text in SET_SIGNS)
    if found:
        operands = [_set_of(member) for member in members]
        return Region(region(operands, [sign.text for sign in found]))
    known = named_set(tokens)
    if known is not None:
        return Region(known)
    inside = enclosed(tokens)
    if inside is not None:
        reading = _enclosed(tokens[0].text + inside[1], inside[0])
        if reading is not None:
            return reading
    ratio = split(tokens, lambda token: token.text == ":")[0]
    if len(ratio) > 1:
        return _ratio(ratio)
    return _numeral(tokens) or _quantity(tokens)


def _enclosed(brackets: str, inner: Sequence[Token]) -> Reading | None:
    if brackets == r"\{\}":
        described = _set_builder(inner)
        if described is not None:
            return described
    parts = split(inner, _is_joiner)[0]
    is_set = brackets == r"\{\}"
    if len(parts) > 1 or is_set:
        return Collection(brackets, _flat([_item(part) for part in parts]))
    if brackets in ("()", "{}"):
        return _item(inner)
    return None


def _set_builder(inner: Sequence[Token]) -> Region | None:
    parts = split(inner, lambda token: token.text in ("|", ":"))[0]
    if len(parts) != 2 or len(parts[0]) != 1:
        return None
    condition = _item(parts[1])
    if not isinstance(condition, Relation):
        raise Unreadable("the condition of a set is not understood")
    found = solutions(condition)
    if found is None:
        raise Unreadable("the condition of a set is not understood")
    return Region(found)


def _set_of(tokens: Sequence[Token]) -> sympy.Set:
    reading = _body(tokens)
    found = solutions(reading)
    if found is None:
        raise Unreadable("a part of a union is not a set")
    return found


def _ratio(parts: list[list[Token]]) -> Ratio:
    quantities = tuple(map(_side, parts))
    texts = [part[0].text if len(part) == 1 else "" for part in parts]
    is_clock = (
        len(texts) in (2, 3)
        and all(re.fullmatch(r"\d{1,2}", text) for text in texts)
        and all(len(text) == 2 and int(text) < 60 for text in texts[1:])
    )
    return Ratio(quantities, is_clock)


def _numeral(tokens: Sequence[Token]) -> Numeral | None:
    """Digits with a base; None where the tokens have another shape."""
    places = [n for n, token in enumerate(tokens) if token.text in ("_", "base")]
    if len(places) != 1 or places[0] == 0:
        return None
    head = [t for t in tokens[: places[0]] if t.text not in ("(", ")")]
    tail = [t for t in tokens[places[0] :] if t.text not in ("{", "}", "(", ")", "_")]
    tail = [token for token in tail if token.text != "base"]
    is_negative = bool(head) and head[0].text == "-"
    digits = head[is_negative:]
    plain = all(
        token.kind is Kind.NUMBER or (token.is_letters and token.text.isupper())
        for token in digits
    )
    if len(tail) != 1 or not plain or not any(t.kind is Kind.NUMBER for t in digits):
        return None
    base = _WORDS_OF_BASES.get(tail[0].text, 0)
    if tail[0].text.isdecimal() and len(tail[0].text) <= 2:
        base = int(tail[0].text)
    try:
        value = int("".join(token.text for token in digits), base)
    except ValueError as error:
        raise Unreadable("its digits do not fit its base") from error
    return Numeral(-value if is_negative else value)


def _quantity(tokens: Sequence[Token]) -> Reading:
    currency: Unit | None = None
    place = 1 if tokens and tokens[0].text == "-" else 0
    if place < len(tokens) and tokens[place].text in CURRENCIES:
        currency = unit([tokens[place]])
        tokens = [*tokens[:place], *tokens[place + 1 :]]
    end, measure = unit_start(tokens)
    if currency is not None and measure is not None:
        raise Unreadable("it has two units")
    signs = (1, -1) if any(t.text in (r"\pm", r"\mp") for t in tokens) else (1,)
    values = [_measured(tokens, end, measure or currency, sign) for sign in signs]
    if len(values) == 1:
        return values[0]
    return Collection("", tuple(values), "±")


def _measured(
    tokens: Sequence[Token], end: int, measure: Unit | None, sign: int
) -> Quantity:
    product: Quantity | None = None
    if measure is not None and not measure.is_certain:
        with contextlib.suppress(Unreadable):
            product = Quantity(*expression(tokens, sign))
    value, is_decimal = expression(tokens[:end], sign)
    if isinstance(value, MatrixBase) and measure is not None:
        raise Unreadable("a matrix with a unit")
    if measure is not None and measure.is_noun and value.free_symbols:
        raise Unreadable("a letter with a noun")
    if not isinstance(value, MatrixBase) and value.has(DEGREE):
        value = value / DEGREE
        measure = unit([Token(Kind.SIGN, "°")])
        if value.has(DEGREE):
            raise Unreadable("degrees and other numbers are mixed")
    return Quantity(value, is_decimal, measure, product)
