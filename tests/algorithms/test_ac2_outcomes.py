"""The critic put right by what came of what it said, in a step of AC2+."""

import math
from dataclasses import replace

import pytest
import torch

from ac2_worlds import chosen, one_step, reads, remembering, spoken_world
from accredit.algorithms.ac2 import ac2
from accredit.algorithms.ac2.memory import AC2Memory
from accredit.algorithms.ac2.metrics import Routing
from accredit.algorithms.replay import routes
from accredit.functional.recalibration import log_odds_ratio
from accredit.storage.state_json import memory_from_json, memory_json

STORED = [("p1", "abcdefabcd", 0.2)]
LINES = ["cdefah", "ch"]
REWARDS = {"abcdefah": 1.0, "abch": 0.5, "h": 0.0}
SAYS = {"ab": 0.5, "abcd": 0.6, "abcdef": 0.25}
KEYS = {
    "group_size": 2,
    "boundary_lambda": 0.0,
    "boundary_examples": False,
    "correction": "none",
    "audit_half_life": None,
    "chunk_signal": None,
}


@pytest.fixture(autouse=True)
def cut_at_two(monkeypatch):
    monkeypatch.setattr(routes, "drawn_cut", lambda *_: 2)


def stepped(*outcomes, **keys):
    """What is kept after a step, and its record."""
    after, record = after_step(*outcomes, **keys)
    return [[list(row) for row in step] for step in after.memory.outcomes], record


def trusted(outcomes, says):
    """The record of a step, and the gate behind it."""
    after, record = after_step(outcomes, says=says, ready=False)
    return record, after.memory.gate


def after_step(*outcomes, ready=True, says=SAYS, rewards=REWARDS, **keys):
    world = spoken_world(
        lambda problem, text, sibling: LINES[sibling % 2] if text else "h", rewards.get
    )
    section = KEYS | {"audit_share": 1.0, "num_refill": 1} | keys
    if not section["audit_share"]:
        section["gate"] = {"revocable": False}
    built = chosen(reads(says), "ac2_plus", **section)
    state = remembering(STORED, ready=["p1"] if ready else [])
    memory = replace(state.memory, outcomes=tuple(map(tuple, outcomes)))
    state = replace(state, memory=memory)
    after, record, _ = one_step(built, world, state)
    return after, record


def test_an_audited_group_tells_of_its_prefix_and_of_every_border():
    """Rewards 1 and .5: the prefix earned .75 of two; row 0 1 at two boundaries."""
    kept, _ = stepped()
    assert kept == [
        [
            [0.5, 0.75, 2.0],
            [pytest.approx(0.6), 1.0, 0.5],
            [0.25, 1.0, 0.5],
        ]
    ]


def test_a_group_that_is_not_ready_tells_of_its_prefix_alone():
    kept, _ = stepped(ready=False)
    assert kept == [[[0.5, 0.75, 2.0]]]


def test_a_stopped_group_tells_nothing():
    """Only one of its members ends before the boundary; to count it would be to choose
    by the outcome.
    """
    kept, record = stepped(audit_share=0.0)
    assert record.section(Routing).asked.tolist() == [True, False]
    assert kept == [[]]


def test_who_could_not_be_judged_tells_nothing():
    kept, _ = stepped(rewards=REWARDS | {"abch": None})
    assert kept[0][0] == [0.5, 1.0, 1.0]
    kept, _ = stepped(rewards=REWARDS | {"abch": None, "abcdefah": None})
    assert kept == [[]]


def test_an_unparsable_value_tells_nothing():
    kept, _ = stepped(says=SAYS | {"ab": None, "abcdef": None})
    assert kept == [[[pytest.approx(0.6), 1.0, 1.0]]]


