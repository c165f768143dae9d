"""One condition on a row of metrics. When it is told is decided in `alarms`."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Alarm:
    """A condition on one row of metrics and what it means when it lasts."""

    keys: tuple[str, ...]
    """What it reads; steps that lack one of them neither feed nor end a streak."""
    holds: Callable[..., bool]
    """Called with the values of `keys`."""
    meaning: str
    """What is wrong."""
    turn: str
    """What to do about it, with the keys of the recipe by their full names."""
    at_once: bool = False
    """True for what no run should wait for: told at its first step."""
    is_loud: bool = False
    """True for what makes a run worthless: told again when it ends."""
    present: tuple[str, ...] = ()
    """Keys without which a step is passed over, as one that lacks what is read."""
    absent: tuple[str, ...] = ()
    """Keys with which it is."""


def strays(ratio: float) -> bool:
    """Whether a mean ratio of probabilities is far from the 1 of its expectation."""
    return not 0.8 <= ratio <= 1.25
