"""Items for verifiers, stand-in calls for pools, and a census of child processes."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from accredit.types import Message, Problem, Prompt, Rollout, StopReason
from accredit.verification.pool import Pool, Task

Item = tuple[Problem, str, Rollout]

CALLS = """
import os, signal, subprocess, sys, threading, time

def calls():
    return call

def broken():
    raise RuntimeError("no luck")

def call(milestone, kind, value=None):
    if kind == "echo":
        return value
    if kind == "sleep":
        milestone("asleep")
        time.sleep(value)
        return "awake"
    if kind == "spin":
        threading.Thread(target=time.sleep, args=(60,)).start()
        while True:
            pass
    if kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "exit":
        sys.exit(3)
    if kind == "raise":
        raise KeyError(value)
    if kind == "grandchild":
        script = "sleep 60 & echo $! > " + value + "; wait"
        subprocess.Popen(["sh", "-c", script]).wait()
    if kind == "allocate":
        return len(bytearray(value))
    if kind == "print":
        print(value, flush=True)
        return "printed"
    if kind == "pid":
        return os.getpid()
    if kind == "environment":
        return sorted(os.environ)
    if kind == "nan":
        return float("nan")
"""


@pytest.fixture
def item() -> Callable[..., Item]:
    """A finished rollout of one sampled token, with its problem and its text."""

    def made(
        gold: str | None,
        completion: str,
        stop_reason: StopReason = StopReason.STOP,
        **fields: object,
    ) -> Item:
        problem = Problem("p1", (Message("user", "2+2?"),), gold, **fields)
        rollout = Rollout(
            Prompt(problem, (1,)),
            torch.tensor([1, 2]),
            torch.tensor([False, True]),
            torch.tensor([0.0, -1.0]),
            stop_reason,
        )
        return problem, completion, rollout

    return made


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[Callable[..., Pool]]:
    """Makes pools whose calls do what their first argument says."""
    (tmp_path / "stand_in_calls.py").write_text(CALLS)
    pools: list[Pool] = []

    def made(num_workers: int = 1, factory: str = "calls", **fields: object) -> Pool:
        path = (str(tmp_path), *sys.path)
        task = Task(f"stand_in_calls:{factory}", import_path=path, **fields)
        pools.append(Pool(task, num_workers))
        return pools[-1]

    yield made
    for pool in pools:
        pool.close()


def children(parent: int) -> dict[int, str]:
    """State letter of every child process of `parent`, by process id."""
    found: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            _, _, rest = (folder / "stat").read_text().rpartition(")")
        except OSError:
            continue
        state, parent_id = rest.split()[:2]
        if int(parent_id) == parent:
            found[int(folder.name)] = state
    return found


def is_running(process: int) -> bool:
    """False for a process that is gone or only waits to be reaped."""
    try:
        _, _, rest = Path(f"/proc/{process}/stat").read_text().rpartition(")")
    except OSError:
        return False
    return rest.split()[0] != "Z"


@pytest.fixture
def census() -> Iterator[Callable[[], dict[int, str]]]:
    """Children this test has added to the process; none may be left behind."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("needs /proc to count child processes")
    before = set(children(os.getpid()))

    def added() -> dict[int, str]:
        now = children(os.getpid())
        return {child: state for child, state in now.items() if child not in before}

    yield added


@pytest.fixture
def ends() -> Callable[[int], bool]:
    """Whether a process stops running within ten seconds."""

    def waited(process: int) -> bool:
        deadline = time.monotonic() + 10
        while is_running(process) and time.monotonic() < deadline:
            time.sleep(0.02)
        return not is_running(process)

    return waited
