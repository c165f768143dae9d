r"""An answer's text as structure: quantities, lists, intervals, relations.

Runs inside a killable worker, because parsing can hang. Brackets, commas and relation
signs are split here, so that `(0, 0)` stays a pair and `0,1` two numbers; what is left
is one expression, which math-verify's LaTeX parser must read to its last character.
"""

import re
from dataclasses import dataclass

import sympy
from latex2sympy2_extended import latex2sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig
from sympy import Basic, MatrixBase

from accredit.verification.normalize import MAX_ANSWER_CHARACTERS, normalized

Value = Basic | MatrixBase

_CONVERSION = ConversionConfig(lowercase_symbols=False)
_OPENING = {"(": ")", "[": "]", r"\{": r"\}"}
_TOKENS = re.compile(
    r"\\\{|\\\}|\\[a-zA-Z]+|\\.|<=|>=|!=|[()\[\]{},;=<>]|[^\\()\[\]{},;=<>!]+|!"
)
_SIGNS = {
    "=": "=",
    "<": "<",
    ">": ">",
    "<=": "<=",
    ">=": ">=",
    "!=": "!=",
    r"\leq": "<=",
    r"\geq": ">=",
    r"\neq": "!=",
}
_JOINING_WORD = re.compile(r",?\s+(?:and|or)\s+")
_LABEL = re.compile(
    r"(?P<label>[A-Za-z](?:_(?:\w|\{\w+\}))?(?:\([A-Za-z](?:,\s*[A-Za-z])*\))?"
    r"|\\[a-z]+(?:_(?:\w|\{\w+\}))?|\([A-Za-z](?:_(?:\w|\{\w+\}))?(?:,\s*[A-Za-z](?:_(?:\w|\{\w+\}))?)+\))"
    r"\s*(?:=|\\in(?![a-zA-Z]))\s*(?P<rest>.+)"
)
_SHORT_WORDS = (
    "if|is|or|and|for|all|odd|the|of|no|any|not|are|to|an|be|yes|one|two|six|ten|lcm|"
    "cm|mm|km|kg|mg|ml|hr|ft|mph|kmh|km/h|m/s"
)
_WORD = re.compile(rf"(?<![a-zA-Z\\])(?:[a-zA-Z]{{4,}}|(?:{_SHORT_WORDS}))(?![a-zA-Z])")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{[a-zA-Z]*matrix\}")
_UNIT = re.compile(
    r"(?P<value>.*[\d}])\s*(?:\\unit\{(?P<text>[a-zA-Z ]+)\}"
    rf"|\s(?P<plain>[a-zA-Z]{{4,}}|(?:{_SHORT_WORDS}))(?:\^\{{?[23]\}}?)?)"
)
_UNSUPPORTED = re.compile(
    r"!!|\\(?:[cl]?dots|underbrace|equiv|pmod|bmod|mod|mid|approx|gcd|lcm|begin\{cases\})"
    r"(?![a-zA-Z])|\.\.\.|…|'|\\prime"
)
_SPLIT_NUMBER = re.compile(r"\d\s+\d")


class Unreadable(Exception):
    """The text is not an answer this module can read; the message says why."""


class Unsupported(Unreadable):
    """The text may well be mathematics, but in notation that is not compared."""


@dataclass(frozen=True)
class Quantity:
    """One expression, with what was written around it."""

    text: str
    label: str
    value: Value
    percent: bool
    unit: str


@dataclass(frozen=True)
class Relation:
    """Operands and the signs between them: `0<x<1` has three and two."""

    text: str
    operands: tuple[Value, ...]
    operand_texts: tuple[str, ...]
    signs: tuple[str, ...]


@dataclass(frozen=True)
class Collection:
    """Several readings, and how they were put together."""

    text: str
    label: str
    brackets: str
    r"""One of "()", "[]", "(]", "[)", `\{\}`; `\cup` of a union, "" of a bare list."""
    items: tuple["Reading", ...]


Reading = Quantity | Relation | Collection


def read(answer: str) -> Reading:
    """The structure of one answer.

    Raises:
        Unsupported: Notation whose value nobody here can compare.
        Unreadable: Prose, several quantities, or not well-formed.
    """
    if len(answer) > MAX_ANSWER_CHARACTERS:
        raise Unreadable(f"it has {len(answer)} characters")
    text = normalized(answer)
    if not text:
        raise Unreadable("it is empty")
    unsupported = _UNSUPPORTED.search(text)
    if unsupported:
        raise Unsupported(f"{unsupported[0]} has no value to compare")
    return _read_list(_JOINING_WORD.sub(", ", text))


