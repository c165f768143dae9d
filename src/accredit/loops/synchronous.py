"""One step after the other: the loop that knows nothing.

It sees an algorithm, a state, a world and an observer. What a step does is the
algorithm's; what is written, shown, evaluated and saved is the observer's.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from accredit.records import Record, State
from accredit.world import Algorithm, World


@runtime_checkable
class Observer(Protocol):
    """Who watches a run."""

    stop_requested: bool
    save_requested: bool
    """After an evaluation that is worth its checkpoint."""

    def evaluated(self, state: State) -> State: ...

    def stepped(self, state: State, record: Record) -> None: ...

    def save(self, state: State) -> None: ...


@dataclass(frozen=True)
class Plan:
    """How long to train, and when to look and to save, in steps."""

    num_steps: int
    evaluate_every: int = 0
    """0 evaluates at the start and the end only."""
    save_every: int = 0
    """0 saves at the end only."""


def train(
    algorithm: Algorithm, world: World, state: State, plan: Plan, observer: Observer
) -> State:
    """Steps until the plan is done or somebody asks to stop.

    Evaluates before the first step and after the last one. A stop in between saves and
    leaves, so that a resumed run evaluates just where this one would have.
    """
    if state.step == 0:
        state = observer.evaluated(state)
    while state.step < plan.num_steps and not observer.stop_requested:
        state, record = advance(algorithm, state, world)
        observer.stepped(state, record)
        is_last = state.step == plan.num_steps
        if is_last or is_due(plan.evaluate_every, state.step):
            state = observer.evaluated(state)
        requested = observer.stop_requested or observer.save_requested
        if is_last or requested or is_due(plan.save_every, state.step):
            observer.save(state)
    return state


def first_state(algorithm: Algorithm) -> State:
    """Before the first step."""
    return State(memory=algorithm.initial_memory)


def advance(algorithm: Algorithm, state: State, world: World) -> tuple[State, Record]:
    """One step: a draw, and what is learned from it at once."""
    return algorithm.learn(state, world, algorithm.draw(state, world))


def is_due(every: int, step: int) -> bool:
    """Whether something done every so many steps is done after this one."""
    return every > 0 and step % every == 0


@contextmanager
def failing() -> Iterator[None]:
    """What goes wrong once a run has begun is no mistake in its recipe any more.

    Raises:
        RuntimeError: for any error of a value or of the system.
    """
    try:
        yield
    except (ValueError, OSError) as error:
        raise RuntimeError(str(error)) from error
