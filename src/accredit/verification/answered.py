"""The answer of a completion: one definition for verifier, environment and gold.

What a model thinks, up to the last closing tag of its thinking, is no answer; where
the thinking has not ended there is none. Of the rest an `AnswerReader` finds what is
handed in. A completion that goes on has answered once that is whole: it is judged where
it is stopped, and never valued by a critic, since nothing that could follow is unknown.
Knows text.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from accredit.protocols import Verifier
from accredit.types import Problem, Rollout, Verdict
from accredit.verification.blocks import Answer, Finder, find_block
from accredit.verification.boxed import FINDERS

THINKING_OPENS, THINKING_CLOSES = "<think>", "</think>"
TAIL = 32
"""Last tokens of a prompt, among which an opening tag stands that is still open."""

HasAnswer = Callable[[Problem, str], bool]


@dataclass(frozen=True)
class AnswerReader:
    """Reads the answer off an assistant's turn, its thinking included."""

    find: Finder
    """Where the answer stands in what is behind the thinking."""

    def found(self, turn: str) -> Answer | None:
        """The answer, and whether it is whole; None where none is given."""
        handed_in = after_thinking(turn)
        return None if handed_in is None else self.find(handed_in)

    def answer(self, turn: str) -> str | None:
        """An `Extraction`: what a verifier compares with gold."""
        found = self.found(turn)
        return None if found is None else found.text

    def has_answer(self, problem: Problem, turn: str) -> bool:
        """A `HasAnswer`: whether the turn, which may go on, has said it whole."""
        found = self.found(turn)
        return found is not None and found.is_whole and bool(found.text)


def answer_reader(answer_in: str = "box", answer_tag: str = "") -> AnswerReader:
    """A reader of the block of a tag, or where none is named, of the rule's places."""
    if answer_tag:
        return AnswerReader(partial(find_block, tag=answer_tag))
    return AnswerReader(FINDERS[answer_in])


def after_thinking(turn: str) -> str | None:
    """What stands behind the thinking part; None where that has not ended."""
    thought, closing, answer = turn.rpartition(THINKING_CLOSES)
    if closing:
        return None if THINKING_OPENS in answer else answer
    return None if THINKING_OPENS in thought + answer else answer


def opens_thinking(prompt: str) -> bool:
    """Whether what follows the text is thought: it ends with the opening tag."""
    return prompt.rstrip().endswith(THINKING_OPENS)


@dataclass(frozen=True)
class Turns:
    """Completions as the turns they belong to: what the prompt opened, then the text.

    A template of a thinking model writes the opening tag itself, so that no completion
    holds it.
    """

    decode: Callable[[Sequence[Sequence[int]]], list[str]]
    """Completions as text; see `tasks.rendering.decoder`."""

    def opening(self, prompt_ids: Sequence[int]) -> str:
        """What the prompt has written of the answer's turn already."""
        (tail,) = self.decode([prompt_ids[-TAIL:]])
        return THINKING_OPENS if opens_thinking(tail) else ""

    def read(self, prompt_ids: Sequence[int], written: Sequence[int]) -> str:
        """One completion as its turn."""
        (text,) = self.decode([written])
        return self.opening(prompt_ids) + text


@dataclass(frozen=True)
class TurnVerifier:
    """Shows a verifier that reads answers the whole turn of each completion."""

    inner: Verifier
    turns: Turns

    def verify(self, items: Sequence[tuple[Problem, str, Rollout]]) -> list[Verdict]:
        """One verdict an item, in order."""
        opening = self.turns.opening
        return self.inner.verify(
            [
                (problem, opening(rollout.prompt.token_ids) + text, rollout)
                for problem, text, rollout in items
            ]
        )

    def close(self) -> None:
        """Closes the inner one."""
        self.inner.close()
