"""The gate: each of its four conditions, at its threshold, and trust taken back."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.critics.readiness import Gate, GateState, ProblemErrors, Track
from accredit.storage.state_json import memory_from_json, memory_json

OPEN = GateState(window=((0.1,),) * 5)
"""Five complete steps with a mean error of .1."""


def visit(*errors, name="a", nonzero=True, banked=True, audited=()):
    return ProblemErrors(name, errors, nonzero, banked, audited)


def flips(gate, *visits, state=OPEN):
    """Who became ready in steps with one visit each, behind the same window."""
    everybody = ()
    for one in visits:
        after, flipped, _ = gate.after(state, [one])
        state = GateState(after.tracks, state.window)
        everybody += flipped
    return everybody


def opened(window, gate=None):
    """Whether the global test lets a perfect visit through."""
    gate = Gate() if gate is None else gate
    return flips(gate, visit(0.0), state=GateState(window=window)) == ("a",)


def test_a_problem_becomes_ready_for_later_steps():
    state, flipped, revoked = Gate().after(OPEN, [visit(0.1), visit(0.3, name="b")])
    assert (flipped, revoked) == (("a",), ())
    assert not OPEN.ready("a")
    assert (OPEN.num_ready, state.num_ready) == (0, 1)
    assert [state.ready(name) for name in "abc"] == [True, False, False]
    # Who is ready already does not become so again.
    assert Gate().after(state, [visit(0.1)])[1] == ()


def test_nobody_is_ready_before_the_window_is_full():
    """The flip falls into the sixth step: five complete ones exist before it."""
    state, flips_at = GateState(), []
    for step in range(1, 8):
        problem = f"p{step}"
        state, flipped, _ = Gate().after(state, [visit(0.0, name=problem)])
        flips_at += [step] * len(flipped)
        assert len(state.window) == min(step, 5)
    assert flips_at == [6, 7]


def test_the_step_itself_is_not_in_the_window_it_is_tested_by():
    """A window of .1s lets a visit through whose step is terrible elsewhere."""
    step = [visit(0.0), visit(*[1.0] * 50, name="b")]
    state, flipped, _ = Gate().after(OPEN, step)
    assert flipped == ("a",)
    assert state.window == ((0.1,),) * 4 + ((0.0, *[1.0] * 50),)
    # (.4 + 50) / 55 = .916: the next step finds the gate shut.
    assert Gate().after(state, [visit(0.0, name="c")])[1] == ()


def test_every_error_counts_alike_in_the_window():
    """Mean of all .19, mean of means .28; and the other way round."""
    many = ((0.1,) * 9, (1.0,), (), (), ())
    assert opened(many)
    assert not opened(((1.0,) * 9, (0.0,), (0.0,), (0.0,), (0.0,)))


@pytest.mark.parametrize(
    ("window", "is_open"),
    [
        # 1 / 5, and tenths whose differences are no tenths: |.3 - .1| < .2 in floats.
        (((0.2,),) * 5, False),
        (((0.3 - 0.1,),) * 5, False),
        (((0.4,), (0.0,), (0.1,), (0.3,), (0.2,)), False),
        (((0.2,),) * 4 + ((0.199,),), True),
        (((0.1,),) * 4, False),
        (((),) * 5, False),
        (((),) * 4 + ((0.1,),), True),
        # Only the last five of six: the first would have shut the gate, or opened it.
        (((1.0,),) + ((0.1,),) * 5, True),
        (((0.0,) * 99,) + ((0.3,),) * 5, False),
    ],
)
def test_the_global_test_is_strict(window, is_open):
    assert opened(window) == is_open


def test_a_step_without_errors_is_a_complete_step():
    state, _, _ = Gate().after(OPEN, [visit(nonzero=False)])
    assert state.window == ((0.1,),) * 4 + ((),)
    state, _, _ = Gate().after(state, [])
    assert state.window == ((0.1,),) * 3 + ((), ())


def test_the_window_and_the_thresholds_are_the_gates_own():
    two = Gate(window=2, tau_global=0.5, tau_local=0.05)
    state = GateState(window=((0.9,), (0.4,), (0.4,)))
    assert flips(two, visit(0.04), state=state) == ("a",)
    assert flips(two, visit(0.06), state=state) == ()
    assert len(two.after(state, [])[0].window) == 2
    assert flips(Gate(), visit(0.04), state=state) == ()


@pytest.mark.parametrize(
    ("errors", "ready"),
    [
        ((0.17,), True),
        ((0.18,), False),
        ((0.1, 0.26), False),
        ((0.1, 0.25), True),
        ((0.0, 0.0, 0.5), True),
        ((0.68 - 0.5,), False),
        ((1.0,), False),
        ((), False),
    ],
)
def test_the_last_visits_mean_is_tested_strictly(errors, ready):
    assert flips(Gate(), visit(*errors)) == (("a",) if ready else ())
    # What was before and the audit's errors decide nothing here.
    assert bool(flips(Gate(), visit(0.9), visit(*errors))) == ready
    assert bool(flips(Gate(), visit(*errors, audited=(0.9,)))) == ready


def test_pooled_errors_need_two_and_room_for_a_standard_error():
    """.1 and .2: mean .15, deviation .0707, standard error .05, sum .2."""
    gate = Gate(rule="pooled", tau_local=0.21)
    assert flips(gate, visit(0.0)) == ()
    assert flips(gate, visit(0.1), visit(0.2)) == ("a",)
    assert flips(gate, visit(0.1, 0.2)) == ("a",)
    assert flips(Gate(rule="pooled", tau_local=0.20), visit(0.1, 0.2)) == ()
    assert flips(Gate(rule="pooled", tau_local=0.19), visit(0.1, 0.2)) == ()
    # Two standard errors: .25. None: .15.
    for count, tau in ((2.0, 0.25), (0.0, 0.15)):
        at = Gate(rule="pooled", tau_local=tau, standard_errors=count)
        above = Gate(rule="pooled", tau_local=tau + 0.001, standard_errors=count)
        assert flips(at, visit(0.1), visit(0.2)) == ()
        assert flips(above, visit(0.1), visit(0.2)) == ("a",)


def test_pooled_errors_are_all_of_a_problem_and_of_it_alone():
    """.0, .1, .1, .2 | mean .1, deviation .0816, standard error .0408, sum .1408."""
    shut = {"banked": False}
    history = [visit(0.0, **shut), visit(0.1, 0.1, **shut), visit(0.2)]
    assert flips(Gate(rule="pooled", tau_local=0.1410), *history) == ("a",)
    assert flips(Gate(rule="pooled", tau_local=0.1405), *history) == ()
    strict = Gate(rule="pooled", tau_local=0.2, min_errors=5)
    assert flips(strict, *history) == ()
    assert flips(strict, *history, visit(0.1)) == ("a",)
    # A bad beginning is held against it, another problem's is not.
    late = Gate(rule="pooled")
    assert flips(late, visit(1.0), visit(0.0), visit(0.0)) == ()
    assert flips(late, visit(1.0, name="b"), visit(0.0), visit(0.0)) == ("a",)
    # Nothing learned at this visit: no flip, whatever the pool says.
    assert flips(late, visit(0.0, 0.0, banked=False), visit()) == ()
    assert flips(late, visit(0.0, 0.0, banked=False), visit(0.0)) == ("a",)


def test_equal_errors_have_no_standard_error():
    gate = Gate(rule="pooled", standard_errors=1000.0)
    assert flips(gate, *[visit(0.1)] * 7) == ("a",)
    assert flips(gate, *[visit(0.18)] * 3) == ()


def test_what_always_fails_is_not_ready():
    """A critic that says 0 of it is right each time: conditions 3 and 4 keep it out."""
    hopeless = visit(0.0, 0.0, nonzero=False, banked=False)
    for gate in (Gate(), Gate(rule="pooled")):
        assert flips(gate, *[hopeless] * 9) == ()
    assert flips(Gate(require_nonzero=False), hopeless) == ()
    assert flips(Gate(require_bank=False), hopeless) == ()
    neither = Gate(require_bank=False, require_nonzero=False)
    assert flips(neither, hopeless) == ("a",)


def test_the_bank_counts_as_it_was_and_a_nonzero_word_counts_for_good():
    assert flips(Gate(), visit(0.0, banked=False)) == ()
    assert flips(Gate(), visit(0.0, nonzero=False)) == ()
    said_once = visit(0.9, banked=False)
    assert flips(Gate(), said_once, visit(0.0, nonzero=False)) == ("a",)
    # Having been in the bank is no state of the gate: the caller says it each time.
    assert flips(Gate(), visit(0.9), visit(0.0, banked=False)) == ()
    assert flips(Gate(require_bank=False), visit(0.0, banked=False)) == ("a",)
    assert flips(Gate(require_nonzero=False), visit(0.0, nonzero=False)) == ("a",)


def test_ready_stays_ready_whatever_comes():
    ready, _, _ = Gate().after(OPEN, [visit(0.0)])
    terrible = visit(1.0, nonzero=False, banked=False, audited=(1.0, 1.0))
    state, flipped, revoked = Gate().after(ready, [terrible])
    assert (flipped, revoked) == ((), ())
    assert state.ready("a")
    assert state.tracks["a"].last_error == 1.0


AUDITS = [((0.17,), 0), ((0.18,), 1), ((0.0, 0.5), 1), ((0.0, 0.3), 0), ((), 0)]


@pytest.mark.parametrize(("audited", "lost"), AUDITS)
def test_an_audit_that_fails_takes_trust_back(audited, lost):
    """The last visit's rule reads the audited errors, not the ones it is told."""
    gate = Gate(revocable=True)
    ready, _, _ = gate.after(OPEN, [visit(0.0)])
    step = [visit(0.0 if lost else 0.9, audited=audited)]
    state, flipped, revoked = gate.after(ready, step)
    assert (flipped, revoked) == ((), ("a",) if lost else ())
    assert state.ready("a") != lost
    assert state.tracks["a"].num_audits == bool(audited)
    assert state.tracks["a"].num_errors == (0 if lost else 2)


