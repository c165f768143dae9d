"""Memory over a run, and the share of its time that is accredit's own.

    python benchmarks/memory.py [--steps 300]

A run of the packaged model on the walk, as `accredit train` makes it, with nothing
evaluated between its first and its last step: resident memory and living tensors at
steps 10, 100, 200 and 300. Own time is what is left of the wall time of the steps
without engine, learner and verifier: drawing, collating, credit, metrics and files.
Writes benchmarks/results/memory.json.
"""

import argparse
import gc
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from common import write_result
from rich.console import Console

from accredit.loops.synchronous import Plan, first_state, train
from accredit.recipe.config import recipe_from
from accredit.records import Record, State
from accredit.reports.environment import environment
from accredit.reports.progress import TrainingProgress
from accredit.runs.assembly import assemble
from accredit.runs.session import Session
from accredit.storage.run_directory import RunDirectory

FIRST = 10
"""Step from which memory must be flat."""
NOT_OURS = ("generate", "update", "verify")


class MeasuredSession(Session):
    """A session that looks at the process's memory and at the clock."""

    def watch(self, steps: set[int]) -> None:
        """Begins to measure; memory at the named steps."""
        self.watched = steps
        self.memory: dict[int, dict[str, float]] = {}
        self.seconds = {"wall": 0.0, "step": 0.0, "reports": 0.0}
        self.last = time.perf_counter()

    def evaluated(self, state: State) -> State:
        state = super().evaluated(state)
        self.last = time.perf_counter()
        return state

    def stepped(self, state: State, record: Record) -> None:
        began = time.perf_counter()
        super().stepped(state, record)
        ended = time.perf_counter()
        if state.step >= FIRST:
            times = {
                **record.times_s,
                "wall": ended - self.last,
                "reports": ended - began,
            }
            for name, seconds in times.items():
                self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        if state.step in self.watched:
            self.memory[state.step] = {
                "rss_mb": round(rss_bytes() / 1e6, 2),
                "live_tensors": live_tensors(),
            }
        self.last = time.perf_counter()


def main() -> None:
    """Runs, prints and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--prompts", type=int, default=4, help="of a step")
    options = parser.parse_args()
    watched = sorted({FIRST, *range(100, options.steps, 100), options.steps})
    with tempfile.TemporaryDirectory() as folder:
        session = finished_session(options, Path(folder), set(watched))
    memory, seconds = session.memory, session.seconds
    growth = {
        key: round(memory[watched[-1]][key] / memory[FIRST][key] - 1, 4)
        for key in ("rss_mb", "live_tensors")
    }
    ours = 1 - sum(seconds[name] for name in NOT_OURS) / seconds["wall"]
    inside = 1 - sum(seconds[name] for name in NOT_OURS) / seconds["step"]
    num_measured = options.steps - FIRST + 1
    content: dict[str, Any] = {
        "steps": options.steps,
        "completions_per_step": 8 * options.prompts,
        "memory_at_step": memory,
        "growth_from_step_10": growth,
        "milliseconds_per_step": {
            name: round(1e3 * total / num_measured, 2)
            for name, total in seconds.items()
        },
        "own_share_of_wall": round(ours, 4),
        "own_share_of_step": round(inside, 4),
    }
    print(f"growth {growth}; own share {ours:.1%} of wall time, {inside:.1%} of a step")
    write_result("memory", content)


def finished_session(
    options: argparse.Namespace, folder: Path, watched: set[int]
) -> MeasuredSession:
    """The session of a whole run."""
    recipe = {
        "name": "memory",
        "runs_folder": str(folder),
        "steps": options.steps,
        "model": {"device": "cpu"},
        "task": {"name": "walk", "split": "easy"},
        "algorithm": {"prompts_per_step": options.prompts, "group_size": 8},
        "learner": {"learning_rate": 1e-5},
        "evaluation": {"every": 0, "samples": 1, "max_problems": 8},
        "checkpoint": {"every": 0},
    }
    config = recipe_from(recipe, "benchmark")
    run = RunDirectory(folder / "memory")
    run.start(config.model_dump(mode="json"), environment())
    assembly = assemble(config)
    plan = Plan(config.steps, config.evaluation.every, config.checkpoint.every)
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        TrainingProgress(config.steps, console=Console(file=nowhere)) as progress,
    ):
        session = MeasuredSession(assembly, run, progress)
        session.watch(watched)
        algorithm = assembly.algorithm
        state = first_state(algorithm)
        train(algorithm, assembly.world, state, plan, session)
    assembly.close()
    return session


def rss_bytes() -> int:
    """Resident memory of this process, from Linux's own account."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def live_tensors() -> int:
    """Tensors that something still refers to."""
    gc.collect()
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


if __name__ == "__main__":
    main()
