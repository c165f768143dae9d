"""Advantages and returns over steps, as pure functions of rewards and values.

A *step* is one decision of the policy: a token, or a chunk of tokens; `decisions.py`
packs them, so that nothing here sees an observation, but for the two functions with
"observation" in their names, which are there to be compared with. Steps are
right-padded, and what a padded step holds, NaN included, reaches no real step. Nothing
normalizes its result.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from accredit.functional.scans import has_next, require_right_padding, reverse_scan


def generalized_advantages(
    rewards: Float[Tensor, "rollout step"],
    discounts: Float[Tensor, "rollout step"],
    values: Float[Tensor, "rollout step+1"],
    step_mask: Bool[Tensor, "rollout step"],
    lambda_: float | Float[Tensor, " rollout"],
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
        lambda_: Bias-variance dial in [0, 1]: one for all, or one for each rollout.

    Returns:
        Advantages in reward units, exactly 0 at padding.

    Raises:
        ValueError: A `lambda_` lies outside [0, 1], or `step_mask` has a gap.
    """
    lambdas = _trace_decays(lambda_, discounts)
    require_right_padding(step_mask)
    deltas = _one_step_returns(rewards, discounts, values, step_mask) - torch.where(
        step_mask, values[:, :-1], 0.0
    )
    return reverse_scan(deltas, torch.where(step_mask, discounts, 0.0) * lambdas)


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
    require_right_padding(step_mask)
    one_step = _one_step_returns(rewards, discounts, values, step_mask)
    kept_rewards = torch.where(step_mask, rewards, 0.0)
    kept_discounts = torch.where(step_mask, discounts, 0.0)
    follows = has_next(step_mask)
    returns = one_step
    for _ in range(min(num_steps, rewards.shape[1]) - 1):
        longer = kept_rewards + kept_discounts * returns.roll(-1, dims=1)
        returns = torch.where(follows, longer, one_step)
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
    require_right_padding(step_mask)
    bootstrapped = step_mask & ~has_next(step_mask) & (discounts != 0)
    kept_discounts = torch.where(step_mask, discounts, 0.0)
    arriving = kept_discounts * torch.where(bootstrapped, bootstrap[:, None], 0.0)
    increments = torch.where(step_mask, rewards, 0.0) + arriving
    return reverse_scan(increments, kept_discounts)


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
    followed = step_mask & (has_next(step_mask) | truncated[:, None])
    return torch.where(followed, gamma, 0.0).to(dtype)


def length_adaptive_lambda(
    num_steps: Int[Tensor, " rollout"],
    alpha: float,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, " rollout"]:
    """Trace decay that nears 1 as a rollout gets longer.

        lambda = max(1 - 1 / (alpha L), 0)

    VAPO, arXiv:2504.05118, with alpha = .05; SAO, arXiv:2607.07508, with 1.5. The
    weights of GAE's errors then sum to about alpha L, whatever L is. Rollouts of at
    most 1 / alpha steps get 0.

    Args:
        num_steps: L, the steps of each rollout.
        alpha: Share of the rollout that a trace lives, > 0.
        dtype: Of the result.

    Raises:
        ValueError: `alpha` is not positive.
    """
    if not alpha > 0:
        raise ValueError(f"alpha must be > 0, got {alpha}; large values near lambda 1")
    return (1.0 - 1.0 / (alpha * num_steps.to(dtype))).clamp(min=0.0)


def counted_observation_advantages(
    rewards: Float[Tensor, "rollout token"],
    discounts: Float[Tensor, "rollout token"],
    values: Float[Tensor, "rollout token+1"],
    token_mask: Bool[Tensor, "rollout token"],
    sampled: Bool[Tensor, "rollout token"],
    lambda_: float | Float[Tensor, " rollout"],
) -> Float[Tensor, "rollout token"]:
    """GAE that takes every observation token for a step of the policy.

        delta_t = r_t + gamma_t V_{t+1} - V_t
        A_t     = delta_t + gamma_t lambda A_{t+1},    t over all tokens

    A convention of other libraries, here for comparison: credit decays over what the
    policy did not choose. lambda = 1 gives what skipping observations gives.

    Args:
        rewards: Reward received after token t.
        discounts: gamma after token t; at the last one as for `generalized_advantages`.
        values: V of the prefix before token t, of observations too.
        token_mask: True at real tokens, False at right padding.
        sampled: True where the policy chose the token.
        lambda_: As for `generalized_advantages`, per token.

    Returns:
        Advantages in reward units, exactly 0 where not sampled.

    Raises:
        ValueError: A `lambda_` lies outside [0, 1], or `token_mask` has a gap.
    """
    advantages = generalized_advantages(rewards, discounts, values, token_mask, lambda_)
    return torch.where(sampled, advantages, 0.0)


def zeroed_observation_advantages(
    rewards: Float[Tensor, "rollout token"],
    discounts: Float[Tensor, "rollout token"],
    values: Float[Tensor, "rollout token+1"],
    token_mask: Bool[Tensor, "rollout token"],
    sampled: Bool[Tensor, "rollout token"],
    lambda_: float | Float[Tensor, " rollout"],
) -> Float[Tensor, "rollout token"]:
    """GAE over all tokens, with the value of an observation's prefix taken for 0.

        V'_t = V_t where token t was sampled or nothing follows,    0 elsewhere
        A_t  = `counted_observation_advantages` of V'

    A convention of other libraries, here for comparison: where a turn ends, the policy
    is charged its value, and it is paid back where the next one begins. lambda = 1
    gives what skipping observations gives.

    Args:
        rewards: Reward received after token t.
        discounts: gamma after token t; at the last one as for `generalized_advantages`.
        values: V of the prefix before token t; the last column is the bootstrap.
        token_mask: True at real tokens, False at right padding.
        sampled: True where the policy chose the token.
        lambda_: As for `generalized_advantages`, per token.

    Returns:
        Advantages in reward units, exactly 0 where not sampled.

    Raises:
        ValueError: A `lambda_` lies outside [0, 1], or `token_mask` has a gap.
    """
    observed = torch.zeros_like(values, dtype=torch.bool)
    observed[:, :-1] = token_mask & ~sampled
    zeroed = torch.where(observed, 0.0, values)
    return counted_observation_advantages(
        rewards, discounts, zeroed, token_mask, sampled, lambda_
    )


def _trace_decays(lambda_: float | Tensor, discounts: Tensor) -> Tensor:
    """One lambda in [0, 1] a row, as a column."""
    lambdas = torch.as_tensor(lambda_, dtype=discounts.dtype, device=discounts.device)
    outside = ~((lambdas >= 0) & (lambdas <= 1))
    if bool(outside.any()):
        raise ValueError(
            "lambda_ must be in [0, 1], got "
            f"{float(lambdas[outside].flatten()[0]):g}; 1 is return minus value"
        )
    return lambdas.reshape(-1, 1)


def _one_step_returns(
    rewards: Tensor, discounts: Tensor, values: Tensor, step_mask: Tensor
) -> Tensor:
    """r_t + gamma_t V_{t+1}, 0 at padding; V is not read where the discount is 0."""
    bootstrapped = step_mask & (discounts != 0)
    next_values = torch.where(bootstrapped, values[:, 1:], 0.0)
    kept_discounts = torch.where(bootstrapped, discounts, 0.0)
    return torch.where(step_mask, rewards, 0.0) + kept_discounts * next_values
