"""One step's record in, one flat row of numbers out: what `metrics.jsonl` holds.

Pure. Every mean is pooled over all tokens (or rollouts) of the step, never a mean of
means. A quantity that is undefined (no verified rollout, no spread, no update) is left
out of the row, so that no NaN is ever written. `docs/metrics.md` defines every key.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from accredit.functional.divergences import kl_k3
from accredit.functional.flops import ModelShape, gpu_hours
from accredit.functional.pooled import (
    Tokens,
    finite_largest,
    finite_mean,
    largest,
    log_ratios,
    mean,
    share,
)
from accredit.records import PolicyUpdate, Record, State
from accredit.reports.metrics.critic import critic_metrics
from accredit.types import Group, StopReason

Metrics = dict[str, float | int]


def step_metrics(
    record: Record,
    state: State,
    clip_bounds: tuple[float, float] | None = None,
    importance_cap: float = 2.0,
    success_at: float = 1.0,
    shape: ModelShape | None = None,
) -> Metrics:
    """The row of one step.

    Args:
        state: After the step; its costs and counters are cumulative.
        clip_bounds: (clip_low, clip_high), distances from ratio 1 beyond which a token
            counts as clipped, where the record has none of the step's own; None for
            losses that clip nothing.
        importance_cap: Ratio of trainer to engine beyond which a token counts as
            mismatched.
        success_at: The reward from which a rollout counts as a success.
        shape: Of the policy, to count the FLOPs that stopping early saved.
    """
    metrics: dict[str, float | int | None] = {"step": state.step}
    metrics |= _reward_metrics(record)
    metrics |= _rollout_metrics(record.groups)
    metrics |= critic_metrics(record, success_at)
    if record.policy is not None:
        bounds = record.clip_bounds or clip_bounds
        metrics |= _policy_metrics(record, record.policy, bounds)
        metrics |= _mismatch_metrics(record, record.policy, importance_cap)
    for section in record.sections:
        metrics |= section.metrics(record, state, shape)
    metrics |= _cost_metrics(record, state)
    metrics |= {f"count/{name}": count for name, count in record.counts.items()}
    metrics |= {f"total/{name}": count for name, count in state.counters.items()}
    return {k: v for k, v in metrics.items() if v is not None and math.isfinite(v)}


def is_timing(key: str) -> bool:
    """True for what the clock decides, which no two runs have in common."""
    return key.startswith("time/") or key == "tokens/per_s"


def num_judged(row: Mapping[str, Any]) -> int:
    """Rollouts of a step that were sent to be judged: none stopped on purpose."""
    return row.get("count/rollouts_judged", row["count/rollouts_drawn"])


def has_counts(row: Mapping[str, Any]) -> bool:
    """Whether a row read from a file has what `num_judged` and its share need."""
    drawn = {"count/rollouts_judged", "count/rollouts_drawn"} & row.keys()
    return bool(drawn) and "count/rewards_invalid" in row


def last_fault(record: Record) -> str:
    """Why the last rollout without a verdict has none, of all groups."""
    further = [group for section in record.sections for group in section.further_groups]
    reasons = [
        verdict.reason
        for group in (*record.groups, *further)
        for rollout, verdict in zip(group.rollouts, group.verdicts, strict=True)
        if verdict.reward is None and rollout.stop_reason is not StopReason.CHUNK
    ]
    return next((reason for reason in reversed(reasons) if reason), "none given")


def _reward_metrics(record: Record) -> dict[str, float | int | None]:
    rewards = [r for group in record.groups for r in _judged(group)]
    valid = torch.tensor([r for r in rewards if r is not None], dtype=torch.float64)
    shaped = record.shaped_rewards[record.batch.verified].double()
    return {
        "reward/mean": mean(valid),
        "reward/mean_all": share(math.fsum(r or 0.0 for r in rewards), len(rewards)),
        "reward/shaped_mean": mean(shaped),
        "reward/deviation": float(valid.std()) if len(valid) > 1 else None,
        "reward/invalid_share": share(sum(r is None for r in rewards), len(rewards)),
        "group/all_equal_share": _all_equal_share(record.groups),
        "group/num": len(record.groups),
    }


def _judged(group: Group) -> list[float | None]:
    """Rewards of the rollouts that were sent to be judged: none stopped on purpose."""
    return [
        verdict.reward
        for rollout, verdict in zip(group.rollouts, group.verdicts, strict=True)
        if rollout.stop_reason is not StopReason.CHUNK
    ]


def _all_equal_share(groups: Sequence[Group]) -> float | None:
    """Groups whose verified rewards are all equal, of those with two of them.

    A group with a stopped member is worth more than its rewards, and left out.
    """
    rewards = [
        [reward for reward in group.votes if reward is not None]
        for group in groups
        if len(_judged(group)) == len(group.rollouts)
    ]
    comparable = [known for known in rewards if len(known) > 1]
    return share(sum(len(set(known)) == 1 for known in comparable), len(comparable))


def _rollout_metrics(groups: Sequence[Group]) -> dict[str, float | int | None]:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    n = len(rollouts)
    lengths = [rollout.num_sampled for rollout in rollouts]
    reasons = [rollout.stop_reason for rollout in rollouts]
    return {
        "rollout/num": n,
        "rollout/finished_share": share(sum(r.finished for r in reasons), n),
        "rollout/failure_share": share(reasons.count(StopReason.FAILURE), n),
        "length/mean": share(sum(lengths), n),
        "length/min": min(lengths, default=None),
        "length/max": max(lengths, default=None),
        "length/truncated_share": share(reasons.count(StopReason.LENGTH), n),
    }


def _policy_metrics(
    record: Record, policy: PolicyUpdate, clip_bounds: tuple[float, float] | None
) -> dict[str, float | int | None]:
    kept = record.batch.trainable
    moves = log_ratios(policy.logprobs[kept], policy.old_logprobs[kept])
    ratios = moves.exp()
    metrics = {
        "policy/loss": finite_mean(policy.losses),
        "policy/gradient_norm": finite_mean(policy.gradient_norms),
        "policy/gradient_norm_max": finite_largest(policy.gradient_norms),
        "policy/learning_rate": policy.learning_rate,
        "policy/num_skipped": policy.num_skipped,
        "policy/entropy_mean": mean(policy.entropies[kept].double()),
        "policy/kl_k3_mean": mean(_k3(moves)),
        "policy/ratio_mean": mean(ratios),
        "policy/ratio_max": largest(ratios),
    }
    if clip_bounds is not None:
        low, high = 1.0 - clip_bounds[0], 1.0 + clip_bounds[1]
        metrics["policy/clip_share"] = mean(((ratios < low) | (ratios > high)).double())
    if policy.reference_logprobs is not None:
        drift = log_ratios(policy.reference_logprobs[kept], policy.logprobs[kept])
        metrics["policy/reference_kl_k3_mean"] = mean(_k3(drift))
    return metrics


def _mismatch_metrics(
    record: Record, policy: PolicyUpdate, importance_cap: float
) -> dict[str, float | int | None]:
    """How far the trainer's log-probs are from the engine's, for the same weights."""
    kept = record.batch.trainable
    engine = record.batch.sampling_logprobs[kept]
    trainer = policy.old_logprobs[kept]
    if bool((trainer == engine).all()):
        # The engine's own words, where ratios are taken to them: not the trainer's.
        trainer = policy.logprobs[kept]
    moves = log_ratios(trainer, engine)
    ratios = moves.exp()
    return {
        "mismatch/kl_k3_mean": mean(_k3(moves)),
        "mismatch/ratio_mean": mean(ratios),
        "mismatch/ratio_max": largest(ratios),
        "mismatch/clip_share": mean((ratios > importance_cap).double()),
    }


def _cost_metrics(record: Record, state: State) -> dict[str, float | int | None]:
    cost, times = state.cost, record.times_s
    duration = times.get("step", math.fsum(times.values()))
    # Evaluations are nearly all sampling.
    decoding = cost.decode_flops + cost.evaluation_flops
    other = cost.prefill_flops + cost.train_flops + cost.critic_flops
    metrics: dict[str, float | int | None] = {
        "flops/decode": cost.decode_flops,
        "flops/prefill": cost.prefill_flops,
        "flops/train": cost.train_flops,
        "flops/evaluation": cost.evaluation_flops,
        "flops/critic": cost.critic_flops,
        "flops/total": cost.total_flops,
        "cost/gpu_hours": gpu_hours(decoding, other),
        "tokens/generated": cost.tokens_generated,
        "tokens/per_s": share(record.cost.tokens_generated, duration),
        "verifications/num": cost.num_verifications,
    }
    metrics |= {f"time/{stage}_s": seconds for stage, seconds in times.items()}
    metrics["time/step_s"] = duration
    return metrics


def _k3(moves: Tokens) -> Tokens:
    """KL(old || new) from tokens that old sampled, moves = new - old."""
    return kl_k3(torch.zeros_like(moves)[None], moves[None])[0]
