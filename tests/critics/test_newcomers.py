"""Errors of other problems stand in for those that a problem does not have yet."""

import json
import math

import pytest

from accredit.critics.readiness import Errors, Gate, GateState, Track, Visit

OTHERS = ((0.1, 0.1), (0.2, 0.0))
"""Four errors: mean .1, sum of squares .06."""


def gate(**keys):
    plain = {"window": 2, "require_bank": False, "require_nonzero": False}
    return Gate(**{"rule": "pooled", "prior_errors": 4, **plain, **keys})


def visit(*errors, name="a", nonzero=False, banked=False, audited=()):
    return Visit(name, errors, nonzero, banked, audited)


def flips(gate, *visits, window=OTHERS):
    return gate.after(GateState(window=window), visits)[1]


def test_the_windows_errors_are_added_to_a_problems_own():
    """.4 and four of mean .1: mean .16, squares .22, error of the mean sqrt(.0046).

    variance (.22 - .8 x .16) / 4 = .023, of the mean .0046: .16 + .0678 = .2278
    """
    assert flips(gate(tau_local=0.228), visit(0.4)) == ("a",)
    assert flips(gate(tau_local=0.2277), visit(0.4)) == ()
    # Alone it has no standard error, and is tested not at all.
    assert flips(gate(tau_local=2.0, prior_errors=0), visit(0.4)) == ()


def test_as_many_as_are_asked_for_whatever_the_window_holds():
    """Two of mean .1: (.4 + .2) / 3 = .2; eight: (.4 + .8) / 9 = .1333"""
    for num, mean in ((2, 0.2), (8, 0.4 / 3)):
        at = {"standard_errors": 0.0, "prior_errors": num}
        assert flips(gate(tau_local=mean + 1e-6, **at), visit(0.4)) == ("a",)
        assert flips(gate(tau_local=mean, **at), visit(0.4)) == ()


def test_the_window_is_that_of_the_steps_before():
    """A neighbour that is far off in this very step is no prior of it."""
    step = [visit(0.1), visit(1.0, name="b")]
    after, flipped, _ = gate(tau_local=0.2).after(GateState(window=OTHERS), step)
    assert flipped == ("a",)
    # (.2 + 0 + .1 + 1) / 4 = .325 is the mean from now on.
    assert gate(tau_local=0.2).after(after, [visit(0.1, name="c")])[1] == ()


def test_a_problem_that_was_never_visited_is_ready_where_all_others_are():
    """Of (.2, 0, .1): their mean .1 and its error, sqrt(.02 / 2 / 3)."""
    state, _, _ = gate().after(GateState(window=OTHERS), [visit(0.1)])
    assert state.newcomers
    assert state.ready("never seen")
    # It is not counted before it is visited.
    assert state.num_ready == 1
    bound = 0.1 + math.sqrt(0.02 / 2 / 3)
    for tau, trusts in ((bound + 1e-6, True), (bound, False)):
        after, _, _ = gate(tau_local=tau).after(GateState(window=OTHERS), [visit(0.1)])
        assert after.newcomers == trusts


@pytest.mark.parametrize(
    ("keys", "window"),
    [
        ({"prior_errors": 0}, OTHERS),
        ({"require_bank": True}, OTHERS),
        ({"require_nonzero": True}, OTHERS),
        ({"rule": "last_visit"}, OTHERS),
        # (.2 + 0 + .1) / 3 = .1
        ({"tau_global": 0.1}, OTHERS),
        # Two complete steps of three.
        ({"window": 3}, OTHERS[1:]),
    ],
)
def test_newcomers_wait_where_the_rule_asks_for_more(keys, window):
    start = GateState(window=window)
    assert gate().after(start, [visit(0.1)])[0].newcomers
    state, _, _ = gate(**keys).after(start, [visit(0.1)])
    assert not state.newcomers
    assert not state.ready("never seen")


def test_a_newcomer_becomes_ready_by_its_first_visit():
    trusted = GateState(window=OTHERS, newcomers=True)
    after, flipped, revoked = gate().after(trusted, [visit()])
    assert (flipped, revoked) == (("a",), ())
    assert after.tracks["a"] == Track(ready=True)
    # And loses trust like all others: audits count from its first visit.
    wary = gate(revocable=True)
    audited = visit(0.9, 0.9, audited=(0.9, 0.9))
    after, flipped, revoked = wary.after(trusted, [audited])
    assert (flipped, revoked) == ((), ("a",))
    assert not after.ready("a")


def test_one_error_alone_trusts_nobody():
    state = GateState(window=((), ()))
    assert not gate().after(state, [visit(0.0)])[0].newcomers
    assert gate().after(state, [visit(0.0, 0.0)])[0].newcomers


def test_newcomers_are_kept_between_steps():
    state, _, _ = gate().after(GateState(window=OTHERS), [visit(0.1)])
    assert GateState.from_json(json.loads(json.dumps(state.to_json()))) == state
    assert state.newcomers


def test_a_negative_prior_is_refused():
    with pytest.raises(ValueError, match="prior_errors must be >= 0, got -1"):
        Gate(prior_errors=-1)


def test_errors_add_and_scale():
    both = Errors(2, 0.3, 0.05) + Errors(1, 0.3, 0.09)
    assert both == pytest.approx((3, 0.6, 0.14))
    assert Errors(4, 0.4, 0.06).scaled_to(2) == pytest.approx((2, 0.2, 0.03))
    assert Errors(0, 0.0, 0.0).scaled_to(9) == (0, 0.0, 0.0)
