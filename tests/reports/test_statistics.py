"""Closed forms and limits of the evaluation statistics."""

from itertools import combinations
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.reports.statistics import (
    Estimate,
    best_at_k,
    bootstrap,
    interquartile_mean,
    interquartile_means,
    paired_difference,
    pass_at_k,
    wilson,
)

REWARDS = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=7)


def test_pass_at_k_closed_form():
    # 5 samples, 2 passed: 1 - C(3, 2) / C(5, 2) = 1 - 3 / 10
    assert pass_at_k(5, 2, 2) == pytest.approx(0.7)
    # C(3, 3) / C(5, 3) = 1 / 10 draws miss both passes
    assert pass_at_k(5, 2, 3) == pytest.approx(0.9)


def test_pass_at_1_is_the_share_and_at_n_whether_any_passed():
    assert pass_at_k(7, 3, 1) == pytest.approx(3 / 7)
    assert pass_at_k(7, 1, 7) == 1.0
    assert pass_at_k(7, 0, 7) == 0.0


def test_pass_at_k_is_exact_for_thousands_of_samples():
    # 1 - (n - k) / n with a single pass
    assert pass_at_k(5000, 1, 1000) == pytest.approx(0.2, abs=1e-15)


def test_pass_at_k_is_unbiased_where_the_plug_in_is_not():
    # success probability 1/2, n = 3, k = 2: truth 1 - 1/4
    binomial = [1 / 8, 3 / 8, 3 / 8, 1 / 8]
    expected = sum(p * pass_at_k(3, c, 2) for c, p in enumerate(binomial))
    plug_in = sum(p * (1 - (1 - c / 3) ** 2) for c, p in enumerate(binomial))
    assert expected == pytest.approx(0.75)
    assert plug_in == pytest.approx(2 / 3)


def test_best_at_k_closed_form():
    # pairs of (.1, .5, .7): .5, .7, .7
    assert best_at_k([0.7, 0.1, 0.5], 2) == pytest.approx(1.9 / 3)


@given(REWARDS, st.data())
def test_best_at_k_is_the_mean_maximum_over_all_subsets(rewards, data):
    k = data.draw(st.integers(1, len(rewards)))
    subsets = [max(subset) for subset in combinations(rewards, k)]
    assert best_at_k(rewards, k) == pytest.approx(fmean(subsets))


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_best_of_binary_rewards_is_pass_at_k(passed, data):
    k = data.draw(st.integers(1, len(passed)))
    best = best_at_k([float(p) for p in passed], k)
    assert best == pytest.approx(pass_at_k(len(passed), sum(passed), k))


@pytest.mark.parametrize("k", [0, 4])
def test_k_outside_the_samples_is_refused(k):
    with pytest.raises(ValueError, match=rf"got k = {k} with 3"):
        pass_at_k(3, 1, k)
    with pytest.raises(ValueError, match=rf"got k = {k} with 3"):
        best_at_k([0.0, 1.0, 1.0], k)


def test_more_passes_than_samples_are_refused():
    with pytest.raises(ValueError, match=r"num_passed must be in \[0, 3\], got 4"):
        pass_at_k(3, 4, 1)


def test_interquartile_mean_closed_form():
    # 8 values: the middle four are 3, 5, 7, 11
    values = np.array([100.0, 5.0, 3.0, 1.0, 11.0, 7.0, 2.0, 50.0])
    assert interquartile_mean(values) == pytest.approx(6.5)
    # 5 values, cut 1.25 a side: (.75 * 2 + 3 + .75 * 7) / 2.5
    fractional = np.array([1.0, 2.0, 3.0, 7.0, 90.0])
    assert interquartile_mean(fractional) == pytest.approx(3.9)


@given(st.integers(1, 30))
def test_interquartile_mean_of_a_constant_is_the_constant(n):
    assert interquartile_mean(np.full(n, 0.3)) == pytest.approx(0.3)


def test_wilson_closed_form():
    # p = .3, n = 10, z = 1.959964: centre (.3 + .192073) / 1.384146 = .355506,
    # reach 1.959964 sqrt(.021 + .00960365) / 1.384146 = .247714
    estimate = wilson(3, 10)
    assert estimate.value == pytest.approx(0.3)
    assert estimate.low == pytest.approx(0.107791, abs=1e-5)
    assert estimate.high == pytest.approx(0.603219, abs=1e-5)


