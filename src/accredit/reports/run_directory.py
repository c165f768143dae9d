"""A run on disk: recipe, environment, metrics, evaluations, rollouts (design 7).

Every row is on disk before the call returns, a torn last line is never read, and a
resumed run drops what came after its checkpoint, so that its files equal those of the
uninterrupted run. Knows files; knows no algorithm.
"""

import io
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accredit.folders import CHECKPOINTS
from accredit.text import without_lone_surrogates

Row = dict[str, Any]
"""A JSON object."""

SECRET = re.compile(r"api_?key|secret|password|credential", re.IGNORECASE)
CHUNK_BYTES = 1 << 16
"""Compressed bytes read at a time."""


class RunDirectory:
    """The files of one run. Making the object touches nothing."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / CHECKPOINTS
        self.report = self.path / "report.html"
        self._metrics = self.path / "metrics.jsonl"
        self._evaluations = self.path / "evals.jsonl"
        self._rollouts = self.path / "rollouts"

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
        _write_atomically(self.path / "environment.json", _pretty(environment))
        _write_atomically(self.path / "recipe.json", _pretty(recipe))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Holds the run for this process; the system lets go if the process dies.

        Raises:
            BlockingIOError: another process holds it.
        """
        import fcntl

        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / ".lock", "a+", encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise BlockingIOError(
                    f"one process writes a run, got {self.path} held by process "
                    f"{file.read().strip() or 'unknown'}; wait for it or stop it"
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def rewrite_recipe(self, recipe: Mapping[str, Any]) -> None:
        """Records what a resumed run runs with."""
        _write_atomically(self.path / "recipe.json", _pretty(recipe))

    def recipe(self) -> Row:
        """The resolved recipe."""
        return _read_object(self.path / "recipe.json")

    def environment(self) -> Row:
        """Versions, hardware and git state at the start."""
        return _read_object(self.path / "environment.json")

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """One more step's row; numbers that are not finite become null."""
        _append(self._metrics, row)

    def append_evaluation(self, row: Mapping[str, Any]) -> None:
        """One more evaluation's row."""
        _append(self._evaluations, row)

    def metrics(self) -> list[Row]:
        """All rows so far, in order; a torn last line is left out."""
        return _read_rows(self._metrics)

    def evaluations(self) -> list[Row]:
        """All evaluations so far, in order; a torn last line is left out."""
        return _read_rows(self._evaluations)

    @property
    def latest_step(self) -> int:
        """Step of the last metrics row; 0 before the first."""
        rows = self.metrics()
        return rows[-1]["step"] if rows else 0

    def truncate(self, step: int) -> None:
        """Drops what lies after `step`: the checkpoint that the run continues from."""
        for path in (self._metrics, self._evaluations):
            if path.exists():
                kept = [row for row in _read_rows(path) if row["step"] <= step]
                _write_atomically(path, "".join(map(_line, kept)).encode())
        for later in self.rollout_steps():
            if later > step:
                self.rollout_file(later).unlink()

    def write_rollouts(self, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Keeps one step's rollouts (see `rollouts.rollout_rows`), compressed."""
        import zstandard

        self._rollouts.mkdir(parents=True, exist_ok=True)
        target = self.rollout_file(step)
        beside = target.with_name(target.name + ".partial")
        compressor = zstandard.ZstdCompressor(level=3)
        with open(beside, "wb") as file:
            with compressor.stream_writer(file, closefd=False) as stream:
                for row in rows:
                    stream.write(_line(row).encode())
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
                yield json.loads(line)
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


def _line(row: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(row), ensure_ascii=False, allow_nan=False)
    return without_lone_surrogates(text) + "\n"


def _finite(value: Any) -> Any:
    """JSON knows no NaN: what is not finite is null, at any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return value


def _pretty(value: Mapping[str, Any]) -> bytes:
    text = json.dumps(_finite(value), ensure_ascii=False, indent=2)
    return (without_lone_surrogates(text) + "\n").encode()


def _append(path: Path, row: Mapping[str, Any]) -> None:
    if not isinstance(row.get("step"), int):
        raise ValueError(
            f"a row of {path.name} needs an integer 'step', got {row.get('step')!r}"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as file:
        file.truncate(_end_of_last_line(file))
        file.write(_line(row).encode())
        file.flush()
        os.fsync(file.fileno())


def _end_of_last_line(file: io.BufferedRandom) -> int:
    """Where whole lines end: the tail that an interrupted write left is cut off."""
    end = file.seek(0, os.SEEK_END)
    if end == 0:
        return 0
    file.seek(end - 1)
    if file.read(1) == b"\n":
        return end
    file.seek(0)
    return file.read().rfind(b"\n") + 1


def _read_rows(path: Path) -> list[Row]:
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    rows: list[Row] = []
    for number, line in enumerate(lines[:-1], start=1):
        row = _parsed(line)
        if row is None and number == len(lines) - 1:
            break
        if row is None:
            raise ValueError(
                f"{path} must hold one JSON object with a 'step' a line, got "
                f"{line[:60]!r} in line {number}; restore the file or delete that line"
            )
        rows.append(row)
    return rows


def _parsed(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and isinstance(row.get("step"), int) else None


def _decompressed_lines(path: Path) -> Iterator[bytes]:
    """Whole lines of a compressed file; ValueError where it ends too early."""
    import zstandard

    decompressor = zstandard.ZstdDecompressor().decompressobj()
    rest = b""
    with open(path, "rb") as file:
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
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(
            f"{path} must hold JSON, got a damaged file ({error}); restore it"
        ) from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(value).__name__}")
    return value


def _write_atomically(path: Path, content: bytes) -> None:
    beside = path.with_name(path.name + ".partial")
    with open(beside, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
