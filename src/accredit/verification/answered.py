"""Whether a completion that still goes on holds its whole answer already.

Such a completion is judged where it is stopped, and never valued by a critic: nothing
that could follow is unknown. What a model thinks, up to the last closing tag of its
thinking, is no answer; the opening tag is often the prompt's. Knows text.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial

from accredit.types import Problem
from accredit.verification.boxed import last_box

THINKING_OPENS, THINKING_CLOSES = "<think>", "</think>"

HasAnswer = Callable[[Problem, str], bool]


def opens_thinking(text: str) -> bool:
    """Whether what follows the text is thought: a thinking part is open at its end."""
    _, opening, thought = text.rpartition(THINKING_OPENS)
    return bool(opening) and THINKING_CLOSES not in thought


def read_with_thinking(
    prompt_ids: Sequence[int],
    written: Sequence[int],
    *,
    decode: Callable[[Sequence[Sequence[int]]], list[str]],
    decode_whole: Callable[[Sequence[int]], str],
) -> str:
    """A completion's text, behind the opening tag where the prompt has opened it.

    Where nobody thinks, it is the text that is judged, by `decode`. Elsewhere it is
    that of `decode_whole`, which keeps special tokens: the tags may be such.
    """
    text = decode_whole(written)
    if opens_thinking(decode_whole(prompt_ids)):
        return THINKING_OPENS + text
    if THINKING_OPENS in text or THINKING_CLOSES in text:
        return text
    (judged,) = decode([written])
    return judged


def after_thinking(text: str) -> str | None:
    """What stands behind the thinking part; None where that has not ended."""
    thought, closing, answer = text.rpartition(THINKING_CLOSES)
    if closing:
        return None if THINKING_OPENS in answer else answer
    return None if THINKING_OPENS in thought + answer else answer


def has_box(problem: Problem, text: str) -> bool:
    r"""Whether a complete `\boxed{}` stands behind the thinking part."""
    answer = after_thinking(text)
    return answer is not None and last_box(answer) is not None


def has_block(problem: Problem, text: str, *, tag: str) -> bool:
    """Whether a complete `<tag>...</tag>` stands behind the thinking part."""
    answer = after_thinking(text)
    if answer is None:
        return False
    name = re.escape(tag)
    opening = re.search(rf"<{name}>", answer)
    return opening is not None and f"</{tag}>" in answer[opening.end() :]


def answer_finder(tag: str) -> HasAnswer:
    """A block of that tag, or a box where no tag is named."""
    return partial(has_block, tag=tag) if tag else has_box
