"""What goes on within a step is told, and seldom into a file."""

import io
import re
import time

import pytest
from rich.console import Console

from accredit.reports.activity import Activity, shown_activity
from accredit.reports.progress import TrainingProgress
from accredit.world import Clock as StageClock


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.moment = 100.0

    def __call__(self) -> float:
        return self.moment


def console(terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=100)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())


@pytest.mark.parametrize(
    ("stage", "told", "text"),
    [
        ("generate", ("sampled", 37, 128, 12_345), "37/128 rollouts, 12,345 tokens"),
        ("generate", ("sampled", 0, 1, 1), "rolling out 0/1 rollouts, 1 tokens"),
        ("generate", None, "rolling out"),
        ("update", ("updated", 3, 8), "updating 3/8 micro-batches"),
        ("step", ("updated", 0, 2), "updating 0/2 micro-batches"),
        ("step", ("sampled", 1, 2, 3), "rolling out 1/2 rollouts, 3 tokens"),
        ("critic", ("sampled", 1, 2, 3), "critic at work 1/2 rollouts, 3 tokens"),
        ("verify", None, "verifying"),
        ("critic", None, "critic at work"),
        ("step", None, ""),
        ("", None, ""),
        ("a stage of tomorrow", None, ""),
    ],
)
def test_the_line_says_where_a_step_is(stage, told, text):
    activity = Activity(console(True))
    activity.entered(stage)
    if told:
        name, *numbers = told
        getattr(activity, name)(*numbers)
    assert activity.text.endswith(text) and bool(activity.text) == bool(text)
    activity.entered("")
    assert activity.text == ""


def test_an_evaluation_is_called_one():
    activity = Activity(console(True))
    with activity.evaluating():
        activity.entered("generate")
        activity.sampled(1, 4, 9)
        assert activity.text == "evaluating 1/4 rollouts, 9 tokens"
    assert activity.text == "rolling out 1/4 rollouts, 9 tokens"


def test_a_file_gets_a_line_only_after_half_a_minute_of_silence():
    clock, out = Clock(), console(False)
    with TrainingProgress(60, 11, out, clock) as progress:
        activity = progress.activity
        activity.entered("generate")
        for second in range(1, 96):
            clock.moment += 1.0
            for _ in range(10):
                activity.sampled(second, 128, 100 * second)
        # a line of another kind breaks the silence as well
        progress.update({"step": 12, "reward/mean": 0.5})
        clock.moment += 29.0
        activity.updated(3, 8)
    lines = written(out).splitlines()
    assert lines[:3] == [
        f"step 11/60  rolling out {s}/128 rollouts, {100 * s:,} tokens"
        for s in (30, 60, 90)
    ]
    assert len(lines) == 4 and lines[3].startswith("step 12/60  reward 0.500")


def test_a_terminal_shows_it_under_the_bar_and_leaves_nothing_behind():
    out = console(True)
    with TrainingProgress(60, 11, out) as progress:
        assert progress._bar is not None
        progress.activity.entered("generate")
        progress.activity.sampled(37, 128, 12_345)
        progress._bar.refresh()
    frames = written(out)
    assert "rolling out 37/128 rollouts, 12,345 tokens" in frames
    last = out.file.getvalue().rpartition("\r")[2]  # type: ignore[attr-defined]
    assert "rolling out" not in last and "11/60" in last


def test_an_evaluation_alone_has_a_line_of_its_own():
    for terminal in (True, False):
        out = console(terminal)
        with shown_activity(out) as activity, activity.evaluating():
            activity.entered("generate")
            activity.sampled(5, 8, 80)
            time.sleep(0.3 if terminal else 0.0)
        assert ("evaluating 5/8 rollouts, 80 tokens" in written(out)) == terminal


def test_stages_within_stages_are_told_as_they_begin_and_end():
    told: list[tuple] = []

    class Watcher:
        def entered(self, stage: str) -> None:
            told.append((stage,))

        def sampled(self, num_done: int, num_asked: int, num_tokens: int) -> None:
            told.append((num_done, num_asked, num_tokens))

        def updated(self, num_done: int, num_micro_batches: int) -> None:
            told.append((num_done, num_micro_batches))

    clock = StageClock()
    clock.sampled(1, 2, 3)
    clock.watcher = Watcher()
    with clock.measure("step"):
        with clock.measure("generate"):
            clock.sampled(1, 2, 3)
        clock.updated(0, 4)
    assert told == [("step",), ("generate",), (1, 2, 3), ("step",), (0, 4), ("",)]
    assert set(clock.drain()) == {"step", "generate"}
