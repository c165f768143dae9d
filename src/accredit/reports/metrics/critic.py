"""How well a step's critic foresaw the outcome, whoever the critic is.

A group mean is a critic too: it is asked the same questions as a value head. V of the
prefix before a token is compared with the outcome R of its rollout, the shaped reward;
the credit of a step is the move of V over it, with R as the last value. A rollout whose
outcome is not known is asked nothing: a critic is not measured by its own word.
"""

import math
from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from accredit.batches.decisions import Steps, token_steps
from accredit.functional.calibration import (
    bias,
    constant_error,
    correlation,
    explained_variance,
    mean_absolute_error,
    separation,
)
from accredit.functional.pooled import (
    SMALLEST_SPREAD,
    Tokens,
    finite_mean,
    largest,
    log_ratios,
    mean,
    share,
    varies,
)
from accredit.records import CriticUpdate, PolicyChange, Record
from accredit.types import Batch

Row = Mapping[str, float | int | None]

LARGE_CREDIT = 0.1
"""Reward units from which a token's credit counts as large."""
LARGEST_VARIANCE = 0.25
"""Of a reward in [0, 1]."""


def critic_metrics(record: Record, success_at: float) -> dict[str, float | int | None]:
    """The health of a step's critic, and what a critic with parameters did.

    Args:
        success_at: The reward from which a rollout counts as a success.
    """
    steps = token_steps(record.batch.sampled, record.batch.token_mask)
    values = step_values(steps, record.values, record.shaped_rewards).double()
    known = known_outcomes(record)
    metrics = _foresight(record, known, success_at) | _dealt(record)
    metrics |= _prompt_errors(record, known, steps, values)
    metrics |= _step_credits(record, known, steps, values)
    verified = record.batch.verified
    metrics["critic/unknown_share"] = share(
        int((verified & ~known).sum()), int(verified.sum())
    )
    if record.valued_by_critic:
        metrics["critic/valued_share"] = 1.0
    if record.change is not None:
        metrics |= _ratios(record.batch, record.change)
    if record.critic is not None:
        metrics |= _update(record.critic)
    return metrics


def known_outcomes(record: Record) -> Bool[Tensor, " rollout"]:
    """True where a rollout has an outcome that nobody had to guess."""
    verified, known = record.batch.verified, record.outcome_known
    return verified if known is None else verified & known


def step_values(
    steps: Steps,
    values: Float[Tensor, "rollout prefix"],
    outcomes: Float[Tensor, " rollout"],
) -> Float[Tensor, "rollout step_prefix"]:
    """V before each step and, after the last one, the outcome; 0 past that."""
    found = steps.prefix_values(values)
    num_steps = steps.step_mask.sum(1, keepdim=True)
    columns = torch.arange(found.shape[1], device=found.device)
    return torch.where(columns == num_steps, outcomes[:, None], found)


def _foresight(
    record: Record, known: Bool[Tensor, " rollout"], success_at: float
) -> dict[str, float | int | None]:
    """What V of the prefix before each sampled token said of the outcome."""
    batch, kept = record.batch, record.batch.sampled & known[:, None]
    counts = kept.sum(1)
    values = record.values[:, :-1][kept].double()
    outcomes = record.shaped_rewards.double().repeat_interleave(counts)
    won = (batch.rewards >= success_at - SMALLEST_SPREAD).repeat_interleave(counts)
    return {
        "critic/explained_variance": _explained_variance(values, outcomes),
        "critic/mae": mean_absolute_error(values, outcomes),
        "critic/constant_mae": constant_error(outcomes),
        "critic/bias": bias(values, outcomes),
        "critic/correlation": _correlation(values, outcomes),
        "critic/value_mean": mean(values),
        "critic/value_gap": separation(values, won.double()),
    }


def _dealt(record: Record) -> dict[str, float | int | None]:
    """The advantages that the policy learns from."""
    credits = record.credit.advantages[record.batch.trainable].double().abs()
    return {
        "credit/abs_mean": mean(credits),
        "credit/large_count": int((credits > LARGE_CREDIT).sum()),
    }


