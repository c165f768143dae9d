"""Credit rules: from rewards and values to an advantage for every sampled token.

All are called as rule(batch, rewards, values) and return a `Credit` without gradient.
`rewards` are the shaped outcomes, one per rollout; `values[t]` is V of `token_ids[:t]`,
so that there is one `prefix` more than there are tokens.
The outcome is a fact about the rollout and is never read through a token mask. Credit
is exactly 0 where the batch is not trainable, and value targets are 0 there too.

A critic is fitted to the targets of a `Credit`, or, once the policy has moved, to those
of `aligned_value_targets`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from accredit.batches.decisions import Steps, chunk_steps, token_steps
from accredit.functional.advantages import (
    bootstrapped_discounts,
    discounted_returns,
    generalized_advantages,
)
from accredit.functional.baselines import group_deviation, scaled_by_deviation
from accredit.functional.masked import masked_log_ratios, whitened
from accredit.functional.shaping import terminal_rewards
from accredit.functional.value_targets import Aligned, shuffled_ratios
from accredit.records import Credit, PolicyChange, ValueTargets
from accredit.types import Batch

Deviation = Callable[
    [
        Float[Tensor, " rollout"],
        Bool[Tensor, " rollout"],
        Int[Tensor, " rollout"],
    ],
    Float[Tensor, " rollout"],
]
"""Called with (rewards, valid, group_index)."""

LambdaRule = Callable[[Int[Tensor, " rollout"]], Float[Tensor, " rollout"]]
"""Called with the number of steps of each rollout."""


@runtime_checkable
class ValueTargetRule(Protocol):
    """What the steps' values should have been; see `functional.value_targets`."""

    def __call__(
        self,
        ratios: Float[Tensor, "rollout step"],
        outcomes: Float[Tensor, " rollout"],
        values: Float[Tensor, "rollout step+1"],
        step_mask: Bool[Tensor, "rollout step"],
    ) -> Aligned: ...


def outcome_credit(
    batch: Batch,
    rewards: Float[Tensor, " rollout"],
    values: Float[Tensor, "rollout prefix"],
) -> Credit:
    """Reward minus the value of the prefix before each sampled token (lambda = 1).

        A_t = R - V_t

    With a group critic, whose value is one number per rollout, this is RLOO, and GRPO
    without the deviation. A truncated rollout is paid its reward: whatever rule the
    recipe has for truncation is in `rewards`.
    """
    advantages = rewards[:, None] - values[:, :-1]
    return Credit(_trainable_only(batch, advantages))


def normalized_outcome_credit(
    batch: Batch,
    rewards: Float[Tensor, " rollout"],
    values: Float[Tensor, "rollout prefix"],
    *,
    deviation: Deviation = group_deviation,
    eps: float = 1e-6,
) -> Credit:
    """Outcome credit divided by the deviation of the group's rewards (GRPO).

        A_t = (R - V_t) / (s + eps)  where s > 0,    R - V_t where s = 0

    Shao et al. 2024, arXiv:2402.03300. s is unbiased (n - 1) and over verified siblings
    only; a group of equal rewards has s = 0 exactly, and with the group mean A = 0.

    Args:
        batch: Says who is verified and who is whose sibling.
        rewards: Shaped outcomes.
        values: Of the group critic.
        deviation: `leave_one_out_deviation` goes with the leave-one-out critic.
        eps: Added to s where s > 0.
    """
    scale = deviation(rewards, batch.verified, batch.group_index)
    advantages = rewards[:, None] - values[:, :-1]
    scaled = scaled_by_deviation(advantages, scale[:, None].expand_as(advantages), eps)
    return Credit(_trainable_only(batch, scaled))


