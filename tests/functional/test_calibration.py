"""Calibration against numbers by hand, invariances, and a table of the AC2 paper."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.functional.calibration import (
    bias,
    brier_score,
    constant_error,
    correlation,
    expected_calibration_error,
    explained_variance,
    mean_absolute_error,
    rank_correlation,
    reliability_bins,
    separation,
)

F64 = torch.float64
NAN = float("nan")
PROBE = Path(__file__).parents[2] / ".." / "shared" / "data" / "ac2_probe_step40.csv"
OF_PAIRS = [
    bias,
    brier_score,
    correlation,
    expected_calibration_error,
    explained_variance,
    mean_absolute_error,
    rank_correlation,
    separation,
]
scores = pytest.mark.parametrize("score", OF_PAIRS, ids=lambda score: score.__name__)


def vector(*numbers):
    return torch.tensor(numbers, dtype=F64)


# Differences v - r: .2, -.3, -.1, .5
VALUES, OUTCOMES = vector(0.2, 0.7, 0.9, 0.5), vector(0, 1, 1, 0)


def test_errors_closed_form():
    assert mean_absolute_error(VALUES, OUTCOMES) == pytest.approx(1.1 / 4)
    assert bias(VALUES, OUTCOMES) == pytest.approx(0.3 / 4)
    # .04 + .09 + .01 + .25
    assert brier_score(VALUES, OUTCOMES) == pytest.approx(0.39 / 4)
    # Mean 2.5: distances 2.5, 1.5, .5, 4.5
    assert constant_error(vector(0, 1, 2, 7)) == pytest.approx(2.25)
    # Means of (.7, .9) and (.2, .5)
    assert separation(VALUES, OUTCOMES) == pytest.approx(0.8 - 0.35)
    assert separation(VALUES, VALUES, threshold=0.5) == pytest.approx(0.8 - 0.35)


def test_correlation_closed_form():
    # Centred -2, -1, 3 and -1, 2, -1: products 2 - 2 - 3 = -3; squares 14 and 6
    found = correlation(vector(1, 2, 6), vector(10, 13, 10))
    assert found == pytest.approx(-3 / 84**0.5)
    # Ranks 0, 1, 2 and .5, 2, .5, centred: -1, 0, 1 and -.5, 1, -.5
    assert rank_correlation(vector(1, 2, 6), vector(10, 13, 10)) == pytest.approx(0)
    # Ranks 0, 1.5, 1.5, 3 and 0, 2, 1, 3, centred on 1.5: 2.25 + 0 + 0 + 2.25
    found = rank_correlation(vector(1, 2, 2, 9), vector(-5, 3, 0, 4))
    assert found == pytest.approx(4.5 / (4.5 * 5) ** 0.5)


def test_b098_explained_variance_of_a_constant_and_of_a_wrong_critic():
    """Case B098: V 0, returns 0, 1, 0, 1: 0; V 1, 0, 1, 0: -3."""
    outcomes = vector(0, 1, 0, 1)
    assert explained_variance(torch.zeros(4, dtype=F64), outcomes) == 0
    assert explained_variance(vector(1, 0, 1, 0), outcomes) == pytest.approx(-3)
    assert explained_variance(outcomes + 7, outcomes) == 1
    # Errors .5, -.5, .5, -.5 leave a quarter of the variance.
    found = explained_variance(vector(0.5, 0.5, 0.5, 0.5), outcomes)
    assert found == 0
    found = explained_variance(vector(0.25, 0.75, 0.25, 0.75), outcomes)
    assert found == pytest.approx(0.75)


@given(st.lists(st.floats(-5, 5), min_size=3, max_size=30), st.integers(0, 2**31))
@settings(max_examples=50, deadline=None)
def test_correlation_is_numpys(numbers, seed):
    outcomes = torch.tensor(numbers, dtype=F64)
    generator = torch.Generator().manual_seed(seed)
    predictions = torch.randn(len(numbers), generator=generator, dtype=F64)
    found = correlation(predictions, outcomes)
    if outcomes.std() < 1e-3:
        return
    expected = np.corrcoef(predictions.numpy(), outcomes.numpy())[0, 1]
    assert found == pytest.approx(expected, abs=1e-9)
    assert correlation(predictions * 3 + 1, outcomes) == pytest.approx(found)
    assert correlation(-predictions, outcomes) == pytest.approx(-found)
    monotone = rank_correlation(predictions.exp(), outcomes)
    assert monotone == pytest.approx(rank_correlation(predictions, outcomes))


def test_a_constant_has_no_correlation():
    tenth = torch.full((3,), 0.1)
    for other in (torch.rand(3), tenth):
        for pairs in ((tenth, other), (other, tenth)):
            assert correlation(*pairs) is None
            assert rank_correlation(*pairs) is None
    assert explained_variance(torch.rand(3), tenth) is None
    assert correlation(vector(1), vector(2)) is None
    assert explained_variance(vector(1), vector(2)) is None


@scores
def test_no_pairs_have_no_score(score):
    nothing = torch.zeros(0)
    assert score(nothing, nothing) is None
    assert constant_error(nothing) is None


def test_one_sided_outcomes_have_no_separation():
    assert separation(VALUES, torch.ones(4)) is None
    assert separation(VALUES, torch.zeros(4)) is None


@scores
def test_nan_among_the_pairs_is_told(score):
    dirty = vector(0.2, NAN, 0.9, 0.5)
    assert math.isnan(score(VALUES, dirty))
    if score is not expected_calibration_error:
        assert math.isnan(score(dirty, OUTCOMES))
        return
    with pytest.raises(ValueError, match="must be numbers, got nan at 1; leave"):
        score(dirty, OUTCOMES)


def test_nan_spoils_the_constant_error_and_only_its_own_bin():
    assert math.isnan(constant_error(vector(0, NAN)))
    found = reliability_bins(VALUES, vector(0, NAN, 1, 0), num_bins=4)
    assert found.mean_outcomes.isnan().tolist() == [False, True, True, False]


@scores
@given(st.permutations(range(4)))
@settings(max_examples=10, deadline=None)
def test_the_order_of_pairs_does_not_matter(score, order):
    found = score(VALUES[list(order)], OUTCOMES[list(order)])
    assert found == pytest.approx(score(VALUES, OUTCOMES), abs=1e-12)


@scores
def test_scores_are_taken_in_double_precision_and_without_gradient(score):
    noise = torch.linspace(0, 1e-3, 5)
    exact, outcomes = (1000 + noise).double(), torch.tensor([1000.0, 0, 1, 2, 1000])
    found = score((1000 + noise).requires_grad_(), outcomes)
    assert isinstance(found, float)
    assert found == score(exact, outcomes.double())


def test_reliability_bins_closed_form():
    values = vector(0.1, 0.25, 0.3, 0.5, 1.0, -2.0, 3.0)
    outcomes = vector(0, 1, 0, 1, 1, 1, 0)
    found = reliability_bins(values, outcomes, num_bins=4)
    # .1, -2 | .25, .3 | .5 | 1, 3: boundaries belong to the bin above
    assert found.counts.tolist() == [2, 2, 1, 2]
    torch.testing.assert_close(found.mean_predictions, vector(-0.95, 0.275, 0.5, 2))
    torch.testing.assert_close(found.mean_outcomes, vector(0.5, 0.5, 1, 0.5))
    # 2 * 1.45 + 2 * .225 + .5 + 2 * 1.5
    error = expected_calibration_error(values, outcomes, num_bins=4)
    assert error == pytest.approx(6.85 / 7)


def test_an_empty_bin_has_no_mean():
    found = reliability_bins(vector(5, 11), vector(6, 9), 3, low=4.0, high=13.0)
    assert found.counts.tolist() == [1, 0, 1]
    assert found.mean_predictions[1].isnan()
    assert found.mean_outcomes[1].isnan()
    error = expected_calibration_error(
        vector(5, 11), vector(6, 9), 3, low=4.0, high=13.0
    )
    assert error == pytest.approx(1.5)
    # Another range, another split: both in the last of the bins over [0, 1].
    assert reliability_bins(vector(5, 11), vector(6, 9), 3).counts.tolist() == [0, 0, 2]


def test_one_bin_gives_the_size_of_the_bias_and_ten_are_the_default():
    assert expected_calibration_error(VALUES, OUTCOMES, 1) == pytest.approx(0.075)
    assert len(reliability_bins(VALUES, OUTCOMES).counts) == 10
    # Each alone in its bin.
    error = expected_calibration_error(VALUES, OUTCOMES)
    assert error == pytest.approx(mean_absolute_error(VALUES, OUTCOMES))


def test_bad_bins_are_named():
    with pytest.raises(ValueError, match=r"got 0 bins in \[0.0, 1.0\]"):
        reliability_bins(VALUES, OUTCOMES, 0)
    with pytest.raises(ValueError, match=r"got 10 bins in \[1.0, 1.0\]"):
        reliability_bins(VALUES, OUTCOMES, low=1.0)


@pytest.mark.skipif(not PROBE.exists(), reason="needs ../shared/data")
def test_the_probe_of_step_40_gives_the_papers_row():
    """ac2.md 9: 94 / 79 / 83 groups; MAE .129, .000, .188, .218; bias +.112."""
    with PROBE.open(encoding="utf-8") as file:
        rows = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]
    parts = {
        "all": rows,
        "f=0": [row for row in rows if row["share_f"] == 0],
        "0<f<1": [row for row in rows if 0 < row["share_f"] < 1],
        "f=1": [row for row in rows if row["share_f"] == 1],
    }
    found = {}
    for name, part in parts.items():
        values = vector(*(row["mean_value"] for row in part))
        rewards = vector(*(row["mean_reward"] for row in part))
        error, shift = mean_absolute_error(values, rewards), bias(values, rewards)
        found[name] = [len(part), error, shift]
    # The table's columns are rounded to four decimals: .16950 is the paper's .169.
    assert found == {
        "all": pytest.approx([256, 0.129, 0.112], abs=5.5e-4),
        "f=0": pytest.approx([94, 0, 0], abs=5.5e-4),
        "0<f<1": pytest.approx([79, 0.188, 0.169], abs=5.5e-4),
        "f=1": pytest.approx([83, 0.218, 0.183], abs=5.5e-4),
    }