def test_trust_is_earned_anew_after_it_was_taken_back():
    gate = Gate(rule="pooled", revocable=True)
    state, _, _ = gate.after(OPEN, [visit(0.0, 0.1)])
    assert state.ready("a")
    # .0, .1, .1: the audit's own .9 is not among the errors that this gate counts.
    state, _, revoked = gate.after(state, [visit(0.1, audited=(0.9,))])
    assert revoked == ()
    # .0, .1, .1, .6: mean .2.
    state, flipped, revoked = gate.after(state, [visit(0.6, audited=(0.6,))])
    assert (flipped, revoked) == ((), ("a",))
    expected = Track(last_error=0.6, nonzero_seen=True, num_audits=2)
    assert state.tracks["a"] == expected
    state = GateState(state.tracks, OPEN.window)
    # One error is too few again; what was said once is still known.
    state, flipped, _ = gate.after(state, [visit(0.0, nonzero=False)])
    assert flipped == ()
    state, flipped, _ = gate.after(state, [visit(0.0, nonzero=False)])
    assert flipped == ("a",)
    assert state.tracks["a"].num_errors == 2


def test_pooled_trust_is_tested_by_audits_only():
    gate = Gate(rule="pooled", revocable=True)
    state, _, _ = gate.after(OPEN, [visit(0.0, 0.0)])
    state, _, revoked = gate.after(state, [visit(1.0)])
    assert revoked == ()
    state, _, revoked = gate.after(state, [visit(audited=(0.0, 0.1))])
    assert revoked == ()
    assert state.tracks["a"].num_audited == 2


