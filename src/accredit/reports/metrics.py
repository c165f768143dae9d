"""One step's record in, one flat row of numbers out: what `metrics.jsonl` holds.

Pure. Every mean is pooled over all tokens (or rollouts) of the step, never a mean of
means. A quantity that is undefined (no verified rollout, no spread, no update) is left
out of the row, so that no NaN is ever written. `docs/metrics.md` defines every key.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from accredit.functional.divergences import kl_k3
from accredit.records import PolicyUpdate, Record, State
from accredit.types import Group, StopReason

Metrics = dict[str, float | int]
Tokens = Float[Tensor, " token"]

LARGE_CREDIT = 0.1
"""Reward units from which a token's credit counts as large."""
LARGEST_LOG_RATIO = 60.0
"""Log-ratios beyond it count as it, so that one broken token leaves finite numbers."""
SMALLEST_SPREAD = 1e-6
"""Deviations below it, relative to the largest magnitude, are rounding."""


def step_metrics(
    record: Record,
    state: State,
    clip_bounds: tuple[float, float] | None = None,
    importance_cap: float = 2.0,
    success_at: float = 1.0,
) -> Metrics:
    """The row of one step.

    Args:
        state: After the step; its costs and counters are cumulative.
        clip_bounds: (clip_low, clip_high), distances from ratio 1 beyond which a token
            counts as clipped; None for losses that clip nothing.
        importance_cap: Ratio of trainer to engine beyond which a token counts as
            mismatched.
        success_at: The reward from which a rollout counts as a success.
    """
    metrics: dict[str, float | int | None] = {"step": state.step}
    metrics |= _reward_metrics(record)
    metrics |= _rollout_metrics(record.groups)
    metrics |= _critic_metrics(record, success_at)
    if record.policy is not None:
        metrics |= _policy_metrics(record, record.policy, clip_bounds)
        metrics |= _mismatch_metrics(record, record.policy, importance_cap)
    metrics |= _cost_metrics(record, state)
    metrics |= {f"count/{name}": count for name, count in record.counts.items()}
    metrics |= {f"total/{name}": count for name, count in state.counters.items()}
    return {k: v for k, v in metrics.items() if v is not None and math.isfinite(v)}


def is_timing(key: str) -> bool:
    """True for what the clock decides, which no two runs have in common."""
    return key.startswith("time/") or key == "tokens/per_s"


def _reward_metrics(record: Record) -> dict[str, float | int | None]:
    rewards = [v.reward for group in record.groups for v in group.verdicts]
    valid = torch.tensor([r for r in rewards if r is not None], dtype=torch.float64)
    shaped = record.shaped_rewards[record.batch.verified].double()
    return {
        "reward/mean": _mean(valid),
        "reward/shaped_mean": _mean(shaped),
        "reward/deviation": float(valid.std()) if len(valid) > 1 else None,
        "reward/invalid_share": _share(sum(r is None for r in rewards), len(rewards)),
        "group/all_equal_share": _all_equal_share(record.groups),
        "group/num": len(record.groups),
    }


def _all_equal_share(groups: Sequence[Group]) -> float | None:
    """Groups whose verified rewards are all equal, of those with two of them."""
    rewards = [
        [v.reward for v in group.verdicts if v.reward is not None] for group in groups
    ]
    comparable = [known for known in rewards if len(known) > 1]
    return _share(sum(len(set(known)) == 1 for known in comparable), len(comparable))


def _rollout_metrics(groups: Sequence[Group]) -> dict[str, float | int | None]:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    n = len(rollouts)
    lengths = [rollout.num_sampled for rollout in rollouts]
    reasons = [rollout.stop_reason for rollout in rollouts]
    return {
        "rollout/num": n,
        "rollout/finished_share": _share(sum(r.finished for r in reasons), n),
        "rollout/failure_share": _share(reasons.count(StopReason.FAILURE), n),
        "length/mean": _share(sum(lengths), n),
        "length/min": min(lengths, default=None),
        "length/max": max(lengths, default=None),
        "length/truncated_share": _share(reasons.count(StopReason.LENGTH), n),
    }


def _critic_metrics(record: Record, success_at: float) -> dict[str, float | int | None]:
    """What V of the prefix before each trainable token said of the outcome."""
    batch, kept = record.batch, record.batch.trainable
    counts = kept.sum(1)
    values = record.values[:, :-1][kept].double()
    outcomes = record.shaped_rewards.double().repeat_interleave(counts)
    won = (batch.rewards >= success_at - SMALLEST_SPREAD).repeat_interleave(counts)
    credits = record.credit.advantages[kept].double().abs()
    errors = values - outcomes
    return {
        "critic/explained_variance": _explained_variance(outcomes, errors),
        "critic/mae": _mean(errors.abs()),
        "critic/bias": _mean(errors),
        "critic/correlation": _correlation(values, outcomes),
        "critic/value_mean": _mean(values),
        "critic/value_gap": _value_gap(values, won),
        "credit/abs_mean": _mean(credits),
        "credit/large_count": int((credits > LARGE_CREDIT).sum()),
    }


