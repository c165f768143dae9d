"""What the runs of `headline_ac2.py` come to, from their files.

    curve      the running mean of two consecutive evaluations, at their mean cost,
               behind the start policy's own: held-out problems are few
    target     best score of GRPO's curve, the mean over its seeds, at the learning rate
               whose last quarter of training had the highest rewards
    cost       of a run to the target: where its curve first reaches it, interpolated
    ratio      cost of a GRPO run / cost of a run, the median over all pairs of seeds;
               95% interval by drawing the seeds of both anew, 4000 times

Beside the target there is half of it, which all of a study's runs have the time to
reach, and the score after half of GRPO's budget.

A run that never reaches the target costs infinitely much, ratio 0. A GRPO run that
never does counts its whole curve, which is too little. Time is the process' CPU
seconds in training, on one thread: others worked on the same cores.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from headline_configs import CONFIGS, NUM_EVALUATIONS

from accredit.randomness import generator
from accredit.reports.statistics import bootstrap

LEDGERS = {"decode": "decode", "total": "total", "seconds": "cpu_seconds"}
"""Name in a ratio -> key of an evaluation."""
NUM_RESAMPLES = 4000
NOISE = 1e-9
"""Of a mean of equal numbers."""
BASELINE = "grpo"
NO_REFILL = "exact_no_refill_cost"
"""The exact critic's runs, the refill's decoding taken off both ledgers."""

Content = Mapping[str, Any]
"""Of a run's file."""
Summary = dict[str, dict[str, dict[str, Any]]]


class Curve(NamedTuple):
    """Scores on the way, and what each had cost in every ledger."""

    scores: np.ndarray
    costs: dict[str, np.ndarray]

    @property
    def best(self) -> float:
        """Highest score; the start policy's own does not count."""
        return float(self.scores[1:].max())

    @property
    def spent(self) -> dict[str, float]:
        """At its end."""
        return {ledger: float(costs[-1]) for ledger, costs in self.costs.items()}


def loaded(folder: Path) -> list[Content]:
    """The contents of all files of runs."""
    paths = sorted(folder.glob("*/[!.]*.json"))
    return [json.loads(path.read_text("utf-8")) for path in paths]


def summary(runs: Sequence[Content]) -> Summary:
    """Split -> algorithm -> its figures, of splits that GRPO has run on."""
    found: Summary = {}
    for split in dict.fromkeys(run["split"] for run in runs):
        chosen = chosen_runs([run for run in runs if run["split"] == split])
        if BASELINE not in chosen:
            continue
        baseline = [curve(run) for run in chosen[BASELINE]]
        found[split] = {
            label: entry(label, chosen[label], baseline)
            for label in (*CONFIGS, NO_REFILL)
            if label in chosen
        }
    return found


def chosen_runs(runs: Sequence[Content]) -> dict[str, list[Content]]:
    """Label -> its runs of one split, by seed, at one learning rate."""
    chosen: dict[str, list[Content]] = {}
    for label in dict.fromkeys(run["label"] for run in runs):
        mine = [run for run in runs if run["label"] == label]
        rewards = rate_rewards(mine)
        rate = max(rewards, key=rewards.__getitem__)
        kept = [run for run in mine if run["learning_rate"] == rate]
        chosen[label] = sorted(kept, key=lambda run: run["seed"])
    if "ac2_exact" in chosen:
        chosen[NO_REFILL] = [without_refill(run) for run in chosen["ac2_exact"]]
    return chosen


def rate_rewards(runs: Iterable[Content]) -> dict[float, float]:
    """Learning rate -> training reward of the last quarter, mean over its seeds."""
    by_rate: dict[float, list[float]] = {}
    for run in runs:
        by_rate.setdefault(run["learning_rate"], []).append(last_reward(run))
    return {rate: float(np.mean(x)) for rate, x in sorted(by_rate.items())}


def last_reward(run: Content) -> float:
    """Mean reward of fresh rollouts in the steps of the last quarter of the budget.

    The last step's that had one, where none of these had.
    """
    steps = run["steps"]
    known = [
        (decode, reward)
        for decode, reward in zip(steps["decode"], steps["reward"], strict=True)
        if reward is not None
    ]
    late = [reward for decode, reward in known if decode > 0.75 * run["budget"]]
    return float(np.mean(late or [reward for _, reward in known[-1:]]))


def without_refill(run: Content) -> Content:
    """The run as if fresh rollouts had cost no decoding."""
    rows = [
        row
        | {
            "decode": row["decode"] - row["refill"],
            "total": row["total"] - row["refill"],
        }
        for row in run["evaluations"]
    ]
    return {**run, "label": NO_REFILL, "evaluations": rows}