def gae_credit(
    batch: Batch,
    rewards: Float[Tensor, " rollout"],
    values: Float[Tensor, "rollout prefix"],
    *,
    gamma: float = 1.0,
    lambda_: float = 1.0,
) -> Credit:
    """GAE over sampled tokens, observations skipped, with the outcome at the end.

        A_t = delta_t + gamma lambda A_{t'},    delta_t = r_t + gamma V_{t'} - V_t

    t' is the next *sampled* token, so discount and trace decay per decision and credit
    crosses observations. The outcome is received after the last sampled token of a
    finished rollout. A truncated rollout has not received its outcome: the value of its
    last prefix stands in for it, and its reward is not read.
    """
    steps = token_steps(batch.sampled, batch.token_mask)
    return _step_credit(batch, rewards, values, steps, gamma, lambda_)


def decoupled_credit(
    batch: Batch,
    rewards: Float[Tensor, " rollout"],
    values: Float[Tensor, "rollout prefix"],
    *,
    gamma: float = 1.0,
    lambda_policy: float | LambdaRule = 1.0,
    lambda_critic: float = 1.0,
) -> Credit:
    """`gae_credit` with a trace decay of its own for the critic (decoupled GAE).

        A_t = GAE(gamma, lambda_policy),    Y_t = V_t + GAE(gamma, lambda_critic)

    Yuan et al. 2025, arXiv:2503.01491: the policy may trade bias for variance while
    lambda_critic = 1 keeps bootstrapping, and its bias, out of the critic's targets.
    Equal decays give `gae_credit`. A truncated rollout's targets end in the value of
    its last prefix and are kept.

    Args:
        batch: Says which tokens are steps, who is verified and who is truncated.
        rewards: Shaped outcomes.
        values: Of the critic, frozen.
        gamma: Discount a sampled token.
        lambda_policy: One number, or a rule of each rollout's number of sampled tokens,
            as `length_adaptive_lambda`.
        lambda_critic: 1 gives the return as target.
    """
    steps = token_steps(batch.sampled, batch.token_mask)
    given = lambda_policy
    lambda_ = given(steps.step_mask.sum(1)) if callable(given) else given
    dealt = _step_credit(batch, rewards, values, steps, gamma, lambda_)
    taught = _step_credit(batch, rewards, values, steps, gamma, lambda_critic)
    return replace(dealt, value_targets=taught.value_targets)


def chunk_credit(
    batch: Batch,
    rewards: Float[Tensor, " rollout"],
    values: Float[Tensor, "rollout prefix"],
    *,
    chunk_length: int,
) -> Credit:
    """Value at the end of each chunk minus value at its start, on all its tokens.

        A = V_end - V_start,    V_end = R after the last chunk of a finished rollout

    The credit of a segment (PACT, arXiv:2609.26355; AC2, arXiv:2609.39247): chunks of
    `chunk_length` sampled tokens as actions, gamma = 1, lambda = 0. Over a finished
    rollout the chunks' credits sum to R - V of the prompt. Truncation as `gae_credit`.
    """
    steps = chunk_steps(batch.sampled, batch.token_mask, chunk_length)
    return _step_credit(batch, rewards, values, steps, gamma=1.0, lambda_=0.0)


def batch_whitened_credit(
    batch: Batch,
    rewards: Float[Tensor, " rollout"],
    values: Float[Tensor, "rollout prefix"],
    *,
    token_rewards: Float[Tensor, "rollout token"] | None = None,
) -> Credit:
    """Reward-to-go minus value, whitened over all trainable tokens of the batch.

        A_t = whitened(R + sum_{k >= t} r_k - V_t)

    Hu 2025, arXiv:2501.03262 (REINFORCE++), with `ZeroBaseline` values; its variant
    with a group baseline has `GroupMean` values. Truncated rollouts are paid their
    reward.

    Args:
        batch: Says which tokens are trainable.
        rewards: Shaped outcomes.
        values: Subtracted before whitening.
        token_rewards: Rewards per token on top of the outcome, as the KL charge; None
            for none.
    """
    paid = terminal_rewards(rewards, batch.sampled)
    if token_rewards is not None:
        paid = paid + torch.where(batch.sampled, token_rewards, 0.0)
    steps = token_steps(batch.sampled, batch.token_mask)
    undiscounted = steps.step_mask.to(paid.dtype)
    nothing_follows = torch.zeros_like(rewards)
    to_go = discounted_returns(
        steps.sums(paid), undiscounted, nothing_follows, steps.step_mask
    )
    advantages = steps.spread(to_go) - values[:, :-1]
    return Credit(whitened(advantages, batch.trainable).detach())


