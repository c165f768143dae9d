"""Cells of a run's rollout files; a mistake is told with its line, file and key."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeGuard

import numpy as np

from accredit.storage.run_directory import RunDirectory

Row = Mapping[str, Any]


def kept_rows(run: RunDirectory, step: int) -> Iterator[tuple[Row, str]]:
    """Rows of one kept step, each with where it stands."""
    path = run.rollout_file(step)
    for line, row in enumerate(run.rollouts(step), start=1):
        where = f"in line {line} of {path}"
        if not isinstance(row, Mapping):
            raise ValueError(f"a rollout must be a JSON object, got {row!r} {where}")
        yield row, where


def entry(row: Row, name: str, where: str) -> float:
    """A finite number."""
    found = row.get(name)
    if not _is_finite(found):
        raise ValueError(f"{name} must be a finite number, got {found!r} {where}")
    return float(found)


def flag(row: Row, name: str, where: str) -> bool:
    """0 or 1."""
    found = entry(row, name, where)
    if found not in (0, 1):
        raise ValueError(f"{name} must be 0 or 1, got {found} {where}")
    return bool(found)


def share(row: Row, where: str) -> float:
    """`share_f`, in [0, 1]."""
    found = entry(row, "share_f", where)
    if not 0.0 <= found <= 1.0:
        raise ValueError(f"share_f must lie in [0, 1], got {found} {where}")
    return found


def entries(row: Row, name: str, where: str) -> np.ndarray:
    """A list of finite numbers."""
    found = row.get(name)
    if not isinstance(found, list):
        raise ValueError(
            f"{name} must be a list of numbers, got {found!r:.40} {where}; was it "
            "written by `accredit train`?"
        )
    strange = _first_strange(found)
    if strange is not None:
        raise ValueError(
            f"{name} must hold finite numbers, got {found[strange]!r:.40} at {strange} "
            f"{where}"
        )
    return np.array(found, dtype=np.float64)


def _first_strange(numbers: Iterable[Any]) -> int | None:
    """Index of the first entry that is no finite number."""
    for i, number in enumerate(numbers):
        if not _is_finite(number):
            return i
    return None


def _is_finite(number: Any) -> TypeGuard[float]:
    """Whether it is a number that a float can hold."""
    try:
        return isinstance(number, int | float) and math.isfinite(number)
    except OverflowError:
        return False