@pytest.mark.parametrize(
    ("standard_errors", "audited", "lost"),
    [
        # Mean .3, deviation .283, standard error .2: .1 above 0, .3 without it.
        (1.0, (0.1, 0.5), False),
        (0.0, (0.1, 0.5), True),
        # Mean .4, standard error .1: .3 is not below .18.
        (1.0, (0.3, 0.5), True),
        (3.0, (0.3, 0.5), False),
        # One error has no standard error.
        (1.0, (0.9,), False),
    ],
)
def test_pooled_trust_is_lost_where_audits_fail_clearly(standard_errors, audited, lost):
    """However good the twenty errors were that gave it."""
    gate = Gate(rule="pooled", revocable=True, standard_errors=standard_errors)
    state, flipped, _ = gate.after(OPEN, [visit(*[0.05] * 20)])
    assert flipped == ("a",)
    for error in audited:
        state, _, revoked = gate.after(state, [visit(audited=(error,))])
    assert bool(revoked) == lost
    assert state.ready("a") != lost


def test_an_audit_of_who_is_not_ready_is_only_counted():
    gate = Gate(revocable=True)
    state, flipped, revoked = gate.after(OPEN, [visit(0.0, audited=(1.0,))])
    assert (flipped, revoked) == (("a",), ())
    assert state.tracks["a"].num_audits == 1


