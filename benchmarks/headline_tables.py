"""Summary, tables and figure of `headline_ac2.py`, from its runs' files.

    curve      the running mean of two consecutive evaluations, at their mean cost,
               behind the start policy's own: held-out problems are few
    target     best score of GRPO's curve, the mean over its seeds, at the learning rate
               whose last quarter of training had the highest rewards
    cost       of a run to the target: where its curve first reaches it, interpolated
    ratio      cost of a GRPO run / cost of a run, the median over all pairs of seeds;
               95% interval by drawing the seeds of both anew, 4000 times

A run that never reaches the target costs infinitely much, ratio 0. A GRPO run that
never does counts its whole curve, which is too little. Time is the process' CPU
seconds in training, on one thread: others worked on the same cores.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import RESULTS
from headline_configs import CONFIGS, NUM_EVALUATIONS, RATE, STUDIES
from matplotlib.ticker import EngFormatter
from study_tables import IMAGES, short, table

from accredit.randomness import generator
from accredit.reports.plots import INK, MUTED, SERIES, house_style, save_png
from accredit.reports.statistics import bootstrap

LEDGERS = {"decode": "decode", "total": "total", "seconds": "cpu_seconds"}
"""Name in a ratio -> key of an evaluation."""
NUM_RESAMPLES = 4000
NOISE = 1e-9
"""Of a mean of equal numbers."""
BASELINE = "grpo"
NO_REFILL = "exact_no_refill_cost"
"""The exact critic's runs, the refill's decoding taken off both ledgers."""

PAPER = {
    "no_audit": "lower peak (18.7 of 20.6), less stable",
    "correct_only": "a little ahead early, then falls (14.7)",
    "stale_buffer": "lower plateau (17.9), still faster than GRPO",
    "small_chunks_grid_held": "not run",
    "small_chunks_grid_moved": "lower peak (16.6), then falls (13.6)",
    "no_local_gate": "behind (13.1 against 15.3; without groups and audits)",
    "with_reference": "smaller critic error (.12 against .16)",
    "no_group": "comparable",
}
"""What the ablations did in Wen et al. 2026, arXiv:2609.39247; percent there."""
TERMS = {
    "critic error": ("ac2_exact", "ac2"),
    "gate delay": ("exact_always_ready", "ac2_exact"),
    "refill": (NO_REFILL, "ac2_exact"),
    "audits": ("exact_no_audit", "ac2_exact"),
    "read-out": ("expectation_readout", "ac2"),
}
"""Name -> (without the term, with it)."""

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


def summarise(folder: Path) -> None:
    """Reads all runs; writes the summary and the figure, prints the tables."""
    runs = loaded(folder)
    if not runs:
        raise SystemExit(f"no runs are in {folder}; make some first")
    found = summary(runs)
    path = RESULTS / "headline_ac2.json"
    path.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", "utf-8")
    print(f"written to benchmarks/results/{path.name}")
    print_tables(runs, found)
    if any(split in found for split in STUDIES["main"].splits):
        draw(runs, found, IMAGES / "headline_ac2.png")


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
        above = [(cost_to(target, each) or each.spent)[ledger] for each in baseline]
        below = (
            above
            if label == BASELINE
            else [np.inf if cost is None else cost[ledger] for cost in costs]
        )
        found[f"ratio_{ledger}"] = ratio(above, below)
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


def print_tables(runs: Sequence[Content], found: Summary) -> None:
    """All tables of docs/ac2.md."""
    for split, entries in found.items():
        mine = [run for run in runs if run["split"] == split]
        print(f"\n## {split}\n\n{source(mine)}\n")
        print(f"GRPO's best score is {short(entries[BASELINE]['target'])}.\n")
        rows = [[label, *figures(x)] for label, x in entries.items()]
        table(["", *FIGURES], rows)
        for label in (x for x in entries if is_swept(x)):
            swept = rate_rewards([run for run in mine if run["label"] == label])
            print("\nLearning rates: rewards of the last quarter of training\n")
            table(
                [label, *(f"{rate:g}" for rate in swept)],
                [["", *map(short, swept.values())]],
            )
    if "hard" in found:
        print_parts(found["hard"])


def is_swept(label: str) -> bool:
    """Whether a learning rate was chosen for it."""
    return isinstance(CONFIGS.get(label, {}).get(RATE), tuple)


FIGURES = (
    "seeds",
    "learning rate",
    "best",
    "reached",
    *(f"ratio, {ledger}" for ledger in LEDGERS),
    "of mean curves, decode",
)


def figures(x: Mapping[str, Any]) -> list[str]:
    """The cells of one algorithm's row."""
    return [
        str(x["seeds"]),
        f"{x['learning_rate']:g}",
        f"{short(x['best'])} [{interval(x['best_interval'])}]",
        f"{x['reached']} of {x['seeds']}",
        *(in_brackets(x[f"ratio_{ledger}"]) for ledger in LEDGERS),
        f"{x['ratio_decode_of_mean_curves']:.2f}",
    ]


