"""State as JSON and back, exactly."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.batches.replay import ExampleBuffer, RolloutBuffer, StoredRollout
from accredit.critics.readiness import GateState, Track
from accredit.critics.references import ReferenceBank
from accredit.records import Cost, State
from accredit.storage.state_json import (
    memory_from_json,
    memory_json,
    state_from_json,
    state_json,
)

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
AMOUNTS = st.floats(0, 1e300)


@dataclass(frozen=True)
class Inner:
    """Part of a memory."""

    names: Mapping[str, tuple[int, float]]
    packed: str | None = None


@dataclass(frozen=True)
class Memory:
    """What an algorithm might carry."""

    offset: float
    window: tuple[tuple[float, ...], ...]
    inner: Inner
    flag: bool = False


MEMORIES = st.builds(
    Memory,
    NUMBERS,
    st.lists(st.lists(NUMBERS).map(tuple)).map(tuple),
    st.builds(
        Inner,
        st.dictionaries(st.text(), st.tuples(st.integers(), NUMBERS)),
        st.none() | st.text(),
    ),
    st.booleans(),
)


@settings(max_examples=40, deadline=None)
@given(MEMORIES, AMOUNTS, st.integers(0))
def test_every_state_reads_back_to_the_same_bits(
    memory: Memory, flops: float, count: int
) -> None:
    cost = Cost(flops, 0.1, 7.0, 2e-308, 1 / 3, 5, 6, 7)
    state = State(3, 4, count, cost, {"a/b": count}, memory)
    back = state_from_json(state_json(state), Memory)
    assert back == state
    assert repr(back) == repr(state)


def test_a_fresh_state_survives() -> None:
    assert state_from_json(state_json(State()), NoneType) == State()


def test_a_number_that_is_not_finite_is_refused_when_saved() -> None:
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="not JSON compliant"):
            state_json(State(memory=Memory(bad, (), Inner({}))))


TRACK = {**vars(Track(last_error=0.25))}
GATE = {"tracks": {"a": TRACK}, "window": [[0.5]]}
ROW = {**vars(StoredRollout.of("a", [3], 1.0))}
TAUGHT = {"problem_id": "a", "written": "", "target": 0.5, "reference": None}


def kept(*items: object) -> dict[str, Any]:
    return {"capacity": 4, "items": list(items)}


def tracked(**changes: object) -> dict[str, Any]:
    return {**GATE, "tracks": {"a": {**TRACK, **changes}}}


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (RolloutBuffer, kept(ROW)),
        (RolloutBuffer, kept({**ROW, "reward": 1})),
        (ExampleBuffer, kept(TAUGHT)),
        (GateState, GATE),
        (ReferenceBank, {"items": {"a": "b"}}),
    ],
)
def test_what_was_saved_is_taken(kind: type, content: object) -> None:
    found = memory_from_json(content, kind)
    assert isinstance(found, kind)
    assert memory_json(found) == content


@pytest.mark.parametrize(
    ("kind", "content", "place"),
    [
        (RolloutBuffer, None, "memory"),
        (RolloutBuffer, [], "memory"),
        (RolloutBuffer, kept("a"), r"memory\.items\.0"),
        (RolloutBuffer, kept({"problem_id": "a"}), r"memory\.items\.0\.written"),
        (RolloutBuffer, kept({**ROW, "more": 1}), "missing or added"),
        (RolloutBuffer, kept(ROW, {**ROW, "reward": "1"}), r"items\.1\.reward"),
        (RolloutBuffer, kept({**ROW, "reward": True}), r"items\.0\.reward"),
        (RolloutBuffer, kept({**ROW, "num_tokens": True}), r"items\.0\.num_tokens"),
        (RolloutBuffer, kept({**ROW, "num_tokens": 1.5}), r"items\.0\.num_tokens"),
        (RolloutBuffer, kept({**ROW, "num_tokens": -1}), "num_tokens must be >= 0"),
        (RolloutBuffer, kept({**ROW, "problem_id": 3}), r"items\.0\.problem_id"),
        (RolloutBuffer, {**kept(ROW), "capacity": 0}, "capacity of 1 or more"),
        (ExampleBuffer, kept(ROW), r"items\.0\.target"),
        (ExampleBuffer, kept({**TAUGHT, "reference": 3}), r"items\.0\.reference"),
        (ExampleBuffer, kept({**TAUGHT, "target": None}), r"items\.0\.target"),
        (ReferenceBank, {"items": {"a": 3}}, r"items\.a"),
        (ReferenceBank, {}, "missing or added"),
        (GateState, {"tracks": {}}, "missing or added"),
        (GateState, {**GATE, "more": 1}, "missing or added"),
        (GateState, {**GATE, "tracks": []}, r"memory\.tracks"),
        (GateState, {**GATE, "window": [0.1]}, r"memory\.window\.0"),
        (GateState, {**GATE, "window": [[None]]}, r"memory\.window\.0\.0"),
        (GateState, {**GATE, "window": [[-0.1]]}, r"memory\.window\.0\.0"),
        (GateState, {**GATE, "tracks": {"a": {}}}, "missing or added"),
        (GateState, tracked(more=1), "missing or added"),
        (GateState, tracked(last_error="1"), r"tracks\.a\.last_error"),
        (GateState, tracked(last_error=True), r"tracks\.a\.last_error"),
        (GateState, tracked(total=-1.0), r"tracks\.a\.total"),
        (GateState, tracked(total_squares=math.nan), r"tracks\.a\.total_squares"),
        (GateState, tracked(num_errors=-1), r"tracks\.a\.num_errors"),
        (GateState, tracked(num_audits=True), r"tracks\.a\.num_audits"),
        (GateState, tracked(ready=1), r"tracks\.a\.ready"),
        (GateState, tracked(nonzero_seen=None), r"tracks\.a\.nonzero_seen"),
    ],
)
def test_a_torn_memory_is_refused_with_its_place(
    kind: type, content: object, place: str
) -> None:
    with pytest.raises(ValueError, match=place) as caught:
        memory_from_json(content, kind)
    assert "resume from another checkpoint" in str(caught.value)


def changed(**changes: Any) -> str:
    return json.dumps(json.loads(state_json(State())) | changes)


def spent(**changes: Any) -> dict[str, Any]:
    return json.loads(state_json(State()))["cost"] | changes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "must be JSON, got"),
        ("[]", r"must have schema 3, got \[\]"),
        (
            changed(schema=1, cost={"decode_flops": 1.0}),
            "schema 3, got 1; it was written by another version of accredit; finish",
        ),
        (changed(schema=4), "schema 3, got 4; it was written by another version"),
        (changed(extra=1), "must have the keys"),
        (changed(step="3"), "step of a saved state must be a count, got '3'"),
        (changed(num_draws=True), "num_draws of a saved state must be a count, got T"),
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
        (changed(memory="text"), "must hold the memory of its algorithm, got 'text'"),
        (changed(memory={}), "must hold the memory of its algorithm, got {}"),
        (changed(step=True), "step of a saved state must be a count, got True"),
        ("[" * 100_000, "must be JSON, got"),
        ("1" * 10_000, "must be JSON, got"),
    ],
)
def test_a_damaged_state_is_refused_with_a_reason(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        state_from_json(text, NoneType)
