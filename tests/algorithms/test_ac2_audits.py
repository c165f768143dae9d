"""Step 3 of AC2: which ready slots run to their end all the same."""

import math
from collections import Counter

import pytest

from ac2_worlds import (
    chosen,
    one_step,
    reads,
    remembering,
    spoken_world,
)
from accredit.algorithms.ac2.metrics import Routing
from accredit.algorithms.replay.routes import audited_slots
from accredit.randomness import generator
from accredit.types import StopReason

STORED = [("p0", "abcdefabcd", 0.2), ("p1", "bbbbbbbb", 0.0)]
ENDLESS = "abcdefgabcdefg"
names = pytest.mark.parametrize("name", ["prefix_grpo", "ac2", "ac2_plus"])


def endless(problem, text, sibling):
    return ENDLESS


def built(name="ac2", **keys):
    return chosen(None if name == "prefix_grpo" else reads({}), name, **keys)


@pytest.mark.parametrize("num_ready", range(10))
def test_of_n_ready_slots_a_quarter_rounded_up_is_audited(num_ready):
    """ceil(n / 4) for n = 0..9."""
    expected = [0, 1, 1, 1, 1, 2, 2, 2, 2, 3]
    ready = ["p0"] if num_ready else []
    algorithm_ = built(prompts_per_step=max(num_ready, 1), largest_cut_share=0.1)
    state = remembering([STORED[0]], ready=ready)
    _, record, _ = one_step(algorithm_, spoken_world(endless), state)
    routing = record.section(Routing)
    assert int(routing.ready.sum()) == num_ready
    assert int(routing.audited.sum()) == expected[num_ready]
    assert expected[num_ready] == math.ceil(num_ready / 4)
    stopped = [
        all(r.stop_reason is StopReason.CHUNK for r in group.rollouts)
        for group in record.groups
    ]
    assert sum(stopped) == num_ready - expected[num_ready]
    assert stopped == (routing.ready & ~routing.audited).tolist()


def test_slots_that_are_not_ready_run_to_their_end_and_are_no_audits():
    seen = set()
    algorithm_ = built(prompts_per_step=10, largest_cut_share=0.1)
    for step in range(4):
        state = remembering(STORED, ready=["p0"], step=step)
        _, record, _ = one_step(algorithm_, spoken_world(endless), state)
        routing = record.section(Routing)
        problems = [group.prompt.problem.id for group in record.groups]
        assert [name == "p0" for name in problems] == routing.ready.tolist()
        # ceil(5 / 4)
        assert int(routing.audited.sum()) == 2
        assert not (routing.audited & ~routing.ready).any()
        for group, stops in zip(
            record.groups, routing.ready & ~routing.audited, strict=True
        ):
            assert [r.num_sampled for r in group.rollouts] == [2 if stops else 10] * 2
        seen.add(tuple(routing.audited.nonzero()[:, 0].tolist()))
    assert len(seen) > 1


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (0.3, 3), (1.0, 8)])
def test_the_share_of_audits_is_a_knob(share, expected):
    algorithm_ = built(prompts_per_step=8, audit_share=share)
    state = remembering([STORED[0]], ready=["p0"])
    _, record, _ = one_step(algorithm_, spoken_world(endless), state)
    assert int(record.section(Routing).audited.sum()) == expected


def test_the_record_says_how_likely_each_audit_was():
    """Five ready slots, ceil(5 / 4) = 2 audits: .4 each; 1 where nobody is stopped."""
    algorithm_ = built(prompts_per_step=10, largest_cut_share=0.1)
    _, record, _ = one_step(
        algorithm_, spoken_world(endless), remembering(STORED, ready=["p0"])
    )
    routing = record.section(Routing)
    expected = [0.4 if ready else 1.0 for ready in routing.ready.tolist()]
    assert routing.inclusion.tolist() == pytest.approx(expected)


CHANCES = {0: 0.1, 1: 0.5, 2: 0.9, 5: 0.3, 7: 0.2}


def test_audits_are_drawn_with_exactly_their_chances():
    """.1 + .5 + .9 + .3 + .2 = 2 slots each time, each one as often as it should."""
    hits = Counter()
    for seed in range(2000):
        chosen_slots = audited_slots(CHANCES, generator(seed))
        assert len(chosen_slots) == 2
        hits.update(chosen_slots)
    for number, chance in CHANCES.items():
        # Four standard deviations: 4 sqrt(.25 / 2000) = .045
        assert hits[number] / 2000 == pytest.approx(chance, abs=0.045)
    assert audited_slots({}, generator(0)) == set()
    assert audited_slots({3: 1.0, 4: 1.0}, generator(0)) == {3, 4}
