"""One group of AC2 by hand, and a learner that is watched.

The problem p1 is replayed up to `abcd`; a chunk has two tokens, the budget ten.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from ac2_worlds import (
    IdleLearner,
    chosen,
    one_step,
    reads,
    remembering,
    spoken_world,
    text_of,
)
from accredit.algorithms.replay import routes
from accredit.protocols import Objective
from accredit.records import PolicyUpdate
from accredit.types import Batch
from worlds import UnmovedSteps

STORED = [("p1", "abcdefabcd", 0.2)]
LINES = ["abaaaaaaaa", "ah", "ggaaaaaaaa", "ccaaaaaaaa"]
"""Stopped; stops by itself at the boundary; has its answer there; stopped."""
REWARDS = {"abcdah": 0.2, "abcdgg": 0.7}
SAYS = {"abcd": 0.5, "abcdab": 0.9, "abcdcc": None}


@contextlib.contextmanager
def cut_in_turn(places: list[int]) -> Iterator[list[int]]:
    """Slots are cut at the first of these, the second, ..., and so on again."""

    def cut(*_: object) -> int:
        places.append(places.pop(0))
        return places[-1]

    with patch.object(routes, "drawn_cut", cut):
        yield places


def stepped(
    lines: Sequence[str] = LINES,
    says=SAYS,
    rewards=REWARDS,
    *,
    ready=True,
    state=None,
    **keys,
):
    """One step with one slot; record, memory, critic and what was judged."""
    judged = []

    def reward(text):
        judged.append(text)
        return rewards[text]

    world = spoken_world(
        lambda problem, text, sibling: lines[sibling] if text else "h",
        lambda text: 0.0 if text == "h" else reward(text),
        answered=lambda problem, text: "g" in text,
    )
    critic = reads(says)
    section = {"group_size": len(lines), "audit_share": 0.0, "grid_size": 11, **keys}
    algorithm_ = chosen(critic, section.pop("name", "ac2"), **section)
    state = state or remembering(STORED, ready=["p1"] if ready else [])
    _, record, memory = one_step(algorithm_, world, state)
    return record, memory, critic, judged


def asked(critic):
    (attempts,) = critic.asked
    return [text_of(attempt.written) for attempt in attempts]


@dataclass
class WatchedLearner(IdleLearner):
    """Notes what it is asked to do, and moves as far as it is told."""

    moves: tuple[float, ...] = (0.0, 0.0)
    objectives: list[Objective] = field(default_factory=list)
    happened: list[Any] = field(default_factory=list)
    entropy_batches: list[Batch] = field(default_factory=list)

    def entropies(self, batch: Batch) -> Tensor:
        self.entropy_batches.append(batch)
        self.happened.append("entropy")
        return super().entropies(batch)

    def begin(
        self,
        batch: Batch,
        advantages: Tensor,
        objective: Objective,
        seed: int,
        *,
        measures_displacement: bool = False,
    ) -> UnmovedSteps:
        self.objectives.append(objective)
        update = super().begin(batch, advantages, objective, seed)
        return WatchedSteps(
            update.nothing, update.num_steps, True, self.moves, self.happened
        )


@dataclass
class WatchedSteps(UnmovedSteps):
    """Says that it moved as far as it was told."""

    moves: tuple[float, ...]
    happened: list[Any]
    index: int = 0

    def descend(self) -> None:
        self.happened.append(self.index)
        self.index += 1

    def result(self) -> PolicyUpdate:
        return replace(super().result(), displacements=self.moves)


def watched(**keys):
    nothing = torch.zeros(0)
    return WatchedLearner(nothing, nothing, **keys)


def lines(problem, text, sibling):
    return ["ah", "bh", "ch", "aah"][sibling % 4]


def minimised(objective):
    """Loss at the ratios 2, .5 and 9 for the advantages 1, -1 and -1."""
    ratios = torch.tensor([[2.0, 0.5, 9.0]])
    advantages = torch.tensor([[1.0, -1.0, -1.0]])
    old = torch.full((1, 3), -3.0)
    sampled = torch.ones(1, 3) > 0
    losses = objective.loss(old + ratios.log(), old, advantages, sampled)
    weights_ = objective.aggregation(torch.ones(2, 3) > 0, torch.arange(2))
    torch.testing.assert_close(weights_, torch.full((2, 3), 1 / 6))
    return losses[0].tolist()
