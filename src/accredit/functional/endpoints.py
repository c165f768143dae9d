"""What the ends of a group's continuations say: advantages, and a critic's target.

A continuation ends in a reward or, where it was stopped, in a critic's value; one whose
judge or critic failed has no valid end. Wen et al. 2026, arXiv:2609.39247, sections 3
and 7 of our page on it. Knows no model and no problem.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from accredit.functional.grids import on_grid

Baseline = Literal["group_mean", "leave_one_out", "value"]


def filled_endpoints(
    endpoints: Float[Tensor, " rollout"],
    valid: Bool[Tensor, " rollout"],
    group_index: Int[Tensor, " rollout"],
) -> Float[Tensor, " rollout"]:
    """Each endpoint, and in place of an invalid one the mean of its group's valid ones.

    0 where a group has none. Whatever stands at an invalid place, NaN too, is not read.
    """
    means, _ = valid_means(endpoints, valid, group_index)
    return torch.where(valid, endpoints, means[group_index])


def endpoint_advantages(
    endpoints: Float[Tensor, " rollout"],
    valid: Bool[Tensor, " rollout"],
    group_index: Int[Tensor, " rollout"],
    *,
    baseline: Baseline = "group_mean",
    prefix_values: Float[Tensor, " rollout"] | None = None,
) -> Float[Tensor, " rollout"]:
    """Advantage of each continuation, constant over its tokens; 0 where invalid.

        A_i = v_i - (1 / g) sum_j v_j                 group_mean, self included
        A_i = v_i - (1 / (g - 1)) sum_{j != i} v_j    leave_one_out
        A_i = v_i - V(prefix)                         value; 0 where that is NaN

    No division by a deviation. Invalid v_j take part as the mean of the valid ones.

    Raises:
        ValueError: `value` without values.
    """
    filled = filled_endpoints(endpoints, valid, group_index)
    if baseline == "value":
        if prefix_values is None:
            raise ValueError("baseline 'value' needs the values of the prefixes")
        advantages = filled - prefix_values
        return torch.where(valid & advantages.isfinite(), advantages, 0.0)
    sizes = group_sums(torch.ones_like(filled), group_index)[group_index]
    totals = group_sums(filled, group_index)[group_index]
    if baseline == "leave_one_out":
        advantages = filled - (totals - filled) / (sizes - 1).clamp(min=1)
        advantages = torch.where(sizes > 1, advantages, 0.0)
    else:
        advantages = filled - totals / sizes
    return torch.where(valid, advantages, 0.0)


def group_targets(
    endpoints: Float[Tensor, " rollout"],
    valid: Bool[Tensor, " rollout"],
    group_index: Int[Tensor, " rollout"],
    *,
    min_valid: Int[Tensor, " group"],
    grid_size: int | None,
) -> Float[Tensor, " group"]:
    """What a critic should have said of each group's prefix; NaN where nobody knows.

        z = mean of the valid endpoints, on the grid, ties down

    Args:
        endpoints: v_i.
        valid: Whose v_i counts for a target.
        group_index: 0..num_groups-1, in order.
        min_valid: Valid endpoints that a target needs.
        grid_size: Values on the grid between 0 and 1; None does not round.
    """
    means, counts = valid_means(endpoints, valid, group_index)
    targets = means if grid_size is None else on_grid(means, grid_size)
    return torch.where(counts >= min_valid, targets, torch.nan)


def valid_means(
    endpoints: Float[Tensor, " rollout"],
    valid: Bool[Tensor, " rollout"],
    group_index: Int[Tensor, " rollout"],
) -> tuple[Float[Tensor, " group"], Float[Tensor, " group"]]:
    """Mean of each group's valid endpoints, 0 without any, and how many there are."""
    totals = group_sums(torch.where(valid, endpoints, 0.0), group_index)
    counts = group_sums(valid.to(endpoints.dtype), group_index)
    return totals / counts.clamp(min=1), counts


def group_sums(
    x: Float[Tensor, " rollout"], group_index: Int[Tensor, " rollout"]
) -> Float[Tensor, " group"]:
    """Sum of each group's members; groups are numbered 0, 1, ..."""
    num_groups = int(group_index.max()) + 1 if len(group_index) else 0
    return x.new_zeros(num_groups).index_add(0, group_index, x)
