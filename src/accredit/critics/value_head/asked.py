"""A value head that is asked about single prefixes: the `PrefixCritic` over one.

An attempt is valued where it ends, and an example is one prefix with one target. What
is not in the policy's view, as a reference, it does not read.
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
from accredit.types import Batch, CriticExample, CriticQuery

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

    def values(self, queries: Sequence[CriticQuery]) -> Valuation:
        """V where each attempt ends; None where it is longer than the context."""
        short = self._short(queries, 0)
        if not short:
            return Valuation((None,) * len(queries))
        batch = batch_of([queries[place] for place in short], 0)
        lengths = batch.token_mask.sum(1, keepdim=True)
        values = self.critic.values(batch, batch.rewards).gather(1, lengths)
        found = dict(zip(short, values[:, 0].tolist(), strict=True))
        return Valuation(
            tuple(found.get(place) for place in range(len(queries))),
            self.critic.values_flops(batch),
        )

    def update(
        self, examples: Sequence[CriticExample], learning_rate: float
    ) -> CriticUpdate | None:
        """The critic's update towards all targets; what is too long is left out.

        Its displacement is exact if that is one optimizer step, else the sum of its
        steps' and so an upper bound. No step where nothing fits, None without examples.

        Raises:
            RuntimeError: Too many steps in a row were not finite.
        """
        # Only a clip to old values, over several steps, reads the filler.
        queries = [example.query for example in examples]
        short = self._short(queries, int(self.critic.output.compares))
        if not short:
            return nothing_fitted(len(examples), learning_rate) if examples else None
        batch = batch_of([queries[place] for place in short], 1)
        ends = batch.token_mask.sum(1, keepdim=True) - 1
        nothing = torch.zeros(batch.token_ids.shape)
        targets = torch.tensor([[examples[place].target] for place in short])
        wanted = ValueTargets(
            targets=nothing.scatter(1, ends, targets),
            weights=torch.ones_like(nothing),
            where=torch.zeros_like(batch.token_mask).scatter(1, ends, True),
        )
        self.critic.learning_rate = learning_rate
        seed = keyed_seed(0, "asked head", self.critic.num_updates)
        update = self.critic.update(batch, wanted, seed, warming_up=False)
        return replace(update, num_left_out=len(examples) - len(short))

    def add_gradient(self, examples: Sequence[CriticExample]) -> CriticUpdate:
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

    def _short(self, queries: Sequence[CriticQuery], num_more: int) -> list[int]:
        """Places of the attempts that fit the context, with so many tokens more."""
        limit = context_tokens(self.critic.trunk.module.config)
        return [
            place
            for place, query in enumerate(queries)
            if limit is None or num_tokens(query) + num_more <= limit
        ]


def num_tokens(query: CriticQuery) -> int:
    """Of prompt and what is written."""
    return len(query.prompt.token_ids) + len(query.written)


def batch_of(queries: Sequence[CriticQuery], num_fillers: int) -> Batch:
    """Prompt, what is written and fillers as rows, of which nobody knows a reward."""
    fillers = [FILLER] * num_fillers
    rows = [[*a.prompt.token_ids, *a.written, *fillers] for a in queries]
    return replace(unrewarded(rows), prompts=tuple(a.prompt for a in queries))
