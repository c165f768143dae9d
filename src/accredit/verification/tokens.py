r"""An answer's text as tokens. No rewrite here drops a sign it does not understand.

Delimiters, styles, spacing and wrappers are notation without meaning and go; every
other character becomes a token, known or not, so that a later stage can refuse it.
Standard library only: parent and workers import it. What tokens are worth is
`expressions`' business.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from accredit.text import without_lone_surrogates
from accredit.verification.names import factors
from accredit.verification.signs import SYNONYMS, written_out

MAX_ANSWER_CHARACTERS = 2000
"""Longer texts are no answers, and are compared character by character."""

_JOIN = "\x1f"
"""Between the groups of a number whose separator leaves no doubt: `1{,}000`."""

_EMPHASIS = re.compile(r"(?<!\S)(\*\*|__|`)(?=\S)(.+?)(?<=\S)\1(?!\w)", re.DOTALL)
_ANNOUNCED = re.compile(
    r"^(?:the\s+)?(?:final\s+)?answer\b(?:\s+is\b)?\s*:?\s*(?=\S)",
    re.IGNORECASE,
)
_HALF_DAY = re.compile(r"(?<=\d)\s*([ap])\.\s?m\b\.?", re.IGNORECASE)
_THOUSANDS_COMMA = re.compile(r"(?<=\d)\s*(?:\{\s*,\s*\}|,\s*\\!)\s*(?=\d{3})")
_THIN_SPACE = re.compile(r"(?<=\d)\\[,!]\s*(?=\d{3}(?!\d))")
_DELIMITERS = re.compile(r"(?<!\\)\\[()\[\]]|(?<!\\)\$")
_ENVIRONMENTS = re.compile(r"\\(?:begin|end)\s*\{(?:math|displaymath|equation\*?)\}")
_TEXT = (
    r"\\(?:text(?:bf|it|rm|sf|tt|normal|sc)?|[mh]box|operatorname\*?|math(?:rm|sf|tt))"
)
_STYLE = r"\\(?:math(?:bf|it|normal)|boldsymbol|bm|boxed|fbox|displaystyle\s*)"
_TOKEN = re.compile(
    r"(?P<space>\s+|~|\\[,;:! ]|\\(?:q?quad|(?:thin|med|thick)space(?![a-zA-Z])))"
    rf"|(?P<text>{_TEXT})\s*\{{|(?P<style>{_STYLE})\s*(?=\{{)"
    r"|(?P<drop>\\(?:left|right)(?![a-zA-Z])\s*\.?|"
    r"\\(?:middle|[bB]igg?[lrm]?|displaystyle|textstyle|limits)(?![a-zA-Z]))"
    rf"|(?P<num>\d+\.(?=\s*\\overline)|\d+(?:{_JOIN}\d{{3}})*(?:\.\d+)?(?P<power>[eE][+-]?\d+(?![\w.]))?|\.\d+)"
    r"|(?P<word>[^\W\d_]+)"
    r"|(?P<cmd>\\[a-zA-Z]+|\\.|\\$)"
    r"|(?P<sym>\.\.\.|<=|>=|!=|\*\*|.)",
    re.DOTALL,
)


class Kind(StrEnum):
    """What a token is."""

    NUMBER = "number"
    WORD = "word"
    """A run of letters, as in `sin`, `ab` or `Monday`."""
    TEXT = "text"
    r"""A run of letters inside `\\text{}`: never a product."""
    COMMAND = "command"
    SIGN = "sign"


@dataclass(frozen=True)
class Token:
    """One token; `spaced` where white space stood before it."""

    kind: Kind
    text: str
    spaced: bool = False

    @property
    def is_letters(self) -> bool:
        return self.kind in (Kind.WORD, Kind.TEXT)

    def __str__(self) -> str:
        return self.text


def tokenize(text: str) -> list[Token]:
    """The tokens of one answer, without delimiters, styles and a trailing period."""
    tokens = _scanned(_prepared(text))
    tokens = _degrees(_thousands(tokens))
    while tokens and tokens[-1].text in (".", ",", ";", ":"):
        tokens.pop()
    return tokens


def _prepared(text: str) -> str:
    text = written_out(without_lone_surrogates(text).replace(_JOIN, " ")).strip()
    text = _EMPHASIS.sub(r"\2", text)
    text = _HALF_DAY.sub(r" \1m", _ANNOUNCED.sub("", text)).strip()
    text = _THIN_SPACE.sub(_JOIN, _THOUSANDS_COMMA.sub(_JOIN, text))
    return _ENVIRONMENTS.sub(" ", _without_delimiters(text))


def _without_delimiters(text: str) -> str:
    """Dollar signs come in pairs; of an odd number the outermost one is money."""
    dollars = len(re.findall(r"(?<!\\)\$", text))
    if dollars % 2 == 0:
        return _DELIMITERS.sub(" ", text)
    if re.match(r"[-+]?\$\s*[\d.]", text):
        head, tail = text.split("$", 1)
    elif text.endswith("$"):
        head, tail = text[:-1], ""
    else:
        return _DELIMITERS.sub(" ", text)
    return _DELIMITERS.sub(" ", head) + r"\$" + _DELIMITERS.sub(" ", tail)


def _scanned(text: str) -> list[Token]:
    tokens: list[Token] = []
    open_braces: list[str] = []
    """Of each open brace, what opened it: a text, a style or the brace itself."""
    cursor, spaced, opener = 0, False, "{"
    while cursor < len(text):
        found = _TOKEN.match(text, cursor)
        assert found is not None
        cursor = found.end()
        in_text = "text" in open_braces
        if found["space"]:
            spaced = True
        elif found["text"]:
            open_braces.append("text")
        elif found["style"]:
            opener = "style"
        elif found["drop"]:
            pass
        elif found[0] == "{":
            open_braces.append(opener)
            if opener == "{":
                tokens.append(Token(Kind.SIGN, "{", spaced))
            opener = "{"
        elif found[0] == "}" and open_braces and open_braces[-1] != "{":
            open_braces.pop()
        else:
            if found[0] == "}" and open_braces:
                open_braces.pop()
            tokens += _token(found, spaced, in_text)
            spaced = False
    return tokens


def _token(found: re.Match[str], spaced: bool, in_text: bool) -> list[Token]:
    kind = Kind(
        {"num": "number", "word": "word", "cmd": "command", "sym": "sign"}[
            str(found.lastgroup if found.lastgroup != "power" else "num")
        ]
    )
    if kind is Kind.NUMBER:
        return _number(found, spaced)
    if kind is Kind.WORD and in_text:
        return [Token(Kind.TEXT, found[0], spaced)]
    joined = re.fullmatch(r"(or|and)([A-Z])", found[0])
    if joined:
        return [
            Token(Kind.WORD, joined[1], spaced),
            Token(Kind.WORD, joined[2], True),
        ]
    text = SYNONYMS.get(found[0], found[0])
    if text.startswith("\\") and text not in (r"\$", r"\{", r"\}", "\\\\"):
        return [Token(Kind.COMMAND, text, spaced)]
    return [Token(kind if kind is Kind.WORD else Kind.SIGN, text, spaced)]


def _number(found: re.Match[str], spaced: bool) -> list[Token]:
    digits, power = found[0], found["power"]
    if power is None:
        return [Token(Kind.NUMBER, digits.replace(_JOIN, ""), spaced)]
    mantissa = digits[: -len(power)]
    scientific = (
        power[0] == "E"
        or "." in mantissa
        or mantissa == "1"
        or len(power.lstrip("eE+-")) > 1
    )
    if scientific:
        return [Token(Kind.NUMBER, digits.replace(_JOIN, ""), spaced)]
    # 3e-2 is three times Euler's number less two.
    pieces = [Token(Kind.NUMBER, mantissa, spaced), Token(Kind.WORD, "e")]
    if power[1] in "+-":
        pieces.append(Token(Kind.SIGN, power[1]))
    return [*pieces, Token(Kind.NUMBER, power.lstrip("eE+-"))]


def _thousands(tokens: list[Token]) -> list[Token]:
    """Joins `115,000` and `1 000`; `(2,251,252)` has three parts."""
    joined: list[Token] = []
    depth = place = 0
    while place < len(tokens):
        depth += tokens[place].text in ("(", "[", r"\{")
        depth -= tokens[place].text in (")", "]", r"\}")
        run = _run(tokens, place)
        groups = [token.text for token in run if token.text != ","]
        commas = len(groups) < len(run)
        if _is_grouped(groups) and not (commas and depth > 0):
            joined.append(replace(run[0], text="".join(groups)))
        else:
            joined += run
        place += len(run)
    return joined


def _run(tokens: list[Token], start: int) -> list[Token]:
    """Numbers that only commas, or only spaces, divide."""
    end = start + 1
    if tokens[start].kind is not Kind.NUMBER:
        return tokens[start:end]
    following = tokens[end : end + 2]
    if [token.kind is Kind.NUMBER for token in following[:1]] == [True]:
        while end < len(tokens) and tokens[end].kind is Kind.NUMBER:
            end += 1
        return tokens[start:end]
    while (
        end + 1 < len(tokens)
        and tokens[end].text == ","
        and tokens[end + 1].kind is Kind.NUMBER
        and not tokens[end + 1].spaced
    ):
        end += 2
    return tokens[start:end]


def _is_grouped(groups: list[str]) -> bool:
    return (
        len(groups) > 1
        and bool(re.fullmatch(r"[1-9]\d{0,2}", groups[0]))
        and all(re.fullmatch(r"\d{3}", group) for group in groups[1:-1])
        and bool(re.fullmatch(r"\d{3}(?:\.\d+)?", groups[-1]))
    )


def _degrees(tokens: list[Token]) -> list[Token]:
    r"""`^\circ` and `^{\circ}` as the one sign °."""
    signs: list[Token] = []
    for token in tokens:
        signs.append(token)
        tail = [sign.text for sign in signs[-4:]]
        for shape in (["^", r"\circ"], ["^", "{", r"\circ", "}"], ["^", "°"]):
            if tail[-len(shape) :] == shape:
                first = signs[-len(shape)]
                signs[-len(shape) :] = [Token(Kind.SIGN, "°", first.spaced)]
    return signs


def folded(token: Token) -> str:
    """A word without its case; names and products keep theirs: AB, ABC, xy."""
    if token.is_letters and factors(token.text.lower(), alone=True) is None:
        return token.text.casefold()
    return token.text


def spelled(tokens: Sequence[Token]) -> str:
    """The tokens as one text, which two answers share where they are written alike.

    Spaces count between two words and between two numbers only: 4 5 is not 45.
    """
    pieces: list[str] = []
    tokens = _without_lone_braces(tokens)
    for place, token in enumerate(tokens):
        before = tokens[place - 1] if place else None
        if before is not None and (
            (before.is_letters and token.is_letters)
            or (before.kind is Kind.NUMBER is token.kind)
            or (before.kind is Kind.COMMAND and token.is_letters)
        ):
            pieces.append(" ")
        pieces.append(folded(token))
    return "".join(pieces)


def _without_lone_braces(tokens: Sequence[Token]) -> list[Token]:
    r"""`x^{2}` as `x^2`: braces around one sign say nothing.

    Those around more do: `\frac{1}{23}` is not `\frac{1}23`.
    """
    kept: list[Token] = []
    for token in tokens:
        closes = token.text == "}" and len(kept) > 1 and kept[-2].text == "{"
        if closes and (len(kept[-1].text) == 1 or kept[-1].kind is Kind.COMMAND):
            del kept[-2]
        else:
            kept.append(token)
    return kept


def spelling(text: str) -> str:
    """`spelled` of a text."""
    return spelled(tokenize(text))