def _prompt_errors(
    record: Record,
    known: Bool[Tensor, " rollout"],
    steps: Steps,
    values: Float[Tensor, "rollout step_prefix"],
) -> dict[str, float | int | None]:
    """Mean V of a group before its first tokens, against the mean of its outcomes."""
    kept = known & steps.step_mask.any(1)
    if not bool(kept.any()):
        return {}
    errors = values[kept, 0] - record.shaped_rewards[kept].double()
    groups = record.batch.group_index[kept]
    totals = errors.new_zeros(int(groups.max()) + 1).index_add(0, groups, errors)
    sizes = groups.bincount(minlength=len(totals))
    means = totals[sizes > 0] / sizes[sizes > 0]
    return {"critic/prompt_mae": mean(means.abs()), "critic/prompt_bias": mean(means)}


def _step_credits(
    record: Record,
    known: Bool[Tensor, " rollout"],
    steps: Steps,
    values: Float[Tensor, "rollout step_prefix"],
) -> dict[str, float | int | None]:
    """|V_t - V_{t-1}| of each step, beside what Theorem 4 allows an exact critic.

    E[sum_t C_t^2] = Var(R) bounds the number of large steps by Var(R) / eps^2, and the
    mean step by sqrt(Var(R) / length).
    """
    kept = steps.step_mask & known[:, None]
    credits = (values[:, 1:] - values[:, :-1]).abs()[kept]
    num_rollouts = int(kept.any(1).sum())
    length = share(len(credits), num_rollouts)
    groups = record.batch.group_index[known]
    variance = _outcome_variance(record.shaped_rewards[known].double(), groups)
    metrics: dict[str, float | int | None] = {
        "credit/step_abs_mean": mean(credits),
        "credit/step_large_mean": share(
            int((credits > LARGE_CREDIT).sum()), num_rollouts
        ),
    }
    if variance is not None and length is not None:
        metrics["credit/step_abs_bound"] = math.sqrt(variance / length)
        metrics["credit/step_large_bound"] = variance / LARGE_CREDIT**2
    return metrics


def _outcome_variance(
    outcomes: Float[Tensor, " rollout"], groups: Int[Tensor, " rollout"]
) -> float | None:
    """Var(R) given the prompt, from siblings; over the batch where none has any.

    The variance over the batch holds that between prompts too, and is an upper bound.
    """
    if len(outcomes) < 2:
        return None
    num_groups = int(groups.max()) + 1
    sizes = groups.bincount(minlength=num_groups)
    if int(sizes.max()) < 2:
        groups, sizes = torch.zeros_like(groups), sizes.sum()[None]
    totals = outcomes.new_zeros(len(sizes)).index_add(0, groups, outcomes)
    deviations = outcomes - (totals / sizes.clamp(min=1))[groups]
    variance = float(deviations.square().sum() / (sizes - 1).clamp(min=0).sum())
    within = bool(((outcomes >= 0.0) & (outcomes <= 1.0)).all())
    return min(variance, LARGEST_VARIANCE) if within else variance


def _ratios(batch: Batch, change: PolicyChange) -> dict[str, float | int | None]:
    """What the critic's targets are corrected by, and where they were not accepted."""
    kept = batch.trainable
    ratios = log_ratios(change.new_logprobs[kept], change.old_logprobs[kept]).exp()
    return {
        "critic/ratio_mean": mean(ratios),
        "critic/ratio_max": largest(ratios),
        "critic/rejected_share": mean((~change.accepted[kept]).double()),
    }


def _update(update: CriticUpdate) -> dict[str, float | int | None]:
    return {
        "critic/loss": finite_mean(update.losses),
        "critic/gradient_norm": finite_mean(update.gradient_norms),
        "critic/learning_rate": update.learning_rate,
        "critic/num_skipped": update.num_skipped,
    }


def _explained_variance(values: Tokens, outcomes: Tokens) -> float | None:
    """None where all outcomes are equal but for rounding."""
    return explained_variance(values, outcomes) if varies(outcomes) else None


def _correlation(values: Tokens, outcomes: Tokens) -> float | None:
    """None where values or outcomes are equal but for rounding."""
    if not (varies(values) and varies(outcomes)):
        return None
    return correlation(values, outcomes)
