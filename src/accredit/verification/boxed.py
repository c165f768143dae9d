"""Where a completion says what its answer is. Knows text, no mathematics.

Each function is a policy a recipe can name; `EXTRACTIONS` lists them.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

Extraction = Callable[[str], str | None]

_BOX_TOKENS = re.compile(r"(?P<box>\\(?:boxed|fbox)\s*\{)|\\.|\{|\}", re.DOTALL)
_ANSWER_LABEL = re.compile(r"\banswer\b(?:\s+is\b)?\s*(?:\*\*)?\s*:?", re.IGNORECASE)


def last_box(text: str) -> str | None:
    r"""The content of the last complete `\boxed{}` or `\fbox{}`; None without one.

    Braces are balanced and `\{`, `\}` are not braces. Of nested boxes the innermost
    counts. One pass, so that a text of unclosed boxes costs no more than any other.
    """
    open_braces: list[tuple[bool, int]] = []
    best: tuple[int, int] | None = None
    for token in _BOX_TOKENS.finditer(text):
        if token["box"] or token[0] == "{":
            open_braces.append((bool(token["box"]), token.end()))
        elif token[0] == "}" and open_braces:
            is_box, start = open_braces.pop()
            if is_box and (best is None or start > best[0]):
                best = (start, token.start())
    return None if best is None else text[best[0] : best[1]].strip()


def box_or_label(text: str) -> str | None:
    """The last box, else what follows the last "answer:" or "answer is" on its line."""
    box = last_box(text)
    if box is not None:
        return box
    labels = list(_ANSWER_LABEL.finditer(text))
    if not labels:
        return None
    line = text[labels[-1].end() :].lstrip().partition("\n")[0].strip()
    return line or None


def box_or_text(text: str) -> str | None:
    """The last box, else the whole text without surrounding whitespace."""
    box = last_box(text)
    return text.strip() if box is None else box


EXTRACTIONS: Mapping[str, Extraction] = MappingProxyType(
    {"box": last_box, "box_or_label": box_or_label, "box_or_text": box_or_text}
)
