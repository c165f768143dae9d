"""The one log-odds ratio that puts a critic right, by hand and as a root."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from accredit.functional.recalibration import (
    SMALLEST,
    log_odds_ratio,
    recalibrated,
)


def logit(p):
    return math.log(p / (1 - p))


def ratio(rows, **keys):
    values, outcomes, weights = torch.tensor(rows, dtype=torch.float64).T
    return log_odds_ratio(values, outcomes, weights, **keys)


def test_without_a_prior_to_speak_of_one_value_moves_to_what_came():
    """logit .8 - logit .2 = 2 log 4"""
    found = ratio([(0.2, 0.8, 50.0)], prior_weight=1e-9)
    assert found == pytest.approx(2 * math.log(4.0), abs=1e-6)


def test_odds_of_all_values_are_moved_by_one_factor():
    """Odds 1/4 and 1 become 1 and 4 by rho = 4: .5 and .8."""
    rows = [(0.2, 0.5, 10.0), (0.5, 0.8, 10.0)]
    assert ratio(rows, prior_weight=1e-9) == pytest.approx(math.log(4.0), abs=1e-6)


def test_the_prior_holds_back():
    """10 (.8 - sigmoid(b)) = k b: for b = log 3, sigmoid is 3/4 and k is .5 / log 3."""
    k = 0.5 / math.log(3.0)
    assert ratio([(0.5, 0.8, 10.0)], prior_weight=k) == pytest.approx(math.log(3.0))


def test_weights_count_rewards():
    one = ratio([(0.3, 0.5, 8.0), (0.6, 0.9, 1.0)])
    many = ratio([(0.3, 0.5, 1.0)] * 8 + [(0.6, 0.9, 1.0)])
    assert one == pytest.approx(many)
    assert one != pytest.approx(ratio([(0.3, 0.5, 1.0), (0.6, 0.9, 1.0)]), abs=0.01)


def test_nothing_known_moves_nothing():
    empty = torch.zeros(0)
    assert log_odds_ratio(empty, empty, empty) == 0.0


def test_who_is_right_is_left():
    assert ratio([(0.2, 0.2, 9.0), (0.7, 0.7, 3.0)]) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(("value", "outcome"), [(0.0, 1.0), (1.0, 0.0)])
def test_sure_and_wrong_is_finite(value, outcome):
    """From the flat end of a sigmoid a full Newton step would leap past the root."""
    found = ratio([(value, outcome, 1000.0)])
    clamped = min(max(value, SMALLEST), 1 - SMALLEST)
    moved = 1 / (1 + math.exp(-(logit(clamped) + found)))
    assert 1000.0 * (outcome - moved) == pytest.approx(found, abs=1e-6)
    assert math.copysign(1.0, found) == (1.0 if outcome else -1.0)


def test_a_prior_of_nothing_is_refused():
    with pytest.raises(ValueError, match="prior_weight must be > 0, got 0"):
        ratio([(0.5, 1.0, 1.0)], prior_weight=0.0)


PAIRS = st.lists(
    st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0.5, 20)),
    min_size=1,
    max_size=30,
)


@given(rows=PAIRS, prior=st.floats(0.1, 10))
def test_it_is_the_root_of_the_slope(rows, prior):
    found = ratio(rows, prior_weight=prior)
    slope = -prior * found
    for value, outcome, weight in rows:
        clamped = min(max(value, SMALLEST), 1 - SMALLEST)
        slope += weight * (outcome - 1 / (1 + math.exp(-(logit(clamped) + found))))
    assert slope == pytest.approx(0.0, abs=1e-6)


@given(rows=PAIRS)
def test_better_outcomes_never_lower_it(rows):
    better = [(value, 1.0, weight) for value, _, weight in rows]
    assert ratio(better) >= ratio(rows) - 1e-9


def test_values_move_in_their_odds():
    """Odds 1/4, 1, 4 by rho = 4: 1, 4, 16."""
    found = recalibrated(torch.tensor([[0.2, 0.5], [0.8, torch.nan]]), math.log(4.0))
    assert found.dtype == torch.float32
    assert found[0].tolist() == pytest.approx([0.5, 0.8])
    assert float(found[1, 0]) == pytest.approx(16 / 17)
    assert found[1, 1].isnan()


def test_no_shift_leaves_every_bit():
    values = torch.tensor([0.0, 1.0, 0.3, torch.nan])
    assert recalibrated(values, 0.0) is values


@given(
    values=st.lists(st.floats(0, 1), min_size=2, max_size=20), shift=st.floats(-6, 6)
)
def test_order_stays(values, shift):
    said = torch.tensor(sorted(values), dtype=torch.float64)
    moved = recalibrated(said, shift)
    assert (moved.diff() >= 0).all()
    assert ((moved - said) * math.copysign(1.0, shift) >= 0).all()
    inside = (said > SMALLEST) & (said < 1 - SMALLEST)
    odds = (moved / (1 - moved) / (said / (1 - said)))[inside]
    assert odds.log().tolist() == pytest.approx([shift] * len(odds), abs=1e-6)


def test_nothing_moves_against_the_shift():
    """0 is taken for .001, and 1 for .999, but only to be moved away from there."""
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    up, down = recalibrated(ends, 1e-3), recalibrated(ends, -1e-3)
    assert (float(up[1]), float(down[0])) == (1.0, 0.0)
    assert float(up[0]) == pytest.approx(0.001, rel=2e-3)
    assert float(down[1]) == pytest.approx(0.999, rel=2e-3)


@pytest.mark.parametrize("row", [(math.nan, 1.0, 1.0), (0.5, math.inf, 1.0)])
def test_what_is_not_finite_is_refused(row):
    with pytest.raises(ValueError, match="must be finite"):
        ratio([row])
