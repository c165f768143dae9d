"""Which loss makes the better critic of a fixed policy: BCE, MSE or HL-Gauss?

    python benchmarks/critic_targets.py [--seeds 5] [--updates 64]

Value heads on copies of one backbone, the packaged model's, all beginning with V = .5
everywhere, on `walk` problems of ten moves with start success between .1 and .9. The
policy stays as it is; every critic sees the same rollouts in the same order, 64 an
update in four AdamW steps, each prefix taught the outcome. Each loss has three learning
rates, of which the one with the smallest MSE on a validation set is reported on an
evaluation set; the three sets share no problem. BCE is taken with V held in [.001,
.999], or a linear output has none. Exact V is that of the beliefs which the model
imitates (`tasks/walk.py`). Writes benchmarks/results/critic_targets.json, after every
seed.
"""

import argparse
import sys
import time
from typing import Any

import torch
from common import write_result
from intervals import in_words, spread
from torch import Tensor
from walk_model import WalkWorld, critic_of, mixed_prompts, outcome_targets
from walk_model import packaged_world as world_of

from accredit.functional import calibration
from accredit.types import Batch

LOSSES = {"BCE": "sigmoid", "MSE": "linear", "HL-Gauss": "categorical"}
RATES = (1e-4, 3e-4, 1e-3)
NUM_MOVES = 10
NUM_MINIBATCHES = 4
ROLLOUTS_AN_UPDATE = 64
EDGE = 1e-3
"""V is held this far from 0 and 1 for the BCE."""

Scores = dict[str, float]


def main() -> None:
    """Trains, chooses, and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=64)
    options = parser.parse_args()
    torch.set_num_threads(1)
    content: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]),
        "seeds": list(range(options.seeds)),
        "num_moves": NUM_MOVES,
        "rollouts_per_update": ROLLOUTS_AN_UPDATE,
        "updates": options.updates,
        "learning_rates": RATES,
        "runs": [],
    }
    began = time.process_time()
    for seed in content["seeds"]:
        content["runs"].append(one_seed(seed, options.updates))
        content["summary"] = summary(content["runs"])
        content["cpu_seconds"] = round(time.process_time() - began, 1)
        write_result("critic_targets", content)
    for name, found in content["summary"].items():
        print(f"{name:<24} {in_words(found)}")


class Data:
    """The rollouts of a seed: what is learned from, chosen on, and reported on."""

    def __init__(self, seed: int, num_updates: int) -> None:
        self.world = world_of(NUM_MOVES, seed)
        prompts = mixed_prompts(self.world)
        sixth = len(prompts) // 6
        validation, evaluation = prompts[:sixth], prompts[sixth : 2 * sixth]
        train = prompts[2 * sixth :]
        self.validation = self.world.rolled_out(validation, 4, ("validation",))
        self.evaluation = self.world.rolled_out(evaluation, 8, ("evaluation",))
        rounds = -(-num_updates * ROLLOUTS_AN_UPDATE // len(train))
        rollouts = self.world.rolled_out(train * rounds, 1, ("train",))
        self.lessons = [
            rollouts.rows(torch.arange(first, first + ROLLOUTS_AN_UPDATE))
            for first in range(0, num_updates * ROLLOUTS_AN_UPDATE, ROLLOUTS_AN_UPDATE)
        ]


def one_seed(seed: int, num_updates: int) -> dict[str, Any]:
    """Scores of every loss and learning rate, and which rate was chosen."""
    data = Data(seed, num_updates)
    marks = sorted({num_updates // 4, num_updates // 2, num_updates})
    run: dict[str, Any] = {"seed": seed, "references": references(data), "losses": {}}
    for name, output in LOSSES.items():
        tried = {rate: trained(data, output, rate, marks) for rate in RATES}
        run["losses"][name] = {
            str(mark): {
                "rate": (best := smallest(tried, mark)),
                "scores": tried[best][mark]["evaluation"],
                "tried": {str(rate): tried[rate][mark] for rate in RATES},
            }
            for mark in marks
        }
    return run


def smallest(tried: dict[float, dict[int, dict[str, Scores]]], mark: int) -> float:
    """The learning rate with the smallest MSE on the validation set."""
    return min(tried, key=lambda rate: tried[rate][mark]["validation"]["mse"])


def trained(
    data: Data, output: str, rate: float, marks: list[int]
) -> dict[int, dict[str, Scores]]:
    """Scores of one critic on both sets, after as many updates as the marks say."""
    critic = critic_of(
        data.world, output=output, learning_rate=rate, num_minibatches=NUM_MINIBATCHES
    )
    found: dict[int, dict[str, Scores]] = {}
    for count, lesson in enumerate(data.lessons, start=1):
        critic.update(lesson, outcome_targets(lesson), count, warming_up=False)
        if count in marks:
            found[count] = {
                name: scores(
                    data.world, batch, critic.values(batch, batch.rewards)[:, :-1]
                )
                for name, batch in (
                    ("validation", data.validation),
                    ("evaluation", data.evaluation),
                )
            }
    return found


def references(data: Data) -> dict[str, Scores]:
    """What the exact V scores, and the mean outcome said of everything."""
    batch = data.evaluation
    exact = data.world.exact_values(batch)
    lengths = batch.trainable.sum(1)
    mean = float((batch.rewards * lengths).sum() / lengths.sum())
    return {
        "exact V": scores(data.world, batch, exact),
        "constant": scores(data.world, batch, torch.full_like(exact, mean)),
    }


def scores(world: WalkWorld, batch: Batch, values: Tensor) -> Scores:
    """Over the prefixes before sampled tokens."""
    where = batch.trainable
    said = values[where]
    outcomes = batch.rewards[:, None].expand_as(where)[where]
    exact = world.exact_values(batch)[where]
    held = said.clamp(EDGE, 1 - EDGE)
    bce = torch.nn.functional.binary_cross_entropy(held, outcomes)
    found = {
        "bce": float(bce),
        "mse": calibration.brier_score(said, outcomes),
        "explained_variance": calibration.explained_variance(said, outcomes),
        "gap": calibration.separation(said, outcomes),
        "mae_exact": calibration.mean_absolute_error(said, exact),
        "bias_exact": calibration.bias(said, exact),
        "share_held": float((said != held).float().mean()),
    }
    return {name: round(float(x or 0.0), 5) for name, x in found.items()}


def summary(runs: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Mean and half of the 95% interval over seeds; differences to MSE are paired."""
    rows: dict[str, list[Scores]] = {}
    for run in runs:
        for name, found in run["references"].items():
            rows.setdefault(name, []).append(found)
        for name, by_mark in run["losses"].items():
            for mark, found in by_mark.items():
                rows.setdefault(f"{name}, {mark} updates", []).append(found["scores"])
    for name in [name for name in rows if name.startswith(("BCE", "HL-Gauss"))]:
        other = rows[f"MSE, {name.split(', ')[1]}"]
        rows[f"{name} - MSE"] = [
            {quantity: mine[quantity] - theirs[quantity] for quantity in mine}
            for mine, theirs in zip(rows[name], other, strict=True)
        ]
    return {
        name: {
            quantity: spread([row[quantity] for row in found]) for quantity in found[0]
        }
        for name, found in rows.items()
    }


if __name__ == "__main__":
    main()
