"""What a critic should have said under the policy that an update made of the old one.

    rule(ratios, outcomes, values, step_mask, *, knobs) -> (targets, weights)

Rollouts are the old policy's; ratio_t = new / old probability of step t. Index t of
values, ratios, targets and weights is one: the prefix *before* step t, whose target
begins with the ratio of that step. A prefix's loss is its weight times the distance to
its target. Steps are right-padded; what a padded step holds, NaN included, reaches no
real step. Targets carry no gradient and are not clamped: a corrected one may lie
outside the range of the outcomes. Source, where no other is named: Fu et al. 2026,
arXiv:2609.26355 (PACT).
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from accredit.functional.scans import (
    has_next,
    require_right_padding,
    reverse_scan,
    window_sums,
)


class Aligned(NamedTuple):
    """Targets of a critic and how much each counts; both exactly 0 at padding."""

    targets: Float[Tensor, "rollout step"]
    """Reward units."""
    weights: Float[Tensor, "rollout step"]
    """Of the prefix's loss, >= 0; 1 is plain."""


def plain_targets(
    ratios: Float[Tensor, "rollout step"],
    outcomes: Float[Tensor, " rollout"],
    values: Float[Tensor, "rollout step+1"],
    step_mask: Bool[Tensor, "rollout step"],
) -> Aligned:
    """The outcome itself: an unbiased target for the old policy (Monte Carlo).

        Y_t = R

    Expectation: V of the old policy. Neither ratios nor values are read.

    Args:
        ratios: New / old probability of each step.
        outcomes: R of each rollout.
        values: Of the critic, frozen; one column more than there are steps.
        step_mask: True at real steps, False at right padding.
    """
    targets = outcomes[:, None].expand_as(step_mask)
    return _uniform(targets, step_mask)


def pact_targets(
    ratios: Float[Tensor, "rollout step"],
    outcomes: Float[Tensor, " rollout"],
    values: Float[Tensor, "rollout step+1"],
    step_mask: Bool[Tensor, "rollout step"],
) -> Aligned:
    """The outcome times the ratio of the step that follows the prefix (PACT).

        Y_t = ratio_t R

    Expectation: V of "step t from the new policy, the rest from the old one". Exceeds
    the largest outcome wherever the ratio exceeds 1. Ratio 1 gives `plain_targets`;
    values are not read.

    Args:
        ratios: New / old probability of each step.
        outcomes: R of each rollout.
        values: Of the critic, frozen; one column more than there are steps.
        step_mask: True at real steps, False at right padding.
    """
    return _uniform(ratios * outcomes[:, None], step_mask)


def weighted_targets(
    ratios: Float[Tensor, "rollout step"],
    outcomes: Float[Tensor, " rollout"],
    values: Float[Tensor, "rollout step+1"],
    step_mask: Bool[Tensor, "rollout step"],
) -> Aligned:
    """The outcome as target, the ratio as weight of its loss.

        Y_t = R,    w_t = ratio_t

    The minimiser of the expected loss is that of `pact_targets`, while the target stays
    within the range of the outcomes. Values are not read.

    Args:
        ratios: New / old probability of each step, >= 0.
        outcomes: R of each rollout.
        values: Of the critic, frozen; one column more than there are steps.
        step_mask: True at real steps, False at right padding.
    """
    targets = outcomes[:, None].expand_as(step_mask)
    plain = _uniform(targets, step_mask)
    return Aligned(plain.targets, torch.where(step_mask, ratios, 0.0).detach())


def doubly_robust_targets(
    ratios: Float[Tensor, "rollout step"],
    outcomes: Float[Tensor, " rollout"],
    values: Float[Tensor, "rollout step+1"],
    step_mask: Bool[Tensor, "rollout step"],
) -> Aligned:
    """The value, moved by the ratio times what the outcome says beyond it.

        Y_t = V_t + ratio_t (R - V_t)

    Expectation: that of `pact_targets`, whatever V is, because the ratio has mean 1.
    Only what V does not foresee is multiplied, which lowers the variance wherever V is
    near the outcomes. V = 0 gives `pact_targets`; ratio 1 or R = V, the outcome; equal
    to `windowed_targets` with a window of 0.

    Args:
        ratios: New / old probability of each step.
        outcomes: R of each rollout.
        values: Of the critic, frozen; one column more than there are steps.
        step_mask: True at real steps, False at right padding.
    """
    before = values[:, :-1]
    return _uniform(before + ratios * (outcomes[:, None] - before), step_mask)


def windowed_targets(
    ratios: Float[Tensor, "rollout step"],
    outcomes: Float[Tensor, " rollout"],
    values: Float[Tensor, "rollout step+1"],
    step_mask: Bool[Tensor, "rollout step"],
    *,
    window: int,
) -> Aligned:
    """First-order correction by the steps of a window.

        Y_t = R + sum_{k=t}^{t+window} (ratio_k - 1)(R - V_k),  cut at the last step

    The exact correction is the product of all later ratios; this keeps the terms with
    one factor ratio - 1. Expectation with the window at full length: V of the new
    policy + O(change^2). V_k lowers the variance and leaves the expectation.

    Args:
        ratios: New / old probability of each step.
        outcomes: R of each rollout.
        values: Of the critic, frozen; one column more than there are steps.
        step_mask: True at real steps, False at right padding.
        window: Later steps whose ratio counts too; 0 keeps the step's own.

    Raises:
        ValueError: `window` is negative, or `step_mask` has a gap.
    """
    if window < 0:
        raise ValueError(f"window must be >= 0, got {window}; 0 is the step alone")
    require_right_padding(step_mask)
    surprises = outcomes[:, None] - values[:, :-1]
    corrections = torch.where(step_mask, (ratios - 1.0) * surprises, 0.0)
    targets = outcomes[:, None] + window_sums(corrections, window + 1)
    return _uniform(targets, step_mask)


