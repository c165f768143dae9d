"""The runs of `headline_ac2.py`: what is set in each, and how one is stepped."""

import math
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from headline_configs import (
    BASE,
    CONFIGS,
    NUM_EVALUATIONS,
    RATE,
    SPLITS,
    STUDIES,
    Settings,
    Study,
)

from accredit.algorithms.ac2.metrics import Routing
from accredit.algorithms.replay_configs import PrefixGRPOConfig
from accredit.loops.synchronous import advance, first_state
from accredit.recipe.config import RunConfig, recipe_from
from accredit.records import Record, State
from accredit.runs.assembly import Assembly, assemble
from accredit.runs.session import evaluate
from accredit.world import rollout_cost


@dataclass(frozen=True)
class Run:
    """One run of the study."""

    study: str
    split: str
    label: str
    rate: float
    """Learning rate of the policy."""
    seed: int

    @property
    def name(self) -> str:
        """Of its file, under the split's folder."""
        return f"{self.label}-lr{self.rate:g}-seed{self.seed}"

    def recipe(self, samples: int | None = None) -> Settings:
        """All that is set, by sections; `samples` is of an evaluation's problem."""
        split = SPLITS[self.split]
        settings = CONFIGS[self.label] | split.task | {RATE: self.rate}
        settings |= {key: x for key, x in split.own.items() if key in settings}
        if samples is not None:
            settings["evaluation.samples"] = samples
        recipe = deepcopy(tomllib.loads(BASE)) | {"seed": self.seed}
        for name, value in settings.items():
            *sections, key = name.split(".")
            place = recipe
            for section in sections:
                place = place.setdefault(section, {})
            place[key] = value
        return recipe

    def config(self, samples: int | None = None) -> RunConfig:
        """The same, validated.

        Raises:
            RecipeError: a key or its value is wrong.
        """
        return recipe_from(self.recipe(samples), self.name)


def budget_of(run: Run) -> float:
    """Decode FLOPs of a run.

    Others than GRPO need not go on once they have had the time to reach its best
    score; of ablations only what comes before that tells them apart.
    """
    whole = SPLITS[run.split].budget
    if run.label == "grpo" or run.study == "chain":
        return whole
    return 0.7 * whole if run.study == "main" else 0.5 * whole


def rates_of(label: str) -> tuple[float, ...]:
    """The learning rates that a label runs at."""
    rates = CONFIGS[label][RATE]
    return rates if isinstance(rates, tuple) else (rates,)


def all_runs(studies: Mapping[str, Study] = STUDIES) -> Iterator[Run]:
    """All runs, the first seed of everything before the second of anything."""
    for seed in range(max(study.num_seeds for study in studies.values())):
        for name, study in studies.items():
            if seed >= study.num_seeds:
                continue
            for split in study.splits:
                for label in study.labels:
                    for rate in rates_of(label):
                        yield Run(name, split, label, rate, seed)


class Ledger:
    """What a run has spent, and what each step showed."""

    def __init__(self) -> None:
        self.wall_seconds = 0.0
        """Of steps; evaluations are not counted."""
        self.cpu_seconds = 0.0
        self.refill_decode = 0.0
        """Of `decode`, what fresh rollouts took that only later steps go on from."""
        self.steps: dict[str, list[float | None]] = {
            key: [] for key in ("decode", "reward", "ready", "sampled_ready", "refill")
        }
        self.evaluations: list[dict[str, float]] = []

    def stepped(self, state: State, record: Record, assembly: Assembly) -> None:
        """Writes down a step."""
        own = rollout_cost(record.groups, assembly.world.shape).decode_flops
        self.refill_decode += record.cost.decode_flops - own
        routing = record.section(Routing)
        row = {
            "decode": state.cost.decode_flops,
            "reward": fresh_reward(state, record, assembly.config),
            "ready": None,
            "sampled_ready": None,
            "refill": self.refill_decode,
        }
        if routing is not None:
            row["ready"] = routing.num_ready / max(1, routing.num_problems)
            row["sampled_ready"] = float(routing.ready.double().mean())
        for key, value in row.items():
            self.steps[key].append(value)

    def evaluated(self, state: State, assembly: Assembly) -> None:
        """Evaluates the policy, and writes down what it had cost until here."""
        result, _ = evaluate(assembly)
        if result.valid.mean is None:
            raise ValueError("an evaluation needs a verified completion, got none")
        self.evaluations.append(
            {
                "step": state.step,
                "decode": state.cost.decode_flops,
                "total": state.cost.total_flops,
                "tokens": state.cost.tokens_generated,
                "wall_seconds": round(self.wall_seconds, 3),
                "cpu_seconds": round(self.cpu_seconds, 3),
                "refill": self.refill_decode,
                "mean": result.valid.mean.value,
            }
        )


def fresh_reward(state: State, record: Record, config: RunConfig) -> float | None:
    """Mean reward of the step's rollouts from the prompt to the end, one policy's.

    Of algorithms with a store those that were put there; None where none were due.
    """
    options = config.algorithm
    if isinstance(options, PrefixGRPOConfig):
        # It keeps no routing: the newest of its store is the step's.
        due = (state.step - 1) % options.refill_every == 0
        newest = options.fresh_per_step * options.refill_every if due else 0
        stored = state.memory.rollouts.items
        rewards = [item.reward for item in stored[max(0, len(stored) - newest) :]]
    else:
        routing = record.section(Routing)
        groups = record.groups if routing is None else routing.refill
        rewards = [v.reward for g in groups for v in g.verdicts if v.reward is not None]
    return math.fsum(rewards) / len(rewards) if rewards else None


def finished(run: Run, budget: float, samples: int | None, beat: Any) -> Settings:
    """Trains until the budget is spent, and returns all that is to be kept.

    Args:
        run: Which one.
        budget: Decode FLOPs.
        samples: Completions a problem of an evaluation; None as in BASE.
        beat: Called after every step.
    """
    ledger = Ledger()
    with closing(assemble(run.config(samples))) as assembly:
        state = first_state(assembly.algorithm)
        world = assembly.world
        world.engine.load(world.learner.model, world.learner.version)
        ledger.evaluated(state, assembly)
        every, num_passed = budget / NUM_EVALUATIONS, 0
        while state.cost.decode_flops < budget:
            wall, cpu = time.perf_counter(), time.process_time()
            state, record = advance(assembly.algorithm, state, world)
            ledger.wall_seconds += time.perf_counter() - wall
            ledger.cpu_seconds += time.process_time() - cpu
            ledger.stepped(state, record, assembly)
            beat()
            passed = int(state.cost.decode_flops / every)
            if passed > num_passed or state.cost.decode_flops >= budget:
                ledger.evaluated(state, assembly)
                num_passed = passed
                beat()
        return {
            "study": run.study,
            "split": run.split,
            "label": run.label,
            "learning_rate": run.rate,
            "seed": run.seed,
            "budget": budget,
            "recipe": run.recipe(samples),
            "num_problems": len(world.problems.prompts),
            "num_held_out": len(assembly.evaluation_prompts),
            "evaluations": ledger.evaluations,
            "steps": ledger.steps,
        }
