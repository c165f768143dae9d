"""Advantages and returns over steps, as pure functions of rewards and values.

A *step* is one decision of the policy: a token, or a chunk of tokens; `decisions.py`
packs them, so that nothing here sees an observation. Steps are right-padded, and what a
padded step holds, NaN included, reaches no real step. Nothing normalizes its result.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def generalized_advantages(
    rewards: Float[Tensor, "rollout step"],
    discounts: Float[Tensor, "rollout step"],
    values: Float[Tensor, "rollout step+1"],
    step_mask: Bool[Tensor, "rollout step"],
    lambda_: float,
) -> Float[Tensor, "rollout step"]:
    """Exponentially weighted sum of temporal-difference errors (GAE).

        delta_t = r_t + gamma_t V_{t+1} - V_t
        A_t     = delta_t + gamma_t lambda A_{t+1},    A = 0 after the last real step

    Schulman et al. 2016, arXiv:1506.02438, GAE(gamma, lambda) with the sum cut at the
    last step. lambda = 1 gives return minus value; lambda = 0, delta. Not whitened.

    Args:
        rewards: Reward received after step t.
        discounts: gamma after step t. 0 at the last step of a finished rollout; gamma
            at the last step of a truncated one, whose next value is the bootstrap.
        values: V of the prefix before step t; column t + 1 is the prefix after it, and
            is not read where the discount is 0.
        step_mask: True at real steps, False at right padding.
        lambda_: Bias-variance dial in [0, 1].

    Returns:
        Advantages in reward units, exactly 0 at padding.

    Raises:
        ValueError: `lambda_` lies outside [0, 1], or `step_mask` has a gap.
    """
    if not 0.0 <= lambda_ <= 1.0:
        raise ValueError(
            f"lambda_ must be in [0, 1], got {lambda_}; 1 is return minus value"
        )
    _require_right_padding(step_mask)
    deltas = _one_step_returns(rewards, discounts, values, step_mask) - torch.where(
        step_mask, values[:, :-1], 0.0
    )
    return _reverse_scan(deltas, torch.where(step_mask, discounts, 0.0) * lambda_)


def n_step_advantages(
    rewards: Float[Tensor, "rollout step"],
    discounts: Float[Tensor, "rollout step"],
    values: Float[Tensor, "rollout step+1"],
    step_mask: Bool[Tensor, "rollout step"],
    num_steps: int,
) -> Float[Tensor, "rollout step"]:
    """Return of `num_steps` rewards plus a bootstrap, minus the value.

        R^1_t = r_t + gamma_t V_{t+1}
        R^n_t = r_t + gamma_t R^{n-1}_{t+1},    R = V after the last real step
        A_t   = R^n_t - V_t

    Sutton and Barto 2018, n-step returns. One step gives the temporal-difference error,
    as many as the rollout has give GAE's lambda = 1. Not whitened.

    Args:
        rewards: Reward received after step t.
        discounts: As for `generalized_advantages`.
        values: V of the prefix before step t; one column more than there are steps.
        step_mask: True at real steps, False at right padding.
        num_steps: Rewards taken from the rollout before the critic is believed.

    Returns:
        Advantages in reward units, exactly 0 at padding.

    Raises:
        ValueError: `num_steps` is below 1, or `step_mask` has a gap.
    """
    if num_steps < 1:
        raise ValueError(f"num_steps must be at least 1, got {num_steps}; 1 is TD(0)")
    _require_right_padding(step_mask)
    one_step = _one_step_returns(rewards, discounts, values, step_mask)
    kept_rewards = torch.where(step_mask, rewards, 0.0)
    kept_discounts = torch.where(step_mask, discounts, 0.0)
    has_next = _has_next(step_mask)
    returns = one_step
    for _ in range(min(num_steps, rewards.shape[1]) - 1):
        longer = kept_rewards + kept_discounts * returns.roll(-1, dims=1)
        returns = torch.where(has_next, longer, one_step)
    return returns - torch.where(step_mask, values[:, :-1], 0.0)


def discounted_returns(
    rewards: Float[Tensor, "rollout step"],
    discounts: Float[Tensor, "rollout step"],
    bootstrap: Float[Tensor, " rollout"],
    step_mask: Bool[Tensor, "rollout step"],
) -> Float[Tensor, "rollout step"]:
    """Discounted sum of the rewards still to come (return, reward-to-go).

        G_t = r_t + gamma_t G_{t+1},    G = bootstrap after the last real step

    Args:
        rewards: Reward received after step t.
        discounts: As for `generalized_advantages`.
        bootstrap: Value of the prefix after the last real step; not read where that
            step's discount is 0.
        step_mask: True at real steps, False at right padding.

    Returns:
        Returns in reward units, exactly 0 at padding.

    Raises:
        ValueError: `step_mask` has a gap.
    """
    _require_right_padding(step_mask)
    bootstrapped = step_mask & ~_has_next(step_mask) & (discounts != 0)
    kept_discounts = torch.where(step_mask, discounts, 0.0)
    arriving = kept_discounts * torch.where(bootstrapped, bootstrap[:, None], 0.0)
    increments = torch.where(step_mask, rewards, 0.0) + arriving
    return _reverse_scan(increments, kept_discounts)


def bootstrapped_discounts(
    step_mask: Bool[Tensor, "rollout step"],
    truncated: Bool[Tensor, " rollout"],
    gamma: float,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "rollout step"]:
    """gamma after every real step, but 0 after the last one of a finished rollout.

        gamma_t = gamma,    0 at the last real step unless truncated, 0 at padding

    Truncation is a fact about the rollout and is never guessed from its length.

    Args:
        step_mask: True at real steps, False at right padding.
        truncated: True where something would have followed, so that its value counts.
        gamma: Discount per step in [0, 1].
        dtype: Of the result.

    Raises:
        ValueError: `gamma` lies outside [0, 1].
    """
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"gamma must be in [0, 1], got {gamma}; 1 is undiscounted")
    followed = step_mask & (_has_next(step_mask) | truncated[:, None])
    return torch.where(followed, gamma, 0.0).to(dtype)


def _one_step_returns(
    rewards: Tensor, discounts: Tensor, values: Tensor, step_mask: Tensor
) -> Tensor:
    """r_t + gamma_t V_{t+1}, 0 at padding; V is not read where the discount is 0."""
    bootstrapped = step_mask & (discounts != 0)
    next_values = torch.where(bootstrapped, values[:, 1:], 0.0)
    kept_discounts = torch.where(bootstrapped, discounts, 0.0)
    return torch.where(step_mask, rewards, 0.0) + kept_discounts * next_values


def _reverse_scan(increments: Tensor, decays: Tensor) -> Tensor:
    """x_t = increment_t + decay_t x_{t+1} with x = 0 at the end; both 0 at padding."""
    following = increments.new_zeros(len(increments))
    scanned: list[Tensor] = []
    for t in reversed(range(increments.shape[1])):
        following = increments[:, t] + decays[:, t] * following
        scanned.append(following)
    return torch.stack(scanned[::-1], dim=1) if scanned else increments


def _has_next(step_mask: Tensor) -> Tensor:
    """True where a real step follows."""
    has_next = torch.zeros_like(step_mask)
    has_next[:, :-1] = step_mask[:, 1:]
    return has_next


def _require_right_padding(step_mask: Tensor) -> None:
    gaps = (step_mask[:, 1:] & ~step_mask[:, :-1]).any(dim=1)
    if bool(gaps.any()):
        row = int(gaps.nonzero()[0])
        raise ValueError(
            "step_mask must be True first and False after (right padding), got a gap "
            f"in row {row}; pack the sampled tokens with `decisions.chunk_steps` first"
        )
