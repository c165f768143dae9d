"""Policy-gradient losses per token, under one signature.

    loss(logprobs, old_logprobs, advantages, sampled, *, knobs) -> "rollout token"

Minimising them raises the probability of tokens with positive advantage. Each is
exactly 0 where nothing was sampled, whatever the other arguments hold there. None of
them averages: `aggregation.py` weighs the tokens. None knows where advantages are from.
Every ratio is `masked.bounded_ratios`, so that one row cannot make the loss of all the
others infinite: past e^20 a surrogate is a constant without gradient, as where it is
clipped, and a detached weight stays at e^20.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from accredit.functional.masked import (
    LOG_RATIO_BOUND,
    bounded_ratios,
    masked_log_ratios,
    masked_mean,
)


def policy_gradient(
    logprobs: Float[Tensor, "rollout token"],
    old_logprobs: Float[Tensor, "rollout token"],
    advantages: Float[Tensor, "rollout token"],
    sampled: Bool[Tensor, "rollout token"],
) -> Float[Tensor, "rollout token"]:
    """Negative log-prob weighted by the advantage (REINFORCE).

        L_t = -A_t log pi(a_t)

    Williams 1992. Correct for tokens the current policy sampled; `old_logprobs` is not
    read.
    """
    return -_kept(advantages, sampled) * torch.where(sampled, logprobs, 0.0)


def clipped_surrogate(
    logprobs: Float[Tensor, "rollout token"],
    old_logprobs: Float[Tensor, "rollout token"],
    advantages: Float[Tensor, "rollout token"],
    sampled: Bool[Tensor, "rollout token"],
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
) -> Float[Tensor, "rollout token"]:
    """Pessimistic importance-weighted policy-gradient loss (PPO-clip).

        rho_t = exp(log pi(a_t) - log pi_old(a_t))
        L_t   = -min(rho_t A_t, clip(rho_t, 1 - clip_low, 1 + clip_high) A_t)
        L_t   = min(L_t, -dual_clip A_t)  where A_t < 0 and dual_clip is given

    Schulman et al. 2017, arXiv:1707.06347; two-sided bounds from arXiv:2503.14476; dual
    clip from Ye et al. 2020, arXiv:1912.09729. At rho = 1 the gradient is that of
    `policy_gradient`. A clipped token is a constant: it has no gradient, even where its
    ratio overflows.

    Args:
        logprobs: Current, with gradient.
        old_logprobs: Of the policy at the start of the update.
        advantages: Reward units, no gradient.
        sampled: True where the policy chose the token.
        clip_low: How far the ratio may fall below 1, in [0, 1].
        clip_high: How far it may rise above 1, >= 0; inf does not clip.
        dual_clip: Largest ratio that counts against a negative advantage, > 1.

    Raises:
        ValueError: A bound lies outside its range.
    """
    log_ratios = masked_log_ratios(logprobs, old_logprobs, sampled)
    kept = _kept(advantages, sampled)
    return _pessimistic(log_ratios, kept, clip_low, clip_high, dual_clip)


def sequence_clipped_surrogate(
    logprobs: Float[Tensor, "rollout token"],
    old_logprobs: Float[Tensor, "rollout token"],
    advantages: Float[Tensor, "rollout token"],
    sampled: Bool[Tensor, "rollout token"],
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
) -> Float[Tensor, "rollout token"]:
    """Clipped surrogate with one ratio for the whole sequence (GSPO).

        s   = exp(mean_k (log pi(a_k) - log pi_old(a_k)))
        L_t = -min(s_t A_t, clip(s_t, 1 - clip_low, 1 + clip_high) A_t)
        s_t = s in value, d s_t = s d log pi(a_t) in gradient

    Zheng et al. 2025, arXiv:2507.18071, in the form that keeps each token's gradient
    its own; averaged over the tokens of a sequence with one advantage it is their
    sequence loss, in value and in gradient.

    Args:
        logprobs: Current, with gradient.
        old_logprobs: Of the policy at the start of the update.
        advantages: Reward units, no gradient.
        sampled: True where the policy chose the token.
        clip_low: How far the sequence ratio may fall below 1, in [0, 1].
        clip_high: How far it may rise above 1, >= 0.

    Raises:
        ValueError: A bound lies outside its range.
    """
    log_ratios = masked_log_ratios(logprobs, old_logprobs, sampled)
    mean_log_ratios = masked_mean(log_ratios, sampled, 1)[:, None]
    own = log_ratios - log_ratios.detach()
    kept = _kept(advantages, sampled)
    return _pessimistic(mean_log_ratios.detach() + own, kept, clip_low, clip_high, None)


def clipped_importance(
    logprobs: Float[Tensor, "rollout token"],
    old_logprobs: Float[Tensor, "rollout token"],
    advantages: Float[Tensor, "rollout token"],
    sampled: Bool[Tensor, "rollout token"],
    *,
    clip_low: float = 1.0,
    clip_high: float = 0.28,
) -> Float[Tensor, "rollout token"]:
    """Policy gradient under a clipped, detached importance weight (CISPO).

        L_t = -stop_gradient(clip(rho_t, 1 - clip_low, 1 + clip_high)) A_t log pi(a_t)

    MiniMax 2025, arXiv:2506.13585. Every token keeps its gradient: the weight is
    clipped, the update is not. clip_low = 1 leaves the lower side open.

    Args:
        logprobs: Current, with gradient.
        old_logprobs: Of the policy at the start of the update.
        advantages: Reward units, no gradient.
        sampled: True where the policy chose the token.
        clip_low: How far the weight may fall below 1, in [0, 1].
        clip_high: How far it may rise above 1, >= 0.

    Raises:
        ValueError: A bound lies outside its range.
    """
    _require_clip_range(clip_low, clip_high)
    log_ratios = masked_log_ratios(logprobs, old_logprobs, sampled).detach()
    weights = bounded_ratios(log_ratios).clamp(1.0 - clip_low, 1.0 + clip_high)
    kept = _kept(advantages, sampled)
    return -weights * kept * torch.where(sampled, logprobs, 0.0)


def double_sided_importance(
    logprobs: Float[Tensor, "rollout token"],
    old_logprobs: Float[Tensor, "rollout token"],
    advantages: Float[Tensor, "rollout token"],
    sampled: Bool[Tensor, "rollout token"],
    *,
    accept_low: float = 0.7,
    accept_high: float = 6.0,
) -> Float[Tensor, "rollout token"]:
    """Importance-weighted policy gradient that drops tokens outside a range (DIS).

        L_t = -stop_gradient(rho_t A_t) log pi(a_t)
              where accept_low < rho_t < accept_high,    0 elsewhere

    SAO, arXiv:2607.07508: both sides, whatever the sign of A. A rejected token loses
    its gradient and keeps its place in the denominator, since `sampled` decides that.

    Args:
        logprobs: Current, with gradient.
        old_logprobs: SAO takes the engine's, with no frozen old policy.
        advantages: Reward units, no gradient.
        sampled: True where the policy chose the token.
        accept_low: Ratio below which a token is dropped, >= 0.
        accept_high: Ratio above which a token is dropped.

    Raises:
        ValueError: The range is empty or negative.
    """
    if not 0 <= accept_low < accept_high:
        raise ValueError(
            "accept_low must be >= 0 and below accept_high, got "
            f"accept_low={accept_low}, accept_high={accept_high}; "
            "they are ratios, not distances from 1"
        )
    log_ratios = masked_log_ratios(logprobs, old_logprobs, sampled).detach()
    ratios = bounded_ratios(log_ratios)
    accepted = sampled & (accept_low < ratios) & (ratios < accept_high)
    weights = torch.where(accepted, ratios, 0.0) * _kept(advantages, sampled)
    return -weights * torch.where(sampled, logprobs, 0.0)


def _kept(advantages: Tensor, sampled: Tensor) -> Tensor:
    return torch.where(sampled, advantages, 0.0).detach()


def _pessimistic(
    log_ratios: Tensor,
    advantages: Tensor,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None,
) -> Tensor:
    """-A rho with rho bounded on the side where the bound costs, and there only."""
    _require_clip_range(clip_low, clip_high)
    if dual_clip is not None and not dual_clip > 1:
        raise ValueError(
            f"dual_clip must be > 1, got {dual_clip}; leave it out for no dual clip"
        )
    falling = advantages < 0
    ceiling = torch.inf if dual_clip is None else dual_clip
    lowest = torch.where(falling, 1.0 - clip_low, 0.0)
    highest = torch.where(falling, ceiling, 1.0 + clip_high)
    ratios = bounded_ratios(log_ratios.detach())
    bounded = ratios.clamp(lowest, highest)
    # A clipped token must not meet exp() at all: 0 * inf in the backward pass is NaN.
    active = (bounded == ratios) & (log_ratios <= LOG_RATIO_BOUND)
    moving = torch.where(active, log_ratios, 0.0).exp()
    return -advantages * torch.where(active, moving, bounded)


def _require_clip_range(clip_low: float, clip_high: float) -> None:
    if not 0 <= clip_low <= 1:
        raise ValueError(
            f"clip_low must be in [0, 1], got {clip_low}; it is a distance from 1"
        )
    if not clip_high >= 0:
        raise ValueError(
            f"clip_high must be >= 0, got {clip_high}; it is a distance from 1"
        )
