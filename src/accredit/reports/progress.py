"""What a person sees while a run trains: a live bar, or plain lines into a file.

Knows metric rows; measures nothing but the time left.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType

from rich.console import (
    Console,
    ConsoleOptions,
    Group,
    RenderableType,
)
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
)
from rich.table import Column, Table
from rich.text import Text

from accredit.records import Alarm
from accredit.reports.activity import FRAMES_PER_S, Activity
from accredit.reports.alarms.alarms import Warned, warnings_of
from accredit.reports.summary import (
    CRITIC_ONLY,
    OVER_ALL,
    SAVED,
    decimal,
    ledgers,
    si,
    signed,
    spending,
    summary_rows,
    time_left,
    twin,
    with_interval,
    with_twin,
)
from accredit.screen import console as plain_console

Row = Mapping[str, float | int | None]

MOST_PLAIN_LINES = 50
"""Of one run, evaluations and warnings aside, so that a log stays readable."""
PACE_MEMORY = 0.9
"""Weight of the past in the running mean of seconds a step."""
LINE_WIDTH = 79
"""Characters of a plain line: what every terminal and log viewer shows whole."""
BAR_WIDTH = 12
"""Of the live bar, so that 80 columns hold the status but for its FLOPs."""
DROPPED_FIRST = ("flops", "rate", "length")
"""Parts of the status that give way where a line is too short for all."""
SEPARATOR = " · "
LOUD = "bold red"
"""Of what makes a run worthless."""


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
        self.console = console or plain_console()
        self._num_steps = num_steps
        self._step = first_step
        self._clock = clock
        self._pace_s: float | None = None
        self._last = clock()
        self._evaluation = ""
        self.activity = Activity(
            self.console, clock, lambda: f"step {self._step}/{self._num_steps}  "
        )
        """What is told of a step that goes on."""
        self._bar = _bar(self.activity) if self.console.is_terminal else None
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
        self.activity.entered("")
        if self._bar is not None:
            self._bar.stop()

    def update(self, metrics: Row) -> None:
        """Shows one step's metrics."""
        moment = self._clock()
        elapsed, self._last = moment - self._last, moment
        past = elapsed if self._pace_s is None else self._pace_s
        self._pace_s = PACE_MEMORY * past + (1.0 - PACE_MEMORY) * elapsed
        self._step = int(metrics.get("step") or self._step + 1)
        shown = (metrics, self._evaluation, self.seconds_left)
        if self._bar is not None:
            status = FittedStatus(*shown)
            self._bar.update(self._task, completed=self._step, status=status)
        elif self._step % self._spacing == 0 or self._step >= self._num_steps:
            head = f"step {self._step}/{self._num_steps}  "
            self._print(head + status_line(*shown, width=LINE_WIDTH - len(head)))

    def evaluated(self, evaluation: Row) -> None:
        """Shows one evaluation's row."""
        self._evaluation = with_twin(evaluation, "eval/mean")
        score = with_interval(evaluation, "eval/mean")
        if twin(evaluation, "eval/mean") is not None:
            whole = with_interval(evaluation, f"eval/mean{OVER_ALL}")
            score += f", over all samples {whole}"
        self._print(f"step {evaluation.get('step', self._step)}  evaluation {score}")

    def warn(self, lines: Sequence[str]) -> None:
        """Shows warnings above the bar."""
        for line in lines:
            self._print(f"warning: {line}", style="yellow")

    def alarm(self, found: Sequence[Warned]) -> None:
        """Shows alarms of the run's own numbers; the loud ones stand out."""
        for warned in found:
            style = LOUD if warned.is_loud else "yellow"
            self._print(f"warning: {warned.text}", style=style)

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
        self.console.print(
            text,
            style=style,
            markup=False,
            highlight=False,
            soft_wrap=not self.console.is_terminal,
        )
        self.activity.spoken()


def status_line(
    metrics: Row,
    evaluation: str,
    seconds_left: float | None,
    width: int | None = None,
) -> str:
    """`reward 0.412  eval 0.380  len 36  2.1k tok/s  672 GFLOP  3 min left`.

    Where a critic valued the step, its explained variance stands in for the evaluation,
    which has a line of its own; a step in which it learned alone says so. Where it may
    end rollouts, the share of problems that it is trusted with, what that saved and how
    far it is fooled (`hack`, the hacking gap) do.

    Args:
        width: Characters at hand; parts that do not fit are dropped, `DROPPED_FIRST`
            in its order. None drops nothing.
    """
    parts = {"reward": f"reward {with_twin(metrics, 'reward/mean')}"}
    if metrics.get(CRITIC_ONLY):
        parts["alone"] = "critic alone"
    if metrics.get("readiness/share") is not None:
        parts |= _trust(metrics)
    elif metrics.get("critic/valued_share"):
        parts["critic"] = f"ev {decimal(metrics.get('critic/explained_variance'), 2)}"
    elif evaluation:
        parts["evaluation"] = f"eval {evaluation}"
    length, rate = metrics.get("length/mean"), metrics.get("tokens/per_s")
    if length is not None:
        parts["length"] = f"len {decimal(length, 0 if length >= 10 else 1)}"
    if rate is not None:
        parts["rate"] = f"{_two_digits(rate)} tok/s"
    flops = metrics.get("flops/decode")
    if flops is not None:
        parts["flops"] = si(flops, "FLOP")
    if seconds_left is not None:
        parts["left"] = f"{time_left(seconds_left)} left"
    for name in DROPPED_FIRST:
        if width is not None and len("  ".join(parts.values())) > width:
            parts.pop(name, None)
    return "  ".join(parts.values())


