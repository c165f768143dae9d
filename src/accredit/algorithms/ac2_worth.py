"""What a step of AC2 is worth: endpoints, advantages, targets and errors.

Numbers of steps are those of section 3 of our page on Wen et al. 2026,
arXiv:2609.39247; what happens when scoring fails is its section 7.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from accredit.algorithms.ac2_visit import Values, Visit
from accredit.algorithms.replay_configs import AC2Config
from accredit.functional.endpoints import (
    endpoint_advantages,
    filled_endpoints,
    group_targets,
)
from accredit.types import Batch


@dataclass(frozen=True, eq=False)
class Worth:
    """What each continuation is worth, and what the critic should have said."""

    endpoints: Float[Tensor, " rollout"]
    """v_i; the mean of the valid siblings where it is not valid itself."""
    valid: Bool[Tensor, " rollout"]
    """Whom the policy learns from."""
    advantages: Float[Tensor, " rollout"]
    teaching: Float[Tensor, " rollout"]
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
    """Those of `Worth` that are of a group."""

    targets: Float[Tensor, " group"]
    errors: Float[Tensor, " group"]
    reward_errors: Float[Tensor, " group"]


def settled(
    config: AC2Config, visit: Visit, values: Values, *, grid_size: int | None
) -> Worth:
    """Steps 5 to 8, and what fails on the way: endpoints, advantages, targets, errors.

    v_i is the critic's value where a rollout was stopped, else its reward.
    """
    batch, asked = visit.batch, visit.asked
    judged, valued = batch.verified, asked & ~values.endpoints.isnan()
    valid = judged | valued
    endpoints = torch.where(asked, values.endpoints, batch.rewards)
    endpoints = blended(config, visit, values, endpoints)
    teaches = valid
    if config.unverified == "zero":
        # A failed judge pays 0 to the policy and tells the critic nothing.
        valid = valid | (~asked & batch.sampled.any(1))
    teaching, teaches = taught_endpoints(config, visit, values, endpoints, teaches)
    group_index = batch.group_index
    filled = filled_endpoints(endpoints, valid, group_index)
    advantages, valid = compared(config, visit, values, filled, valid)
    return Worth(
        endpoints=filled,
        valid=valid,
        advantages=torch.where(asked, config.chunk_weight * advantages, advantages),
        teaching=teaching,
        teaches=teaches,
        **targets_of(config, visit, values, teaching, teaches, grid_size)._asdict(),
    )


def compared(
    config: AC2Config,
    visit: Visit,
    values: Values,
    filled: Float[Tensor, " rollout"],
    valid: Bool[Tensor, " rollout"],
) -> tuple[Float[Tensor, " rollout"], Bool[Tensor, " rollout"]]:
    """Step 6, and whom it leaves with an advantage.

    A continuation that is alone with its prefix has no siblings: it is compared with
    the critic's value of the prefix, and needs a valid one.
    """
    group_index = visit.batch.group_index
    before = visit.over_groups(values.prefixes)
    among = endpoint_advantages(
        filled, valid, group_index, baseline=config.baseline, prefix_values=before
    )
    beside = endpoint_advantages(
        filled, valid, group_index, baseline="value", prefix_values=before
    )
    alone = visit.over_groups(torch.tensor([float(r.is_alone) for r in visit.routes]))
    by_value = (alone > 0) | (config.baseline == "value")
    kept = valid & ~(by_value & before.isnan())
    return torch.where(by_value, beside, among), kept


def targets_of(
    config: AC2Config,
    visit: Visit,
    values: Values,
    teaching: Float[Tensor, " rollout"],
    teaches: Bool[Tensor, " rollout"],
    grid_size: int | None,
) -> Targets:
    """Step 8, and step 7: z of each group, and how far the critic was off."""
    sizes = torch.tensor([len(group.rollouts) for group in visit.groups])
    half = (sizes + 1) // 2
    least = half if config.min_valid is None else sizes.clamp(max=config.min_valid)
    group_index = visit.batch.group_index
    known = partial(
        group_targets, group_index=group_index, min_valid=least, grid_size=grid_size
    )
    targets = known(teaching, teaches)
    outcomes = known(visit.batch.rewards, visit.batch.verified)
    # By the route and not by what happened: a stopped group whose members all ended
    # before the border is a lucky or an unlucky one.
    stopped = torch.tensor([route.is_stopped for route in visit.routes])
    outcomes[stopped] = torch.nan
    if config.critic_targets == "monte_carlo":
        targets = outcomes
    return Targets(targets, distances(values, targets), distances(values, outcomes))


def distances(
    values: Values, targets: Float[Tensor, " group"]
) -> Float[Tensor, " group"]:
    """|V - z|; 1 for a V that is not valid, NaN where there is no z, or no question."""
    said = values.prefixes
    errors = torch.where(said.isnan(), 1.0, (said - targets).abs())
    return torch.where(targets.isnan() | values.left_out, torch.nan, errors)


def blended(
    config: AC2Config,
    visit: Visit,
    values: Values,
    endpoints: Float[Tensor, " rollout"],
) -> Float[Tensor, " rollout"]:
    """(1 - lambda) V(border) + lambda R of ready rollouts, where they ran past it."""
    if config.ready_lambda in (0.0, 1.0):
        return endpoints
    ready = torch.tensor([route.is_ready for route in visit.routes])
    first = values.borders[:, 0]
    mixed = (1 - config.ready_lambda) * first + config.ready_lambda * endpoints
    where = ready[visit.batch.group_index] & ~first.isnan()
    return torch.where(where, mixed, endpoints)


def known_outcomes(
    config: AC2Config, visit: Visit, values: Values
) -> Bool[Tensor, " rollout"]:
    """Whose v_i is its own reward, behind a prefix that the critic valued.

    By these a critic may be measured: no word of its own is among them.
    """
    known = visit.batch.verified & ~visit.over_groups(values.prefixes).isnan()
    if config.ready_lambda in (0.0, 1.0):
        return known
    ready = torch.tensor([route.is_ready for route in visit.routes])
    return known & ~(ready[visit.batch.group_index] & values.reached[:, 0])


def taught_endpoints(
    config: AC2Config,
    visit: Visit,
    values: Values,
    endpoints: Float[Tensor, " rollout"],
    teaches: Bool[Tensor, " rollout"],
) -> tuple[Float[Tensor, " rollout"], Bool[Tensor, " rollout"]]:
    """What the critic learns from: v_i, rewards, or for all the value one chunk on."""
    if config.critic_targets == "monte_carlo":
        return visit.batch.rewards, visit.batch.verified
    if config.critic_targets == "mixed":
        return endpoints, teaches
    first, past = values.borders[:, 0], values.reached[:, 0]
    teaching = torch.where(past, first, endpoints)
    return teaching, torch.where(past, ~first.isnan(), teaches)


def settled_batch(visit: Visit, worth: Worth) -> Batch:
    """The batch as the policy learns from it: v_i in place of rewards."""
    return replace(visit.batch, rewards=worth.endpoints, verified=worth.valid)


def carried_values(
    visit: Visit, values: Values, worth: Worth
) -> Float[Tensor, "rollout prefix"]:
    """V of every prefix as last known: of the replayed one, then of each border.

    0 before the first; v_i at the end of the row; an unknown V leaves the last one.
    """
    batch = visit.batch
    found = torch.zeros(len(batch.token_ids), batch.token_ids.shape[1] + 1)
    for row, rollout in enumerate(visit.rollouts):
        group = int(batch.group_index[row])
        length = len(rollout.token_ids)
        start, border = length - rollout.num_sampled, visit.routes[group].border
        places = [(start, values.prefixes[group])]
        for number, value in enumerate(values.borders[row]):
            places.append((start + (number + 1) * border, value))
        for place, value in places:
            if not value.isnan():
                found[row, place:length] = value
        found[row, length:] = 0.0
        found[row, length] = worth.endpoints[row]
    return found
