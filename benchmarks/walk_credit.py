"""Does an algorithm's credit find the tokens that mattered? On `walk` they are known.

    python benchmarks/walk_credit.py [--seeds 5] [--warmup 40]

Every algorithm deals credit at the start policy, the packaged model, by its own step,
on the same 256 rollouts of the easy split (32 problems, eight each). Critics first
learn alone for some steps under the frozen policy, 128 rollouts each, learning rate
1e-3; the teacher of `opd` is the model after 40 steps of GRPO. Exact credit is
V_t - V_{t-1} under the beliefs that the model imitates: it lies on the letters of
actions, two of three tokens are forced and earn nothing.

    rmse         of the advantage, where its unit is the reward
    unexplained  1 - cos^2(A, C): share of the exact energy that the best scale of A
                 leaves, for all units
    rank         Spearman correlation with C, over all tokens, and over action letters
    energy       share of sum A^2 on the right tokens, those with |C| > .02

Writes benchmarks/results/walk_credit.json, after every seed.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from common import write_result
from intervals import in_words, spread
from torch import Tensor
from walk_model import WalkWorld, packaged_world

from accredit.credit import gae_credit, paid_at_truncation
from accredit.functional import calibration
from accredit.loops.synchronous import advance, first_state
from accredit.models.loading import quiet_transformers
from accredit.recipe.config import recipe_from
from accredit.records import Record, State
from accredit.runs.assembly import Assembly, assemble
from accredit.tasks.walk import ACTIONS, NUM_MOVES
from accredit.types import Batch

RIGHT = 0.02
"""Reward units of exact credit from which a token is one that mattered."""
GROUP_SIZE = 8
CRITICS = {
    "ppo": {"name": "ppo"},
    "sao": {"name": "sao"},
    "pact": {"name": "pact"},
}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "grpo": {"name": "grpo"},
    "dr_grpo": {"name": "dr_grpo"},
    "rloo": {"name": "rloo"},
    "ppo, lambda 1": {"name": "ppo"},
    "ppo, lambda .95": {"name": "ppo", "lambda_policy": 0.95},
    "sao": {"name": "sao"},
    "pact": {"name": "pact"},
    "vine, 12 tokens": {"name": "vine", "chunk_length": 12},
    "vine, 3 tokens": {"name": "vine", "chunk_length": 3},
    "opd": {"name": "opd"},
}
OWN_UNITS = ("grpo", "opd")
"""Deviations of a group, and nats."""

Scores = dict[str, float]


def main() -> None:
    """Trains critics and teachers, deals credit, and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=40, help="steps of the critics")
    parser.add_argument("--teacher", type=int, default=40, help="steps of GRPO")
    options = parser.parse_args()
    torch.set_num_threads(1)
    content: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]),
        "seeds": list(range(options.seeds)),
        "warmup_steps": options.warmup,
        "teacher_steps": options.teacher,
        "runs": [],
    }
    began = time.process_time()
    for seed in content["seeds"]:
        with tempfile.TemporaryDirectory() as folder:
            content["runs"].append(one_seed(seed, options, Path(folder)))
        content["summary"] = summary(content["runs"])
        content["cpu_seconds"] = round(time.process_time() - began, 1)
        write_result("walk_credit", content)
    for name, found in content["summary"].items():
        print(f"{name:<28} {in_words(found)}")


def one_seed(seed: int, options: argparse.Namespace, folder: Path) -> dict[str, Scores]:
    """Scores of every algorithm's credit on the same rollouts."""
    for name, section in CRITICS.items():
        warm_critic(section, options.warmup, seed, folder / name)
    trained_teacher(options.teacher, seed, folder / "teacher")
    world = packaged_world(NUM_MOVES, seed)
    found: dict[str, Scores] = {}
    exact = None
    for name, section in ALGORITHMS.items():
        record = dealt(section, seed, folder)
        if exact is None:
            exact = world.exact_credits(record.batch)
            found |= references(world, record.batch, exact)
        letters = action_letters(world, record.batch)
        found[name] = scores(record.credit.advantages, exact, record.batch, letters)
        if name in OWN_UNITS:
            del found[name]["rmse"]
        if record.critic is not None and name != "ppo, lambda .95":
            moves = value_moves(record.batch, record.values)
            row = f"{name.split(',')[0]}'s critic, V' - V"
            found[row] = scores(moves, exact, record.batch, letters)
            found[row] |= critic_errors(world, record)
    return found


def warm_critic(section: dict[str, Any], steps: int, seed: int, folder: Path) -> None:
    """Saves the algorithm's critic after so many steps under the frozen policy."""
    critic = {"warmup_steps": steps, "learning_rate": 1e-3}
    keys = {"prompts_per_step": 16, "group_size": GROUP_SIZE, "critic": critic}
    assembly = assembled(section | keys, seed, steps + 1)
    state = first_state(assembly.algorithm)
    for _ in range(steps):
        state, _ = advance(assembly.algorithm, state, assembly.world)
    assert assembly.critic is not None
    assembly.critic.save(folder)
    assembly.close()


