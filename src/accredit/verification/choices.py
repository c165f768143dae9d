r"""Multiple choice: `E`, `(E)`, `E: text`, `\text{(D) } 12`. Knows tokens only."""

from collections.abc import Sequence
from dataclasses import dataclass

from accredit.verification.tokens import Kind, Token

_LETTERS = frozenset("ABCDEFGHIJ")
_NOUNS = frozenset(("option", "choice"))
_CONTINUING = frozenset("+-*/^_=!,;:.<>|°%&)]}")


@dataclass(frozen=True)
class Choice:
    """The letter, and the tokens of the text behind it."""

    letter: str
    rest: tuple[Token, ...] = ()


def choice(tokens: Sequence[Token]) -> Choice | None:
    """The choice that the tokens name; None where they are something else."""
    if len(tokens) > 1 and tokens[0].text.lower() in _NOUNS:
        tokens = tokens[1:]
    texts = [token.text for token in tokens[:3]]
    if texts[:1] == ["("] and texts[2:] == [")"] and _is_letter(tokens[1]):
        rest, letter = tokens[3:], tokens[1]
    elif tokens and _is_letter(tokens[0]) and len(tokens) == 1:
        return Choice(tokens[0].text)
    elif len(texts) > 1 and _is_letter(tokens[0]) and texts[1] in (")", ":", "."):
        rest, letter = tokens[2:], tokens[0]
        if not rest or (
            len(rest) == 1 and len(rest[0].text) == 1 and rest[0].is_letters
        ):
            return None
    else:
        return None
    if rest and letter.kind is not Kind.TEXT and not _starts_text(rest[0], texts):
        return None
    return Choice(letter.text, tuple(rest))


def _is_letter(token: Token) -> bool:
    return token.is_letters and token.text in _LETTERS


def _starts_text(token: Token, texts: Sequence[str]) -> bool:
    """Whether what follows a letter is its text, and not one term with it."""
    if token.text in _CONTINUING:
        return False
    separated = token.spaced or token.kind in (Kind.TEXT, Kind.NUMBER)
    return separated or texts[1:2] == [":"]


def names_another(found: Choice) -> bool:
    """Whether the text names a second letter: a choice is not made twice."""
    return any(_is_letter(token) for token in found.rest)
