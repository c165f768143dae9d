r"""Where a text says what its answer is: in a box, in a block, or as a whole.

Knows text, no mathematics and no thinking. Lines that name the answer are in `labels`.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Answer(NamedTuple):
    """What a text gives as its answer."""

    text: str
    is_whole: bool
    """Whether nothing that may follow can belong to it: the box is closed."""


Finder = Callable[[str], Answer | None]

_BOX = r"\\(?:boxed|fbox|framebox)"
_BOX_TOKENS = re.compile(
    rf"(?P<box>{_BOX}\s*(?:\[[^\]{{}}\n]{{0,40}}\]\s*){{0,2}}\{{)"
    # TeX boxes one token where there is no brace; words of prose are not meant.
    rf"|{_BOX}(?:[ \t]+|(?=\d))(?P<bare>[A-Za-z](?=\s*(?:\$|\\\)|\.?\s*\Z|\n))"
    r"|(?:\\[A-Za-z]+(?:\{[^{}]{0,200}\}){0,2}|[-+(]?[\d.][^\s$\\{}]*))"
    r"|(?P<void>\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{\s*\}|\\[,;:! ])"
    r"|\\.|\{|\}",
    re.DOTALL,
)
_BLANK = " \t\r\n$~"


def find_box(text: str) -> Answer | None:
    r"""The last complete `\boxed{}`, `\fbox{}` or `\framebox{}` that holds something.

    Braces are balanced and `\{`, `\}` are not braces; of nested boxes the innermost
    counts; `\boxed 5` is a box. Where all are empty, the answer is empty and nothing
    is said. One pass, so that a text of unclosed boxes costs no more than any other.
    """
    best: tuple[int, int, bool] | None = None
    is_empty = False
    for start, end, holds, is_whole in _boxes(text):
        is_empty |= not holds
        if holds and (best is None or start > best[0]):
            best = (start, end, is_whole)
    if best is None:
        return Answer("", is_whole=False) if is_empty else None
    return Answer(text[best[0] : best[1]].strip(), best[2])


def _boxes(text: str) -> Iterator[tuple[int, int, bool, bool]]:
    """Content from, to, whether it holds something, and whether it is closed."""
    open_braces: list[tuple[bool, int]] = []
    seen, last_held = 0, -1
    for token in _BOX_TOKENS.finditer(text):
        if text[seen : token.start()].strip(_BLANK):
            last_held = token.start()
        seen = token.end()
        if token["bare"]:
            last_held, start = seen, token.start("bare")
            end = start + len(token["bare"].rstrip(".,;"))
            yield start, end, True, seen < len(text)
        elif token["box"] or token[0] == "{":
            open_braces.append((bool(token["box"]), seen))
            last_held = last_held if token["box"] else seen
        elif token[0] == "}":
            if open_braces:
                is_box, start = open_braces.pop()
                if is_box:
                    yield start, token.start(), last_held >= start, True
        elif not token["void"]:
            last_held = seen


def find_block(text: str, tag: str) -> Answer | None:
    """The last complete `<tag>...</tag>` that holds something, less a box around it.

    Of nested blocks the innermost counts.
    """
    block = last_block(text, tag)
    if block is None:
        return None
    content = text[block[0] : block[1]]
    box = find_box(content)
    return Answer(box.text if box and box.text else content.strip(), is_whole=True)


def last_block(text: str, tag: str) -> tuple[int, int] | None:
    """Where the content of that block begins and ends."""
    open_tags: list[int] = []
    best: tuple[int, int] | None = None
    for token in re.finditer(rf"<(/?){re.escape(tag)}>", text):
        if not token[1]:
            open_tags.append(token.end())
        elif open_tags:
            start, end = open_tags.pop(), token.start()
            if (best is None or start > best[0]) and text[start:end].strip():
                best = (start, end)
    return best