def test_wilson_claims_no_certainty_at_the_ends():
    # 0 of n: high = z^2 / (n + z^2) = 3.841459 / 13.841459
    none, all_ = wilson(0, 10), wilson(10, 10)
    assert (none.low, none.high) == (0.0, pytest.approx(0.277533, abs=1e-5))
    assert (all_.low, all_.high) == (pytest.approx(0.722467, abs=1e-5), 1.0)


def test_bootstrap_of_two_problems_covers_the_three_possible_means():
    # resampled means are 0, .5, 1 with 1/4, 1/2, 1/4: the 2.5% tails are 0 and 1
    estimate = bootstrap(np.array([0.0, 1.0]), seed=3)
    assert (estimate.value, estimate.low, estimate.high) == (0.5, 0.0, 1.0)
    # the 30% and 70% quantiles both lie in the middle half
    narrow = bootstrap(np.array([0.0, 1.0]), seed=3, level=0.4)
    assert (narrow.low, narrow.high) == (0.5, 0.5)


def test_bootstrap_agrees_with_the_normal_interval_for_many_problems():
    values = np.random.default_rng(0).normal(2.0, 3.0, 400)
    estimate = bootstrap(values, seed=1)
    reach = 1.96 * values.std() / 20.0
    assert estimate.low == pytest.approx(values.mean() - reach, abs=0.03)
    assert estimate.high == pytest.approx(values.mean() + reach, abs=0.03)


def test_bootstrap_depends_on_its_seed_alone():
    values = np.random.default_rng(0).normal(size=20)
    np.random.seed(1)
    first = bootstrap(values, seed=4)
    np.random.seed(2)
    assert bootstrap(values, seed=4) == first
    assert bootstrap(values, seed=5) != first


def test_bootstrap_in_blocks_has_the_same_width(monkeypatch):
    values = np.random.default_rng(0).normal(size=30)
    whole = bootstrap(values, seed=1)
    monkeypatch.setattr("accredit.reports.statistics.BLOCK", 90)
    blocks = bootstrap(values, seed=1)
    assert blocks.low == pytest.approx(whole.low, abs=0.05)
    assert blocks.high == pytest.approx(whole.high, abs=0.05)


def test_bootstrap_of_the_interquartile_mean_ignores_an_outlier():
    values = np.array([*np.linspace(0.4, 0.6, 19), 1000.0])
    robust = bootstrap(values, seed=2, statistic=interquartile_means)
    assert robust.high is not None and robust.high < 1.0
    plain = bootstrap(values, seed=2)
    assert plain.high is not None and plain.high > 100.0


def test_one_problem_has_no_interval():
    assert bootstrap(np.array([0.4]), seed=0) == Estimate(0.4)


def test_paired_difference_removes_the_spread_between_problems():
    before = np.random.default_rng(0).uniform(0.0, 1.0, 50)
    gain = 0.05 + 0.001 * np.arange(50.0)
    estimate = paired_difference(before, before + gain, seed=0)
    assert estimate.value == pytest.approx(0.0745)
    assert estimate.low is not None and estimate.low > 0.06
    unpaired = bootstrap(before, seed=0)
    assert unpaired.high is not None and unpaired.low is not None
    assert unpaired.high - unpaired.low > 0.1


def test_unpaired_problems_are_refused():
    with pytest.raises(ValueError, match="same problems in both, got 2 and 3"):
        paired_difference(np.zeros(2), np.zeros(3), seed=0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array([]), "at least one problem, got none"),
        (np.array([0.0, np.nan]), "finite, got nan at problem 1"),
    ],
)
def test_values_that_cannot_be_averaged_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        bootstrap(values, seed=0)


def test_estimates_read_well():
    assert str(Estimate(0.25, 0.125, 0.5)) == "0.250 [0.125, 0.500]"
    assert str(Estimate(0.25)) == "0.250"
    with pytest.raises(ValueError, match="finite"):
        Estimate(float("nan"))
    with pytest.raises(ValueError, match="two ends"):
        Estimate(0.5, low=0.1)
