"""One spelling for one answer: rewrites of notation that never change a value.

Knows LaTeX as it is written in answers; standard library only, since killable workers
import it. What two normalised answers are worth is `equivalence`'s business.
"""

import re

from accredit.text import without_lone_surrogates

MAX_ANSWER_CHARACTERS = 2000
MAX_DEPTH = 50
"""Longer texts are no answers; the rewrites here are quadratic in the worst case."""

_UNICODE = {
    "−": "-",
    "﹣": "-",
    "×": r"\times ",
    "·": r"\cdot ",
    "⋅": r"\cdot ",
    "÷": "/",
    "⁄": "/",
    "≤": r"\leq ",
    "≥": r"\geq ",
    "≠": r"\neq ",
    "π": r"\pi ",
    "∞": r"\infty ",
    "∪": r"\cup ",
    "∈": r"\in ",
    "∅": r"\emptyset ",
    "±": r"\pm ",
    "√": r"\sqrt ",
    "°": r"^\circ ",
    "²": "^{2}",
    "³": "^{3}",
    "\u00a0": " ",
    "\u2009": r"\,",
    "\u202f": r"\,",
    "\ufeff": "",
    "\u200b": "",
}
_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_TRANSLATION = {**_FULL_WIDTH, **{ord(sign): to for sign, to in _UNICODE.items()}}

_EMPHASIS = re.compile(r"(?<!\S)(\*\*|__|`)(?=\S)(.+?)(?<=\S)\1(?!\w)", re.DOTALL)
_LABEL = re.compile(
    r"^(?:the\s+)?(?:final\s+)?answer\b(?:\s+is\b)?\s*:?\s*(?=\S)",
    re.IGNORECASE,
)
_REWRITES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\begin\{(?:math|displaymath|equation\*?)\}", ""),
        (r"\\end\{(?:math|displaymath|equation\*?)\}", ""),
        (r"\\\$|\$|(?<!\\)\\[()]|(?<!\\)\\[\[\]]", ""),
        (r"\{,\}", ","),
        (r"\\!", ""),
        (r"(?<!\\)\\[,;: ]|~|\\(?:q?quad|(?:thin|med|thick)space)(?![a-zA-Z])", " "),
        (r"\\(?:left|right|[bB]igg?[lr]?)(?![a-zA-Z])\.?", ""),
        (r"\\(?:displaystyle|textstyle|limits)(?![a-zA-Z])", ""),
        (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
        (r"\\(?:leqslant|le)(?![a-zA-Z])", r"\\leq"),
        (r"\\(?:geqslant|ge)(?![a-zA-Z])", r"\\geq"),
        (r"\\ne(?![a-zA-Z])", r"\\neq"),
        (r"\\lt(?![a-zA-Z])", "<"),
        (r"\\gt(?![a-zA-Z])", ">"),
        (r"\\varnothing(?![a-zA-Z])", r"\\emptyset"),
        (r"\\lbrace(?![a-zA-Z])", r"\\{"),
        (r"\\rbrace(?![a-zA-Z])", r"\\}"),
        (r"\^\s*\{?\s*\\circ\s*\}?|\\degree(?![a-zA-Z])", ""),
        (r"(?<!\\)%", r"\\%"),
        (r"(?<![\w)])–(?=\s*[\d\\])", "-"),
        (r"^(-?\d+(?:\.\d+)?)[eE]\+?(-?\d+)$", r"\1\\cdot 10^{\2}"),
        (r"(?<=[\w)}])\*\*(?=[\w({-])", "^"),
        (
            r"(?<![\\a-zA-Z])(arc(?:sin|cos|tan)|sin|cos|tan|cot|sec|csc|log|ln|exp|"
            r"sqrt|pi|infty|max|min)(?![a-zA-Z])",
            r"\\\1",
        ),
    )
)
_WRAPPERS = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:rm|bf|it|sf|tt|normal)|mbox|"
    r"operatorname)\s*\{([^{}]*)\}"
)
_TRAILING_UNIT = re.compile(
    r"(?<=[\d}])(?:\s|\\[ ,;:!]|~)*\\(?:text|mathrm|mbox)\s*"
    r"\{\s*(?!if|for|or|and|when|where|otherwise)([a-zA-Z]+(?: [a-zA-Z]+)?)\s*\}"
    r"(?:\^\{?[23]\}?)?\s*\$?\s*\.?$"
)
_SPACED_THOUSANDS = re.compile(r"(?<!\d)\d{1,3}(?:(?:\\,|\\ |\\!|\{,\})\d{3})+(?!\d)")
_THOUSANDS = re.compile(r"(?<![\d,.])[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?(?![\d.]*\d|,\d)")
_BRACKETS = re.compile(r"\\\{|\\\}|[()\[\]]")
_ARGUMENT_OF = re.compile(r"\\(?P<macro>frac|sqrt)(?![a-zA-Z])\s*")
_EXPONENT = re.compile(r"\^\s*(-?\d+|-?[a-zA-Z](?![a-zA-Z])|\([^()]*\)|\\pi\b)")
_LOOSE_SPACE = re.compile(r"(?<!\d)\s+|\s+(?!\d)")


