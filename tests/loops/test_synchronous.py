"""When a run looks, saves and ends, with an algorithm that only counts."""

from dataclasses import dataclass, replace

import pytest
import torch

from accredit.loops.synchronous import Observer, Plan, is_due, train
from accredit.records import Cost, Credit, Drawn, Record, State
from accredit.types import Batch
from accredit.world import World

pytestmark = pytest.mark.whole_run

NO_WORLD = object.__new__(World)
"""Nobody looks at it."""


class Diary:
    """An observer that writes down what it is told, and can ask to stop."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.events: list[tuple[str, int]] = []
        self.saved: State | None = None
        self.stop_after = stop_after
        self.stop_requested = stop_after == 0
        self.save_requested = False

    def evaluated(self, state: State) -> State:
        self.events.append(("evaluate", state.step))
        return replace(state, cost=state.cost + Cost(evaluation_flops=10.0))

    def stepped(self, state: State, record: Record) -> None:
        self.events.append(("step", state.step))
        self.stop_requested = state.step == self.stop_after

    def save(self, state: State) -> None:
        self.events.append(("save", state.step))
        self.saved = state

    def steps_of(self, kind: str) -> list[int]:
        return [step for name, step in self.events if name == kind]


@dataclass(frozen=True)
class Counting:
    """An algorithm that spends one FLOP a step, on what it has drawn for that step."""

    clip_bounds: None = None
    initial_memory: None = None

    def draw(self, state: State, world: World) -> Drawn:
        return Drawn((), num_drawn=state.step)

    def learn(self, state: State, world: World, drawn: Drawn) -> tuple[State, Record]:
        assert drawn.num_drawn == state.step
        return learned(state)


def learned(state: State) -> tuple[State, Record]:
    cost = Cost(decode_flops=1.0)
    nothing = torch.zeros(1, 1)
    none = nothing.bool()
    batch = Batch(
        nothing.long(),
        ~none,
        none,
        nothing,
        nothing[0],
        none[0],
        none[0],
        nothing[0].long(),
    )
    values, credit = torch.zeros(1, 2), Credit(nothing)
    record = Record((), batch, nothing[0], values, credit, None, cost, {})
    return state.advance(cost), record


def observed(plan: Plan, state: State | None = None, stop_after: int | None = None):
    diary = Diary(stop_after)
    return diary, train(Counting(), NO_WORLD, state or State(), plan, diary)


def test_a_diary_is_an_observer():
    assert isinstance(Diary(), Observer)


@pytest.mark.parametrize(
    ("plan", "evaluations", "saves"),
    [
        (Plan(5), [0, 5], [5]),
        (Plan(5, evaluate_every=2, save_every=3), [0, 2, 4, 5], [3, 5]),
        (Plan(4, evaluate_every=2, save_every=2), [0, 2, 4], [2, 4]),
        (Plan(3, evaluate_every=9, save_every=9), [0, 3], [3]),
        (Plan(3, evaluate_every=1, save_every=1), [0, 1, 2, 3], [1, 2, 3]),
    ],
)
def test_evaluations_and_checkpoints_follow_the_plan(plan, evaluations, saves):
    diary, state = observed(plan)
    assert diary.steps_of("step") == list(range(1, plan.num_steps + 1))
    assert diary.steps_of("evaluate") == evaluations
    assert diary.steps_of("save") == saves
    assert state.step == plan.num_steps


def test_what_is_saved_has_paid_for_the_evaluation_before_it():
    diary, state = observed(Plan(2, evaluate_every=1, save_every=1))
    order = ["evaluate", "step", "evaluate", "save", "step", "evaluate", "save"]
    assert [name for name, _ in diary.events] == order
    assert state.cost == Cost(decode_flops=2.0, evaluation_flops=30.0)
    assert diary.saved == state


@pytest.mark.parametrize("stop_after", [1, 2, 3, 4, 5])
def test_a_stop_saves_and_a_resumed_run_looks_where_this_one_would_have(stop_after):
    plan = Plan(6, evaluate_every=2, save_every=3)
    whole, expected = observed(plan)
    first, stopped = observed(plan, stop_after=stop_after)
    assert first.events[-1] == ("save", stop_after)
    assert first.saved == stopped
    assert stopped.step == stop_after
    second, state = observed(plan, first.saved)
    assert state == expected
    extra = ("save", stop_after)
    joined = first.events + second.events
    if extra not in whole.events:
        joined.remove(extra)
    assert joined == whole.events


def test_a_stop_before_the_first_step_leaves_nothing_to_save():
    diary, state = observed(Plan(3), stop_after=0)
    assert diary.events == [("evaluate", 0)]
    assert state.step == 0


def test_a_finished_run_does_nothing_more():
    diary, state = observed(Plan(3), State(step=3))
    assert diary.events == []
    assert state == State(step=3)


def test_a_longer_plan_goes_on():
    diary, _ = observed(Plan(5, evaluate_every=5), State(step=3))
    assert diary.events == [("step", 4), ("step", 5), ("evaluate", 5), ("save", 5)]


def test_never_is_not_every_step():
    assert [is_due(0, step) for step in range(3)] == [False] * 3
    assert [is_due(3, step) for step in range(1, 7)] == [
        False,
        False,
        True,
    ] * 2
