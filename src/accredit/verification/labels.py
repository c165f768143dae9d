r"""Lines that name the answer: `Answer: 42`, `The final answer is $28$.`, `#### 42`.

A label opens a sentence, save for words that lead up to an answer. The word "answer"
in the middle of one says nothing. Of several labels the last counts, and one outside
of code fences before any inside. Knows text.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from accredit.verification.blocks import Answer, find_box, last_block

ANSWER_TAG = "answer"
"""Of the block that is a label too: `<answer>42</answer>`."""

_WORD = re.compile(r"(?<![a-z])answer(?![a-z])", re.IGNORECASE)
_LEAD_IN = re.compile(
    r"[\s>#*_\-•:,(]*(?:\d{1,3}[.)][\s*_]*)?(?:\b(?:so|thus|hence|therefore|then|and|"
    r"now|finally|overall|in conclusion|in summary|as a result|it follows|"
    r"this means|which means|we|i|get|have|find|see|conclude|that|the|my|our|your|"
    r"final|correct|short|numerical|numeric|required|desired|right|exact|simplified"
    r")\b[\s,:*_]*){0,10}",
    re.IGNORECASE,
)
_SENTENCE_ENDS = re.compile(r"[\n;]|[.!?][\s*_]+")
_LOOK_BACK = 160
"""Characters before the word in which its sentence must have begun."""
_NAMES = re.compile(
    r"\s*(?:\*\*|__)?[ \t]*[:=：](?!=)[ \t]*(?:\*\*|__)?"
    r"|[ \t]*(?:(?:to|for|of)[ \t][^\n.:=]{1,80}?)?[ \t]+(?:is|equals)\b"
    r"(?:[ \t]+(?:just|simply|clearly|exactly|then|indeed|thus|therefore)\b)?"
    r"(?![ \t]+(?:not|in|wrong|incorrect|correct|right|unclear|unknown|hard|easy|too|"
    r"still|also|obvious|yours|given|found|obtained)\b)[ \t]*:?"
    r"|(?P<heading>[ \t]*(?:\*\*|__)?[ \t]*\n)",
    re.IGNORECASE,
)
_HEADING = re.compile(r"[ \t]*(?:#|\*\*|__)")
_HASHES = re.compile(r"^[ \t]*####(?!#)[ \t]*(\S[^\n]*)", re.MULTILINE)
_NUMBER = re.compile(r"[-+−]?[$€£]?\s*[-+−]?\d[\d,. ]*(?:/\d+)?\s*%?")
_FENCE = re.compile(r"^[ \t]*(```|~~~)[^\n]*\n(.*?)^[ \t]*\1[ \t]*$", re.M | re.S)
_DISPLAY = re.compile(r"(?:\$\$(.+?)\$\$|\\\[(.+?)\\\])[.,]?[ \t]*(?=\n|\Z)", re.S)
_STOPS = re.compile(
    r"(?<!\b[A-Z])(?<!\b[A-Z][a-z])(?<!\b[A-Z][a-z]{2})(?:[.?]|(?<=[a-z])!)(?=\s|\Z)"
)
"""Ends of a sentence: neither initials, as in `St. Ives`, nor factorials."""
_WRAPPERS = (("**", "**"), ("__", "__"), ("`", "`"), ("$$", "$$"), ("$", "$"))
_MATH = ((r"\(", r"\)"), (r"\[", r"\]"))
_LONGEST = 4000
"""Characters that are looked at behind a label."""


class _Said(NamedTuple):
    start: int
    answer: Answer


def find_label(text: str) -> Answer | None:
    """What the last label of a text says; None without a label that says something."""
    block = last_block(text, ANSWER_TAG)
    first = 0 if block is None else block[1]
    borders = [place for found in _FENCE.finditer(text) for place in found.span()]
    fenced: list[_Said] = []
    for found in _from_the_end(text, first):
        if bisect_right(borders, found.start) % 2 == 0:
            return found.answer
        fenced.append(found)
    if block is not None:
        content = text[block[0] : block[1]]
        inner = find_label(content)
        return Answer(inner.text if inner else _plain(content), is_whole=True)
    return fenced[0].answer if fenced else None


def _from_the_end(text: str, first: int) -> Iterator[_Said]:
    """Labels from the last one to the first that begins at `first` or later."""
    hashed = _hashed(text, first)
    waiting = next(hashed, None)
    for found in _labelled(text, first):
        while waiting is not None and waiting.start > found.start:
            yield waiting
            waiting = next(hashed, None)
        yield found
    while waiting is not None:
        yield waiting
        waiting = next(hashed, None)


def _labelled(text: str, first: int) -> Iterator[_Said]:
    """Sentences and headings that name the answer, from the end."""
    for word in reversed(list(_WORD.finditer(text, first))):
        names = _NAMES.match(text, word.end())
        if names is None:
            continue
        begun = max(0, word.start() - _LOOK_BACK)
        before = text[begun : word.start()]
        ends = list(_SENTENCE_ENDS.finditer(before))
        sentence = before[ends[-1].end() :] if ends else before
        if (begun and not ends) or not _LEAD_IN.fullmatch(sentence):
            continue
        line = text[text.rfind("\n", 0, word.start()) + 1 : word.start()]
        if names["heading"] is not None and not _HEADING.match(line):
            continue
        answer = _behind(text, names.end())
        if answer is not None:
            yield _Said(word.start(), answer)


def _hashed(text: str, first: int) -> Iterator[_Said]:
    """`#### 42`, as the last line or as a number: other such lines are headings."""
    for line in reversed(list(_HASHES.finditer(text, first))):
        is_last = not text[line.end() :].strip()
        content = _plain(line[1])
        if content and (is_last or _NUMBER.fullmatch(content)):
            yield _Said(line.start(), Answer(content, text[line.end() :] != ""))


def _behind(text: str, start: int) -> Answer | None:
    """What stands behind a label: a display, a fence, or the rest of a sentence."""
    while start < len(text) and text[start] in " \t\r\n":
        start += 1
    rest = text[start : start + _LONGEST]
    fence, display = _FENCE.match(rest), _DISPLAY.match(rest)
    if fence is not None:
        found = Answer(fence[2].strip(), is_whole=True)
    elif display is not None:
        found = Answer(_plain(display[1] or display[2]), is_whole=True)
    else:
        line, ended, _ = rest.partition("\n")
        sentence = line[: _sentence_end(line)]
        is_whole = bool(ended) or len(sentence) + 1 < len(line)
        found = Answer(_plain(sentence), is_whole)
    box = find_box(found.text)
    return None if not found.text or (box and not box.text) else found


def _sentence_end(line: str) -> int:
    """Where the first sentence ends, outside of `$...$`."""
    for stop in _STOPS.finditer(line):
        if line.count("$", 0, stop.start()) % 2 == 0:
            return stop.start()
    return len(line)


def _plain(text: str) -> str:
    """Without the marks that set an answer in bold, in code or in mathematics."""
    text = text.strip()
    while True:
        before = text
        for left, right in (*_WRAPPERS, *_MATH):
            if text.startswith(left) and text.endswith(right):
                inner = text[len(left) : len(text) - len(right)]
                if len(text) > len(left + right) and left not in inner:
                    text = inner.strip()
        text = text.removesuffix(".").strip().removeprefix("**").removesuffix("**")
        text = text.strip()
        if text == before:
            return text
