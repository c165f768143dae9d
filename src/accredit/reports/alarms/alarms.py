"""What a reader of the numbers would call out: runs that look alive and learn nothing.

Pure: metric rows in, sentences out. An alarm is told once it has held
for `PATIENCE` steps in a row, or in half of the last `WINDOW` steps; once in a run.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from accredit.records import Alarm
from accredit.reports.alarms.rules import ALARMS

PATIENCE = 5
"""Consecutive steps that an alarm must hold before it is told."""
WINDOW = 20
"""Steps in half of which it must hold, where it comes and goes."""

Row = Mapping[str, Any]
"""As read from a file: what is no number is passed over."""


class Warned(NamedTuple):
    """One alarm that was told."""

    text: str
    is_loud: bool
    """Whether it makes a run worthless."""


class Watch:
    """The alarms of one run; rows of steps and of evaluations come in their order."""

    def __init__(
        self, history: Iterable[Row] = (), further: Sequence[Alarm] = ()
    ) -> None:
        """Takes what `history` raises for told; `further` are the algorithm's own."""
        self._records = [_Record(alarm) for alarm in (*ALARMS, *further)]
        for row in history:
            self.heard(row)

    def heard(self, row: Row) -> list[Warned]:
        """What this row raises for the first time in the run."""
        found: list[Warned] = []
        for record in self._records:
            was_told = record.span is not None
            record.read(row)
            if record.span is not None and not was_told:
                found.append(record.warned(record.span))
        return found

    def told(self) -> list[Warned]:
        """Every alarm so far, with the last steps in which it held long enough."""
        spans = [(record, record.span) for record in self._records]
        return [record.warned(span) for record, span in spans if span is not None]


def warnings_of(
    metrics: Iterable[Row],
    evaluations: Iterable[Row] = (),
    further: Sequence[Alarm] = (),
) -> list[Warned]:
    """Every alarm that a run raised, each once; `further` are the algorithm's own."""
    return Watch([*metrics, *evaluations], further).told()


def warning_lines(
    metrics: Iterable[Row],
    evaluations: Iterable[Row] = (),
    further: Sequence[Alarm] = (),
) -> list[str]:
    """The same as sentences."""
    return [warned.text for warned in warnings_of(metrics, evaluations, further)]


class _Span(NamedTuple):
    """Steps in which an alarm held."""

    first: float | int | None
    last: float | int | None
    count: int


@dataclass
class _Record:
    """When one alarm held."""

    alarm: Alarm
    span: _Span | None = None
    """The last steps in which it held long enough to be told."""
    num_held: int = 0
    num_read: int = 0
    _streak: list[float | int | None] = field(default_factory=list)
    _recent: deque[tuple[float | int | None, bool]] = field(
        default_factory=lambda: deque(maxlen=WINDOW)
    )

    def read(self, row: Row) -> None:
        """Takes one row in; one without the alarm's keys is passed over."""
        alarm = self.alarm
        if not reads(alarm, row):
            return
        step, holds = row.get("step"), alarm.holds(*(row[key] for key in alarm.keys))
        self.num_read += 1
        self.num_held += holds
        self._recent.append((step, holds))
        self._streak = [*self._streak, step] if holds else []
        held = [step for step, held in self._recent if held]
        if self._streak and len(self._streak) >= (1 if alarm.at_once else PATIENCE):
            self.span = _span(self._streak)
        elif holds and len(self._recent) == WINDOW and 2 * len(held) >= WINDOW:
            self.span = _span(held)

    def warned(self, span: _Span) -> Warned:
        """The line of these steps: what is wrong, and what to turn."""
        when = "" if span.first is None else f"step {span.first}: "
        if span.count > 1:
            others = self.num_held > span.count
            whole = f"; {self.num_held} of {self.num_read} in all" if others else ""
            when = f"steps {span.first}-{span.last} ({span.count} steps{whole}): "
        alarm = self.alarm
        return Warned(f"{when}{alarm.meaning}; {alarm.turn}", alarm.is_loud)


def _span(steps: Sequence[float | int | None]) -> _Span:
    return _Span(steps[0], steps[-1], len(steps))


def reads(alarm: Alarm, row: Row) -> bool:
    """Whether the row holds the numbers that the alarm is about."""
    return (
        all(_is_number(row.get(key)) for key in alarm.keys)
        and all(row.get(key) is not None for key in alarm.present)
        and not any(key in row for key in alarm.absent)
    )


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )
