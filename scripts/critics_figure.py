"""Draws how algorithms with a critic learn `walk`, beside GRPO: three seeds each.

    python scripts/critics_figure.py

Trains what is not in build/critics yet (two minutes a run on one core), then writes
docs/images/walk_critics.png and prints the figures for docs/log.md. Every recipe is as
it stands in recipes/: 128 rollouts a step, 40 steps, one learning rate for all, tuned
for none of them.
"""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

import numpy as np

from accredit.recipe.config import load_recipe
from accredit.reports.environment import environment
from accredit.reports.plots import INK, MUTED, SERIES, house_style, save_png
from accredit.runs.session import start_training
from accredit.storage.run_directory import RunDirectory

ROOT = Path(__file__).parent.parent
RUNS = ROOT / "build" / "critics"
PICTURE = ROOT / "docs" / "images" / "walk_critics.png"
SEEDS = (0, 1, 2)
VARIANTS: dict[str, tuple[str, Sequence[str]]] = {
    "GRPO": ("walk_grpo", ()),
    "PPO": ("walk_ppo", ()),
    "SAO": ("walk_sao", ()),
    "PACT": ("walk_pact", ()),
    "PACT, windowed": ("walk_pact", ("--algorithm.target", "windowed")),
}


def finished_run(name: str, seed: int) -> RunDirectory:
    """The run of a variant and a seed, trained now unless it was before."""
    recipe, words = VARIANTS[name]
    folder = f"{name.lower().replace(', ', '-')}-{seed}"
    run = RunDirectory(RUNS / folder)
    if not run.exists:
        own = ["--name", folder, "--seed", str(seed), "--runs_folder", str(RUNS)]
        path = ROOT / "recipes" / f"{recipe}.toml"
        run, _ = start_training(load_recipe(path, [*own, *words]))
    return run


def main() -> None:
    """Trains, draws, prints."""
    runs = {name: [finished_run(name, seed) for seed in SEEDS] for name in VARIANTS}
    import matplotlib.pyplot as plt

    with house_style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.9))
        for color, (name, of_name) in zip(SERIES, runs.items(), strict=False):
            rows = [run.evaluations() for run in of_name]
            costs = np.array([[row["flops/decode"] for row in seed] for seed in rows])
            means = np.array([[row["eval/mean"] for row in seed] for seed in rows])
            left.plot(costs.T / 1e9, means.T, color=color, alpha=0.25, linewidth=1)
            left.plot(costs.mean(0) / 1e9, means.mean(0), color=color, label=name)
            explained = np.array(
                [
                    [row.get("critic/explained_variance", np.nan) for row in of_seed]
                    for of_seed in (run.metrics() for run in of_name)
                ]
            )
            steps = np.arange(1, explained.shape[1] + 1)
            right.plot(steps, np.nanmean(explained, 0), color=color, label=name)
            ends = ", ".join(f"{mean:.3f}" for mean in means[:, -1])
            print(f"{name}: start {means[:, 0].mean():.3f}, end {ends}; ", end="")
            print(f"decode GFLOP {(costs[:, -1] / 1e9).round(0).tolist()}; ", end="")
            print(f"explained variance {np.nanmean(explained[:, -5:]):.3f}")
        left.set_ylim(0, 1)
        left.set_xlabel("decode FLOPs, billions")
        left.set_title("held-out success", loc="left", color=INK, fontsize=11)
        left.legend(frameon=False, fontsize=8)
        right.set_xlabel("step")
        right.set_title(
            "critic's explained variance", loc="left", color=INK, fontsize=11
        )
        figure.text(
            0.01,
            0.01,
            f"scripts/critics_figure.py, seeds {', '.join(map(str, SEEDS))}, hard, "
            f"14 held-out problems x 32, one CPU thread, {date.today()}",
            color=MUTED,
            fontsize=7,
        )
        figure.tight_layout(rect=(0, 0.03, 1, 1))
        save_png(figure, PICTURE)
    print("environment:", environment())


if __name__ == "__main__":
    main()
