"""A run's hold on the world: its folder while it is new, its report, its signals."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from accredit.records import Alarm
from accredit.reports.page import write_report
from accredit.reports.progress import TrainingProgress
from accredit.storage.run_directory import RunDirectory

Handler = Callable[[int, FrameType | None], None]


@contextmanager
def begun(run: RunDirectory) -> Iterator[None]:
    """Holds an empty folder for a new run; one that never started leaves nothing."""
    places = (run.path, *run.path.parents)
    made = [place for place in places if not place.exists()]
    with run.lock():
        run.require_empty()
        try:
            yield
        except BaseException:
            if not run.exists:
                run.discard()
                for place in made:
                    with suppress(OSError):
                        place.rmdir()
            raise


def free_folder(wanted: Path) -> Path:
    """The folder itself if it holds no run yet, else the first numbered one."""
    folder, number = wanted, 2
    while RunDirectory(folder).exists or RunDirectory(folder).is_locked:
        folder = wanted.with_name(f"{wanted.name}-{number}")
        number += 1
    return folder


def write_report_of(
    run: RunDirectory, progress: TrainingProgress, alarms: Sequence[Alarm]
) -> None:
    """The report; damage in what the run wrote long ago is told, not fatal.

    Raises:
        RuntimeError: the folder is gone, or the disk takes nothing more.
    """
    run.require_in_place()
    try:
        write_report(run, alarms)
    except ValueError as error:
        progress.warn([f"the report is not written: {error}"])
    except OSError as error:
        raise RuntimeError(f"the report must be written, got: {error}") from error


@contextmanager
def interruptible(handler: Handler) -> Iterator[None]:
    """SIGINT and SIGTERM call the handler, while the block runs."""
    signals = (signal.SIGINT, signal.SIGTERM)
    previous = [signal.signal(s, handler) for s in signals]
    try:
        yield
    finally:
        for number, former in zip(signals, previous, strict=True):
            signal.signal(number, former)
