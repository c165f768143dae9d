"""What AC2 leaves open to another rule; the paper's own rules are the defaults.

AC2+ (`ac2_plus`) is AC2 with other rules. A rule reads the step and the memory, and
moves nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from accredit.algorithms.ac2.endpoints import Endpoints, StepRollouts, Values
from accredit.algorithms.ac2.memory import AC2Memory, Outcome
from accredit.algorithms.replay.routes import Route
from accredit.algorithms.replay_configs import AC2Config
from accredit.batches.replay import StoredExample
from accredit.records import Cost, State
from accredit.world import World


@runtime_checkable
class AuditRule(Protocol):
    """Share of a ready problem's slots that are audited."""

    def __call__(self, memory: AC2Memory, problem_id: str) -> float: ...


@runtime_checkable
class ChunkRule(Protocol):
    """Chunks after which a ready problem's rollouts are stopped."""

    def __call__(self, memory: AC2Memory, problem_id: str) -> int: ...


@runtime_checkable
class CreditRule(Protocol):
    """How a continuation's advantage is dealt to its tokens.

    `num_boundaries` says at how many chunk boundaries of a group's rollouts that ran on
    the critic has to be asked for it.
    """

    def num_boundaries(self, route: Route) -> int: ...

    def __call__(
        self, step: StepRollouts, values: Values, ends: Endpoints
    ) -> Float[Tensor, "rollout token"]: ...


@runtime_checkable
class Recalibration(Protocol):
    """Moves the critic's values by what came of what it said before."""

    def moved(self, said: Values, memory: AC2Memory) -> Values: ...

    def outcomes(
        self, memory: AC2Memory, step: StepRollouts, values: Values
    ) -> tuple[tuple[Outcome, ...], ...]: ...


@runtime_checkable
class ExampleRule(Protocol):
    """What a step adds to the critic's buffer, and what finding it cost.

    `before` is called before the policy's update; what it gives comes back in the call
    after the policy has moved.
    """

    def before(self, step: StepRollouts, world: World) -> Tensor | None: ...

    def __call__(
        self,
        step: StepRollouts,
        values: Values,
        ends: Endpoints,
        before: Tensor | None,
        state: State,
        world: World,
    ) -> tuple[list[StoredExample], Cost]: ...


@dataclass(frozen=True)
class FixedShare:
    """The same share of every problem's slots."""

    share: float

    def __call__(self, memory: AC2Memory, problem_id: str) -> float:
        """The share."""
        return self.share


def one_chunk(memory: AC2Memory, problem_id: str) -> int:
    """Every rollout that is stopped is stopped after one chunk."""
    return 1


@dataclass(frozen=True)
class EndpointCredit:
    """A_i on every token of the continuation."""

    config: AC2Config

    def num_boundaries(self, route: Route) -> int:
        """The first one of ready groups tells whether the critic was fooled there; that
        of all groups is needed where the critic learns from values one chunk on.
        """
        return int(route.is_ready or self.config.critic_targets == "bootstrap")

    def __call__(
        self, step: StepRollouts, values: Values, ends: Endpoints
    ) -> Float[Tensor, "rollout token"]:
        """0 where nobody learns."""
        trains = step.batch.sampled & ends.valid[:, None]
        return torch.where(trains, ends.advantages[:, None], 0.0)


@dataclass(frozen=True)
class PrefixExamples:
    """(problem, prefix, z) of every group with a target."""

    def before(self, step: StepRollouts, world: World) -> Tensor | None:
        """Nothing is needed of the policy as it was."""
        return None

    def __call__(
        self,
        step: StepRollouts,
        values: Values,
        ends: Endpoints,
        before: Tensor | None,
        state: State,
        world: World,
    ) -> tuple[list[StoredExample], Cost]:
        """One a group; nothing is spent."""
        return prefix_examples(step.routes, ends.targets), Cost()


def prefix_examples(
    routes: Sequence[Route], targets: Float[Tensor, " group"]
) -> list[StoredExample]:
    """An example of each group with a target: its prefix, and the source it is from."""
    return [
        StoredExample.of(route.problem_id, route.written, target, route.source)
        for route, target in zip(routes, targets.tolist(), strict=True)
        if target == target
    ]
