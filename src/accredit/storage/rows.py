"""Rows of a run: one JSON object a line, on disk before the call returns.

A file is read as something that anybody may have edited. A row that is none of ours is
odd: it is left out and counted, and the run's other rows stay what they are.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from accredit.storage.files import open_plain
from accredit.text import without_lone_surrogates

Row = dict[str, Any]
"""A JSON object."""
LARGEST_STEP = 10**12
LARGEST_NUMBER = 1e300
"""Beyond it charts and means overflow."""


@dataclass(frozen=True)
class Rows:
    """What a file of rows holds."""

    rows: tuple[Row, ...] = ()
    odd: tuple[int, ...] = ()
    """Line numbers of what is left out, from 1; a torn last line is not among them."""


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """One more row; what an interrupted write left at the end gives way to it."""
    if not isinstance(row.get("step"), int):
        raise ValueError(
            f"a row of {path.name} needs an integer 'step', got {row.get('step')!r}"
        )
    with open_plain(path, "a+b") as file:
        file.truncate(_end_of_last_line(file))
        file.write(as_line(row).encode())
        file.flush()
        os.fsync(file.fileno())


def read_rows(path: Path) -> Rows:
    """The sound rows of a file, in order."""
    if not path.exists():
        return Rows()
    with open_plain(path, "rb") as file:
        lines = file.read().split(b"\n")
    # What follows the last line's end is a write that was interrupted.
    found = [(number, sound(parsed(line))) for number, line in enumerate(lines[:-1], 1)]
    if found and found[-1][1] is None:
        found.pop()
    return Rows(
        tuple(row for _, row in found if row is not None),
        tuple(number for number, row in found if row is None),
    )


def parsed(line: bytes | str) -> object:
    """A line's JSON value; None where it has none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def sound(row: object) -> Row | None:
    """The row with every metric a number; None where it is odd.

    A key with a `/` names a metric. One that is null or not finite is not there.
    """
    if not isinstance(row, dict) or not is_step(row.get("step")):
        return None
    kept = dict(row)
    for key, value in row.items():
        if "/" in key:
            if not isinstance(value, int | float | None):
                return None
            if value is None or (isinstance(value, float) and not math.isfinite(value)):
                del kept[key]
            elif abs(value) > LARGEST_NUMBER:
                return None
    return kept


def is_step(value: object) -> bool:
    """Whether it counts steps."""
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return 0 <= value <= LARGEST_STEP


def as_line(row: Mapping[str, Any]) -> str:
    """A row as it is written; numbers that are not finite become null."""
    try:
        text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(finite(row), ensure_ascii=False, allow_nan=False)
    return without_lone_surrogates(text) + "\n"


def finite(value: Any) -> Any:
    """JSON knows no NaN: what is not finite is null, at any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return value


def _end_of_last_line(file: IO[bytes]) -> int:
    """Where whole lines end: the tail that an interrupted write left is cut off."""
    end = file.seek(0, os.SEEK_END)
    if end == 0:
        return 0
    file.seek(end - 1)
    if file.read(1) == b"\n":
        return end
    file.seek(0)
    return file.read().rfind(b"\n") + 1
