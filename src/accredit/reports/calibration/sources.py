"""Where the pairs of a calibration come from: a table, or the rollouts of a run.

A mistake in either is told with its file, its line and its column. What was not
verified, or was cut short and bootstrapped, is left out: it has no outcome to be
compared with.
"""

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from accredit.reports.calibration.audits import audited_groups, is_routed
from accredit.reports.calibration.measures import (
    NUM_DECILES,
    ValuedGroups,
    ValuedPrefixes,
)
from accredit.reports.calibration.rows import (
    Row,
    entries,
    entry,
    flag,
    kept_rows,
    share,
)
from accredit.storage.run_directory import RunDirectory
from accredit.types import Batch, StopReason

REFERENCE = "reference_shown"
COLUMNS = ("mean_reward", "mean_value", "share_f", REFERENCE)


@dataclass(frozen=True, eq=False)
class Calibration:
    """What a critic said and what came."""

    name: str
    """Of the source, for titles."""
    groups: ValuedGroups
    """Values at the prompt, where a run is the source."""
    groups_throughout: ValuedGroups | None = None
    """Values at all sampled prefixes; None for a table."""
    prefixes: ValuedPrefixes | None = None
    """None for a table, whose groups are all it holds."""
    num_open: int = 0
    """Verified rollouts that are left out: their outcome is a critic's own word."""
    num_missing: int = 0
    """Rollouts that are left out because nobody could tell their reward."""
    num_rollouts: int | None = None
    """That are compared; None for a table, which does not tell."""
    mean_outcome: float | None = None
    """Of those that are compared; None for a table."""
    told: str = ""
    """What was read, in a sentence."""

    @property
    def single(self) -> bool:
        """Whether every group is one rollout, whose mean reward is its luck."""
        return self.num_rollouts == len(self.groups.shares)

    @property
    def mean_over_all(self) -> float | None:
        """The mean outcome with those that are missing, 0 each; None without any."""
        if not self.num_missing or self.mean_outcome is None or not self.num_rollouts:
            return None
        total = self.mean_outcome * self.num_rollouts
        return total / (self.num_rollouts + self.num_missing)

    @property
    def without_critic(self) -> bool:
        """Whether nothing was valued at all: no critic, and a baseline of 0."""
        values = None if self.prefixes is None else self.prefixes.values
        valued = bool((self.groups.shares > 0.0).any())
        return values is not None and not valued and not bool(values.any())


@dataclass(frozen=True, eq=False)
class ValuedRollout:
    """One rollout whose outcome is known, its values and what it came to."""

    group: tuple[int, int]
    """Step and index of its group."""
    outcome: float
    prompt_value: float
    """V before its first sampled token."""
    values: np.ndarray
    """V before each sampled token."""
    share: float
    """Whether a critic valued it."""
    reference: bool
    """Whether that critic was shown a reference."""


def read_source(path: Path, last: int | None = None) -> Calibration:
    """From a run's folder or a CSV file.

    Args:
        last: Newest kept steps of a run that are read; one unless told otherwise.

    Raises:
        ValueError: it is neither, or holds what cannot be compared.
    """
    if path.is_dir():
        run = RunDirectory(path)
        if not run.exists:
            raise ValueError(
                f"calibrate needs a run or a CSV file, got the folder {path}"
            )
        return read_run(run, 1 if last is None else last)
    if not path.is_file():
        raise ValueError(f"calibrate needs a run or a CSV file, got no file {path}")
    if last is not None:
        raise ValueError(f"--last goes with a run, got the table {path}")
    return read_table(path)


def read_table(path: Path) -> Calibration:
    """Groups from a CSV file with the columns of `COLUMNS`; others are passed over.

    Raises:
        ValueError: the file is no such table, or a cell is no such number.
    """
    rows = list(_table_rows(path))
    if not rows:
        raise ValueError(f"{path} must hold a group, got a header and no rows")
    rewards, values, shares, references = zip(*rows, strict=True)
    groups = f"{len(rows)} group{'s' if len(rows) > 1 else ''}"
    return Calibration(
        path.name,
        ValuedGroups(
            torch.tensor(rewards, dtype=torch.float64),
            torch.tensor(values, dtype=torch.float64),
            torch.tensor(shares, dtype=torch.float64),
            torch.tensor(references) == 1.0,
        ),
        told=f"{groups} of the table {path.name}.",
    )


