"""Whether a completion that still goes on holds its whole answer already.

Such a completion is judged where it is stopped, and never valued by a critic: nothing
that could follow is unknown. What a model thinks, up to the last closing tag of its
thinking, is no answer. Knows text.
"""

import re
from collections.abc import Callable
from functools import partial

from accredit.types import Problem
from accredit.verification.boxed import last_box

THINKING_OPENS, THINKING_CLOSES = "<think>", "</think>"

HasAnswer = Callable[[Problem, str], bool]


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
