"""A judge that fails for several steps ends the run, whatever else was not judged."""

from types import SimpleNamespace

import pytest

from ac2_worlds import chosen, one_step, spoken_world
from accredit.reports.alarms.alarms import PATIENCE
from accredit.runs.session import Session, TooManyInvalid

pytestmark = pytest.mark.whole_run


def step(invalid, judged, drawn=100):
    """A row of a step, of as many rollouts."""
    return {
        "count/rewards_invalid": invalid,
        "count/rollouts_judged": judged,
        "count/rollouts_drawn": drawn,
    }


def ends(history, limit=0.9):
    """What a session with that history says after its last step."""
    session = Session.__new__(Session)
    session.config = SimpleNamespace(max_invalid_share=limit)
    session.history = history
    world = spoken_world(lambda *_: "ah", lambda text: None)
    _, record, _ = one_step(chosen(None, "prefix_grpo"), world)
    try:
        session._stop_where_nothing_is_verified(record)
    except TooManyInvalid as error:
        return str(error)
    return ""


def test_a_broken_judge_is_found_among_stopped_rollouts():
    """Ten of a hundred were sent to be judged, and none of them was."""
    said = ends([step(10, 10)] * PATIENCE)
    assert "at most 10% of the judged rollouts had a reward" in said
    assert said.endswith("the last reason was: no verdict")
    assert not ends([step(10, 10)] * (PATIENCE - 1))
    assert not ends([step(8, 10)] * PATIENCE)
    assert ends([step(9, 10)] * PATIENCE)


def test_a_step_that_judged_nothing_tells_nothing():
    assert not ends([step(0, 0)] * PATIENCE)
    assert ends([step(10, 10), step(0, 0)] * PATIENCE)
    assert not ends([step(10, 10)] * (PATIENCE - 1) + [step(0, 0)])
    assert not ends([step(10, 10)] * (PATIENCE - 1) + [step(0, 0), step(0, 10)])


@pytest.mark.parametrize("invalid", [95, 80])
def test_older_rows_count_what_was_drawn(invalid):
    row = {"count/rewards_invalid": invalid, "count/rollouts_drawn": 100}
    assert bool(ends([row] * PATIENCE)) is (invalid >= 90)
