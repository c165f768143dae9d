"""Prints the tables of docs/pact-results.md and docs/credit.md; draws their figures.

    python benchmarks/study_tables.py

Reads what `pact_alignment.py`, `critic_targets.py` and `walk_credit.py` have written to
benchmarks/results/; writes docs/images/pact-*.png and Markdown to the screen.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from common import RESULTS

from accredit.reports.plots import INK, MUTED, SERIES, house_style, save_png

IMAGES = Path(__file__).parent.parent / "docs" / "images"
DRAWN = {
    "plain": SERIES[6],
    "pact": SERIES[1],
    "doubly robust": SERIES[4],
    "v-trace, cap 1": SERIES[3],
    "windowed": SERIES[5],
    "v-trace, cap 6": SERIES[0],
    "fresh rollouts": SERIES[2],
}


def main() -> None:
    """All that there are results for."""
    for name in ("tables", "model"):
        path = RESULTS / f"pact_alignment_{name}.json"
        if path.exists():
            alignment(name, json.loads(path.read_text("utf-8")))
    if (path := RESULTS / "critic_targets.json").exists():
        critic_losses(json.loads(path.read_text("utf-8")))
    if (path := RESULTS / "walk_credit.json").exists():
        walk_credits(json.loads(path.read_text("utf-8")))


def alignment(setting: str, content: Mapping[str, Any]) -> None:
    """Tables and figure of one setting."""
    heading(f"alignment, {setting}", content)
    cells = content["cells"]
    columns = [f"{cell['num_moves']}, {cell['size']}" for cell in cells]
    for part in ("change", "expected", "critic"):
        found = [cell[part] for cell in cells if part in cell]
        if not found:
            continue
        names = list(found[0])
        for quantity in found[0][names[0]]:
            print(f"\n{part}: {quantity}\n")
            rows = [
                [name, *(number(cell[name].get(quantity)) for cell in found)]
                for name in names
            ]
            table(["", *columns], rows)
    if setting == "tables":
        print("\ntargets: mean of target - V^new (reused; independent; deviation)\n")
        rows = [
            [
                name,
                *(
                    "; ".join(
                        number(cell["target"][name][q], half=False)
                        for q in ("reused", "independent", "reused_deviation")
                    )
                    for cell in cells
                ),
            ]
            for name in cells[0]["target"]
        ]
        table(["", *columns], rows)
        for row in content["rows"]:
            print(f"\n{row['updates']} updates in a row, {row['num_moves']} moves\n")
            table(
                ["", "MAE", "gain", "bias", "last MAE"],
                [
                    [
                        name,
                        *(
                            number(x.get(q))
                            for q in ("mae", "gain", "bias", "last_mae")
                        ),
                    ]
                    for name, x in row["critic"].items()
                ],
            )
    draw_alignment(setting, content)


def draw_alignment(setting: str, content: Mapping[str, Any]) -> None:
    """MAE of the critic over the size of the change, a panel a length."""
    import matplotlib.pyplot as plt

    cells = content["cells"]
    lengths = sorted({cell["num_moves"] for cell in cells})
    with house_style():
        figure, panels = plt.subplots(
            1, len(lengths), figsize=(10.4, 4.2), sharey=True, squeeze=False
        )
        for panel, length in zip(panels[0], lengths, strict=True):
            mine = [cell for cell in cells if cell["num_moves"] == length]
            sizes = [cell["change"]["policy"]["mean_change"]["mean"] for cell in mine]
            draw_panel(panel, sizes, mine)
            panel.set_title(f"{length} moves", loc="left", color=INK, fontsize=11)
            panel.set_xlabel("mean |ratio − 1|")
        panels[0][0].set_ylabel("MAE to V of the new policy")
        panels[0][0].set_ylim(bottom=0)
        panels[0][0].legend(frameon=False, fontsize=8, loc="upper left")
        figure.text(0.01, 0.01, source(content), color=MUTED, fontsize=7)
        figure.tight_layout(rect=(0, 0.04, 1, 1))
        save_png(figure, IMAGES / f"pact-alignment-{setting}.png")


def draw_panel(panel: Any, sizes: Sequence[float], cells: Sequence[Any]) -> None:
    """A line a target, its interval as a band's edges."""
    for name, colour in DRAWN.items():
        found = [cell["critic"][name]["mae"] for cell in cells]
        panel.errorbar(
            sizes,
            [x["mean"] for x in found],
            [x.get("half", 0.0) for x in found],
            color=colour,
            label=name,
            marker="o",
            markersize=4,
            linewidth=1.6,
            elinewidth=0.8,
        )
    stale = [cell["critic"]["no update"]["mae"]["mean"] for cell in cells]
    panel.plot(sizes, stale, color=MUTED, linestyle=":", label="no update")
    panel.set_xscale("log")
    panel.set_xticks(sizes, [f"{size:.2g}" for size in sizes])
    panel.minorticks_off()


def critic_losses(content: Mapping[str, Any]) -> None:
    """Scores of the losses under a fixed policy."""
    heading("losses of a critic", content)
    summary = content["summary"]
    quantities = list(next(iter(summary.values())))
    table(
        ["", *quantities],
        [
            [name, *(number(x.get(q)) for q in quantities)]
            for name, x in summary.items()
        ],
    )
    for run in content["runs"]:
        chosen = {
            name: [found["rate"] for found in by_mark.values()]
            for name, by_mark in run["losses"].items()
        }
        print(f"seed {run['seed']}, rates chosen: {chosen}")


def walk_credits(content: Mapping[str, Any]) -> None:
    """How far each algorithm's credit is from the exact one."""
    heading("credit on walk", content)
    quantities = (
        "rmse",
        "unexplained",
        "rank",
        "rank_letters",
        "energy",
        "critic_mae",
        "critic_bias",
    )
    table(
        ["", *quantities],
        [
            [name, *(number(found.get(q)) for q in quantities)]
            for name, found in content["summary"].items()
        ],
    )


def heading(title: str, content: Mapping[str, Any]) -> None:
    """What it is and where it comes from."""
    print(f"\n## {title}\n\n{source(content)}")


def source(content: Mapping[str, Any]) -> str:
    """Command, seeds, machine, date."""
    return (
        f"{content['command']}; {len(content['seeds'])} seeds, "
        f"{content['processor']}, {content['torch_threads']} thread, "
        f"{content.get('cpu_seconds', 0) / 60:.0f} CPU minutes, {content['date'][:10]}"
    )


def number(found: Mapping[str, float] | None, half: bool = True) -> str:
    """`.123 ± .004`, without the zero before the point."""
    if found is None:
        return ""
    text = short(found["mean"])
    return f"{text} ± {short(found['half'])}" if half and "half" in found else text


def short(x: float) -> str:
    """Three decimals, as the pages write them."""
    text = f"{x:.3f}" if abs(x) < 10 else f"{x:.1f}"
    return text.replace("0.", ".", 1) if abs(x) < 1 else text


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """A Markdown table on the screen."""
    cells = list(head)
    print("| " + " | ".join(cells) + " |")
    print("|" + "---|" * len(cells))
    for row in rows:
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
