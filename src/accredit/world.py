"""What an algorithm's step can reach, and what it costs.

Knows the Protocols and the shape of the model; no file, no text, no algorithm.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from accredit.functional.flops import (
    ModelShape,
    decode_flops,
    prefill_flops,
    training_flops,
)
from accredit.protocols import (
    Engine,
    Environment,
    Learner,
    ProblemSource,
    Verifier,
)
from accredit.types import (
    Batch,
    Completion,
    Cost,
    Group,
    PolicyUpdate,
    Problem,
    Request,
    Rollout,
    Sampling,
    Verdict,
)


class Clock:
    """Seconds by name; what a step spent where."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Adds the time of the block to `name`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - started
            self._seconds[name] = self._seconds.get(name, 0.0) + spent

    def drain(self) -> dict[str, float]:
        """All seconds so far, and a fresh start."""
        seconds, self._seconds = self._seconds, {}
        return seconds


@dataclass
class TimedEngine:
    """An engine whose sampling is measured."""

    inner: Engine
    clock: Clock

    @property
    def version(self) -> int:
        """Of the policy it samples from."""
        return self.inner.version

    def generate(
        self, requests: Sequence[Request], sampling: Sampling
    ) -> list[Completion]:
        """What the inner engine samples."""
        with self.clock.measure("generate"):
            return self.inner.generate(requests, sampling)

    def load(self, model: Any, version: int) -> None:
        """Hands the weights on."""
        with self.clock.measure("sync"):
            self.inner.load(model, version)


@dataclass
class TimedVerifier:
    """A verifier whose verdicts are measured."""

    inner: Verifier
    clock: Clock

    def verify(self, items: Sequence[tuple[Problem, str, Rollout]]) -> list[Verdict]:
        """What the inner verifier says."""
        with self.clock.measure("verify"):
            return self.inner.verify(items)

    def close(self) -> None:
        """Closes the inner one."""
        self.inner.close()


@dataclass(frozen=True)
class World:
    """Everything outside the algorithm."""

    problems: ProblemSource
    environment: Environment
    engine: Engine
    learner: Learner
    sampling: Sampling
    shape: ModelShape
    seed: int
    clock: Clock = field(default_factory=Clock)


def rollout_cost(groups: Sequence[Group], shape: ModelShape) -> Cost:
    """Ledger of every request behind `groups`, rejected or not.

    Siblings that continue the same prefix share one prefill; a later turn of a rollout
    reads only what is new since its own last token.
    """
    decode = prefill = 0
    tokens = num_verifications = 0
    for group in groups:
        num_verifications += sum(v.reward is not None for v in group.verdicts)
        firsts: set[tuple[int, ...]] = set()
        for rollout in group.rollouts:
            cached = 0
            for num_prefix, num_new in rollout.spans:
                decode += decode_flops(shape, num_prefix, num_new)
                tokens += num_new
                opening = (
                    () if cached else tuple(rollout.token_ids[:num_prefix].tolist())
                )
                if cached or opening not in firsts:
                    prefill += prefill_flops(shape, num_prefix, cached)
                    firsts.add(opening)
                cached = num_prefix + num_new
    return Cost(
        decode_flops=float(decode),
        prefill_flops=float(prefill),
        tokens_generated=tokens,
        num_verifications=num_verifications,
    )


def forward_cost(batch: Batch, shape: ModelShape, num_passes: int) -> Cost:
    """Ledger of passes over a batch without gradient, up to its last sampled tokens."""
    positions = torch.arange(1, batch.token_ids.shape[1] + 1)
    lengths = (batch.sampled * positions).amax(1).tolist()
    num_tokens = num_passes * sum(lengths)
    return Cost(train_flops=training_flops(shape, lengths, num_tokens, 0))


def update_cost(update: PolicyUpdate | None, batch: Batch, shape: ModelShape) -> Cost:
    """Ledger of a policy update, by the tokens it passed forward and backward."""
    if update is None:
        return Cost()
    return Cost(
        train_flops=training_flops(
            shape,
            batch.token_mask.sum(1).tolist(),
            update.num_forward_tokens,
            update.num_backward_tokens,
        )
    )
