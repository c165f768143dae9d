"""What a step of AC2 asks its critic, and what comes of it: lines 5 to 8 of the box.

    ask       V of each prefix, of each stopped end, and where rollouts that ran on
              would have been stopped; all before any update
    5  v_i    = V(end) where a rollout was stopped, else its reward
    6  A_i    = v_i - mean_j v_j
    8  z      = mean_i v_i on the grid, ties down
    7  error  = |V(prefix) - z|, 1 for an answer that is not valid

What happens when scoring fails is section 7 of our page on Wen et al. 2026,
arXiv:2609.39247. Nothing here takes a gradient step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from accredit.algorithms.replay.routes import (
    Route,
    RoutedDraw,
    is_chunk,
    num_replayed,
)
from accredit.algorithms.replay_configs import AC2Config
from accredit.functional.endpoints import (
    endpoint_advantages,
    filled_endpoints,
    group_targets,
)
from accredit.protocols import PrefixCritic
from accredit.types import Batch, CriticQuery, Rollout
from accredit.world import World


@dataclass(frozen=True, eq=False)
class StepRollouts:
    """What a step learns from: its groups, their routes, and all as one batch."""

    routes: tuple[Route, ...]
    """One a group."""
    rollouts: tuple[Rollout, ...]
    """Of all groups, in the order of the batch."""
    batch: Batch
    """Verified where a rollout was judged."""

    @classmethod
    def of(cls, drawn: RoutedDraw, batch: Batch) -> "StepRollouts":
        """Of a draw and its batch."""
        return cls(drawn.routes, tuple(drawn.rollouts), batch)

    @property
    def asked(self) -> Bool[Tensor, " rollout"]:
        """True where a rollout was stopped, and the critic is to value its end."""
        return torch.tensor([is_chunk(rollout) for rollout in self.rollouts])

    @property
    def group_sizes(self) -> Tensor:
        """Rollouts of each group."""
        return torch.bincount(self.batch.group_index, minlength=len(self.routes))

    def over_groups(self, x: Float[Tensor, " group"]) -> Float[Tensor, " rollout"]:
        """A quantity of each group for each of its members."""
        return x[self.batch.group_index]

    def route_of(self, row: int) -> Route:
        """Of the rollout in that row."""
        return self.routes[int(self.batch.group_index[row])]


@dataclass(frozen=True, eq=False)
class Values:
    """What the critic said in a step, NaN where it was not asked or not valid."""

    prefixes: Float[Tensor, " group"]
    endpoints: Float[Tensor, " rollout"]
    boundaries: Float[Tensor, "rollout boundary"]
    """Of rollouts that ran on, at the first, second, ... chunk boundary."""
    reached: Bool[Tensor, "rollout boundary"]
    """True where such a boundary was passed without an answer: asked about."""
    flops: float
    num_questions: int
    num_invalid: int
    left_out: Bool[Tensor, " group"]
    """True where the question about a prefix did not fit the critic's context."""
    num_left_out: int
    shift: float = 0.0
    """Log-odds by which the critic's values were moved to these."""
    said: "Values | None" = None
    """As the critic said them, where they were moved."""


@dataclass(frozen=True, eq=False)
class Endpoints:
    """The value of each continuation, and what the critic should have said."""

    values: Float[Tensor, " rollout"]
    """v_i; the mean of the valid siblings where it is not valid itself."""
    valid: Bool[Tensor, " rollout"]
    """Whom the policy learns from."""
    advantages: Float[Tensor, " rollout"]
    taught: Float[Tensor, " rollout"]
    """The endpoints that a target is made of."""
    teaches: Bool[Tensor, " rollout"]
    """Whose endpoint counts for a target."""
    targets: Float[Tensor, " group"]
    """z; NaN where nobody knows."""
    errors: Float[Tensor, " group"]
    """|V(prefix) - z|, 1 for an invalid V; NaN without a target."""
    reward_errors: Float[Tensor, " group"]
    """The same against the mean reward, of groups that were judged throughout."""


class Targets(NamedTuple):
    """Those of `Endpoints` that are of a group."""

    targets: Float[Tensor, " group"]
    errors: Float[Tensor, " group"]
    reward_errors: Float[Tensor, " group"]


