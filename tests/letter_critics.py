"""Critics of single prefixes over eight letters: a table's, and a model asked in words.

No tokenizer and no chat template: a question is a mark, the budget that is left and,
where one is shown, a reference; an answer is one letter.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accredit.critics.exact import ExactCritic
from accredit.critics.prefix_configs import ExactConfig, PromptedConfig
from accredit.critics.prompted.critic import PromptedCritic
from accredit.critics.prompted.questions import Questions, template_named
from accredit.critics.value_head.asked import AskedHead
from accredit.functional.grids import grid_values
from accredit.records import CriticUpdate, Valuation
from accredit.types import CriticExample, CriticQuery

NUM_LETTERS = 8
END_OF_TURN = 7
WITHOUT, WITH = 6, 5
"""Marks of a question without a reference, and with one."""


class LetterQuestions(Questions):
    """Letter k answers value k of a grid of up to six; the last letter ends a turn."""

    def __init__(self, template: str, max_new_tokens: int, grid_size: int) -> None:
        self.template = template_named(template)
        self.stop_token_ids = frozenset({END_OF_TURN})
        self.max_new_tokens = max_new_tokens
        self.grid = tuple(grid_values(grid_size))
        self.tokenizer = None
        self.end_of_turn = (END_OF_TURN,)
        self.answers = tuple((k,) for k in range(grid_size))
        self.mark = len(self.template.stem) % NUM_LETTERS

    def context(self, query: CriticQuery, with_reference: bool) -> tuple[int, ...]:
        left = max(0, self.max_new_tokens - len(query.written)) % NUM_LETTERS
        asked = (WITHOUT, left, self.mark)
        if with_reference:
            assert query.reference is not None
            asked = (WITH, left, *query.reference, self.mark)
        return (*query.prompt.token_ids, *query.written, *asked)

    def parsed(self, ids: Sequence[int]) -> int | None:
        return ids[0] if ids and (ids[0],) in self.answers else None


def letter_critic(section: Any, max_new_tokens: int, model: Any, head: Any) -> Any:
    """The prefix critic of a section on a small model; `head` is its value head."""
    options = section.critic
    if isinstance(options, ExactConfig):
        return ExactCritic(lambda queries: [share(a.written) for a in queries])
    if not isinstance(options, PromptedConfig):
        return AskedHead(head)
    is_tied = options.weights == "tied"
    return PromptedCritic(
        model if is_tied else copy.deepcopy(model),
        LetterQuestions(options.template, max_new_tokens, section.grid_size),
        options,
        engine=None,
        grid_size=section.grid_size,
        target_rounding=section.target_rounding,
        is_tied=is_tied,
    )


def share(written: Sequence[int]) -> float:
    """Of the first letter in a text, a half where there is none."""
    return written.count(0) / len(written) if written else 0.5


@dataclass
class TableCritic:
    """Says what `value_of` says of an attempt, and remembers what it was told."""

    value_of: Callable[[CriticQuery], float | None] = lambda attempt: 0.5
    learning_rate: float = 1e-3
    displacement: float | None = 0.0
    loss: float = 0.5
    no_room: Callable[[CriticQuery], bool] = lambda attempt: False
    """Of which attempts the question does not fit."""
    flops: float = 7.0
    """Of a question."""
    happens: Callable[[], Any] = lambda: None
    """What is noted when it learns."""
    asked: list[list[CriticQuery]] = field(default_factory=list)
    taught: list[list[CriticExample]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    joint: list[list[CriticExample]] = field(default_factory=list)
    noted: list[Any] = field(default_factory=list)

    def values(self, queries: Sequence[CriticQuery]) -> Valuation:
        self.asked.append(list(queries))
        left_out = tuple(self.no_room(query) for query in queries)
        values = tuple(
            None if full else self.value_of(query)
            for query, full in zip(queries, left_out, strict=True)
        )
        return Valuation(values, self.flops * len(queries), left_out)

    def update(
        self, examples: Sequence[CriticExample], learning_rate: float
    ) -> CriticUpdate | None:
        self.taught.append(list(examples))
        self.rates.append(learning_rate)
        self.noted.append(self.happens())
        return CriticUpdate(
            (self.loss,),
            (1.0,),
            learning_rate,
            0,
            11.0,
            self.displacement,
            num_nonfinite=int(not math.isfinite(self.loss)),
        )

    def add_gradient(self, examples: Sequence[CriticExample]) -> CriticUpdate:
        self.joint.append(list(examples))
        self.noted.append(self.happens())
        return CriticUpdate((self.loss,), (), 0.0, 0, 11.0)

    def save(self, folder: Path) -> None:
        raise NotImplementedError

    def load(self, folder: Path) -> None:
        raise NotImplementedError
