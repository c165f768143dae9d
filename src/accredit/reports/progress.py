"""What a person sees while a run trains: a live bar, or plain lines into a file.

Knows metric rows; measures nothing but the time left.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from rich.console import Console, Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from accredit.reports.summary import (
    decimal,
    duration,
    si,
    summary_rows,
    totals,
    with_interval,
)

Row = Mapping[str, float | int | None]

MOST_PLAIN_LINES = 50
"""Of one run, evaluations and warnings aside, so that a log stays readable."""
PACE_MEMORY = 0.9
"""Weight of the past in the running mean of seconds a step."""


class TrainingProgress:
    """A context around a run; `update` once a step."""

    def __init__(
        self,
        num_steps: int,
        first_step: int = 0,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            num_steps: Of the whole run, the steps before a resume included.
            first_step: Steps already done.
            clock: Seconds; for the time left.
        """
        self.console = console or Console()
        self._num_steps = num_steps
        self._step = first_step
        self._clock = clock
        self._pace_s: float | None = None
        self._last = clock()
        self._evaluation = ""
        self._bar = _bar(self.console) if self.console.is_terminal else None
        if self._bar is not None:
            self._task = self._bar.add_task(
                "training", total=num_steps, completed=first_step, status="starting"
            )

    def __enter__(self) -> "TrainingProgress":
        if self._bar is not None:
            self._bar.start()
        self._last = self._clock()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, metrics: Row) -> None:
        """Shows one step's metrics."""
        moment = self._clock()
        elapsed, self._last = moment - self._last, moment
        past = elapsed if self._pace_s is None else self._pace_s
        self._pace_s = PACE_MEMORY * past + (1.0 - PACE_MEMORY) * elapsed
        self._step = int(metrics.get("step") or self._step + 1)
        status = status_line(metrics, self._evaluation, self.seconds_left)
        if self._bar is not None:
            self._bar.update(self._task, completed=self._step, status=status)
        elif self._step % self._spacing == 0 or self._step >= self._num_steps:
            self._print(f"step {self._step}/{self._num_steps}  {status}")

    def evaluated(self, evaluation: Row) -> None:
        """Shows one evaluation's row."""
        self._evaluation = decimal(evaluation.get("eval/mean"))
        score = with_interval(evaluation, "eval/mean")
        self._print(f"step {evaluation.get('step', self._step)}  evaluation {score}")

    def warn(self, lines: Sequence[str]) -> None:
        """Shows warnings above the bar."""
        for line in lines:
            self._print(f"warning: {line}", style="yellow")

    @property
    def seconds_left(self) -> float | None:
        """At the recent pace; None before the first step."""
        if self._pace_s is None:
            return None
        return self._pace_s * max(self._num_steps - self._step, 0)

    @property
    def _spacing(self) -> int:
        return max(1, self._num_steps // MOST_PLAIN_LINES)

    def _print(self, text: str, style: str | None = None) -> None:
        self.console.print(text, style=style, markup=False, highlight=False)


def status_line(metrics: Row, evaluation: str, seconds_left: float | None) -> str:
    """`reward 0.412  eval 0.380  length 36.2  2.13 k tok/s  672 GFLOP  3 min left`."""
    parts = [f"reward {decimal(metrics.get('reward/mean'))}"]
    if evaluation:
        parts.append(f"eval {evaluation}")
    if metrics.get("length/mean") is not None:
        parts.append(f"length {decimal(metrics['length/mean'], 1)}")
    rate, flops = metrics.get("tokens/per_s"), metrics.get("flops/decode")
    if rate is not None:
        parts.append(f"{si(rate)} tok/s")
    if flops is not None:
        parts.append(si(flops, "FLOP"))
    if seconds_left is not None:
        parts.append(f"{duration(seconds_left)} left")
    return "  ".join(parts)


def final_table(metrics: Sequence[Row], evaluations: Sequence[Row]) -> Group:
    """Start against end with intervals, and what the run spent, for `console.print`."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    for name in ("start", "end", "change"):
        table.add_column(name, justify="right", no_wrap=True, header_style="dim")
    for row in summary_rows(metrics, evaluations):
        change = Text(row.change, style="bold green" if row.clear else "")
        table.add_row(Text(row.name), Text(row.start), Text(row.final), change)
    spent = " · ".join(f"{name} {amount}" for name, amount in totals(metrics))
    note = "Brackets: 95% intervals. Bold: the intervals do not touch."
    return Group(table, Text(""), Text(spent), Text(note, style="dim"))


def _bar(console: Console) -> Progress:
    return Progress(
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[status]}", markup=False),
        console=console,
    )
