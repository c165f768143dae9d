"""Where brackets open and close among tokens."""

from collections.abc import Callable, Sequence

from accredit.verification.arithmetic import Unreadable
from accredit.verification.tokens import Token

_OPENING = ("(", "[", r"\{", "{", r"\lfloor", r"\lceil", r"\langle", r"\begin")
_ENDING = (")", "]", r"\}", "}", r"\rfloor", r"\rceil", r"\rangle", r"\end")
CLOSING = {"(": (")", "]"), "[": ("]", ")"), r"\{": (r"\}",), "{": ("}",)}
CLOSING[r"\langle"] = (r"\rangle",)


def depth_change(token: Token) -> int:
    """1 for an opening bracket, -1 for a closing one, else 0."""
    return (token.text in _OPENING) - (token.text in _ENDING)


def split(
    tokens: Sequence[Token], separates: Callable[[Token], bool]
) -> tuple[list[list[Token]], list[Token]]:
    """The parts between separators outside all brackets, and those separators.

    Raises:
        Unreadable: The brackets do not match.
    """
    parts: list[list[Token]] = [[]]
    found: list[Token] = []
    depth = 0
    for token in tokens:
        depth += depth_change(token)
        if depth < 0:
            raise Unreadable("its brackets do not match")
        if depth == 0 and separates(token):
            found.append(token)
            parts.append([])
        else:
            parts[-1].append(token)
    if depth != 0:
        raise Unreadable("its brackets do not match")
    return parts, found


def enclosed(tokens: Sequence[Token]) -> tuple[Sequence[Token], str] | None:
    """What one pair of brackets around all tokens holds, and its closing bracket."""
    closing = CLOSING.get(tokens[0].text, ())
    if len(tokens) < 2 or tokens[-1].text not in closing:
        return None
    depth = 0
    for token in tokens[:-1]:
        depth += depth_change(token)
        if depth == 0:
            return None
    return tokens[1:-1], tokens[-1].text