def paid_at_truncation(batch: Batch) -> Batch:
    """The same batch, its truncated rollouts taken for finished ones.

    The outcome rule for truncation: what the verifier gave is received after the last
    sampled token, and nothing is bootstrapped.
    """
    return replace(batch, truncated=torch.zeros_like(batch.truncated))


def aligned_value_targets(
    batch: Batch,
    rewards: Float[Tensor, " rollout"],
    values: Float[Tensor, "rollout prefix"],
    change: PolicyChange,
    rule: ValueTargetRule,
) -> ValueTargets:
    """What a critic should say of the policy that an update has made.

        ratio_t = exp(new - old) where trainable and accepted,    1 elsewhere
        (Y, w)  = rule(ratio, R, V, sampled tokens as steps)

    A prefix is trained on where its token is trainable and accepted; a rejected ratio
    corrects no other prefix either. Observations are skipped: the value after a turn is
    read after its observation. A truncated rollout's reward is its outcome, as in
    `outcome_credit`: whatever rule the recipe has for truncation is in `rewards`.

    Args:
        batch: The old policy's rollouts.
        rewards: Shaped outcomes; not read where unverified.
        values: Of the critic, frozen.
        change: Log-probs of the batch before and after the update.
        rule: One of `functional.value_targets`, its knobs set.
    """
    where = batch.trainable & change.accepted
    log_ratios = masked_log_ratios(change.new_logprobs, change.old_logprobs, where)
    steps = token_steps(batch.sampled, batch.token_mask)
    targets, weights = rule(
        steps.sums(log_ratios.exp()),
        torch.where(batch.verified, rewards, 0.0),
        steps.prefix_values(values),
        steps.step_mask,
    )
    kept = [torch.where(where, steps.spread(x), 0.0) for x in (targets, weights)]
    return ValueTargets(kept[0].detach(), kept[1].detach(), where)


def shuffled_change(batch: Batch, change: PolicyChange, seed: int) -> PolicyChange:
    """Control: the accepted ratios, dealt anew to the tokens that had them.

    Which tokens are accepted stays as it is, and so do the ratios of all others.
    """
    where = batch.trainable & change.accepted
    log_ratios = masked_log_ratios(change.new_logprobs, change.old_logprobs, where)
    generator = torch.Generator().manual_seed(seed)
    moved = change.old_logprobs + shuffled_ratios(log_ratios, where, generator)
    new_logprobs = torch.where(where, moved, change.new_logprobs)
    return replace(change, new_logprobs=new_logprobs)


def _step_credit(
    batch: Batch,
    rewards: Float[Tensor, " rollout"],
    values: Float[Tensor, "rollout prefix"],
    steps: Steps,
    gamma: float,
    lambda_: float | Float[Tensor, " rollout"],
) -> Credit:
    """GAE over any steps; the target of a step's value stands at the step's start."""
    received = torch.where(batch.verified & ~batch.truncated, rewards, 0.0)
    step_values = steps.prefix_values(values)
    discounts = bootstrapped_discounts(
        steps.step_mask, batch.truncated, gamma, step_values.dtype
    )
    advantages = generalized_advantages(
        steps.sums(terminal_rewards(received, batch.sampled)),
        discounts,
        step_values,
        steps.step_mask,
        lambda_,
    )
    targets = torch.where(batch.verified[:, None], advantages + step_values[:, :-1], 0)
    return Credit(
        _trainable_only(batch, steps.spread(advantages)),
        steps.at_starts(targets).detach(),
    )


def _trainable_only(batch: Batch, advantages: Tensor) -> Tensor:
    return torch.where(batch.trainable, advantages, 0.0).detach()