def vtrace_targets(
    ratios: Float[Tensor, "rollout step"],
    outcomes: Float[Tensor, " rollout"],
    values: Float[Tensor, "rollout step+1"],
    step_mask: Bool[Tensor, "rollout step"],
    *,
    trace_cap: float,
) -> Aligned:
    """Value plus temporal-difference errors under clipped products of ratios (V-trace).

        Y_t = V_t + sum_{k>=t} (prod_{i=t}^{k-1} c_i) rho_k (V_{k+1} - V_k)
        rho_k = c_k = min(ratio_k, trace_cap),    V = R after the last real step

    Espeholt et al. 2018, arXiv:1802.01561, with gamma = 1 and one cap for both kinds.
    Expectation with trace_cap = inf: V of the new policy, whatever the values are. A
    finite cap aims at a policy between the two. Ratio 1 under a cap >= 1 gives R.

    Args:
        ratios: New / old probability of each step.
        outcomes: R of each rollout.
        values: Of the critic, frozen; one column more than there are steps.
        step_mask: True at real steps, False at right padding.
        trace_cap: Largest ratio that counts, > 0; inf clips none.

    Raises:
        ValueError: `trace_cap` is not positive, or `step_mask` has a gap.
    """
    _require_cap("trace_cap", trace_cap)
    require_right_padding(step_mask)
    before = values[:, :-1]
    after = torch.where(has_next(step_mask), values[:, 1:], outcomes[:, None])
    traces = torch.where(step_mask, ratios, 0.0).clamp(max=trace_cap)
    errors = torch.where(step_mask, after - before, 0.0)
    return _uniform(before + reverse_scan(traces * errors, traces), step_mask)


def full_product_targets(
    ratios: Float[Tensor, "rollout step"],
    outcomes: Float[Tensor, " rollout"],
    values: Float[Tensor, "rollout step+1"],
    step_mask: Bool[Tensor, "rollout step"],
    *,
    product_cap: float | None,
) -> Aligned:
    """The outcome times the ratios of all steps that follow the prefix.

        Y_t = min(prod_{k>=t} ratio_k, product_cap) R

    Expectation without a cap: V of the new policy, exactly, and a variance that grows
    with every step. The product is taken in logs. Values are not read.

    Args:
        ratios: New / old probability of each step, >= 0.
        outcomes: R of each rollout.
        values: Of the critic, frozen; one column more than there are steps.
        step_mask: True at real steps, False at right padding.
        product_cap: Largest product that counts, > 0; None caps at the largest number.

    Raises:
        ValueError: `product_cap` is not positive, or `step_mask` has a gap.
    """
    largest = torch.finfo(ratios.dtype).max if product_cap is None else product_cap
    _require_cap("product_cap", largest)
    require_right_padding(step_mask)
    logs = torch.where(step_mask, ratios, 1.0).log()
    products = logs.flip(1).cumsum(1).flip(1).exp().clamp(max=largest)
    return _uniform(products * outcomes[:, None], step_mask)


def accepted_ratios(
    ratios: Float[Tensor, "rollout step"],
    step_mask: Bool[Tensor, "rollout step"],
    low: float,
    high: float,
) -> Bool[Tensor, "rollout step"]:
    """True at the real steps whose ratio a critic is corrected for.

        low <= ratio_t <= high

    Both ends belong to the range. A ratio that is NaN is not accepted.

    Args:
        ratios: New / old probability of each step.
        step_mask: True at real steps; need not be packed.
        low: Smallest ratio; 0 sets no lower bound.
        high: Largest ratio; inf sets no upper bound.

    Raises:
        ValueError: The range is upside down.
    """
    if not low <= high:
        raise ValueError(
            f"the acceptance range must have low <= high, got [{low}, {high}]; "
            "[0, 6] is the paper's"
        )
    return step_mask & (ratios >= low) & (ratios <= high)


def shuffled_ratios(
    ratios: Float[Tensor, "rollout step"],
    step_mask: Bool[Tensor, "rollout step"],
    generator: torch.Generator,
) -> Float[Tensor, "rollout step"]:
    """The same ratios, dealt anew to the real steps of the whole batch.

        ratio'_t = ratio_{s(t)},    s a uniform permutation of the real steps

    The control of every correction: the same numbers, torn from their steps.

    Args:
        ratios: New / old probability of each step.
        step_mask: True at the steps that take part; need not be packed.
        generator: Of the permutation, on the CPU.

    Returns:
        Ratios, as they were where `step_mask` is False.
    """
    kept = ratios[step_mask]
    order = torch.randperm(len(kept), generator=generator).to(kept.device)
    return ratios.masked_scatter(step_mask, kept[order])


def _uniform(targets: Tensor, step_mask: Tensor) -> Aligned:
    """Detached targets, all of weight 1; 0 at padding."""
    kept = torch.where(step_mask, targets, 0.0).detach()
    return Aligned(kept, step_mask.to(kept.dtype))


def _require_cap(name: str, cap: float) -> None:
    if math.isnan(cap) or cap <= 0:
        raise ValueError(f"{name} must be > 0, got {cap}; inf or none clips nothing")