def read_run(run: RunDirectory, last: int = 1) -> Calibration:
    """Pairs from the rollouts that a run kept.

    Args:
        last: Newest kept steps that are read.

    Raises:
        ValueError: no rollouts were kept, or a row lacks what is read.
    """
    steps = run.rollout_steps()
    if not steps:
        raise ValueError(
            f"{run.path} must hold rollouts/step-*.jsonl.zst, got none; train with "
            "--checkpoint.rollouts_every above 0, or ask with --fresh"
        )
    chosen = steps[-last:]
    first, newest = chosen[0], chosen[-1]
    span = f"step {newest}" if first == newest else f"steps {first} to {newest}"
    if is_routed(run, newest):
        return _read_audits(run, chosen, f"{run.path.absolute().name}, {span}")
    found = [r for step in chosen for r in _valued(run, step)]
    known = [r for r in found if r is not None]
    name = f"{run.path.absolute().name}, {span}"
    pairs = calibration_of(name, known, len(found) - len(known))
    missing = sum(_is_missing(row) for s in chosen for row, _ in kept_rows(run, s))
    pairs = replace(pairs, num_missing=missing)
    kept = f" ({len(chosen)} of {len(steps)} kept)" if len(steps) > 1 else ""
    valued = bool((pairs.groups.shares > 0.0).any())
    whose = ", as the critic valued them before it learned from them" if valued else ""
    return replace(pairs, told=f"{name}{kept}: {counted(pairs)}{whose}.")


def _read_audits(run: RunDirectory, steps: Sequence[int], name: str) -> Calibration:
    """The one view that a run has whose critic ends rollouts: its audited groups."""
    groups, num_rollouts = audited_groups(run, steps, name)
    found = Calibration(name, groups, num_rollouts=num_rollouts)
    kept = f" ({len(steps)} of {len(run.rollout_steps())} kept)"
    told = (
        f"{name}{kept}: {counted(found)}, audited: of problems that the critic was "
        "trusted with, run to the end all the same. v is its value where a rollout "
        "would have been stopped, else the reward."
    )
    return replace(found, told=told)


def counted(found: Calibration) -> str:
    """How many rollouts and groups are compared."""
    rollouts, groups = found.num_rollouts or 0, len(found.groups.shares)
    each = "in a group of its own" if rollouts == 1 else "each a group of its own"
    many = f"{rollouts} rollout{'' if rollouts == 1 else 's'}"
    in_groups = f"{groups} group{'' if groups == 1 else 's'}"
    return f"{many}, {each}" if found.single else f"{many} in {in_groups}"


