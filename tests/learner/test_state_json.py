"""State as JSON and back, exactly."""

import json
import math
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.learner.state_json import state_from_json, state_json
from accredit.records import Cost, State

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.text(), VALUES), st.floats(0, 1e300), st.integers(0))
def test_every_state_reads_back_to_the_same_bits(
    memory: dict[str, Any], flops: float, count: int
) -> None:
    state = State(
        3, count, Cost(flops, 0.1, 7.0, 2e-308, 1 / 3, 5, 6, 7), {"a/b": count}, memory
    )
    back = state_from_json(state_json(state))
    assert back == state
    assert repr(back.cost) == repr(state.cost)


def test_a_fresh_state_survives() -> None:
    assert state_from_json(state_json(State())) == State()


def test_nested_mappings_are_saved_whole() -> None:
    inner = MappingProxyType({"gate": MappingProxyType({"open": True})})
    assert state_from_json(state_json(State(memory=inner))).memory == {
        "gate": {"open": True}
    }


@pytest.mark.parametrize(
    ("memory", "place"),
    [
        ({"a": [0, (1, 2)]}, r"tuple .*at memory\['a'\]\[1\]"),
        ({"a": {"b": math.nan}}, r"float nan at memory\['a'\]\['b'\]"),
        ({"a": math.inf}, r"float inf at memory\['a'\]"),
        ({"a": {3: 1}}, r"dict .*at memory\['a'\]"),
        ({"a": {1}}, r"set .*at memory\['a'\]"),
    ],
)
def test_what_json_would_change_is_refused_when_saved(
    memory: dict[str, Any], place: str
) -> None:
    with pytest.raises(ValueError, match=f"must hold JSON values.*{place}"):
        state_json(State(memory=memory))


def changed(**changes: Any) -> str:
    return json.dumps(json.loads(state_json(State())) | changes)


def spent(**changes: Any) -> dict[str, Any]:
    return json.loads(state_json(State()))["cost"] | changes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "must be JSON, got"),
        ("[]", r"must have schema 2, got \[\]"),
        (
            changed(schema=1, cost={"decode_flops": 1.0}),
            "schema 2, got 1; it was written by another version of accredit; finish",
        ),
        (changed(schema=3), "schema 2, got 3; it was written by another version"),
        (changed(extra=1), "must have the keys"),
        (changed(step="3"), "step of a saved state must be a count, got '3'"),
        (changed(num_drawn=-1), "num_drawn of a saved state must be a count, got -1"),
        (changed(cost={"decode_flops": 1}), "a saved cost must have"),
        (changed(cost=spent(decode_flops="1")), "decode_flops of a saved cost must be"),
        (changed(cost=spent(train_flops=None)), "train_flops of a saved cost must be"),
        (changed(cost=spent(num_questions=-1)), "num_questions of a saved cost must"),
        (
            changed(cost=spent(decode_flops=True)),
            "decode_flops of a saved cost must be",
        ),
        (changed(counters=[1]), r"counters of a saved state must be .*got \[1\]"),
        (changed(counters={"skipped": "3"}), "counter 'skipped' of a saved state must"),
        (changed(counters={"skipped": None}), "counter 'skipped' of a saved state"),
        (changed(memory="text"), "memory of a saved state must be a JSON object, got"),
        (changed(memory=None), "memory of a saved state must be a JSON object, got"),
        (changed(step=True), "step of a saved state must be a count, got True"),
        ("[" * 100_000, "must be JSON, got"),
        ("1" * 10_000, "must be JSON, got"),
    ],
)
def test_a_damaged_state_is_refused_with_a_reason(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        state_from_json(text)
