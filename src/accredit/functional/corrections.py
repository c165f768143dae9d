"""Weights for the gap between the engine that sampled and the trainer that learns.

    log_ratio_t = old_logprob_t - sampling_logprob_t

The weight multiplies the loss of its token and carries no gradient; it is 0 where
nothing was sampled. Three scopes with three names: the token's own ratio; the product
over the sequence, which is the unbiased weight and collapses when length x KL is large;
the geometric mean, which does neither. Two ways to bound each: cut at a cap (truncated)
or reject outside a range (masked). None of them knows the current policy.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from accredit.functional.masked import (
    bounded_ratios,
    masked_log_ratios,
    masked_mean,
    masked_sum,
)


def truncated_importance(
    old_logprobs: Float[Tensor, "rollout token"],
    sampling_logprobs: Float[Tensor, "rollout token"],
    sampled: Bool[Tensor, "rollout token"],
    *,
    cap: float = 2.0,
) -> Float[Tensor, "rollout token"]:
    """Importance ratio of each token, cut at a cap (TIS).

        w_t = min(exp(log_ratio_t), cap)

    Args:
        old_logprobs: Trainer's, at the start of the update.
        sampling_logprobs: Engine's.
        sampled: True where the policy chose the token.
        cap: Largest weight, > 0.
    """
    log_ratios = masked_log_ratios(old_logprobs, sampling_logprobs, sampled)
    return _cut(log_ratios, sampled, cap)


def sequence_truncated_importance(
    old_logprobs: Float[Tensor, "rollout token"],
    sampling_logprobs: Float[Tensor, "rollout token"],
    sampled: Bool[Tensor, "rollout token"],
    *,
    cap: float = 2.0,
) -> Float[Tensor, "rollout token"]:
    """Importance ratio of the whole sequence, cut at a cap, on each of its tokens.

        w_t = min(exp(sum_k log_ratio_k), cap)

    Args:
        old_logprobs: Trainer's, at the start of the update.
        sampling_logprobs: Engine's.
        sampled: True where the policy chose the token.
        cap: Largest weight, > 0.
    """
    log_ratios = masked_log_ratios(old_logprobs, sampling_logprobs, sampled)
    return _cut(_summed(log_ratios, sampled), sampled, cap)


def geometric_truncated_importance(
    old_logprobs: Float[Tensor, "rollout token"],
    sampling_logprobs: Float[Tensor, "rollout token"],
    sampled: Bool[Tensor, "rollout token"],
    *,
    cap: float = 2.0,
) -> Float[Tensor, "rollout token"]:
    """Geometric mean ratio of the sequence, cut at a cap, on each of its tokens.

        w_t = min(exp(mean_k log_ratio_k), cap)

    Not an unbiased weight; it does not grow with the length.

    Args:
        old_logprobs: Trainer's, at the start of the update.
        sampling_logprobs: Engine's.
        sampled: True where the policy chose the token.
        cap: Largest weight, > 0.
    """
    log_ratios = masked_log_ratios(old_logprobs, sampling_logprobs, sampled)
    return _cut(_averaged(log_ratios, sampled), sampled, cap)


def masked_importance(
    old_logprobs: Float[Tensor, "rollout token"],
    sampling_logprobs: Float[Tensor, "rollout token"],
    sampled: Bool[Tensor, "rollout token"],
    *,
    accept_low: float,
    accept_high: float,
) -> Float[Tensor, "rollout token"]:
    """Importance ratio of each token, 0 outside a range.

        rho_t = exp(log_ratio_t)
        w_t   = rho_t  where accept_low <= rho_t <= accept_high,    0 elsewhere

    Args:
        old_logprobs: Trainer's, at the start of the update.
        sampling_logprobs: Engine's.
        sampled: True where the policy chose the token.
        accept_low: Smallest accepted ratio, >= 0.
        accept_high: Largest accepted ratio.
    """
    log_ratios = masked_log_ratios(old_logprobs, sampling_logprobs, sampled)
    return _rejected(log_ratios, sampled, accept_low, accept_high)


def sequence_masked_importance(
    old_logprobs: Float[Tensor, "rollout token"],
    sampling_logprobs: Float[Tensor, "rollout token"],
    sampled: Bool[Tensor, "rollout token"],
    *,
    accept_low: float,
    accept_high: float,
) -> Float[Tensor, "rollout token"]:
    """Importance ratio of the whole sequence on each of its tokens, 0 outside a range.

        rho = exp(sum_k log_ratio_k)
        w_t = rho  where accept_low <= rho <= accept_high,    0 elsewhere

    Args:
        old_logprobs: Trainer's, at the start of the update.
        sampling_logprobs: Engine's.
        sampled: True where the policy chose the token.
        accept_low: Smallest accepted ratio, >= 0.
        accept_high: Largest accepted ratio.
    """
    log_ratios = masked_log_ratios(old_logprobs, sampling_logprobs, sampled)
    return _rejected(_summed(log_ratios, sampled), sampled, accept_low, accept_high)


def geometric_masked_importance(
    old_logprobs: Float[Tensor, "rollout token"],
    sampling_logprobs: Float[Tensor, "rollout token"],
    sampled: Bool[Tensor, "rollout token"],
    *,
    accept_low: float,
    accept_high: float,
) -> Float[Tensor, "rollout token"]:
    """Geometric mean ratio of the sequence on each of its tokens, 0 outside a range.

        rho = exp(mean_k log_ratio_k)
        w_t = rho  where accept_low <= rho <= accept_high,    0 elsewhere

    Args:
        old_logprobs: Trainer's, at the start of the update.
        sampling_logprobs: Engine's.
        sampled: True where the policy chose the token.
        accept_low: Smallest accepted ratio, >= 0.
        accept_high: Largest accepted ratio.
    """
    log_ratios = masked_log_ratios(old_logprobs, sampling_logprobs, sampled)
    return _rejected(_averaged(log_ratios, sampled), sampled, accept_low, accept_high)


def _summed(log_ratios: Tensor, sampled: Tensor) -> Tensor:
    return masked_sum(log_ratios, sampled, 1)[:, None].expand_as(log_ratios)


def _averaged(log_ratios: Tensor, sampled: Tensor) -> Tensor:
    return masked_mean(log_ratios, sampled, 1)[:, None].expand_as(log_ratios)


def _cut(log_ratios: Tensor, sampled: Tensor, cap: float) -> Tensor:
    if cap <= 0:
        raise ValueError(f"cap must be > 0, got {cap}; 2 is usual")
    return torch.where(sampled, bounded_ratios(log_ratios).clamp(max=cap), 0.0).detach()


def _rejected(log_ratios: Tensor, sampled: Tensor, low: float, high: float) -> Tensor:
    if not 0 <= low < high:
        raise ValueError(
            "accept_low must be >= 0 and below accept_high, got "
            f"accept_low={low}, accept_high={high}; "
            "they are ratios, not distances from 1"
        )
    ratios = bounded_ratios(log_ratios)
    accepted = sampled & (low <= ratios) & (ratios <= high)
    return torch.where(accepted, ratios, 0.0).detach()