def in_brackets(x: Mapping[str, float]) -> str:
    """`median [low, high]` of a ratio."""
    return f"{x['median']:.2f} [{x['low']:.2f}, {x['high']:.2f}]"


def interval(x: Mapping[str, float]) -> str:
    """`low, high` of a score."""
    return f"{short(x['low'])}, {short(x['high'])}"


def print_parts(entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Ablations beside the paper's, and what each term costs."""
    print("\n## ablations of AC2, hard\n")
    head = ["", "best", "ratio, decode", "reached", "in the paper"]
    rows = [
        [
            label,
            f"{short(x['best'])} [{interval(x['best_interval'])}]",
            in_brackets(x["ratio_decode"]),
            f"{x['reached']} of {x['seeds']}",
            PAPER.get(label, ""),
        ]
        for label in ("ac2", *STUDIES["ablations"].labels)
        if (x := entries.get(label))
    ]
    table(head, rows)
    print("\n## terms, hard: decode ratio without the term, with it, and their ratio\n")
    rows = []
    for name, (without, with_) in TERMS.items():
        if without not in entries or with_ not in entries:
            continue
        pair = [entries[key]["ratio_decode"] for key in (without, with_)]
        high, low = (x["median"] for x in pair)
        factor = f"{high / low:.2f}" if low > 0 else "none"
        rows.append([f"{name} ({without})", *map(in_brackets, pair), factor])
    table(["", "without", "with", "factor"], rows)


def source(runs: Sequence[Content]) -> str:
    """Machine, dates, sizes of what was run on."""
    first = runs[0]
    dates = sorted(run["date"][:10] for run in runs)
    budgets = sorted({run["budget"] for run in runs})
    hours = sum(run["evaluations"][-1]["cpu_seconds"] for run in runs) / 3600
    return (
        f"{len(runs)} runs of {' or '.join(f'{x / 1e9:g}' for x in budgets)} G decode "
        f"FLOPs, {first['num_problems']} problems, {first['num_held_out']} held out, "
        f"{first['recipe']['evaluation']['samples']} completions each; "
        f"{first['processor']}, {first['torch_threads']} thread, {hours:.1f} CPU "
        f"hours, {dates[0]} to {dates[-1]}"
    )


def draw(runs: Sequence[Content], found: Summary, path: Path) -> None:
    """Learning curves against decode FLOPs, a panel a split; bands span the seeds."""
    from matplotlib.figure import Figure

    splits = [split for split in found if split in STUDIES["main"].splits]
    num_rows = -(-len(splits) // 2)
    with house_style():
        figure = Figure(figsize=(10.4, 0.5 + 3.6 * num_rows))
        panels = figure.subplots(num_rows, 2, squeeze=False).ravel()
        for panel in panels[len(splits) :]:
            panel.set_axis_off()
        for panel, split in zip(panels, splits, strict=False):
            chosen = chosen_runs([run for run in runs if run["split"] == split])
            draw_panel(panel, chosen, found[split][BASELINE]["target"])
            panel.set_title(split.replace("_", " "), loc="left", color=INK, fontsize=11)
        drawn = [panel.get_legend_handles_labels() for panel in panels]
        fullest = max(drawn, key=lambda found: len(found[1]))
        panels[0].legend(*fullest, frameon=False, fontsize=8, loc="lower right")
        mine = [run for run in runs if run["split"] in splits]
        figure.text(0.01, 0.01, source(mine), color=MUTED, fontsize=6)
        figure.tight_layout(rect=(0, 0.03, 1, 1))
        path.parent.mkdir(parents=True, exist_ok=True)
        save_png(figure, path)


def draw_panel(panel: Any, chosen: Mapping[str, Any], target: float) -> None:
    """A line an algorithm, and GRPO's best score."""
    panel.axhline(target, color=MUTED, linewidth=1.0, dashes=(2, 3))
    for label, colour in zip(STUDIES["main"].labels, SERIES, strict=False):
        if label not in chosen:
            continue
        grid, rows = on_grid([curve(run) for run in chosen[label]])
        low, high = rows.min(axis=0), rows.max(axis=0)
        panel.fill_between(grid, low, high, color=colour, alpha=0.12, linewidth=0)
        panel.plot(grid, rows.mean(axis=0), color=colour, label=label)
    panel.set_ylim(bottom=0)
    panel.set_xlabel("decode FLOPs")
    panel.set_ylabel("held-out reward")
    panel.xaxis.set_major_formatter(EngFormatter(sep=" "))
