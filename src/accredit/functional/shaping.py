"""Rewards before credit is dealt: length penalties, and rewards per token.

Shaping comes before any baseline: a leave-one-out mean is taken over shaped rewards.
Nothing here reads a clock, a text or a model.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from accredit.functional.masked import masked_log_ratios


def soft_overlong_penalty(
    lengths: Int[Tensor, " rollout"],
    *,
    max_length: int,
    cache: int,
    factor: float = 1.0,
) -> Float[Tensor, " rollout"]:
    """Penalty that grows linearly over the last tokens of the budget (soft overlong).

        start   = max_length - cache
        penalty = -factor clip((L - start) / cache, 0, 1)

    Yu et al. 2025, arXiv:2503.14476. To be added to the reward.

    Args:
        lengths: Tokens of each completion.
        max_length: Length at which the penalty is full, tokens.
        cache: Width of the ramp before it, tokens.
        factor: Size of the full penalty, reward units.

    Returns:
        Reward units, in [-factor, 0].

    Raises:
        ValueError: `cache` is not within 1..max_length, or `factor` is negative.
    """
    if not 1 <= cache <= max_length:
        raise ValueError(
            f"cache must be in 1..max_length, got cache={cache}, "
            f"max_length={max_length}; it is the ramp before the limit, in tokens"
        )
    if factor < 0:
        raise ValueError(f"factor must be >= 0, got {factor}; it is subtracted")
    excess = (lengths - (max_length - cache)).to(torch.float32) / cache
    return -factor * excess.clamp(0.0, 1.0)


def terminal_rewards(
    rewards: Float[Tensor, " rollout"], sampled: Bool[Tensor, "rollout token"]
) -> Float[Tensor, "rollout token"]:
    """Each rollout's reward on its last sampled token, 0 elsewhere.

        r_t = R  at the last t with sampled_t,    0 elsewhere

    The stop token is sampled, so it is the one that is paid; padding and a trailing
    observation never are. A rollout without sampled tokens has nothing to pay.

    Returns:
        Reward units.
    """
    num_sampled = sampled.cumsum(1)
    last = sampled & (num_sampled == num_sampled[:, -1:])
    return torch.where(last, rewards[:, None], 0.0)


def kl_shaped_rewards(
    rewards: Float[Tensor, " rollout"],
    logprobs: Float[Tensor, "rollout token"],
    reference_logprobs: Float[Tensor, "rollout token"],
    sampled: Bool[Tensor, "rollout token"],
    *,
    kl_coefficient: float,
) -> Float[Tensor, "rollout token"]:
    """Token rewards that pay the outcome at the end and charge the KL on the way.

        r_t = -beta (log pi(a_t) - log ref(a_t)) + R 1[t is the last sampled token]

    Ouyang et al. 2022, arXiv:2203.02155, with k1; in the reward, detached, its gradient
    is that of KL(pi || ref).

    Args:
        rewards: Outcome of each rollout.
        logprobs: Of the policy that sampled, read without gradient.
        reference_logprobs: Of the frozen reference.
        sampled: True where the policy chose the token.
        kl_coefficient: beta, reward units per nat.

    Returns:
        Reward units, exactly 0 where not sampled.
    """
    kl = masked_log_ratios(logprobs, reference_logprobs, sampled).detach()
    return terminal_rewards(rewards, sampled) - kl_coefficient * kl
