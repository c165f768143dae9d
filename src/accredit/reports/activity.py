"""What goes on within a step or an evaluation, while nothing else would move.

A `world.Watcher`: the engine, the learner and the clock tell it where they are. On a
terminal it is drawn anew a few times a second; into a file it writes a line only where
nothing else was written for long. Knows no metric, and takes no time of its own.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

SILENCE_S = 30.0
"""Seconds without a line after which a file gets one."""
FRAMES_PER_S = 4
"""Of the line on a terminal."""
ROLLING_OUT = "rolling out"
STAGES = {
    "generate": ROLLING_OUT,
    "verify": "verifying",
    "update": "updating",
    "critic": "critic at work",
    "teacher": "asking the teacher",
    "align": "measuring how far the policy moved",
}
"""Stage of a step (`world.Clock`) -> what a person is told."""


class Activity:
    """The one line about what goes on; empty where nothing does."""

    def __init__(
        self,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
        head: Callable[[], str] = str,
    ) -> None:
        """`head` begins a line of a file, where it says which step it is."""
        self.console = console
        self._clock = clock
        self._head = head
        self._writes_lines = not console.is_terminal
        self._last = clock()
        self._sampling = ROLLING_OUT
        self._stage = ""
        self._told: tuple[int, ...] = ()
        """What an engine (three numbers) or a learner (two) said last."""

    @property
    def text(self) -> str:
        """`rolling out 37/128 rollouts, 12,345 tokens`; empty between steps."""
        words = STAGES.get(self._stage, "")
        if self._stage == "generate":
            words = self._sampling
        if len(self._told) == 3:
            done, asked, tokens = self._told
            words = words or self._sampling
            return f"{words} {done}/{asked} rollouts, {tokens:,} tokens"
        if len(self._told) == 2:
            done, whole = self._told
            return f"{words or STAGES['update']} {done}/{whole} micro-batches"
        return words

    def entered(self, stage: str) -> None:
        """A step is at another stage; an empty one is between all of them."""
        self._stage, self._told = stage, ()
        self._tick()

    def sampled(self, num_done: int, num_asked: int, num_tokens: int) -> None:
        """An engine has sampled a token for each of its rows."""
        self._told = (num_done, num_asked, num_tokens)
        self._tick()

    def updated(self, num_done: int, num_micro_batches: int) -> None:
        """A learner goes on to another micro-batch."""
        self._told = (num_done, num_micro_batches)
        self._tick()

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """What is sampled in this block is an evaluation's."""
        self._sampling = "evaluating"
        try:
            yield
        finally:
            self._sampling = ROLLING_OUT

    def spoken(self) -> None:
        """Something else was written: the silence is over."""
        self._last = self._clock()

    def __rich__(self) -> Text:
        return Text(self.text, style="dim", no_wrap=True, overflow="ellipsis")

    def _tick(self) -> None:
        if not self._writes_lines or self._clock() - self._last < SILENCE_S:
            return
        self.spoken()
        if self.text:
            line = self._head() + self.text
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def shown_activity(console: Console) -> Iterator[Activity]:
    """An activity by itself, gone from a terminal once the block is done."""
    activity = Activity(console)
    if not console.is_terminal:
        yield activity
        return
    with Live(
        activity,
        console=console,
        refresh_per_second=FRAMES_PER_S,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ):
        yield activity