def _policy_metrics(
    record: Record, policy: PolicyUpdate, clip_bounds: tuple[float, float] | None
) -> dict[str, float | int | None]:
    kept = record.batch.trainable
    log_ratios = _log_ratios(policy.logprobs[kept], policy.old_logprobs[kept])
    ratios = log_ratios.exp()
    losses = [loss for loss in policy.losses if math.isfinite(loss)]
    norms = [norm for norm in policy.gradient_norms if math.isfinite(norm)]
    metrics = {
        "policy/loss": _share(math.fsum(losses), len(losses)),
        "policy/gradient_norm": _share(math.fsum(norms), len(norms)),
        "policy/gradient_norm_max": max(norms, default=None),
        "policy/learning_rate": policy.learning_rate,
        "policy/num_skipped": policy.num_skipped,
        "policy/entropy_mean": _mean(policy.entropies[kept].double()),
        "policy/kl_k3_mean": _mean(_k3(log_ratios)),
        "policy/ratio_mean": _mean(ratios),
        "policy/ratio_max": _largest(ratios),
    }
    if clip_bounds is not None:
        low, high = 1.0 - clip_bounds[0], 1.0 + clip_bounds[1]
        metrics["policy/clip_share"] = _mean(
            ((ratios < low) | (ratios > high)).double()
        )
    if policy.reference_logprobs is not None:
        drift = _log_ratios(policy.reference_logprobs[kept], policy.logprobs[kept])
        metrics["policy/reference_kl_k3_mean"] = _mean(_k3(drift))
    return metrics


def _mismatch_metrics(
    record: Record, policy: PolicyUpdate, importance_cap: float
) -> dict[str, float | int | None]:
    """How far the trainer's log-probs are from the engine's, for the same weights."""
    kept = record.batch.trainable
    engine = record.batch.sampling_logprobs[kept]
    log_ratios = _log_ratios(policy.old_logprobs[kept], engine)
    ratios = log_ratios.exp()
    return {
        "mismatch/kl_k3_mean": _mean(_k3(log_ratios)),
        "mismatch/ratio_mean": _mean(ratios),
        "mismatch/ratio_max": _largest(ratios),
        "mismatch/clip_share": _mean((ratios > importance_cap).double()),
    }


def _cost_metrics(record: Record, state: State) -> dict[str, float | int | None]:
    cost, times = state.cost, record.times_s
    duration = times.get("step", math.fsum(times.values()))
    metrics: dict[str, float | int | None] = {
        "flops/decode": cost.decode_flops,
        "flops/prefill": cost.prefill_flops,
        "flops/train": cost.train_flops,
        "flops/evaluation": cost.evaluation_flops,
        "flops/total": cost.total_flops,
        "tokens/generated": cost.tokens_generated,
        "tokens/per_s": _share(record.cost.tokens_generated, duration),
        "verifications/num": cost.num_verifications,
    }
    metrics |= {f"time/{stage}_s": seconds for stage, seconds in times.items()}
    metrics["time/step_s"] = duration
    return metrics


def _log_ratios(logprobs: Tokens, old_logprobs: Tokens) -> Tokens:
    difference = logprobs.double() - old_logprobs.double()
    return difference.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)


def _k3(log_ratios: Tokens) -> Tokens:
    """KL(old || new) from tokens that old sampled, log_ratios = new - old."""
    return kl_k3(torch.zeros_like(log_ratios)[None], log_ratios[None])[0]


def _explained_variance(outcomes: Tokens, errors: Tokens) -> float | None:
    """1 - Var(V - R) / Var(R): 1 perfect, 0 a constant, below 0 worse than one."""
    if not _varies(outcomes):
        return None
    return 1.0 - float(errors.var(correction=0) / outcomes.var(correction=0))


def _correlation(values: Tokens, outcomes: Tokens) -> float | None:
    if not (_varies(values) and _varies(outcomes)):
        return None
    return float(torch.corrcoef(torch.stack([values, outcomes]))[0, 1])


def _varies(x: Tokens) -> bool:
    if len(x) < 2:
        return False
    scale = max(1.0, float(x.abs().max()))
    return float(x.std(correction=0)) > SMALLEST_SPREAD * scale


def _value_gap(values: Tokens, won: Bool[Tensor, " token"]) -> float | None:
    """Mean value in successes minus mean value in failures."""
    if bool(won.all()) or not bool(won.any()):
        return None
    return float(values[won].mean() - values[~won].mean())


def _mean(x: Tokens) -> float | None:
    return float(x.mean()) if len(x) else None


def _largest(x: Tokens) -> float | None:
    return float(x.max()) if len(x) else None


def _share(part: float | int, whole: float | int) -> float | None:
    return part / whole if whole else None
