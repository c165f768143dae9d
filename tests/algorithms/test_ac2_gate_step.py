"""Step 9 of AC2: who becomes ready, whose completion is kept, which one is shown."""

from dataclasses import replace

import pytest

from ac2_worlds import (
    chosen,
    ids,
    one_step,
    reads,
    remembering,
    spoken_world,
    text_of,
)
from accredit.algorithms.ac2.metrics import Routing
from accredit.algorithms.replay import routes
from accredit.algorithms.replay_configs import GateConfig
from accredit.critics.readiness import Track

OPEN = [[0.1], [0.1], [0.1], [0.1], [0.1]]
"""Errors of five complete steps, .1 on average."""
FAILED, PASSED = ("p1", "abcdefabcd", 0.2), ("p1", "abcdefabcd", 1.0)
BANK = {"p1": "gfedh"}


@pytest.fixture(autouse=True)
def cut_at_four(monkeypatch):
    monkeypatch.setattr(routes, "drawn_cut", lambda *_: 4)


def stepped(
    state,
    *,
    says=None,
    rewards=(0.4, 0.6),
    refill=0.0,
    critic=None,
    section="ac2",
    **keys,
):
    """One step with a group of p1 behind `abcd`: `ah` and `bh`, V(abcd) = .5, z = .5.

    The refill is `fh` of some problem.
    """
    table = {"abcdah": rewards[0], "abcdbh": rewards[1], "fh": refill}
    world = spoken_world(
        lambda problem, text, sibling: ["ah", "bh"][sibling % 2] if text else "fh",
        lambda text: table[text],
    )
    critic = critic or reads(says or {"abcd": 0.5})
    algorithm_ = chosen(critic, section, **{"grid_size": 11, "gate": {}, **keys})
    after, record, memory = one_step(algorithm_, world, state)
    return after, record, memory, critic


def is_ready(memory):
    return memory.gate.ready("p1")


def test_a_problem_becomes_ready_when_all_four_conditions_hold():
    """Error 0 < .18, window .1 < .20, in the bank, .5 is not 0; from then on."""
    state = remembering([FAILED], window=OPEN, bank=BANK)
    after, record, memory, _ = stepped(state)
    assert is_ready(memory)
    routing = record.section(Routing)
    assert not routing.ready.any()
    assert (routing.num_ready, routing.num_flipped, routing.num_revoked) == (1, 1, 0)
    _, record, _, _ = stepped(after, audit_share=0.0)
    assert record.section(Routing).ready.all()
    assert record.section(Routing).num_flipped == 0


@pytest.mark.parametrize(
    ("window", "opens"),
    [
        (OPEN, True),
        (OPEN[:4], False),
        ([], False),
        ([[0.2]] * 5, False),
        ([[0.199]] * 5, True),
        # Errors are averaged alike, not steps: (.1 + 4 * .26) / 5 = .228
        ([[], [], [], [0.1], [0.26] * 4], False),
        ([[], [], [], [], []], False),
        # The oldest has left the window.
        ([[5.0], *OPEN], True),
    ],
)
def test_the_global_gate_averages_every_error_of_the_last_five_complete_steps(
    window, opens
):
    state = remembering([FAILED], window=window, bank=BANK)
    _, _, memory, _ = stepped(state)
    assert is_ready(memory) == opens
    assert memory.gate.window == (*map(tuple, window), (0.0,))[-5:]


@pytest.mark.parametrize(
    ("says", "passes"), [(0.5, True), (0.6, True), (0.67, True), (0.69, False)]
)
def test_this_visit_s_error_must_lie_below_the_local_bound(says, passes):
    """|V - .5| against .18."""
    state = remembering([FAILED], window=OPEN, bank=BANK)
    _, _, memory, _ = stepped(state, says={"abcd": says})
    assert is_ready(memory) == passes


def test_a_silent_critic_is_an_error_of_one():
    state = remembering([FAILED], window=OPEN, bank=BANK)
    _, _, memory, _ = stepped(state, says={"abcd": None})
    assert not is_ready(memory)
    assert memory.gate.window[-1] == (1.0,)