def calibration_of(
    name: str, rollouts: Sequence[ValuedRollout], num_open: int
) -> Calibration:
    """The pairs of some rollouts, in both views.

    Args:
        num_open: How many more there were, whose outcome is not known.

    Raises:
        ValueError: there is no rollout.
    """
    if not rollouts:
        raise ValueError(
            f"a calibration needs a verified rollout with a sampled token, got none in "
            f"{name}; see the reasons in its rollout files, or "
            "algorithm.truncation = 'bootstrap', which leaves truncated ones open"
        )
    places = {
        group: i for i, group in enumerate(dict.fromkeys(r.group for r in rollouts))
    }
    index = torch.tensor([places[r.group] for r in rollouts])
    lengths = torch.tensor([len(r.values) for r in rollouts])
    outcomes = torch.tensor([r.outcome for r in rollouts], dtype=torch.float64)
    values = torch.from_numpy(np.concatenate([r.values for r in rollouts]))
    prompt_values = torch.tensor(
        [r.prompt_value for r in rollouts], dtype=torch.float64
    )
    spread = index.repeat_interleave(lengths)
    deciles = torch.cat([torch.arange(n) * NUM_DECILES // n for n in lengths.tolist()])

    def by_group(x: Tensor, groups: Tensor) -> Tensor:
        totals = torch.zeros(len(places), dtype=torch.float64).index_add(0, groups, x)
        return totals / groups.bincount(minlength=len(places))

    def valued(means: Tensor) -> ValuedGroups:
        shares = torch.tensor([r.share for r in rollouts], dtype=torch.float64)
        references = torch.tensor([float(r.reference) for r in rollouts]).double()
        return ValuedGroups(
            by_group(outcomes, index),
            means,
            by_group(shares, index),
            by_group(references, index) > 0.0,
        )

    return Calibration(
        name,
        valued(by_group(prompt_values, index)),
        valued(by_group(values, spread)),
        ValuedPrefixes(values, outcomes.repeat_interleave(lengths), deciles, spread),
        num_open,
        num_rollouts=len(rollouts),
        mean_outcome=float(outcomes.mean()),
    )


def valued_rollouts(
    batch: Batch,
    values: Float[Tensor, "rollout prefix"],
    known: Bool[Tensor, " rollout"],
    first_group: int,
    reference: bool,
) -> list[ValuedRollout]:
    """The rollouts of a batch, valued by a critic, whose outcome is known."""
    found = []
    for row in range(batch.num_rollouts):
        before = values[row, :-1][batch.sampled[row]].double().cpu().numpy()
        if bool(known[row]) and len(before):
            found.append(
                ValuedRollout(
                    group=(0, first_group + int(batch.group_index[row])),
                    outcome=float(batch.rewards[row]),
                    prompt_value=float(before[0]),
                    values=before,
                    share=1.0,
                    reference=reference,
                )
            )
    return found


def _table_rows(path: Path) -> Iterator[list[float]]:
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = [name.strip() for name in next(reader, [])]
            _require_columns(path, header)
            for cells in reader:
                if any(cell.strip() for cell in cells):
                    yield _numbers_of(path, header, cells, reader.line_num)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be a table in UTF-8, got {error}") from error
    except csv.Error as error:
        raise ValueError(f"{path} must be a table of CSV, got {error}") from error


def _require_columns(path: Path, header: Sequence[str]) -> None:
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        found = ", ".join(repr(name[:30]) for name in header[:8]) or "an empty file"
        raise ValueError(
            f"line 1 of {path} must name {', '.join(COLUMNS)}, got {found}; "
            f"add {', '.join(missing)}"
        )
    twice = [name for name in COLUMNS if header.count(name) > 1]
    if twice:
        raise ValueError(
            f"{path} must hold each column once, got {twice[0]!r} twice in line 1"
        )


def _numbers_of(
    path: Path, header: Sequence[str], cells: Sequence[str], line: int
) -> list[float]:
    if len(cells) != len(header):
        raise ValueError(
            f"{path} must hold {len(header)} cells a line, as its header does, got "
            f"{len(cells)} in line {line}"
        )
    row = [_number(path, name, cells[header.index(name)], line) for name in COLUMNS]
    _require(
        0.0 <= row[2] <= 1.0, path, "share_f", "lie in [0, 1]", cells, header, line
    )
    shown = row[3] in (0.0, 1.0)
    _require(shown, path, REFERENCE, "be 0 or 1", cells, header, line)
    return row


def _number(path: Path, name: str, cell: str, line: int) -> float:
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(
            f"{name} must be a finite number, got {cell[:40]!r} in line {line} of "
            f"{path}; correct it or leave the line out"
        )
    return number


def _require(
    holds: bool,
    path: Path,
    name: str,
    rule: str,
    cells: Sequence[str],
    header: Sequence[str],
    line: int,
) -> None:
    if not holds:
        raise ValueError(
            f"{name} must {rule}, got {cells[header.index(name)]!r} in line {line} of "
            f"{path}"
        )


def _is_missing(row: Row) -> bool:
    """Whether a rollout was judged and nobody could tell."""
    return row.get("reward") is None and row.get("stop_reason") != StopReason.CHUNK


def _valued(run: RunDirectory, step: int) -> Iterator[ValuedRollout | None]:
    """Verified rollouts of one kept step; None for one whose outcome is open."""
    for row, where in kept_rows(run, step):
        if row.get("reward") is None:
            continue
        if not flag(row, "outcome_known", where):
            yield None
            continue
        values = entries(row, "values", where)
        sampled = entries(row, "sampled", where).astype(bool)
        if len(values) != len(sampled) + 1:
            raise ValueError(
                "values must have one entry more than sampled, got "
                f"{len(values)} and {len(sampled)} {where}"
            )
        if not sampled.any():
            continue
        before = values[:-1][sampled]
        yield ValuedRollout(
            group=(step, int(entry(row, "group", where))),
            outcome=entry(row, "shaped_reward", where),
            prompt_value=float(before[0]),
            values=before,
            share=share(row, where),
            reference=flag(row, REFERENCE, where),
        )