def curve(run: Content) -> Curve:
    """The running mean of two evaluations, at their mean cost, behind the first."""

    def smooth(key: str) -> np.ndarray:
        x = np.array([row[key] for row in run["evaluations"]], dtype=float)
        return np.concatenate([x[:1], (x[1:] + x[:-1]) / 2])

    return Curve(
        smooth("mean"), {ledger: smooth(key) for ledger, key in LEDGERS.items()}
    )


def on_grid(curves: Sequence[Curve]) -> tuple[np.ndarray, np.ndarray]:
    """Decode FLOPs common to all, and each curve's score there, one a row."""
    end = min(each.costs["decode"][-1] for each in curves)
    grid = np.linspace(0.0, end, NUM_EVALUATIONS + 1)
    rows = [np.interp(grid, each.costs["decode"], each.scores) for each in curves]
    return grid, np.array(rows)


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean over seeds, at equal decode FLOPs."""
    grid, rows = on_grid(curves)
    costs = dict.fromkeys(LEDGERS, grid)
    for ledger in LEDGERS:
        each = [np.interp(grid, x.costs["decode"], x.costs[ledger]) for x in curves]
        costs[ledger] = np.mean(each, axis=0)
    return Curve(rows.mean(axis=0), costs)


def cost_to(score: float, of: Curve) -> dict[str, float] | None:
    """Cost in every ledger where the curve first reaches a score; None if never.

    What the start policy scores already costs the first distance between evaluations.
    """
    reached = np.flatnonzero(of.scores >= score - NOISE)
    if not len(reached):
        return None
    i = int(reached[0])
    if i == 0:
        return {ledger: float(costs[1]) for ledger, costs in of.costs.items()}
    below, above = of.scores[i - 1 : i + 1]
    share = min(1.0, (score - below) / (above - below))
    return {
        ledger: float(costs[i - 1] + share * (costs[i] - costs[i - 1]))
        for ledger, costs in of.costs.items()
    }


def entry(
    label: str, runs: Sequence[Content], baseline: Sequence[Curve]
) -> dict[str, Any]:
    """The figures of one algorithm on one split."""
    curves = [curve(run) for run in runs]
    of_baseline = mean_curve(baseline)
    target = of_baseline.best
    costs = [cost_to(target, each) for each in curves]
    best = bootstrap(np.array([each.best for each in curves]), 0)
    found: dict[str, Any] = {"seeds": len(runs), "best": round(best.value, 5)}
    for ledger in LEDGERS:
        found[f"ratio_{ledger}"] = ratio_to(target, ledger, label, curves, baseline)
    found["ratio_decode_half"] = ratio_to(target / 2, "decode", label, curves, baseline)
    half = min(each.costs["decode"][-1] for each in baseline) / 2
    scores = [np.interp(half, each.costs["decode"], each.scores) for each in curves]
    found["at_half_budget"] = round(float(np.mean(scores)), 5)
    whole, own = cost_to(target, of_baseline), cost_to(target, mean_curve(curves))
    assert whole is not None
    low, high = (best.value if x is None else x for x in (best.low, best.high))
    return found | {
        "ratio_decode_of_mean_curves": (
            0.0 if own is None else round(whole["decode"] / own["decode"], 5)
        ),
        "reached": sum(cost is not None for cost in costs),
        "best_interval": {"low": round(low, 5), "high": round(high, 5)},
        "learning_rate": runs[0]["learning_rate"],
        "target": round(target, 5),
    }


def ratio_to(
    score: float,
    ledger: str,
    label: str,
    curves: Sequence[Curve],
    baseline: Sequence[Curve],
) -> dict[str, float]:
    """GRPO's cost of a score over this algorithm's."""
    above = [(cost_to(score, each) or each.spent)[ledger] for each in baseline]
    costs = [cost_to(score, each) for each in curves]
    below = [np.inf if cost is None else cost[ledger] for cost in costs]
    return ratio(above, above if label == BASELINE else below)


def ratio(above: Sequence[float], below: Sequence[float]) -> dict[str, float]:
    """Median over pairs of above / below, with its interval over both's seeds."""
    pairs = np.array(above)[:, None] / np.array(below)[None, :]
    draw = generator(0, "headline ratios", *pairs.shape)
    rows, columns = (draw.integers(0, n, (NUM_RESAMPLES, n)) for n in pairs.shape)
    drawn = pairs[rows[:, :, None], columns[:, None, :]]
    low, high = np.quantile(np.median(drawn, axis=(1, 2)), [0.025, 0.975])
    return {
        "median": round(float(np.median(pairs)), 5),
        "low": round(float(low), 5),
        "high": round(float(high), 5),
    }
