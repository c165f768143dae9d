"""Verified groups in, one evaluation out: mean@k, pass@k, best@k with intervals.

A failure of the world (`Verdict.reward` is None) is no wrong answer: `mean`, `pass@k`
and `best@k` leave it out, and a problem counts for the last two where k of its samples
are valid. A policy that is scored by these alone gains from being unscorable, so that
each has a twin over all samples, what is missing taken for 0 (`mean_all`). Checkpoints
are chosen by the twin.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from accredit.reports.statistics import (
    Estimate,
    best_at_k,
    bootstrap,
    paired_difference,
    pass_at_k,
    wilson,
)
from accredit.reports.summary import OVER_ALL
from accredit.types import Group, StopReason

TOLERANCE = 1e-6
"""Rewards this close to `success_at` reach it: sums of parts carry rounding."""


class Scores(NamedTuple):
    """The scores of one set of rewards."""

    mean: Estimate | None
    """Mean over problems of their mean reward; None where there is no reward."""
    pass_at: Mapping[int, Estimate]
    """k -> share of problems solved by one of k samples, reward >= success_at."""
    best_at: Mapping[int, Estimate]
    """k -> expected best reward of k samples."""
    problem_means: Mapping[str, float]
    """Problem id -> mean reward of its samples, for paired comparisons."""

    def named(self) -> dict[str, Estimate]:
        """By the names of `evals.jsonl`; undefined scores are left out."""
        named = {} if self.mean is None else {"mean": self.mean}
        named |= {f"pass@{k}": estimate for k, estimate in self.pass_at.items()}
        return named | {f"best@{k}": value for k, value in self.best_at.items()}


@dataclass(frozen=True)
class EvalResult:
    """One evaluation of one model over one set of problems."""

    valid: Scores
    """Of the samples that have a reward."""
    over_all: Scores
    """Of all samples, a missing reward taken for 0."""
    num_problems: int
    num_rollouts: int
    num_invalid: int
    """Rollouts without a reward."""
    length_mean: float
    """Sampled tokens a rollout, invalid ones included."""
    truncated_share: float
    """Of all rollouts, those that ran out of tokens."""

    def metrics(self, prefix: str = "eval") -> dict[str, float | int]:
        """The flat row for `evals.jsonl`; undefined scores are left out."""
        row: dict[str, float | int] = {
            f"{prefix}/num_problems": self.num_problems,
            f"{prefix}/num_rollouts": self.num_rollouts,
            f"{prefix}/invalid_share": self.num_invalid / self.num_rollouts,
            f"{prefix}/length_mean": self.length_mean,
            f"{prefix}/truncated_share": self.truncated_share,
        }
        named = self.valid.named()
        whole = self.over_all.named().items()
        named |= {f"{name}{OVER_ALL}": estimate for name, estimate in whole}
        for name, estimate in named.items():
            row[f"{prefix}/{name}"] = estimate.value
            if estimate.low is not None and estimate.high is not None:
                row[f"{prefix}/{name}_low"] = estimate.low
                row[f"{prefix}/{name}_high"] = estimate.high
        return row


def evaluation(
    groups: Sequence[Group],
    seed: int = 0,
    ks: Sequence[int] | None = None,
    success_at: float = 1.0,
) -> EvalResult:
    """Scores `groups`; groups of one problem are taken together.

    Args:
        seed: Of the bootstrap.
        ks: For pass@k and best@k; None takes 1, 2, 4, ... up to the largest group.
        success_at: The reward from which a sample counts as a success.

    Raises:
        ValueError: there is no group.
    """
    if not groups:
        raise ValueError("an evaluation needs at least one problem, got none")
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    rewards: dict[str, list[float | None]] = {}
    for group in groups:
        given = [verdict.reward for verdict in group.verdicts]
        rewards.setdefault(group.prompt.problem.id, []).extend(given)
    valid = {id: [r for r in row if r is not None] for id, row in rewards.items()}
    whole = {id: [r or 0.0 for r in row] for id, row in rewards.items()}
    ks = ks or powers_of_two(max(map(len, rewards.values())))
    num_valid = sum(map(len, valid.values()))
    lengths = [rollout.num_sampled for rollout in rollouts]
    truncated = [r.stop_reason is StopReason.LENGTH for r in rollouts]
    return EvalResult(
        valid=_scores(valid, ks, success_at, seed),
        over_all=_scores(whole, ks, success_at, seed),
        num_problems=len(rewards),
        num_rollouts=len(rollouts),
        num_invalid=len(rollouts) - num_valid,
        length_mean=float(np.mean(lengths)),
        truncated_share=float(np.mean(truncated)),
    )


def evaluation_difference(first: EvalResult, second: EvalResult, seed: int) -> Estimate:
    """Mean of second - first over the problems of both, missing rewards taken for 0.

    Raises:
        ValueError: they share no problem.
    """
    old, new = first.over_all.problem_means, second.over_all.problem_means
    shared = sorted(old.keys() & new.keys())
    if not shared:
        raise ValueError("two evaluations need a problem in common, got none")
    before = np.array([old[id] for id in shared])
    after = np.array([new[id] for id in shared])
    return paired_difference(before, after, seed)


def selection_score(row: Mapping[str, Any]) -> float | None:
    """What checkpoints are chosen by: the mean over all samples of an evaluation.

    The mean of the verified ones would choose a policy for being unscorable; it stands
    in where a row holds no other. None where it has neither, or is not finite.
    """
    for key in (f"eval/mean{OVER_ALL}", "eval/mean"):
        score = row.get(key)
        if isinstance(score, bool) or not isinstance(score, int | float):
            continue
        if math.isfinite(score):
            return float(score)
    return None


def powers_of_two(largest: int) -> list[int]:
    """1, 2, 4, ... not above `largest`."""
    return [2**i for i in range(largest.bit_length())]


def _scores(
    rewards: Mapping[str, list[float]], ks: Sequence[int], success_at: float, seed: int
) -> Scores:
    means = {id: float(np.mean(row)) for id, row in rewards.items() if row}
    rows = list(rewards.values())
    return Scores(
        _estimate(list(means.values()), seed),
        _pass_at(rows, ks, success_at, seed),
        _best_at(rows, ks, seed),
        means,
    )


def _pass_at(
    rewards: list[list[float]], ks: Sequence[int], success_at: float, seed: int
) -> dict[int, Estimate]:
    passed = [sum(r >= success_at - TOLERANCE for r in row) for row in rewards]
    pairs = list(zip(rewards, passed, strict=True))
    scores = {
        k: [pass_at_k(len(row), c, k) for row, c in pairs if len(row) >= k] for k in ks
    }
    estimates = {k: _estimate(scores[k], seed) for k in ks}
    return {k: found for k, found in estimates.items() if found is not None}


def _best_at(
    rewards: list[list[float]], ks: Sequence[int], seed: int
) -> dict[int, Estimate]:
    scores = {k: [best_at_k(row, k) for row in rewards if len(row) >= k] for k in ks}
    estimates = {k: _estimate(scores[k], seed) for k in ks}
    return {k: found for k, found in estimates.items() if found is not None}


def _estimate(values: list[float], seed: int) -> Estimate | None:
    """Bootstrap over problems; Wilson where every problem scored the same 0 or 1.

    There a bootstrap would claim certainty from any number of problems.
    """
    if not values:
        return None
    if len(values) > 1 and set(values) in ({0.0}, {1.0}):
        return wilson(int(sum(values)), len(values))
    return bootstrap(np.array(values), seed)
