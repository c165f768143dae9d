"""Does a critic on the policy's weights still rank siblings after some steps?

    python benchmarks/critic_drift.py [--seeds 2] [--steps 24]

AC2 on the hard split of `walk` with a prompted critic, which decides; beside it an
exact critic is asked about the very same attempts, and decides nothing. Advantages are
differences between siblings, so what matters is how v_i of stopped siblings move with
their exact values *within* a group; what a gate measures is the error of the prefix.
Both are told in two spans of steps, for several learning rates of the critic on tied
weights and on weights of its own. Writes benchmarks/results/critic_drift.json and
prints the table of docs/ac2-results.md.
"""

import argparse
import json
import math
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import torch
from common import RESULTS
from headline_runs import Run
from torch import Tensor

from accredit.algorithms.ac2.metrics import Routing
from accredit.critics.exact import ExactCritic
from accredit.loops.synchronous import advance, first_state
from accredit.recipe.config import recipe_from
from accredit.records import Valuation
from accredit.reports.environment import environment
from accredit.runs.assembly import Assembly, assemble
from accredit.runs.prefix_critics import exact_critic
from accredit.types import CriticQuery

SETTINGS: dict[str, tuple[str, float]] = {
    "tied, 1e-9": ("tied", 1e-9),
    "tied, 3e-5": ("tied", 3e-5),
    "tied, 1e-4": ("tied", 1e-4),
    "tied, 3e-4": ("tied", 3e-4),
    "separate, 1e-4": ("separate", 1e-4),
}
"""Weights of the critic, and its learning rate."""
SPANS = ((1, 12), (13, 24))


class Watched:
    """A critic whose every answer is compared with the exact one."""

    def __init__(self, critic: Any, exact: ExactCritic) -> None:
        self.critic, self.exact = critic, exact
        self.said: list[float] = []
        self.true: list[float] = []

    def __call__(self, attempts: Sequence[CriticQuery]) -> Valuation:
        answer = self.critic(attempts)
        self.said = [math.nan if v is None else v for v in answer.values]
        self.true = [v or 0.0 for v in self.exact.values(attempts).values]
        return answer


def main() -> None:
    """All settings and seeds; one row of the table each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=24)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: dict[str, Any] = {}
    for name, (weights, rate) in SETTINGS.items():
        found = [
            watched_run(weights, rate, seed, options.steps)
            for seed in range(options.seeds)
        ]
        rows[name] = {
            f"{first} to {last}": summary(found, first, last) for first, last in SPANS
        }
        print(name, rows[name], flush=True)
    content = {
        "environment": environment(),
        "seeds": options.seeds,
        "steps": options.steps,
        "rows": rows,
    }
    path = RESULTS / "critic_drift.json"
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
    print_table(rows)


def watched_run(
    weights: str, rate: float, seed: int, steps: int
) -> list[dict[str, Any]]:
    """What the critic said and what was true, step by step."""
    recipe = Run("main", "hard", "ac2", 5e-4, seed).recipe()
    recipe["algorithm"]["critic"] |= {"weights": weights, "learning_rate": rate}
    recipe["algorithm"]["critic"] |= {"readout": "expectation"}
    recipe["algorithm"] |= {"target_rounding": "none"}
    recipe["algorithm"]["gate"] |= {"tau_local": 0.3, "tau_global": 0.3}
    found: list[dict[str, Any]] = []
    with closing(assemble(recipe_from(recipe, "drift"))) as assembly:
        watched = watch(assembly)
        assembly.world.engine.load(assembly.world.learner.model, 0)
        state = first_state(assembly.algorithm)
        for _ in range(steps):
            state, record = advance(assembly.algorithm, state, assembly.world)
            routing = record.section(Routing)
            assert routing is not None
            num, asked = len(routing.ready), int(routing.asked.sum())
            said, true = torch.tensor(watched.said), torch.tensor(watched.true)
            groups = record.batch.group_index[routing.asked]
            ends = slice(num, num + asked)
            found.append(
                {
                    "step": state.step,
                    "errors": (said[:num] - true[:num]).tolist(),
                    "said": centred(said[ends], groups).tolist(),
                    "true": centred(true[ends], groups).tolist(),
                }
            )
    return found


def watch(assembly: Assembly) -> Watched:
    """Puts the exact critic beside the run's own."""
    critic: Any = assembly.critic
    engine: Any = assembly.world.engine
    exact = exact_critic(
        assembly.config,
        assembly.world.learner.model,
        assembly.tokenizer,
        frozenset(engine.inner.stop_token_ids),
    )
    watched = Watched(critic.values, exact)
    critic.values = watched
    return watched


def centred(values: Tensor, groups: Tensor) -> Tensor:
    """Values less the mean of their group."""
    result = values.clone()
    for group in groups.unique():
        members = groups == group
        result[members] -= values[members].nanmean()
    return result


def summary(
    runs: Sequence[Sequence[dict[str, Any]]], first: int, last: int
) -> dict[str, float | None]:
    """Pooled over the steps of a span and over seeds."""
    rows = [row for run in runs for row in run if first <= row["step"] <= last]
    errors = torch.tensor([e for row in rows for e in row["errors"]])
    said = torch.tensor([x for row in rows for x in row["said"]])
    true = torch.tensor([x for row in rows for x in row["true"]])
    kept = ~said.isnan()
    said, true = said[kept], true[kept]
    scale = float(said.square().sum() * true.square().sum()) ** 0.5
    return {
        "error": float(errors.abs().nanmean()),
        "bias": float(errors.nanmean()),
        "within": float((said * true).sum()) / scale if scale > 0 else None,
        "stopped": int(kept.sum()),
    }


def print_table(rows: dict[str, Any]) -> None:
    """Markdown."""
    spans = [f"{first} to {last}" for first, last in SPANS]
    heads = [f"{what}, steps {span}" for span in spans for what in COLUMNS]
    print("| critic | " + " | ".join(heads) + " |")
    print("|---" * (1 + len(heads)) + "|")
    for name, row in rows.items():
        cells = [row[span][key] for span in spans for key in COLUMNS.values()]
        shown = [" – " if cell is None else f"{cell:.2f}" for cell in cells]
        print(f"| {name} | " + " | ".join(shown) + " |")


COLUMNS = {"correlation within groups": "within", "error": "error", "bias": "bias"}


if __name__ == "__main__":
    main()
