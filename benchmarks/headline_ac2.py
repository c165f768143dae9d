"""How much of GRPO's decoding does AC2 need to GRPO's best score?

    python benchmarks/headline_ac2.py [--studies main ...] [--splits hard ...]
        [--labels grpo ac2 ...] [--seeds 0 1 ...] [--rates 1e-3 ...] [--only list]
    python benchmarks/headline_ac2.py --only summary

The packaged model on `walk`, easy, hard, very hard and with partial credit: tuned GRPO,
Prefix GRPO, AC2 with each kind of critic, AC2+; on the hard split the ablations of both
and the terms of what is missed. What each run sets stands in `headline_runs.py`. A run
is trained until it has decoded its split's budget of FLOPs, and evaluated on held-out
problems at equal distances; its time is that of training alone.

Each run is a file, benchmarks/results/headline_ac2/<split>/<run>.json, written whole at
its end; what is there is not run again. Several processes may share the work: who has
a run holds its .lock. `--only summary` reads what is there, writes
benchmarks/results/headline_ac2.json and docs/images/headline_ac2.png, and prints the
tables of docs/ac2-results.md; how ratios are made is said in `headline_tables.py`.
"""

import argparse
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from common import RESULTS
from headline_configs import CONFIGS, SPLITS, STUDIES
from headline_runs import Run, all_runs, budget_of, finished

from accredit.reports.environment import environment

FOLDER = RESULTS / "headline_ac2"
STALE_LOCK_S = 1800.0
"""Of a lock that nobody has touched for so long, the process is gone."""

Beat = Callable[[], None]
"""Says that the holder of a lock lives."""


def main() -> None:
    """Runs what is asked for and missing, or sums up what is there."""
    options = parsed()
    torch.set_num_threads(1)
    if options.only == "summary":
        import headline_pages

        headline_pages.summarise(FOLDER)
        return
    for run in wanted(options):
        if options.only == "list":
            path = file_of(FOLDER, run)
            state = "done" if path.exists() else "missing"
            state = "running" if lock_of(path).exists() else state
            print(f"{state:<8} {run.study:<10} {run.split}/{run.name}")
        else:
            budget = options.budget or budget_of(run)
            said = ensured(FOLDER, run, budget, options.samples)
            print(f"{run.split}/{run.name}: {said}", flush=True)


def parsed() -> argparse.Namespace:
    """The command line; a filter that is left out keeps all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", nargs="+", choices=list(STUDIES))
    parser.add_argument("--splits", nargs="+", choices=list(SPLITS))
    parser.add_argument("--labels", nargs="+", choices=list(CONFIGS))
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument("--rates", nargs="+", type=float)
    parser.add_argument("--budget", type=float, help="decode FLOPs, for all splits")
    parser.add_argument("--samples", type=int, help="completions a held-out problem")
    parser.add_argument("--only", choices=("list", "summary"))
    return parser.parse_args()


def wanted(options: argparse.Namespace) -> list[Run]:
    """The runs that pass every filter."""
    return [
        run
        for run in all_runs()
        if (options.studies is None or run.study in options.studies)
        and (options.splits is None or run.split in options.splits)
        and (options.labels is None or run.label in options.labels)
        and (options.seeds is None or run.seed in options.seeds)
        and (options.rates is None or run.rate in options.rates)
    ]


def file_of(folder: Path, run: Run) -> Path:
    """Where the result of a run is, or will be."""
    return folder / run.split / f"{run.name}.json"


def lock_of(path: Path) -> Path:
    """The lock of a result that is being made."""
    return path.with_suffix(path.suffix + ".lock")


def ensured(folder: Path, run: Run, budget: float, samples: int | None) -> str:
    """Makes the run unless it is there or somebody else is at it; says which."""
    path = file_of(folder, run)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        return "is there" + (
            "" if is_current(path, run) else ", MADE BY ANOTHER RECIPE: delete it?"
        )
    with claimed(lock_of(path)) as beat:
        if beat is None:
            return "is being made by another process"
        # It may have been finished between the first look and the lock.
        if path.exists():
            return "is there"
        content = finished(run, budget, samples, beat)
        written(path, content)
    last = content["evaluations"][-1]
    return (
        f"{last['mean']:.3f} after {last['step']} steps, {last['decode'] / 1e9:.0f} G "
        f"decoded, {last['cpu_seconds']:.0f} CPU seconds"
    )


def is_current(path: Path, run: Run) -> bool:
    """Whether a result was made by the recipe that the run has today."""
    recipe = json.loads(path.read_text("utf-8"))["recipe"]
    samples = recipe["evaluation"]["samples"]
    return recipe == json.loads(json.dumps(run.recipe(samples)))


def written(path: Path, content: dict[str, Any]) -> None:
    """Machine, date and versions, then the content; whole or not at all."""
    where = environment()
    where["torch_threads"] = torch.get_num_threads()
    where["load_average"] = [round(load, 1) for load in os.getloadavg()]
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    text = json.dumps(where | content, allow_nan=False)
    beside.write_text(text + "\n", encoding="utf-8")
    beside.replace(path)


@contextmanager
def claimed(lock: Path) -> Iterator[Beat | None]:
    """Holds a lock while the block runs; None where somebody else has it.

    The holder calls what it is given now and then: a lock that nobody has touched for
    STALE_LOCK_S is taken over.
    """
    mark = secrets.token_hex(8)
    if not taken(lock, mark):
        yield None
        return
    try:
        yield lambda: touched(lock, mark)
    finally:
        if holder(lock) == mark:
            lock.unlink(missing_ok=True)


def taken(lock: Path, mark: str) -> bool:
    """Whether the lock is ours after one attempt."""
    if lock.exists() and is_stale(lock):
        # Of several that find it stale, one moves it away; who moves a fresh one by
        # mistake puts it back.
        aside = lock.with_name(f"{lock.name}.{mark}")
        try:
            lock.rename(aside)
        except FileNotFoundError:
            return False
        if not is_stale(aside):
            aside.rename(lock)
            return False
        aside.unlink()
    try:
        handle = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return False
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(mark)
    return True


def is_stale(lock: Path) -> bool:
    """Whether nobody has touched it for too long."""
    try:
        return time.time() - lock.stat().st_mtime > STALE_LOCK_S
    except FileNotFoundError:
        return False


def touched(lock: Path, mark: str) -> None:
    """Keeps our lock fresh."""
    if holder(lock) == mark:
        os.utime(lock)


def holder(lock: Path) -> str:
    """The mark of who has it; nothing where nobody has."""
    try:
        return lock.read_text("utf-8")
    except FileNotFoundError:
        return ""


if __name__ == "__main__":
    main()