def test_the_gate_sees_the_bank_as_it_was_before_the_step():
    """A first proof makes the problem ready at its next visit, not at this one."""
    state = remembering([FAILED], window=OPEN)
    says = {"abcd": 0.9}
    after, _, memory, _ = stepped(state, says=says, rewards=(1.0, 1.0))
    assert memory.bank["p1"] in ("abcdah", "abcdbh")
    assert not is_ready(memory)
    _, _, memory, _ = stepped(after, says=says, rewards=(1.0, 1.0))
    assert is_ready(memory)


def test_nobody_is_ready_because_it_always_fails():
    """Pitfall 2: 0 is predicted, 0 comes: an error of 0, and no trust."""
    nothing = {"says": {"abcd": 0.0}, "rewards": (0.0, 0.0)}
    banked = remembering([FAILED], window=OPEN, bank=BANK)
    _, _, memory, _ = stepped(banked, **nothing)
    assert memory.gate.tracks["p1"].last_error == 0
    assert not is_ready(memory)
    # Without a proof in the bank a nonzero prediction is not enough.
    tracks = {"p1": Track(nonzero_seen=True)}
    unsolved = remembering([FAILED], window=OPEN, tracks=tracks)
    _, _, memory, _ = stepped(unsolved, **nothing)
    assert not is_ready(memory)
    both = remembering([FAILED], window=OPEN, tracks=tracks, bank=BANK)
    _, _, memory, _ = stepped(both, **nothing)
    assert is_ready(memory)
    free = {"gate": {"require_bank": False, "require_nonzero": False}}
    _, _, memory, _ = stepped(remembering([FAILED], window=OPEN), **nothing, **free)
    assert is_ready(memory)


def test_a_nonzero_word_about_an_end_counts_too():
    """V(abcd) = 0 and 0 comes, but of a boundary the critic once hoped for .3."""
    world = spoken_world(lambda problem, text, sibling: "ccch", lambda text: 0.0)
    critic = reads({"abcd": 0.0, "abcdcc": 0.3})
    algorithm_ = chosen(critic, grid_size=11, critic_targets="bootstrap")
    state = remembering([FAILED], window=OPEN, bank=BANK)
    _, _, memory = one_step(algorithm_, world, state)
    assert memory.gate.tracks["p1"].nonzero_seen


def test_all_groups_of_a_problem_are_one_visit():
    """Two slots, errors .1 and .1: one visit; the window holds both."""
    state = remembering([FAILED], window=OPEN, bank=BANK)
    _, _, memory, _ = stepped(state, says={"abcd": 0.4}, prompts_per_step=2)
    assert memory.gate.window[-1] == pytest.approx((0.1, 0.1))
    assert memory.gate.tracks["p1"].num_errors == 2


def test_trust_is_monotone_in_the_paper():
    """Audited and wrong by .5: it stays ready."""
    state = remembering([FAILED], window=OPEN, bank=BANK, ready=["p1"])
    wrong = {"rewards": (1.0, 1.0), "audit_share": 1.0}
    _, record, memory, _ = stepped(state, **wrong)
    assert record.section(Routing).audited.all()
    assert is_ready(memory)
    _, record, memory, _ = stepped(state, **wrong, gate={"revocable": True})
    assert not is_ready(memory)
    assert record.section(Routing).num_revoked == 1
    assert memory.gate.tracks["p1"].num_audits == 1
    right = wrong | {"rewards": (0.4, 0.6)}
    _, _, memory, _ = stepped(state, **right, gate={"revocable": True})
    assert is_ready(memory)


@pytest.mark.parametrize(
    ("against", "errors"), [("group_mean", (0.4,)), ("rewards", ())]
)
def test_errors_against_rewards_leave_out_what_the_critic_said_itself(against, errors):
    """A ready group is stopped: V(abcdab) = .9 is no outcome."""
    world = spoken_world(lambda problem, text, sibling: "abab" if text else "fh")
    critic = reads({"abcd": 0.5, "abcdab": 0.9})
    gate = {"error_against": against}
    algorithm_ = chosen(critic, grid_size=11, audit_share=0.0, gate=gate)
    state = remembering([FAILED], ready=["p1"])
    _, record, memory = one_step(algorithm_, world, state)
    assert record.section(Routing).asked.all()
    assert memory.gate.window[-1] == pytest.approx(errors)


