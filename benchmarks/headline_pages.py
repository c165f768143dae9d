"""Summary file, tables and figure of `headline_ac2.py`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common import RESULTS
from headline_configs import CONFIGS, RATE, STUDIES
from headline_tables import (
    BASELINE,
    LEDGERS,
    NO_REFILL,
    Content,
    Summary,
    chosen_runs,
    curve,
    loaded,
    on_grid,
    rate_rewards,
    summary,
)
from matplotlib.ticker import EngFormatter
from study_tables import IMAGES, short, table

from accredit.reports.plots import INK, MUTED, SERIES, house_style, save_png

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
    "pay of audits": ("exact_boundary_credit", "ac2_exact"),
    "mean over tokens": ("ac2", "token_mean"),
}
"""Name -> (without the term, with it)."""


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


def print_tables(runs: Sequence[Content], found: Summary) -> None:
    """All tables of docs/ac2-results.md."""
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
    "decode, half of it",
    "after half of GRPO's budget",
)


def figures(x: Mapping[str, Any]) -> list[str]:
    """The cells of one algorithm's row."""
    return [
        str(x["seeds"]),
        f"{x['learning_rate']:g}",
        f"{short(x['best'])} [{interval(x['best_interval'])}]",
        f"{x['reached']} of {x['seeds']}",
        *(in_brackets(x[f"ratio_{ledger}"]) for ledger in LEDGERS),
        in_brackets(x["ratio_decode_half"]),
        short(x["at_half_budget"]),
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
    head = ["", "seeds", "after half of GRPO's budget", "ratio to half of GRPO's best"]
    rows = [
        [
            label,
            str(x["seeds"]),
            short(x["at_half_budget"]),
            in_brackets(x["ratio_decode_half"]),
            PAPER.get(label, ""),
        ]
        for label in ("ac2", *STUDIES["ablations"].labels)
        if (x := entries.get(label))
    ]
    table([*head, "in the paper"], rows)
    print("\n## terms, hard: decode ratio to half of GRPO's best without it, with it\n")
    rows = []
    for name, (without, with_) in TERMS.items():
        if without not in entries or with_ not in entries:
            continue
        pair = [entries[key]["ratio_decode_half"] for key in (without, with_)]
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
        f"FLOPs, {span(runs, 'num_problems')} problems, "
        f"{span(runs, 'num_held_out')} held out, "
        f"{first['recipe']['evaluation']['samples']} completions each; "
        f"{first['processor']}, {first['torch_threads']} thread, {hours:.1f} CPU "
        f"hours, {dates[0]} to {dates[-1]}"
    )


def span(runs: Sequence[Content], key: str) -> str:
    """The number, or the least and the largest of all runs'."""
    found = sorted({run[key] for run in runs})
    return " to ".join(str(x) for x in dict.fromkeys((found[0], found[-1])))


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