def _read_list(text: str) -> Reading:
    parts = split(text, (",", ";"))[0]
    if len(parts) > 1:
        items = tuple(_read_item(part) for part in parts)
        if any(isinstance(item, Quantity) and item.unit for item in items):
            raise Unreadable("it names several quantities")
        return Collection(text, "", "", items)
    return _read_item(text)


def _read_item(text: str) -> Reading:
    text = text.strip()
    labelled = _LABEL.fullmatch(text)
    if not labelled:
        return _read_unlabelled(text, text, "")
    sides = split(labelled["rest"], ("=",))[0]
    label = re.sub(r"\s+", "", labelled["label"])
    return _read_unlabelled(text, sides[-1].strip(), label)


def _read_unlabelled(text: str, body: str, label: str) -> Reading:
    operands, signs = split(body, tuple(_SIGNS))
    if signs and not label:
        values = tuple(expression(operand) for operand in operands)
        names = tuple(_SIGNS[sign] for sign in signs)
        return Relation(text, values, tuple(o.strip() for o in operands), names)
    members = split(body, (r"\cup",))[0]
    if len(members) > 1:
        items = tuple(_read_item(member) for member in members)
        return Collection(text, label, r"\cup", items)
    enclosed = _enclosed(body)
    if enclosed is not None:
        brackets, inner = enclosed
        parts = split(inner, (",", ";"))[0]
        if len(parts) > 1 or (brackets == r"\{\}" and inner.strip()):
            items = tuple(_read_item(part) for part in parts)
            return Collection(text, label, brackets, items)
        if brackets == "()":
            return _read_unlabelled(text, inner.strip(), label)
    return _read_quantity(text, body, label)


def _read_quantity(text: str, body: str, label: str) -> Reading:
    unit = ""
    measured = _UNIT.fullmatch(body)
    if measured:
        body = measured["value"]
        unit = (measured["text"] or measured["plain"]).strip().lower()
    percent = body.endswith(r"\%")
    value = expression(body.removesuffix(r"\%"))
    if isinstance(value, sympy.FiniteSet) and r"\pm" in body:
        items = tuple(
            Quantity(body, "", member, percent, unit) for member in value.args
        )
        return Collection(text, label, "", items)
    return Quantity(text, label, value, percent, unit)


def expression(text: str) -> Value:
    """The value of one expression, unevaluated where math-verify leaves it so."""
    word = _WORD.search(_ENVIRONMENT.sub("", text))
    if word:
        raise Unreadable(f"{word[0]!r} is a word")
    if _SPLIT_NUMBER.search(text):
        raise Unreadable("a space splits a number")
    try:
        value = latex2sympy(
            text.strip(),
            is_real=True,
            convert_degrees=False,
            normalization_config=None,
            conversion_config=_CONVERSION,
        )
    except (MemoryError, OverflowError, RecursionError):
        raise
    except Exception as error:
        raise Unreadable("it is not well-formed LaTeX") from error
    if not isinstance(value, Basic | MatrixBase):
        raise Unreadable("it has no value")
    if value.has(sympy.nan, sympy.zoo):
        raise Unreadable("it is undefined")
    return value


def split(text: str, separators: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The parts of `text` between separators outside all brackets, and those."""
    parts, found, depth = [""], [], 0
    for token in _TOKENS.findall(text):
        if token in _OPENING or token == "{":
            depth += 1
        elif token in (")", "]", r"\}", "}"):
            depth -= 1
        if depth == 0 and token in separators:
            found.append(token)
            parts.append("")
        else:
            parts[-1] += token
    if depth != 0:
        raise Unreadable("its brackets do not match")
    return parts, found


def _enclosed(text: str) -> tuple[str, str] | None:
    """The outermost bracket pair and what it holds, where one pair holds it all."""
    tokens = _TOKENS.findall(text)
    if len(tokens) < 2 or tokens[0] not in _OPENING:
        return None
    depth = 0
    for place, token in enumerate(tokens):
        if token in _OPENING or token == "{":
            depth += 1
        elif token in (")", "]", r"\}", "}"):
            depth -= 1
        if depth == 0 and place < len(tokens) - 1:
            return None
    return tokens[0] + tokens[-1], "".join(tokens[1:-1])
