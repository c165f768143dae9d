"""A run on disk: recipe, environment, metrics, evaluations, rollouts (design 7).

Every row is on disk before the call returns, a torn last line is never read, and a
resumed run drops what came after its checkpoint, so that its files equal those of the
uninterrupted run. While a run holds its folder, it writes there and nowhere else: a
folder that was moved is not made anew. Knows files; knows no algorithm.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from accredit.storage.files import (
    PARTIAL,
    open_plain,
    require_plain_entries,
    write_whole,
)
from accredit.storage.folders import CHECKPOINTS
from accredit.storage.rows import Row, append_row, as_line, finite, parsed, read_rows
from accredit.text import without_lone_surrogates

LOCK = ".lock"
SECRET = re.compile(r"api_?key|secret|password|credential", re.IGNORECASE)
CHUNK_BYTES = 1 << 16
"""Compressed bytes read at a time."""


class NotWritten(RuntimeError):
    """The run's folder is gone, or its disk takes nothing more."""


class RunDirectory:
    """The files of one run. Making the object touches nothing."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / CHECKPOINTS
        self.report = self.path / "report.html"
        self._metrics = self.path / "metrics.jsonl"
        self._evaluations = self.path / "evals.jsonl"
        self._rollouts = self.path / "rollouts"
        self._held: tuple[int, int] | None = None
        """Device and inode of the folder while this process holds it."""

    @property
    def exists(self) -> bool:
        """True where a run has been started."""
        return (self.path / "recipe.json").exists()

    def start(self, recipe: Mapping[str, Any], environment: Mapping[str, Any]) -> None:
        """Makes the folder and records what runs, and where.

        Raises:
            FileExistsError: the folder already holds a run.
        """
        if self.exists:
            raise FileExistsError(
                f"a new run needs a folder without a run, got {self.path}; "
                "continue it with --resume or name another folder"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(self.path / "environment.json", _pretty(environment))
        write_whole(self.path / "recipe.json", _pretty(recipe))

    def require_empty(self) -> None:
        """Nothing, where a new run may begin in the folder, which may not exist.

        Raises:
            ValueError: it holds something, which is perhaps a run without its recipe.
        """
        if not self.path.is_dir():
            return
        found = sorted(f.name for f in self.path.iterdir() if f.name != LOCK)
        if found:
            raise ValueError(
                "a new run needs an empty folder, got "
                f"{self.path} with {found[0]!r} and no recipe.json; restore that file "
                "to continue the run, move the folder away, or choose another name"
            )

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Holds the run for this process; the system lets go if the process dies.

        Raises:
            BlockingIOError: another process holds it.
            ValueError: the folder cannot be written, or holds links.
        """
        import fcntl

        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for folder in (self.path, self._rollouts, self.checkpoints):
                require_plain_entries(folder)
            lock = open_plain(self.path / LOCK, "a+b")
        except OSError as error:
            raise ValueError(
                f"the folder of a run must be writable, got {self.path} "
                f"({error.strerror}); mend its permissions, or choose another place "
                "with --runs_folder"
            ) from error
        with lock as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read().decode("ascii", "replace").strip()
                raise BlockingIOError(
                    f"one process writes a run, got {self.path} held by process "
                    f"{holder or 'unknown'}; wait for it or stop it"
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()).encode())
            file.flush()
            self._held = self._identity()
            try:
                self._remove_leftovers()
                yield
            finally:
                self._held = None

    def discard(self) -> None:
        """Takes back what `lock` made, where no run has started."""
        with suppress(OSError):
            (self.path / LOCK).unlink()

    @property
    def is_locked(self) -> bool:
        """True where another process holds the run."""
        import fcntl

        try:
            with open_plain(self.path / LOCK, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def require_in_place(self) -> None:
        """Nothing, where the folder is the one that this process holds.

        Raises:
            NotWritten: it was moved, deleted or replaced.
        """
        if self._held is not None and self._identity() != self._held:
            raise NotWritten(
                f"the folder of a run must stay while it is trained, got none or "
                f"another in {self.path}; continue with: accredit train --resume and "
                "the place that it was moved to"
            )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self.require_in_place()
        try:
            yield
        except OSError as error:
            self.require_in_place()
            raise NotWritten(
                f"a run must be able to write into {self.path}, got: {error}; make "
                f"room and continue with: accredit train --resume {self.path}"
            ) from error

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _remove_leftovers(self) -> None:
        """Deletes what a kill left half written."""
        for folder in (self.path, self._rollouts):
            for path in folder.glob(f"*{PARTIAL}"):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()

    def rewrite_recipe(self, recipe: Mapping[str, Any]) -> None:
        """Records what a resumed run runs with."""
        with self._writing():
            write_whole(self.path / "recipe.json", _pretty(recipe))

    def recipe(self) -> Row:
        """The resolved recipe."""
        return _read_object(self.path / "recipe.json")

    def environment(self) -> Row:
        """Versions, hardware and git state at the start."""
        return _read_object(self.path / "environment.json")

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """One more step's row; numbers that are not finite become null."""
        with self._writing():
            append_row(self._metrics, row)

    def append_evaluation(self, row: Mapping[str, Any]) -> None:
        """One more evaluation's row."""
        with self._writing():
            append_row(self._evaluations, row)

    def metrics(self) -> list[Row]:
        """All sound rows so far, in order; a torn last line is left out."""
        return list(read_rows(self._metrics).rows)

    def evaluations(self) -> list[Row]:
        """All sound evaluations so far, in order; a torn last line is left out."""
        return list(read_rows(self._evaluations).rows)

    def odd_rows(self) -> list[str]:
        """A line for each file whose rows are not all ours; those are left out."""
        lines = []
        for path in (self._metrics, self._evaluations):
            odd = read_rows(path).odd
            if odd:
                rows = "1 row" if len(odd) == 1 else f"{len(odd)} rows"
                lines.append(
                    f"{rows} of {path.name} left out, the first in line {odd[0]}: a "
                    "row must be a JSON object with a step and numbers"
                )
        return lines

    @property
    def latest_step(self) -> int:
        """Step of the last metrics row; 0 before the first."""
        rows = self.metrics()
        return rows[-1]["step"] if rows else 0

    def truncate(self, step: int) -> None:
        """Drops what lies after `step`: the checkpoint that the run continues from."""
        for path in (self._metrics, self._evaluations):
            if path.exists():
                kept = [row for row in read_rows(path).rows if row["step"] <= step]
                with self._writing():
                    write_whole(path, "".join(map(as_line, kept)).encode())
        for later in self.rollout_steps():
            if later > step:
                self.rollout_file(later).unlink()

    def write_rollouts(self, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Keeps one step's rollouts (see `rollouts.rollout_rows`), compressed."""
        import zstandard

        target = self.rollout_file(step)
        beside = target.with_name(target.name + PARTIAL)
        compressor = zstandard.ZstdCompressor(level=3)
        with self._writing():
            self._rollouts.mkdir(exist_ok=True)
            with open_plain(beside, "wb") as file:
                with compressor.stream_writer(file, closefd=False) as stream:
                    for row in rows:
                        stream.write(as_line(row).encode())
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, target)

    def rollout_steps(self) -> list[int]:
        """Steps whose rollouts were kept, ascending."""
        names = re.compile(r"step-(\d+)\.jsonl\.zst")
        found = [names.fullmatch(path.name) for path in self._rollouts.glob("step-*")]
        return sorted(int(match[1]) for match in found if match)

    def rollouts(self, step: int) -> Iterator[Row]:
        """The rollouts of one step, one at a time.

        Raises:
            FileNotFoundError: that step was not kept.
            ValueError: the file is damaged.
        """
        import zstandard

        path = self.rollout_file(step)
        if not path.exists():
            raise FileNotFoundError(
                f"{path.parent} must hold rollouts of step {step}, got steps "
                f"{self.rollout_steps()}; choose one of them"
            )
        try:
            for line in _decompressed_lines(path):
                row = parsed(line)
                if not isinstance(row, dict):
                    raise ValueError(f"a line holds {line[:40]!r}")
                yield row
        except (zstandard.ZstdError, ValueError) as error:
            raise ValueError(
                f"{path} must hold one JSON object a line, got damage ({error}); "
                "delete that file and make the report again"
            ) from error

    def rollout_file(self, step: int) -> Path:
        return self._rollouts / f"step-{step:06d}.jsonl.zst"


def without_secrets(value: Any) -> Any:
    """A recipe for showing: what is named like a key or a password is hidden."""
    if isinstance(value, Mapping):
        return {
            key: "(hidden)" if SECRET.search(key) and part else without_secrets(part)
            for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_secrets(part) for part in value]
    return value


def _pretty(value: Mapping[str, Any]) -> bytes:
    text = json.dumps(finite(value), ensure_ascii=False, indent=2)
    return (without_lone_surrogates(text) + "\n").encode()


def _decompressed_lines(path: Path) -> Iterator[bytes]:
    """Whole lines of a compressed file; ValueError where it ends too early."""
    import zstandard

    decompressor = zstandard.ZstdDecompressor().decompressobj()
    rest = b""
    with open_plain(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            *lines, rest = (rest + decompressor.decompress(chunk)).split(b"\n")
            yield from lines
    if rest or not decompressor.eof:
        raise ValueError("the file ends too early")


def _read_object(path: Path) -> Row:
    if not path.exists():
        raise FileNotFoundError(
            f"{path.parent} must be a run with {path.name}, got none; "
            "name the folder that `accredit train` wrote"
        )
    with open_plain(path, "rb") as file:
        content = file.read()
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} must hold JSON, got a damaged file ({error}); restore it"
        ) from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(value).__name__}")
    return value
