"""Experiment trackers: TensorBoard, Weights & Biases, trackio.

A tracker is a convenience: one that cannot be opened is a clear error before training
begins, one that fails later is told once, counted, and never ends the run. The record
of a run is its own folder.
"""

import hashlib
import re
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from accredit.screen import say
from accredit.storage.run_directory import without_secrets

Row = Mapping[str, Any]
"""Metric key -> number; anything else is left out."""


@runtime_checkable
class Tracker(Protocol):
    """Somewhere that metric rows are sent to."""

    def log(self, metrics: Row, step: int) -> None: ...

    def close(self) -> None: ...


class TensorBoardTracker:
    """Event files in `<run>/tensorboard`."""

    def __init__(self, run: Path, recipe: Row, first_step: int) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        purge = first_step + 1 if first_step else None
        self._writer = SummaryWriter(str(run / "tensorboard"), purge_step=purge)

    def log(self, metrics: Row, step: int) -> None:
        for key, value in numbers(metrics).items():
            self._writer.add_scalar(key, value, step)

    def close(self) -> None:
        self._writer.close()


class WandbTracker:
    """One W&B run, named after the folder; a resumed run goes on in the same one."""

    def __init__(self, run: Path, recipe: Row, first_step: int) -> None:
        import wandb

        self._run = wandb.init(
            project="accredit",
            name=run.name,
            id=run_id(run),
            resume="allow",
            dir=str(run),
            config=dict(recipe),
        )

    def log(self, metrics: Row, step: int) -> None:
        self._run.log(numbers(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


class TrackioTracker:
    """One trackio run, named after the folder; its dashboard is local."""

    def __init__(self, run: Path, recipe: Row, first_step: int) -> None:
        import trackio

        self._trackio = trackio
        trackio.init(
            project="accredit", name=run.name, resume="allow", config=dict(recipe)
        )

    def log(self, metrics: Row, step: int) -> None:
        self._trackio.log(numbers(metrics), step=step)

    def close(self) -> None:
        self._trackio.finish()


class Guarded:
    """A tracker whose failures are told once and counted, and stay inside."""

    def __init__(
        self, name: str, tracker: Tracker, tell: Callable[[str], None] | None = None
    ) -> None:
        """
        Args:
            tell: Called with one line at the first failure; None writes to stderr.
        """
        self.name = name
        self.num_failures = 0
        self._tracker = tracker
        self._tell = tell or _to_stderr

    def log(self, metrics: Row, step: int) -> None:
        """Sends one row."""
        self._attempt(lambda: self._tracker.log(metrics, step))

    def close(self) -> None:
        """Flushes what is left."""
        self._attempt(self._tracker.close)

    def _attempt(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self.num_failures += 1
            if self.num_failures == 1:
                self._tell(
                    f"tracker {self.name!r} failed ({type(error).__name__}: {error}); "
                    "training goes on, metrics.jsonl is complete"
                )


TRACKERS: Mapping[str, tuple[str, Callable[[Path, Row, int], Tracker]]] = {
    "tensorboard": ("tensorboard", TensorBoardTracker),
    "wandb": ("wandb", WandbTracker),
    "trackio": ("trackio", TrackioTracker),
}
"""Name in a recipe -> (the package it needs, what opens it)."""


def open_tracker(
    name: str,
    run: Path,
    recipe: Row,
    first_step: int = 0,
    tell: Callable[[str], None] | None = None,
) -> Guarded:
    """The named tracker, ready and guarded.

    Args:
        run: The run's folder.
        first_step: Steps done before a resume; what a tracker holds after them is void.

    Raises:
        ValueError, ModuleNotFoundError: as `require_tracker` says.
        RuntimeError: it cannot be opened (no login, no network, ...).
    """
    require_tracker(name)
    _, opens = TRACKERS[name]
    try:
        tracker = opens(run, without_secrets(recipe), first_step)
    except Exception as error:
        raise RuntimeError(
            f"tracker {name!r} must open before training, got {type(error).__name__}: "
            f"{error}; correct its set-up or leave it out of the recipe"
        ) from error
    return Guarded(name, tracker, tell)


def require_tracker(name: str) -> None:
    """Nothing, where the named tracker could be opened.

    Raises:
        ValueError: there is no tracker of this name.
        ModuleNotFoundError: its package is not installed.
    """
    if name not in TRACKERS:
        raise ValueError(
            f"a tracker must be one of {', '.join(TRACKERS)}, got {name!r}; "
            "correct the name or leave it out"
        )
    package, _ = TRACKERS[name]
    if package not in sys.modules and find_spec(package) is None:
        raise ModuleNotFoundError(
            f"tracker {name!r} needs the package {package}, got none installed; "
            "install it with: pip install 'accredit[trackers]'"
        )


def numbers(metrics: Row) -> dict[str, float | int]:
    """What a tracker can draw: the entries that are numbers, `step` aside."""
    return {
        key: value
        for key, value in metrics.items()
        if isinstance(value, int | float) and key != "step"
    }


def run_id(run: Path) -> str:
    """An identity that a run keeps when resumed or moved, and that no other has."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", run.resolve().name).strip("-") or "run"
    facts = run / "environment.json"
    start = facts.read_bytes() if facts.exists() else str(run.resolve()).encode()
    return f"{name[:60]}-{hashlib.sha256(start).hexdigest()[:8]}"


def _to_stderr(line: str) -> None:
    say(f"warning: {line}", error=True)