def ask_critic(
    critic: PrefixCritic,
    step: StepRollouts,
    world: World,
    *,
    references: Sequence[tuple[int, ...] | None],
    num_boundaries: Sequence[int],
) -> Values:
    """The critic's values before anything is learned, all asked together.

    `references`, and `num_boundaries`, how many boundaries of rollouts that ran on are
    asked about, are those of each group.
    """
    groups = step.batch.group_index.tolist()
    prefixes = [
        CriticQuery(route.prompt, route.written, reference)
        for route, reference in zip(step.routes, references, strict=True)
    ]
    ends: list[int] = []
    passed: list[tuple[int, int]] = []
    queries: list[CriticQuery] = []
    for row, rollout in enumerate(step.rollouts):
        if is_chunk(rollout):
            written, reference = rollout.completion_ids, references[groups[row]]
            ends.append(row)
            queries.append(CriticQuery(rollout.prompt, tuple(written), reference))
    for row, rollout in enumerate(step.rollouts):
        route, most = step.routes[groups[row]], num_boundaries[groups[row]]
        found = passed_boundaries(rollout, route, most, world)
        for boundary, written in enumerate(found):
            passed.append((row, boundary))
            queries.append(
                CriticQuery(rollout.prompt, written, references[groups[row]])
            )
    with world.clock.measure("critic"):
        said = critic.values([*prefixes, *queries])
    numbers = torch.tensor([torch.nan if v is None else v for v in said.values])
    left_out = said.left_out or (False,) * len(numbers)
    num_rollouts, first = len(groups), len(prefixes)
    endpoints = torch.full((num_rollouts,), torch.nan)
    endpoints[ends] = numbers[first : first + len(ends)]
    num_columns = max([1, *(boundary + 1 for _, boundary in passed)])
    boundaries = torch.full((num_rollouts, num_columns), torch.nan)
    reached = torch.zeros(boundaries.shape, dtype=torch.bool)
    for place, value in zip(passed, numbers[first + len(ends) :], strict=True):
        boundaries[place], reached[place] = value, True
    return Values(
        prefixes=numbers[:first],
        endpoints=endpoints,
        boundaries=boundaries,
        reached=reached,
        flops=said.flops,
        num_questions=len(numbers),
        num_invalid=int(numbers.isnan().sum()) - sum(left_out),
        left_out=torch.tensor(left_out[:first]),
        num_left_out=sum(left_out),
    )


def passed_boundaries(
    rollout: Rollout, route: Route, most: int, world: World
) -> list[tuple[int, ...]]:
    """What a rollout that ran on had written where it would have been stopped.

    Only boundaries that it went beyond without an answer: what ends there is judged.
    """
    if is_chunk(rollout) or most == 0:
        return []
    written, start = rollout.completion_ids, num_replayed(rollout)
    found: list[tuple[int, ...]] = []
    for end in range(start + route.boundary, len(written), route.boundary)[:most]:
        if world.environment.has_answer(rollout.prompt, written[:end]):
            break
        found.append(tuple(written[:end]))
    return found


def endpoints_of(
    config: AC2Config, step: StepRollouts, values: Values, grid_size: int | None
) -> Endpoints:
    """Lines 5 to 8: endpoints, advantages, targets, errors, and what fails on the way.

    `grid_size` is that of the targets; None does not round them.
    """
    batch, asked = step.batch, step.asked
    judged, valued = batch.verified, asked & ~values.endpoints.isnan()
    valid = judged | valued
    endpoints = torch.where(asked, values.endpoints, batch.rewards)
    endpoints = blend_with_boundary(config, step, values, endpoints)
    teaches = valid
    if config.unverified == "zero":
        # A failed judge pays 0 to the policy and tells the critic nothing.
        valid = valid | (~asked & batch.sampled.any(1))
    taught, teaches = taught_endpoints(config, step, values, endpoints, teaches)
    filled = filled_endpoints(endpoints, valid, batch.group_index)
    advantages, valid = advantages_of(config, step, values, filled, valid)
    return Endpoints(
        values=filled,
        valid=valid,
        advantages=torch.where(asked, config.chunk_weight * advantages, advantages),
        taught=taught,
        teaches=teaches,
        **targets_of(config, step, values, taught, teaches, grid_size)._asdict(),
    )


def advantages_of(
    config: AC2Config,
    step: StepRollouts,
    values: Values,
    filled: Float[Tensor, " rollout"],
    valid: Bool[Tensor, " rollout"],
) -> tuple[Float[Tensor, " rollout"], Bool[Tensor, " rollout"]]:
    """Line 6, and whom it leaves with an advantage.

    A single continuation of its prefix has no siblings: it is compared with the
    critic's value of the prefix, and needs a valid one.
    """
    group_index = step.batch.group_index
    before = step.over_groups(values.prefixes)
    among = endpoint_advantages(
        filled, valid, group_index, baseline=config.baseline, prefix_values=before
    )
    beside = endpoint_advantages(
        filled, valid, group_index, baseline="value", prefix_values=before
    )
    single = step.over_groups(torch.tensor([float(r.is_single) for r in step.routes]))
    by_value = (single > 0) | (config.baseline == "value")
    kept = valid & ~(by_value & before.isnan())
    return torch.where(by_value, beside, among), kept