def test_a_track_adds_up():
    state, _, _ = Gate().after(OPEN, [visit(0.2, 0.4, nonzero=False, banked=False)])
    state, _, _ = Gate().after(state, [visit(0.5, banked=False, audited=(0.1, 0.2))])
    state, _, _ = Gate().after(state, [visit(nonzero=False)])
    track = state.tracks["a"]
    assert (track.num_errors, track.num_audits) == (3, 1)
    assert (track.last_error, track.nonzero_seen, track.ready) == (0.5, True, False)
    assert track.total == pytest.approx(1.1)
    # .04 + .16 + .25
    assert track.total_squares == pytest.approx(0.45)
    first = Gate().after(OPEN, [visit(0.2, 0.4)])[0].tracks["a"]
    assert first.last_error == pytest.approx(0.3)


NAMES = "abc"
STEPS = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            st.lists(st.sampled_from([0.0, 0.1, 0.2, 1.0]), max_size=3),
            st.booleans(),
            st.booleans(),
            st.lists(st.sampled_from([0.0, 0.1, 1.0]), max_size=2),
        ),
        max_size=3,
        unique_by=lambda row: row[0],
    ),
    max_size=12,
)


def visits_of(rows):
    return [ProblemErrors(n, tuple(e), z, b, tuple(a)) for n, e, z, b, a in rows]


@given(STEPS, st.sampled_from(["last_visit", "pooled"]), st.integers(1, 3))
def test_the_paper_gate_is_monotone_and_its_window_is_of_the_last_steps(
    steps, rule, length
):
    gate, state = Gate(rule=rule, window=length, tau_local=0.3), GateState()
    seen = []
    for rows in steps:
        before = {name for name in NAMES if state.ready(name)}
        state, flipped, revoked = gate.after(state, visits_of(rows))
        ready = {name for name in NAMES if state.ready(name)}
        assert revoked == ()
        assert ready == before | set(flipped)
        assert not before & set(flipped)
        assert state.num_ready == len(ready)
        seen.append(tuple(error for row in rows for error in row[1]))
        assert state.window == tuple(seen[-length:])
        assert not flipped or len(seen) > length
    banked = {row[0] for rows in steps for row in rows if row[3]}
    spoken = {row[0] for rows in steps for row in rows if row[2]}
    assert {name for name in NAMES if state.ready(name)} <= banked & spoken


@settings(deadline=None)
@given(STEPS, st.sampled_from(["last_visit", "pooled"]))
def test_a_revocable_gate_says_who_lost_trust_and_json_keeps_it_all(steps, rule):
    gate = Gate(rule=rule, window=1, tau_local=0.3, revocable=True, tau_global=0.9)
    state = GateState()
    for rows in steps:
        before = {name for name in NAMES if state.ready(name)}
        again = memory_from_json(memory_json(state), GateState)
        assert again == state
        visits = visits_of(rows)
        state, flipped, revoked = gate.after(state, visits)
        assert gate.after(again, visits) == (state, flipped, revoked)
        ready = {name for name in NAMES if state.ready(name)}
        assert ready == (before | set(flipped)) - set(revoked)
        assert set(revoked) <= before & {row[0] for row in rows if row[4]}
        assert not set(flipped) & before


def test_a_problem_comes_once_a_step():
    with pytest.raises(ValueError, match=r"one visit a problem, got \['a', 'a'\]"):
        Gate().after(OPEN, [visit(0.1), visit(0.2)])


@pytest.mark.parametrize("error", [-0.1, math.nan, math.inf])
def test_an_error_is_a_finite_distance(error):
    with pytest.raises(ValueError, match=r"finite and >= 0, got .* for 'a'"):
        visit(0.1, error)
    with pytest.raises(ValueError, match=r"finite and >= 0, got .* for 'a'"):
        visit(audited=(error,))


def test_a_gate_needs_a_window_and_two_errors():
    with pytest.raises(ValueError, match=r"min_errors of 2 or more, got 0 and 2"):
        Gate(window=0)
    with pytest.raises(ValueError, match=r"min_errors of 2 or more, got 5 and 1"):
        Gate(min_errors=1)