def trained_teacher(steps: int, seed: int, folder: Path) -> None:
    """Saves the model after so many steps of GRPO."""
    keys = {"name": "grpo", "prompts_per_step": 16, "group_size": GROUP_SIZE}
    assembly = assembled(keys, seed, steps)
    state = first_state(assembly.algorithm)
    for _ in range(steps):
        state, _ = advance(assembly.algorithm, state, assembly.world)
    with quiet_transformers():
        assembly.world.learner.model.save_pretrained(folder)
        assembly.tokenizer.save_pretrained(folder)
    assembly.close()


def dealt(section: dict[str, Any], seed: int, folder: Path) -> Record:
    """What the algorithm's first step saw and did, with the critic it has learned.

    The step's number keys the rollouts: none that a critic was trained on comes again.
    """
    keys: dict[str, Any] = {"prompts_per_step": 32, "group_size": GROUP_SIZE}
    if section["name"] in CRITICS:
        path = str(folder / section["name"])
        keys["critic"] = {"path": path, "warmup_steps": 0, "learning_rate": 1e-3}
    if section["name"] == "opd":
        keys["teacher"] = str(folder / "teacher")
    assembly = assembled(section | keys, seed, 1)
    state = State(step=1_000_000)
    _, record = advance(assembly.algorithm, state, assembly.world)
    assembly.close()
    return record


def assembled(algorithm: dict[str, Any], seed: int, steps: int) -> Assembly:
    """A run of the packaged model on the easy split, as a recipe makes it."""
    recipe = {
        "seed": seed,
        "steps": steps,
        "threads": 1,
        "model": {"device": "cpu"},
        "task": {"name": "walk", "split": "easy"},
        "algorithm": algorithm,
        "learner": {"learning_rate": 1e-3},
    }
    return assemble(recipe_from(recipe, "benchmark"))


def references(world: WalkWorld, batch: Batch, exact: Tensor) -> dict[str, Scores]:
    """What a critic that is never wrong would deal, at three lambdas."""
    before = world.exact_values(batch)
    values = torch.cat([before, torch.zeros(len(before), 1)], dim=1)
    letters = action_letters(world, batch)
    paid = paid_at_truncation(batch)
    return {
        f"exact V, lambda {lambda_:g}": scores(
            gae_credit(paid, batch.rewards, values, lambda_=lambda_).advantages,
            exact,
            batch,
            letters,
        )
        for lambda_ in (1.0, 0.95, 0.0)
    }


def value_moves(batch: Batch, values: Tensor) -> Tensor:
    """V after each sampled token minus V before it, the outcome after the last one."""
    credit = gae_credit(paid_at_truncation(batch), batch.rewards, values, lambda_=0.0)
    return credit.advantages


def action_letters(world: WalkWorld, batch: Batch) -> Tensor:
    """True at sampled tokens that are letters of actions."""
    ids = world.loaded.tokenizer.convert_tokens_to_ids(list(ACTIONS))
    return batch.trainable & torch.isin(batch.token_ids, torch.tensor(ids))


def scores(advantages: Tensor, exact: Tensor, batch: Batch, letters: Tensor) -> Scores:
    """How far credit is from the exact one; see the head of this file."""
    where = batch.trainable
    # Rounding must not break the ties of what is 0.
    given, known = (x.double().round(decimals=6) for x in (advantages, exact))
    a, c = given[where], known[where]
    right = c.abs() > RIGHT
    energy = a.square().sum()
    alignment = (a @ c).square() / (energy * c.square().sum())
    return {
        "rmse": float((a - c).square().mean().sqrt()),
        "unexplained": float(1 - alignment),
        "rank": calibration.rank_correlation(a, c) or 0.0,
        "rank_letters": calibration.rank_correlation(
            advantages[letters], exact[letters]
        )
        or 0.0,
        "energy": float(a[right].square().sum() / energy),
        "right_tokens": float(right.double().mean()),
    }


def critic_errors(world: WalkWorld, record: Record) -> Scores:
    """The critic's own error to exact V, at the prefixes before sampled tokens."""
    where = record.batch.trainable
    said = record.values[:, :-1][where]
    exact = world.exact_values(record.batch)[where]
    return {
        "critic_mae": calibration.mean_absolute_error(said, exact) or 0.0,
        "critic_bias": calibration.bias(said, exact) or 0.0,
    }


def summary(runs: list[dict[str, Scores]]) -> dict[str, dict[str, Any]]:
    """Mean and half of the 95% interval over seeds."""
    return {
        name: {q: spread([run[name][q] for run in runs]) for q in found}
        for name, found in runs[0].items()
    }


if __name__ == "__main__":
    main()
