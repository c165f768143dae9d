"""The Protocols between stages, and the objective that travels between them.

Who produces tokens, who scores them, who estimates values, who takes gradient steps:
each has several implementations and one shape. This module knows no implementation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor

from accredit.records import CriticUpdate, PolicyUpdate, Valuation, ValueTargets
from accredit.types import (
    Batch,
    Completion,
    CriticExample,
    CriticQuery,
    Group,
    Prefix,
    Problem,
    Prompt,
    Request,
    Rollout,
    Sampling,
    Verdict,
)


@runtime_checkable
class PolicyLoss(Protocol):
    """A loss per sampled token, neither masked out nor averaged by the caller."""

    def __call__(
        self,
        logprobs: Float[Tensor, "rollout token"],
        old_logprobs: Float[Tensor, "rollout token"],
        advantages: Float[Tensor, "rollout token"],
        sampled: Bool[Tensor, "rollout token"],
    ) -> Float[Tensor, "rollout token"]: ...


@runtime_checkable
class Aggregation(Protocol):
    """The weight of each token's loss, so that the objective is their plain sum."""

    def __call__(
        self,
        sampled: Bool[Tensor, "rollout token"],
        group_index: Int[Tensor, " rollout"],
    ) -> Float[Tensor, "rollout token"]: ...


@runtime_checkable
class Correction(Protocol):
    """A detached weight per token for the gap between engine and trainer."""

    def __call__(
        self,
        old_logprobs: Float[Tensor, "rollout token"],
        sampling_logprobs: Float[Tensor, "rollout token"],
        sampled: Bool[Tensor, "rollout token"],
    ) -> Float[Tensor, "rollout token"]: ...


@dataclass(frozen=True)
class Objective:
    """How advantages are spent: what the learner minimises."""

    loss: PolicyLoss
    aggregation: Aggregation
    correction: Correction | None = None
    kl_estimator: Callable[[Tensor, Tensor], Float[Tensor, "rollout token"]] | None = (
        None
    )
    """Called with (logprobs, reference_logprobs); None needs no reference."""
    kl_coefficient: float = 0.0
    entropy_coefficient: float = 0.0
    num_minibatches: int = 1
    num_epochs: int = 1
    old_from_engine: bool = False
    """True takes the engine's log-probs as `old_logprobs` (no frozen old policy)."""
    shuffled: bool = True
    """Whether minibatches are cut from an order drawn anew, or from the batch's own."""


@runtime_checkable
class PolicySteps(Protocol):
    """An update of the policy that has begun; its steps are taken in their order.

    `backward` leaves a step's gradient in the weights, and is False where its rows hold
    no trainable token; `descend` takes the optimizer step. `step` is both, `run` all
    steps and their result.
    """

    @property
    def num_steps(self) -> int:
        """Optimizer steps of the update."""
        ...

    def step(self, index: int) -> None: ...

    def backward(self, index: int) -> bool: ...

    def descend(self) -> None: ...

    def result(self) -> PolicyUpdate: ...

    def run(self) -> PolicyUpdate: ...


@runtime_checkable
class Engine(Protocol):
    """Produces tokens. Knows no text, no problem and no reward."""

    @property
    def version(self) -> int:
        """Of the policy it samples from."""
        ...

    def generate(
        self, requests: Sequence[Request], sampling: Sampling
    ) -> list[Completion]: ...

    def load(self, model: Any, version: int) -> None: ...


@runtime_checkable
class Verifier(Protocol):
    """Scores finished rollouts; a failure of the world is a verdict, not a crash."""

    def verify(
        self, items: Sequence[tuple[Problem, str, Rollout]]
    ) -> list[Verdict]: ...

    def close(self) -> None: ...


@runtime_checkable
class Environment(Protocol):
    """How a rollout happens: prompts or prefixes in, verified groups out."""

    def roll_out(
        self,
        prompts: Sequence[Prompt],
        group_size: int,
        sampling: Sampling,
        key: tuple[int | str, ...],
    ) -> list[Group]: ...

    def continue_from(
        self,
        prefixes: Sequence[Prefix],
        group_size: int,
        sampling: Sampling,
        key: tuple[int | str, ...],
    ) -> list[Group]: ...

    def has_answer(self, prompt: Prompt, written: Sequence[int]) -> bool: ...


@runtime_checkable
class Critic(Protocol):
    """Who estimates V of every prefix."""

    def values(
        self, batch: Batch, rewards: Float[Tensor, " rollout"]
    ) -> Float[Tensor, "rollout prefix"]: ...


@runtime_checkable
class TrainableCritic(Critic, Protocol):
    """A critic with parameters; rewards of a batch are only checked against its range.

    `update` takes as many optimizer steps as the critic's own options say; `warming_up`
    takes those of a step in which it alone learns.
    """

    @property
    def num_warmup_steps(self) -> int:
        """First steps of a run in which the critic alone learns."""
        ...

    @property
    def reference_shown(self) -> bool:
        """Whether it reads more than the policy does: the answer of each problem."""
        ...

    def values_flops(self, batch: Batch) -> float: ...

    def update(
        self, batch: Batch, wanted: ValueTargets, seed: int, *, warming_up: bool
    ) -> CriticUpdate: ...

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...


@runtime_checkable
class PrefixCritic(Protocol):
    """A critic that is asked about single prefixes, and may be shown a reference.

    `update` is one optimizer step towards all the targets at the given learning rate,
    or None where there is nothing to learn with. `add_gradient` leaves the gradient of
    the same loss in the weights that it shares with the policy and takes no step.
    """

    @property
    def learning_rate(self) -> float:
        """That it begins with."""
        ...

    def values(self, queries: Sequence[CriticQuery]) -> Valuation: ...

    def update(
        self, examples: Sequence[CriticExample], learning_rate: float
    ) -> CriticUpdate | None: ...

    def add_gradient(self, examples: Sequence[CriticExample]) -> CriticUpdate: ...

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...


@runtime_checkable
class Learner(Protocol):
    """Takes gradient steps and owns weights, optimizer and schedule."""

    model: Any

    @property
    def version(self) -> int:
        """Of the weights: rises with every step that moves them."""
        ...

    @property
    def num_updates(self) -> int:
        """Finished updates of the policy."""
        ...

    @property
    def num_consecutive_skips(self) -> int:
        """Optimizer steps in a row that were left out as not finite."""
        ...

    def logprobs(self, batch: Batch) -> Float[Tensor, "rollout token"]: ...

    def reference_logprobs(self, batch: Batch) -> Float[Tensor, "rollout token"]: ...

    def entropies(self, batch: Batch) -> Float[Tensor, "rollout token"]: ...

    def begin(
        self,
        batch: Batch,
        advantages: Tensor,
        objective: Objective,
        seed: int,
        *,
        measures_displacement: bool = False,
    ) -> PolicySteps: ...

    def moved_by_others(self, num_steps: int) -> None: ...

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...


@runtime_checkable
class ProblemSource(Protocol):
    """An endless, seeded, resumable order over prompts: epoch by epoch, reshuffled."""

    @property
    def prompts(self) -> Sequence[Prompt]:
        """All of them, in the order of the data."""
        ...

    @property
    def fingerprint(self) -> str:
        """Of the data, so that a resumed run notices other ones."""
        ...

    def draw(self, start: int, count: int) -> Sequence[Prompt]: ...

    def resumed_start(self, num_drawn: int, saved_fingerprint: str) -> int: ...
