"""A value head that is asked about single prefixes: the `PrefixCritic` over one.

An attempt is valued where it ends, and a lesson is one prefix with one target. What is
not in the policy's view, as a reference, it does not read.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from accredit.critics.asking import unrewarded
from accredit.critics.value_head.critic import ValueHeadCritic
from accredit.models.loading import context_tokens
from accredit.randomness import keyed_seed
from accredit.records import CriticUpdate, Valuation, ValueTargets, nothing_fitted
from accredit.types import Attempt, Batch, ValuedAttempt

FILLER = 0
"""Token behind a prefix that is taught: index t holds the target of what is before it.
The critic never reads it."""


@dataclass(frozen=True, eq=False)
class AskedHead:
    """A `PrefixCritic` whose weights are a critic's of whole rollouts."""

    critic: ValueHeadCritic

    def __post_init__(self) -> None:
        if self.critic.config.template:
            raise ValueError(
                "a value head that is asked about prefixes reads the policy's prompt, "
                f"got algorithm.critic.template = {self.critic.config.template!r}; "
                "leave it out"
            )
        self.critic.is_measured = True

    @property
    def learning_rate(self) -> float:
        """That it begins with."""
        return self.critic.config.learning_rate

    def values(self, attempts: Sequence[Attempt]) -> Valuation:
        """V where each attempt ends; None where it is longer than the context."""
        short = self._short(attempts, 0)
        if not short:
            return Valuation((None,) * len(attempts))
        batch = batch_of([attempts[place] for place in short], 0)
        lengths = batch.token_mask.sum(1, keepdim=True)
        values = self.critic.values(batch, batch.rewards).gather(1, lengths)
        found = dict(zip(short, values[:, 0].tolist(), strict=True))
        return Valuation(
            tuple(found.get(place) for place in range(len(attempts))),
            self.critic.values_flops(batch),
        )

    def update(
        self, lessons: Sequence[ValuedAttempt], learning_rate: float
    ) -> CriticUpdate | None:
        """The critic's update towards all targets; what is too long is left out.

        Its displacement is exact if that is one optimizer step, else the sum of its
        steps' and so an upper bound. No step where nothing fits, None without lessons.

        Raises:
            RuntimeError: Too many steps in a row were not finite.
        """
        # Only a clip to old values, over several steps, reads the filler.
        attempts = [lesson.attempt for lesson in lessons]
        short = self._short(attempts, int(self.critic.output.compares))
        if not short:
            return nothing_fitted(len(lessons), learning_rate) if lessons else None
        batch = batch_of([attempts[place] for place in short], 1)
        ends = batch.token_mask.sum(1, keepdim=True) - 1
        nothing = torch.zeros(batch.token_ids.shape)
        targets = torch.tensor([[lessons[place].target] for place in short])
        wanted = ValueTargets(
            targets=nothing.scatter(1, ends, targets),
            weights=torch.ones_like(nothing),
            where=torch.zeros_like(batch.token_mask).scatter(1, ends, True),
        )
        self.critic.learning_rate = learning_rate
        seed = keyed_seed(0, "asked head", self.critic.num_updates)
        update = self.critic.update(batch, wanted, seed, warming_up=False)
        return replace(update, num_left_out=len(lessons) - len(short))

    def add_gradient(self, lessons: Sequence[ValuedAttempt]) -> CriticUpdate:
        """Refused.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            "a joint update needs a critic that is the policy itself, asked in words "
            "(algorithm.critic.kind = 'prompted'), got a value head, which has weights "
            "of its own; give critic and policy steps of their own"
        )

    def save(self, folder: Path) -> None:
        """Writes the critic."""
        self.critic.save(folder)

    def load(self, folder: Path) -> None:
        """Continues exactly where `save` was called.

        Raises:
            ValueError: The folder is another critic's, or lacks a part of this one.
        """
        self.critic.load(folder)

    def _short(self, attempts: Sequence[Attempt], num_more: int) -> list[int]:
        """Places of the attempts that fit the context, with so many tokens more."""
        limit = context_tokens(self.critic.trunk.module.config)
        return [
            place
            for place, attempt in enumerate(attempts)
            if limit is None or num_tokens(attempt) + num_more <= limit
        ]


def num_tokens(attempt: Attempt) -> int:
    """Of prompt and what is written."""
    return len(attempt.prompt.token_ids) + len(attempt.written)


def batch_of(attempts: Sequence[Attempt], num_fillers: int) -> Batch:
    """Prompt, what is written and fillers as rows, of which nobody knows a reward."""
    fillers = [FILLER] * num_fillers
    rows = [[*a.prompt.token_ids, *a.written, *fillers] for a in attempts]
    return replace(unrewarded(rows), prompts=tuple(a.prompt for a in attempts))