def thousands_joined(text: str) -> str:
    r"""`115,000` as `115000`, leaving lists and tuples alone.

    A comma separates thousands only where every group after it has three digits, the
    number does not begin with 0, and no bracket is open: `(2,251,252)` has three parts.
    """
    pieces: list[str] = []
    depth = cursor = 0
    for bracket in _BRACKETS.finditer(text):
        pieces.append(_joined_at(depth, text[cursor : bracket.start()]))
        pieces.append(bracket[0])
        depth += 1 if bracket[0] in ("(", "[", r"\{") else -1
        cursor = bracket.end()
    pieces.append(_joined_at(depth, text[cursor:]))
    return "".join(pieces)


def _joined_at(depth: int, piece: str) -> str:
    if depth > 0:
        return piece
    return _THOUSANDS.sub(lambda number: number[0].replace(",", ""), piece)


def normalized(text: str) -> str:
    r"""`text` in one spelling: same value, fewer ways to write it.

    Undone are Markdown emphasis, an "answer:" label, `$` and other delimiters, spacing
    commands, `\text{}` wrappers, Unicode signs (U+2212 is a minus), degree signs,
    thousands separators, a trailing period, and missing braces (`\frac12`, `\sqrt(2)`,
    `x^n`). Percent signs stay, as `\%`.
    """
    text = without_lone_surrogates(text).translate(_TRANSLATION).strip()
    text = _EMPHASIS.sub(r"\2", text)
    text = _LABEL.sub("", text).strip()
    text = _TRAILING_UNIT.sub(r" \\unit{\1}", text)
    text = _SPACED_THOUSANDS.sub(lambda number: re.sub(r"\D", "", number[0]), text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    while _WRAPPERS.search(text):
        text = _WRAPPERS.sub(r" \1 ", text)
    text = re.sub(r"\s+", " ", text).strip().rstrip(".,;:").strip()
    return _EXPONENT.sub(r"^{\1}", _braced_arguments(thousands_joined(text)))


def _braced_arguments(text: str, depth: int = 0) -> str:
    r"""Braces around the arguments of `\frac` and `\sqrt`, as TeX would read them.

    What is nested deeper than anybody writes stays as it is: text is untrusted, and a
    recursion must not be as deep as a completion likes.
    """
    if depth > MAX_DEPTH:
        return text
    pieces: list[str] = []
    cursor = 0
    while macro := _ARGUMENT_OF.search(text, cursor):
        pieces.append(text[cursor : macro.start()] + "\\" + macro["macro"])
        cursor = macro.end()
        if macro["macro"] == "sqrt" and text.startswith("[", cursor):
            end = text.find("]", cursor) + 1 or len(text)
            pieces.append(text[cursor:end])
            cursor = end
        for _ in range(2 if macro["macro"] == "frac" else 1):
            argument, cursor = _argument(text, cursor)
            pieces.append("{" + _braced_arguments(argument, depth + 1) + "}")
    return "".join(pieces) + text[cursor:]


def _argument(text: str, start: int) -> tuple[str, int]:
    """The macro argument at `start`, without its braces, and where it ends."""
    while start < len(text) and text[start] == " ":
        start += 1
    if start >= len(text):
        return "", start
    opening = text[start]
    closing = {"{": "}", "(": ")"}.get(opening)
    if closing is not None:
        depth = 0
        for end in range(start, len(text)):
            depth += (text[end] == opening) - (text[end] == closing)
            if depth == 0:
                return text[start + 1 : end], end + 1
        return text[start + 1 :], len(text)
    command = re.match(r"\\[a-zA-Z]+", text[start:])
    if command:
        return command[0], start + command.end()
    return opening, start + 1


def spelling(text: str) -> str:
    """What two answers written alike share: `normalized` without its spaces.

    A space between digits stays, because 4 5 is not 45.
    """
    return _LOOSE_SPACE.sub("", normalized(text))