def targets_of(
    config: AC2Config,
    step: StepRollouts,
    values: Values,
    taught: Float[Tensor, " rollout"],
    teaches: Bool[Tensor, " rollout"],
    grid_size: int | None,
) -> Targets:
    """Line 8, and line 7: z of each group, and how far the critic was off."""
    sizes = step.group_sizes
    half = (sizes + 1) // 2
    least = half if config.min_valid is None else sizes.clamp(max=config.min_valid)
    mean_of = partial(
        group_targets,
        group_index=step.batch.group_index,
        min_valid=least,
        grid_size=grid_size,
    )
    targets = mean_of(taught, teaches)
    outcomes = mean_of(step.batch.rewards, step.batch.verified)
    # By the route and not by what happened, because conditioning on early termination
    # biases the target: members that all ended before the boundary are lucky or not.
    stopped = torch.tensor([route.is_stopped for route in step.routes])
    outcomes[stopped] = torch.nan
    if config.critic_targets == "monte_carlo":
        targets = outcomes
    # A single continuation tells of its prefix by comparison with V of it alone.
    single = torch.tensor([route.is_single for route in step.routes])
    targets = torch.where(single & values.prefixes.isnan(), torch.nan, targets)
    return Targets(targets, distances(values, targets), distances(values, outcomes))


def distances(
    values: Values, targets: Float[Tensor, " group"]
) -> Float[Tensor, " group"]:
    """|V - z|; 1 for a V that is not valid, NaN where there is no z, or no question."""
    said = values.prefixes
    errors = torch.where(said.isnan(), 1.0, (said - targets).abs())
    return torch.where(targets.isnan() | values.left_out, torch.nan, errors)


def blend_with_boundary(
    config: AC2Config,
    step: StepRollouts,
    values: Values,
    endpoints: Float[Tensor, " rollout"],
) -> Float[Tensor, " rollout"]:
    """(1 - lambda) V(boundary) + lambda R of ready rollouts, where they ran past it."""
    if config.ready_lambda in (0.0, 1.0):
        return endpoints
    ready = torch.tensor([route.is_ready for route in step.routes])
    first = values.boundaries[:, 0]
    mixed = (1 - config.ready_lambda) * first + config.ready_lambda * endpoints
    where = ready[step.batch.group_index] & ~first.isnan()
    return torch.where(where, mixed, endpoints)


def known_outcomes(
    config: AC2Config, step: StepRollouts, values: Values
) -> Bool[Tensor, " rollout"]:
    """Whose v_i is its own reward, behind a prefix that the critic valued.

    By these a critic may be measured: no word of its own is among them.
    """
    found = step.batch.verified & ~step.over_groups(values.prefixes).isnan()
    if config.ready_lambda in (0.0, 1.0):
        return found
    ready = torch.tensor([route.is_ready for route in step.routes])
    return found & ~(ready[step.batch.group_index] & values.reached[:, 0])


def taught_endpoints(
    config: AC2Config,
    step: StepRollouts,
    values: Values,
    endpoints: Float[Tensor, " rollout"],
    teaches: Bool[Tensor, " rollout"],
) -> tuple[Float[Tensor, " rollout"], Bool[Tensor, " rollout"]]:
    """What the critic learns from: v_i, rewards, or for all the value one chunk on."""
    if config.critic_targets == "monte_carlo":
        return step.batch.rewards, step.batch.verified
    if config.critic_targets == "mixed":
        return endpoints, teaches
    first, past = values.boundaries[:, 0], values.reached[:, 0]
    taught = torch.where(past, first, endpoints)
    return taught, torch.where(past, ~first.isnan(), teaches)


def with_endpoints(batch: Batch, ends: Endpoints) -> Batch:
    """The batch as the policy learns from it: v_i in place of rewards."""
    return replace(batch, rewards=ends.values, verified=ends.valid)


def prefix_values(
    step: StepRollouts, values: Values, ends: Endpoints
) -> Float[Tensor, "rollout prefix"]:
    """V of every prefix as last known: of the replayed one, then of each boundary.

    0 before the first; v_i at the end of the row; an unknown V leaves the last one.
    """
    batch = step.batch
    found = torch.zeros(len(batch.token_ids), batch.token_ids.shape[1] + 1)
    for row, rollout in enumerate(step.rollouts):
        group = int(batch.group_index[row])
        length = len(rollout.token_ids)
        start, boundary = length - rollout.num_sampled, step.routes[group].boundary
        places = [(start, values.prefixes[group])]
        for number, value in enumerate(values.boundaries[row]):
            places.append((start + (number + 1) * boundary, value))
        for place, value in places:
            if not value.isnan():
                found[row, place:length] = value
        found[row, length:] = 0.0
        found[row, length] = ends.values[row]
    return found