def _trust(metrics: Row) -> dict[str, str]:
    parts = {"ready": f"ready {decimal(metrics.get('readiness/share'), 2)}"}
    saved = [metrics[key] for key in SAVED if metrics.get(key) is not None]
    if saved:
        parts["saved"] = f"saved {decimal(saved[0], 2)}"
    gap = metrics.get("ac2/hacking_gap")
    if gap is not None:
        parts["gap"] = f"hack {signed(gap, 2)}"
    return parts


def final_table(
    metrics: Sequence[Row],
    evaluations: Sequence[Row],
    alarms: Sequence[Alarm] = (),
) -> Group:
    """Start against end with intervals, and what the run spent, for `console.print`."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    for name in ("start", "end", "change"):
        table.add_column(name, justify="right", no_wrap=True, header_style="dim")
    for row in summary_rows(metrics, evaluations):
        change = Text(row.change, style="bold green" if row.clear else "")
        table.add_row(Text(row.name), Text(row.start), Text(row.final), change)
    spent = _packed([f"{name} {amount}" for name, amount in spending(metrics)])
    both = [f"{name} {amount}" for name, amount in ledgers(metrics)]
    spent += [SEPARATOR.join(both)] if both else []
    note = "Brackets: 95% intervals. Bold: the intervals do not touch."
    lines = [Text(""), *(Text(line) for line in spent), Text(note, style="dim")]
    told = _last_warnings(warnings_of(metrics, evaluations, alarms))
    return Group(table, *lines, *told)


def _last_warnings(found: Sequence[Warned]) -> list[Text]:
    """The loud ones once more, and how many others there were."""
    loud = [warned for warned in found if warned.is_loud]
    lines = [Text(f"warning: {warned.text}", style=LOUD) for warned in loud]
    others = len(found) - len(loud)
    if others:
        words = "1 other warning" if others == 1 else f"{others} other warnings"
        lines.append(Text(f"{words} of the run: see its page", style="yellow"))
    return lines


def _packed(parts: Sequence[str]) -> list[str]:
    """Lines that break between amounts, never between a number and its unit."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(SEPARATOR) + len(part) <= LINE_WIDTH:
            lines[-1] += SEPARATOR + part
        else:
            lines.append(part)
    return lines


def _two_digits(value: float | int) -> str:
    """7431 is 7.4k: enough for a speed."""
    text = si(float(f"{value:.2g}"))
    number, _, prefix = text.partition(" ")
    return f"{float(number):g}{prefix}" if number != "–" else number


class FittedStatus:
    """A status that takes the width it is given, whatever the terminal becomes."""

    def __init__(
        self, metrics: Row, evaluation: str, seconds_left: float | None
    ) -> None:
        self._shown = (metrics, evaluation, seconds_left)

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[Text]:
        text = status_line(*self._shown, width=options.max_width)
        yield Text(text, no_wrap=True, overflow="ellipsis")

    def __rich_measure__(
        self, console: Console, options: ConsoleOptions
    ) -> Measurement:
        return Measurement(1, len(status_line(*self._shown)))


class StatusColumn(ProgressColumn):
    """The field `status` of a task."""

    def render(self, task: Task) -> FittedStatus | str:
        return task.fields["status"]


class ActiveProgress(Progress):
    """A bar above the line of what goes on."""

    def __init__(self, activity: Activity, columns: Sequence[ProgressColumn]) -> None:
        self._activity = activity
        super().__init__(
            *columns, console=activity.console, refresh_per_second=FRAMES_PER_S
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bar, and the line where there is something to say."""
        yield from super().get_renderables()
        if self._activity.text:
            yield self._activity


def _bar(activity: Activity) -> Progress:
    """Where the terminal is narrow, the status alone gives way."""
    columns = (
        BarColumn(bar_width=BAR_WIDTH, table_column=Column(no_wrap=True)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        StatusColumn(),
    )
    return ActiveProgress(activity, columns)
