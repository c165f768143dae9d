"""The window's errors stand in for those that a problem does not have yet."""

import pytest

from accredit.critics.readiness import Errors, Gate, GateState, ProblemErrors, Track

OTHERS = ((0.1, 0.1), (0.2, 0.0))
"""Four errors: mean .1, sum of squares .06."""


def gate(**keys):
    plain = {"window": 2, "require_bank": False, "require_nonzero": False}
    return Gate(**{"rule": "pooled", "prior_errors": 4, **plain, **keys})


def visit(*errors, name="a", nonzero=False, banked=False, audited=()):
    return ProblemErrors(name, errors, nonzero, banked, audited)


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


def test_nobody_vouches_for_a_problem_that_lost_trust():
    """One own error of .1 and four like it are enough, but not a second time."""
    wary = gate(revocable=True)
    assert flips(wary, visit(0.1)) == ("a",)
    trusted = GateState({"a": Track(ready=True)}, OTHERS)
    after, _, revoked = wary.after(trusted, [visit(0.9, 0.9, audited=(0.9, 0.9))])
    assert revoked == ("a",)
    again, flipped, _ = wary.after(GateState(after.tracks, OTHERS), [visit(0.1)])
    assert flipped == ()
    # Two own errors are, as for a problem without a prior.
    assert wary.after(GateState(again.tracks, OTHERS), [visit(0.1)])[1] == ("a",)


def test_the_prior_counts_among_the_errors_that_are_needed():
    assert flips(gate(min_errors=5), visit(0.1)) == ("a",)
    assert flips(gate(min_errors=6), visit(0.1)) == ()


def test_a_negative_prior_is_refused():
    with pytest.raises(ValueError, match="prior_errors must be >= 0, got -1"):
        Gate(prior_errors=-1)


def test_errors_add_and_scale():
    both = Errors(2, 0.3, 0.05) + Errors(1, 0.3, 0.09)
    assert both == pytest.approx((3, 0.6, 0.14))
    assert Errors(4, 0.4, 0.06).scaled_to(2) == pytest.approx((2, 0.2, 0.03))
    assert Errors(0, 0.0, 0.0).scaled_to(9) == (0, 0.0, 0.0)
