r"""What stands before an equals sign and only names the answer: `x`, `f(x)`, `|AB|`.

`x+z` and `2x` are no labels: `x+z=1` is an equation, and worth more than its 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from accredit.verification.brackets import depth_change, enclosed, split
from accredit.verification.names import CONSTANTS, FUNCTIONS, GREEK
from accredit.verification.tokens import Kind, Token, spelled

_MARKS = (r"\overline", r"\bar", r"\vec", r"\hat", r"\angle", r"\triangle")


@dataclass(frozen=True)
class Label:
    """A name as it was spelled, and the letters a function is given."""

    text: str
    letters: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    """The names in a tuple of them."""


def label(tokens: Sequence[Token]) -> Label | None:
    """The label that all of the tokens are; None where they are none."""
    if not tokens or len(tokens) > 40:
        return None
    inside = enclosed(tokens)
    if inside is not None:
        parts = split(inside[0], lambda token: token.text in (",", ";"))[0]
        plain = tokens[0].text == "(" and len(parts) > 1
        names = [name.text for name in map(label, parts) if name is not None]
        if not plain or len(names) < len(parts):
            return None
        return Label(spelled(tokens), parts=tuple(names))
    ratio = split(tokens, lambda token: token.text in (":", "/"))[0]
    if len(ratio) > 1 or tokens[0].text == r"\frac":
        parts = ratio if len(ratio) > 1 else _fraction(tokens)
        named = len(parts) == 2 and all(label(part) is not None for part in parts)
        return Label(spelled(tokens)) if named else None
    if tokens[0].text == "|" and tokens[-1].text == "|":
        return Label(spelled(tokens)) if label(tokens[1:-1]) else None
    if _is_phrase(tokens):
        return Label(spelled(tokens))
    return _name(tokens)


def _fraction(tokens: Sequence[Token]) -> list[Sequence[Token]]:
    parts: list[Sequence[Token]] = []
    start, depth = 1, 0
    for place, token in enumerate(tokens[1:], start=1):
        depth += depth_change(token)
        if depth == 0:
            inside = enclosed(tokens[start : place + 1])
            parts.append(inside[0] if inside is not None else [])
            start = place + 1
    return parts


def _is_phrase(tokens: Sequence[Token]) -> bool:
    """Words of a language, such as `Area` or `number of ways`."""
    words = [token.text for token in tokens if token.is_letters]
    known = FUNCTIONS | CONSTANTS | GREEK
    return (
        len(words) == len(tokens)
        and any(len(word) > 2 for word in words)
        and not known.intersection(words)
    )


def _name(tokens: Sequence[Token]) -> Label | None:
    """One letter or a run of capitals with its index and its arguments."""
    if [token.text for token in tokens[:2]] == ["m", r"\angle"]:
        return _name(tokens[1:])
    place = 1 if tokens[0].text in _MARKS else 0
    if place and len(tokens) > 3 and tokens[1].text == "{" and tokens[-1].text == "}":
        return Label(spelled(tokens)) if label(tokens[2:-1]) else None
    if place >= len(tokens):
        return None
    first = tokens[place]
    run = first.text
    greek = first.kind is Kind.COMMAND and run[1:] in GREEK
    letter = first.is_letters and (len(run) == 1 or run.isupper())
    if not (greek or letter) or run in ("e", "i"):
        return None
    rest = list(tokens[place + 1 :])
    if rest[:1] and rest[0].text == "_":
        rest = rest[_index_length(rest) :]
    if rest[:1] and rest[0].text == "'":
        rest = rest[1:]
    if not rest:
        return Label(spelled(tokens))
    inside = enclosed(rest) if rest[0].text == "(" else None
    if inside is None:
        return None
    parts = split(inside[0], lambda token: token.text == ",")[0]
    plain = all(len(p) == 1 and p[0].is_letters for p in parts)
    letters = tuple(part[0].text for part in parts) if plain else ()
    return Label(spelled(tokens), letters)


def _index_length(tokens: Sequence[Token]) -> int:
    if len(tokens) < 2 or tokens[1].text != "{":
        return 2
    depth = 0
    for place, token in enumerate(tokens[1:], start=1):
        depth += depth_change(token)
        if depth == 0:
            return place + 1
    return len(tokens)
