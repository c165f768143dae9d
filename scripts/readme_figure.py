"""Draws the README's curve: the main recipe with three seeds, all of it from runs.

    python scripts/readme_figure.py

Trains what is not in build/readme yet (a minute a seed on one core), then writes
docs/images/walk_grpo.png and prints the figures for docs/log.md.
"""

from datetime import date
from pathlib import Path

import numpy as np

from accredit.recipe.config import load_recipe
from accredit.reports.environment import environment
from accredit.reports.plots import INK, MUTED, SERIES, house_style, save_png
from accredit.runs.session import start_training
from accredit.storage.run_directory import RunDirectory

ROOT = Path(__file__).parent.parent
RECIPE = ROOT / "recipes" / "walk_grpo.toml"
RUNS = ROOT / "build" / "readme"
PICTURE = ROOT / "docs" / "images" / "walk_grpo.png"
SEEDS = (0, 1, 2)


def finished_run(seed: int) -> RunDirectory:
    """The run of a seed, trained now unless it was before."""
    run = RunDirectory(RUNS / f"seed-{seed}")
    if not run.exists:
        words = [
            "--name",
            f"seed-{seed}",
            "--seed",
            str(seed),
            "--runs_folder",
            str(RUNS),
        ]
        run, _ = start_training(load_recipe(RECIPE, words))
    return run


def main() -> None:
    runs = [finished_run(seed) for seed in SEEDS]
    rows = [run.evaluations() for run in runs]
    costs = np.array([[row["flops/decode"] for row in of_seed] for of_seed in rows])
    means = np.array([[row["eval/mean"] for row in of_seed] for of_seed in rows])
    import matplotlib.pyplot as plt

    with house_style():
        figure, axes = plt.subplots(figsize=(8.6, 3.9))
        for seed, cost, mean in zip(SEEDS, costs, means, strict=True):
            axes.plot(cost / 1e9, mean, color=SERIES[0], alpha=0.35, linewidth=1.2)
            axes.annotate(
                f"seed {seed}",
                (cost[-1] / 1e9, mean[-1]),
                xytext=(6, -3),
                textcoords="offset points",
                color=MUTED,
                fontsize=8,
            )
        axes.plot(
            costs.mean(0) / 1e9,
            means.mean(0),
            color=SERIES[0],
            marker="o",
            markersize=5,
        )
        axes.set_ylim(0, 1)
        axes.set_xlabel("decode FLOPs, billions")
        axes.set_ylabel("held-out success, mean of 32 samples")
        first, last = means[:, 0].mean(), means[:, -1].mean()
        axes.set_title(
            f"GRPO on walk, hard split: {first:.2f} to {last:.2f} in "
            f"{runs[0].metrics()[-1]['step']} steps",
            loc="left",
            color=INK,
            fontsize=11,
        )
        found = environment()
        figure.text(
            0.01,
            0.01,
            f"scripts/readme_figure.py, seeds {', '.join(map(str, SEEDS))}, "
            f"14 held-out problems, one CPU thread, {date.today()}",
            color=MUTED,
            fontsize=7,
        )
        figure.tight_layout(rect=(0, 0.03, 1, 1))
        save_png(figure, PICTURE)
    print("seed, start, end:", list(zip(SEEDS, means[:, 0], means[:, -1], strict=True)))
    print("decode GFLOP:", (costs[:, -1] / 1e9).round(0).tolist())
    print("environment:", found)


if __name__ == "__main__":
    main()