def test_all_values_are_moved_by_the_odds_of_what_came():
    """Twenty times .5 was said where .8 came."""
    before = [(0.5, 0.8, 20.0)]
    shift = log_odds_ratio(*torch.tensor(before, dtype=torch.float64).T)
    assert shift == pytest.approx(1.078, abs=0.001)
    kept, record = stepped(before)

    def moved(value):
        return 1 / (1 + math.exp(-(math.log(value / (1 - value)) + shift)))

    assert record.section(Routing).prefix_values.tolist() == pytest.approx([moved(0.5)])
    assert record.section(Routing).boundary_values[0] == pytest.approx(moved(0.6))
    # The chunks of the first: V - mean, then what each boundary changed.
    row = record.credit.advantages[0][record.batch.sampled[0]].tolist()
    first = (moved(0.6) + 0.5) / 2
    steps = [moved(0.6) - first, moved(0.25) - moved(0.6), 1.0 - moved(0.25)]
    assert row == pytest.approx([x for x in steps for _ in range(2)])
    # What is kept is what was said: to move it again would be to move it twice.
    assert kept[-1][0] == [0.5, 0.75, 2.0]
    assert kept[0] == [[0.5, 0.8, 20.0]]


def test_endpoints_are_moved_as_well():
    _, record = stepped([(0.5, 0.8, 20.0)], audit_share=0.0)
    assert float(record.section(Routing).endpoint_values[0]) > 0.8 > SAYS["abcd"]


def test_the_last_steps_are_kept():
    kept, _ = stepped([(0.5, 0.5, 1.0)], recalibration_steps=1)
    assert len(kept) == 1
    assert kept[0][0] == [0.5, 0.75, 2.0]
    kept, _ = stepped([(0.5, 0.5, 1.0)], recalibration_steps=2)
    assert [len(step) for step in kept] == [1, 3]


def test_no_more_steps_are_read_than_are_asked_for():
    """A state that was saved under a larger key."""
    _, record = stepped([(0.5, 0.8, 20.0)], [(0.5, 0.5, 1.0)], recalibration_steps=1)
    assert record.section(Routing).shift == 0.0
    _, record = stepped([(0.5, 0.8, 20.0)], [(0.5, 0.5, 1.0)], recalibration_steps=2)
    assert record.section(Routing).shift > 1.0


def test_switched_off_it_neither_moves_nor_keeps():
    kept, record = stepped([(0.5, 0.8, 20.0)], recalibration_steps=0)
    assert record.section(Routing).prefix_values.tolist() == [0.5]
    assert record.section(Routing).shift == 0.0
    assert kept == []


def test_audits_stand_for_all_that_were_ready(monkeypatch):
    """One audit of four ready groups was drawn by a chance of 1/4."""
    monkeypatch.setattr(ac2, "audited_slots", lambda *_: {0})
    kept, record = stepped(audit_share=0.25, prompts_per_step=4)
    assert record.section(Routing).inclusion.tolist() == [0.25] * 4
    assert [row[2] for row in kept[0]] == [8.0, 2.0, 2.0]


def test_what_is_kept_lies_between_0_and_1():
    """Rewards may be rounded, linear heads say anything; the next step reads it."""
    says = {"ab": 1.2, "abcd": -0.1, "abcdef": 0.25}
    kept, _ = stepped(says=says, rewards=REWARDS | {"abcdefah": 1.0 + 5e-7})
    assert kept[0][0] == [1.0, pytest.approx(0.75), 2.0]
    assert kept[0][1] == [0.0, 1.0, 0.5]
    saved = {**memory_json(remembering(STORED).memory), "outcomes": kept}
    assert len(memory_from_json(saved, AC2Memory).outcomes[0]) == 3


def test_what_was_put_right_was_not_said():
    """Condition 4 asks what the critic says: 0, however far it is moved."""
    said = {"ab": 0.0, "abcd": 0.0, "abcdef": 0.0}
    before = [(0.001, 0.9, 99.0)]
    record, gate = trusted(before, said)
    assert float(record.section(Routing).prefix_values[0]) > 0.5
    assert not gate.tracks["p1"].nonzero_seen
    assert trusted(before, said | {"ab": 0.3})[1].tracks["p1"].nonzero_seen


@pytest.mark.parametrize(
    "content",
    [None, {}, [3], [[3]], [[[0.5, 0.5]]], [[[0.5, 0.5, -1.0]]], [[[0.5, 1.5, 1.0]]]],
)
def test_torn_outcomes_are_refused(content):
    saved = memory_json(remembering(STORED).memory)
    assert memory_from_json(saved, AC2Memory).outcomes == ()
    with pytest.raises(ValueError, match=r"got .* at memory.outcomes"):
        memory_from_json({**saved, "outcomes": content}, AC2Memory)