def test_every_key_of_the_gate_reaches_it():
    keys = {
        "rule": "pooled",
        "window": 3,
        "tau_global": 0.3,
        "tau_local": 0.4,
        "require_bank": False,
        "require_nonzero": False,
        "standard_errors": 2.0,
        "min_errors": 4,
        "prior_errors": 5,
        "revocable": True,
    }
    gate = chosen(gate=keys).gate
    assert {key: getattr(gate, key) for key in keys} == keys
    assert set(keys) == set(GateConfig.model_fields) - {"error_against"}


def test_the_bank_takes_passing_completions_and_keeps_the_first():
    """Of the groups and of the refill; the whole completion, prefix included."""
    state = remembering([FAILED])
    after, _, memory, _ = stepped(state, rewards=(6 / 7 - 1e-7, 0.5), refill=1.0)
    assert memory.bank.pop("p1") == "abcdah"
    (refilled,) = memory.bank.values()
    assert refilled == "fh"
    _, _, memory, _ = stepped(after, rewards=(0.4, 1.0))
    assert memory.bank["p1"] == "abcdah"


@pytest.mark.parametrize("rewards", [(0.85, 0.5), (0.0, 0.0), (None, None)])
def test_what_failed_never_joins_the_bank(rewards):
    _, _, memory, _ = stepped(remembering([FAILED]), rewards=rewards)
    assert memory.bank == {}


def test_what_was_stopped_never_joins_the_bank():
    """However much the critic thinks of it."""
    world = spoken_world(lambda problem, text, sibling: "abab" if text else "fh")
    algorithm_ = chosen(reads({}, 1.0), grid_size=11, audit_share=0.0)
    _, _, memory = one_step(algorithm_, world, remembering([FAILED], ready=["p1"]))
    assert "p1" not in memory.bank


def test_of_several_in_one_step_one_is_drawn():
    seen = set()
    for step in range(12):
        state = replace(remembering([FAILED]), step=step)
        _, _, memory, _ = stepped(state, rewards=(1.0, 1.0))
        seen.add(memory.bank["p1"])
    assert seen == {"abcdah", "abcdbh"}


@pytest.mark.parametrize(
    ("mode", "source", "bank", "shown"),
    [
        ("source", PASSED, BANK, "abcdefabcd"),
        ("source", FAILED, BANK, "gfedh"),
        ("source", FAILED, {}, None),
        ("source", PASSED, {}, "abcdefabcd"),
        ("bank", PASSED, BANK, "gfedh"),
        ("bank", PASSED, {}, None),
        ("none", PASSED, BANK, None),
    ],
)
def test_the_reference_shown_is_the_source_s_own_else_the_bank_s_else_none(
    mode, source, bank, shown
):
    """A failed completion is never one."""
    state = remembering([source], bank=bank)
    _, record, memory, critic = stepped(state, **{"critic.reference": mode})
    found = {attempt.reference for attempt in critic.asked[0]}
    assert found == {None if shown is None else ids(shown)}
    assert record.section(Routing).reference_shown.tolist() == [shown is not None]
    (taught,) = critic.taught
    assert [example.query.reference for example in taught] == list(found)
    # The record keeps the source where it passed, whatever is shown of it.
    kept = source[1] if source is PASSED else None
    assert memory.examples == [("p1", "abcd", 0.5, kept)]


def test_a_record_gains_the_reference_that_came_after_it():
    """It was stored without; by now the bank has one. Its own stays its own."""
    examples = [("p1", "ab", 0.3, None), ("p1", "abc", 0.4, "abch")]
    state = remembering([FAILED], bank=BANK, examples=examples)
    _, _, _, critic = stepped(state)
    found = {
        text_of(example.query.written): example.query.reference
        for example in critic.taught[0]
    }
    assert found == {"ab": ids("gfedh"), "abc": ids("abch"), "abcd": ids("gfedh")}


def test_a_step_teaches_by_the_bank_as_it_was():
    _, _, memory, critic = stepped(remembering([FAILED]), rewards=(1.0, 0.5))
    assert memory.bank["p1"] == "abcdah"
    assert [example.query.reference for example in critic.taught[0]] == [None]
