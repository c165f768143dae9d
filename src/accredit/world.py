"""What an algorithm's step can reach, and what it costs.

Knows the Protocols and the shape of the model; no file, no text, no algorithm.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool
from torch import Tensor

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
from accredit.records import Cost, Drawn, PolicyUpdate, Record, State
from accredit.types import (
    Batch,
    Completion,
    Group,
    Problem,
    Request,
    Rollout,
    Sampling,
    StopReason,
    Verdict,
)


class Watcher(Protocol):
    """Who is told what goes on within a step."""

    def entered(self, stage: str) -> None: ...

    def sampled(self, num_done: int, num_asked: int, num_tokens: int) -> None: ...

    def updated(self, num_done: int, num_micro_batches: int) -> None: ...


class Clock:
    """Seconds by name; what a step spent where, and where it is."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._stage = ""
        self.watcher: Watcher | None = None

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Adds the time of the block to `name`."""
        outer = self._stage
        self._enter(name)
        started = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - started
            self._seconds[name] = self._seconds.get(name, 0.0) + spent
            self._enter(outer)

    def drain(self) -> dict[str, float]:
        """All seconds so far, and a fresh start."""
        seconds, self._seconds = self._seconds, {}
        return seconds

    def sampled(self, num_done: int, num_asked: int, num_tokens: int) -> None:
        """Hands on what an engine has done of a call."""
        if self.watcher is not None:
            self.watcher.sampled(num_done, num_asked, num_tokens)

    def updated(self, num_done: int, num_micro_batches: int) -> None:
        """Hands on what a learner has done of an optimizer step."""
        if self.watcher is not None:
            self.watcher.updated(num_done, num_micro_batches)

    def _enter(self, stage: str) -> None:
        self._stage = stage
        if self.watcher is not None:
            self.watcher.entered(stage)


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


@runtime_checkable
class Algorithm(Protocol):
    """A step in two verbs, so that a loop can put draws into a queue between them.

    `draw` rolls out under the policy as it is, keyed by `state.num_draws`; `learn`
    updates policy and critic, and makes the next state and the step's record.
    """

    @property
    def clip_bounds(self) -> tuple[float, float] | None:
        """(clip_low, clip_high) of the token ratio, for the report; None clips none."""
        ...

    @property
    def initial_memory(self) -> object:
        """`State.memory` before the first step; its type is that of all later ones."""
        ...

    def draw(self, state: State, world: World) -> Drawn: ...

    def learn(
        self, state: State, world: World, drawn: Drawn
    ) -> tuple[State, Record]: ...


def rollout_cost(groups: Sequence[Group], shape: ModelShape) -> Cost:
    """Ledger of every request behind `groups`, rejected or not.

    Siblings that continue the same prefix, prompt or replayed, share one prefill; a
    later turn of a rollout reads what is new, beginning with its own last token:
    sampled, but not read yet. What failed or stopped at a chunk is not verified.
    """
    decode = prefill = 0
    tokens = num_verifications = 0
    for group in groups:
        firsts: set[tuple[int, ...]] = set()
        for rollout in group.rollouts:
            cached = 0
            unasked = rollout.stop_reason in (StopReason.FAILURE, StopReason.CHUNK)
            answered = len(rollout.token_ids) > len(rollout.prompt.token_ids)
            num_verifications += answered and not unasked
            for num_prefix, num_new in rollout.spans:
                decode += decode_flops(shape, num_prefix, num_new)
                tokens += num_new
                prefix = prefix_ids(rollout, num_prefix)
                if cached or prefix not in firsts:
                    prefill += prefill_flops(shape, num_prefix, cached)
                    firsts.add(prefix)
                cached = num_prefix + num_new - 1
    return Cost(
        decode_flops=float(decode),
        prefill_flops=float(prefill),
        tokens_generated=tokens,
        num_verifications=num_verifications,
    )


def valuation_cost(flops: float, num_questions: int) -> Cost:
    """Ledger of a critic's answers about attempts."""
    return Cost(critic_flops=flops, num_questions=num_questions)


def prefix_ids(rollout: Rollout, num_prefix: int) -> tuple[int, ...]:
    """The first `num_prefix` ids, without a copy where they are the prompt."""
    prompt = rollout.prompt.token_ids
    if num_prefix == len(prompt):
        return prompt
    return tuple(rollout.token_ids[:num_prefix].tolist())


def forward_cost(batch: Batch, shape: ModelShape, num_passes: int) -> Cost:
    """Ledger of passes over a batch without gradient, up to its last sampled tokens."""
    lengths = lengths_up_to(batch.sampled)
    num_tokens = num_passes * sum(lengths)
    return Cost(train_flops=training_flops(shape, lengths, num_tokens, 0))


def lengths_up_to(wanted: Bool[Tensor, "rollout token"]) -> list[int]:
    """Tokens of each row up to its last wanted one; 0 where none is."""
    positions = torch.arange(1, wanted.shape[1] + 1)
    return (wanted * positions).amax(1).tolist()


def update_cost(update: PolicyUpdate | None, batch: Batch, shape: ModelShape) -> Cost:
    """Ledger of a policy update, by the tokens it passed forward and backward."""
    if update is None:
        return Cost()
    return Cost(
        train_flops=training_flops(
            shape,
            lengths_up_to(batch.trainable),
            update.num_forward_tokens,
            update.num_backward_tokens,
        )
    )
