"""How far values are from what came: by hand, with intervals that mean something."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from accredit.functional.calibration import (
    bias,
    correlation,
    explained_variance,
    mean_absolute_error,
)
from accredit.reports.calibration import measures as calibration
from accredit.reports.calibration.measures import (
    ValuedGroups,
    ValuedPrefixes,
    group_figures,
    group_rows,
    prefix_rows,
    reliability,
)
from accredit.reports.calibration.sources import read_table

PROBE = Path(__file__).parents[3] / "shared" / "data" / "ac2_probe_step40.csv"
SECTIONS = ["all", "f=0", "0<f<1", "f=1", "with_reference", "without_reference"]


def valued_groups(rows: list[tuple[float, float, float, bool]]) -> ValuedGroups:
    rewards, values, shares, references = zip(*rows, strict=True)
    return ValuedGroups(
        torch.tensor(rewards, dtype=torch.float64),
        torch.tensor(values, dtype=torch.float64),
        torch.tensor(shares, dtype=torch.float64),
        torch.tensor(references),
    )


def correlated_pairs(
    num_groups: int, each: int, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Values, outcomes and groups: outcomes are shared within a group."""
    rng = np.random.default_rng(seed)
    wins = rng.random(num_groups) < 0.4
    outcomes = np.repeat(wins.astype(float), each)
    values = 0.3 * outcomes + 0.5 * rng.random(num_groups * each)
    groups = np.repeat(np.arange(num_groups), each)
    return torch.tensor(values), torch.tensor(outcomes), torch.tensor(groups)


@pytest.mark.skipif(
    not PROBE.exists(), reason="the probe is not beside this checkout (../shared/data)"
)
def test_the_papers_row_of_step_40_to_three_decimals():
    figures = group_figures(read_table(PROBE).groups)
    assert {name: row["groups"] for name, row in figures.items()} == {
        "all": 256,
        "f=0": 94,
        "0<f<1": 79,
        "f=1": 83,
        "with_reference": 207,
        "without_reference": 49,
    }
    mae = {name: round(figures[name]["mae"], 3) for name in SECTIONS[:4]}
    assert mae == {"all": 0.129, "f=0": 0.0, "0<f<1": 0.188, "f=1": 0.218}
    bias = {name: figures[name]["bias"] for name in SECTIONS[:4]}
    # the cells of the probe are rounded, and this one lies at .1695
    assert bias["all"] == pytest.approx(0.112, abs=5e-4)
    assert bias["f=0"] == 0.0
    assert bias["0<f<1"] == pytest.approx(0.169, abs=6e-4)
    assert bias["f=1"] == pytest.approx(0.183, abs=5e-4)


def test_figures_by_hand_in_every_section():
    # (mean reward, mean value, f, reference)
    rows = [
        (1.0, 1.0, 0.0, True),
        (0.0, 0.0, 0.0, False),
        (0.5, 0.9, 0.25, True),
        (0.25, 0.15, 1.0, False),
        (0.75, 0.85, 1.0, False),
    ]
    figures = group_figures(valued_groups(rows))
    assert list(figures) == SECTIONS
    assert [figures[name]["groups"] for name in SECTIONS] == [5, 2, 1, 2, 2, 3]
    assert figures["all"]["mae"] == pytest.approx(0.6 / 5)
    assert figures["all"]["bias"] == pytest.approx(0.4 / 5)
    # mean reward .5, distances .5, .5, 0, .25, .25
    assert figures["all"]["constant_mae"] == pytest.approx(0.3)
    assert figures["f=0"]["mae"] == 0.0
    assert figures["0<f<1"]["bias"] == pytest.approx(0.4)
    assert figures["f=1"]["mae"] == pytest.approx(0.1)
    assert figures["f=1"]["bias"] == pytest.approx(0.0)
    assert figures["f=1"]["correlation"] == pytest.approx(1.0)
    assert figures["with_reference"]["mae"] == pytest.approx(0.2)
    assert figures["without_reference"]["mae"] == pytest.approx(0.2 / 3)


def test_what_does_not_exist_is_none_and_never_nan():
    alone = group_figures(valued_groups([(0.5, 0.7, 1.0, False)]))
    assert alone["all"]["correlation"] is None
    assert alone["all"]["mae"] == pytest.approx(0.2)
    nothing = dict.fromkeys(("mae", "bias", "correlation", "constant_mae"))
    assert alone["f=0"] == {"groups": 0} | nothing
    constant = group_figures(valued_groups([(0.5, 0.7, 1.0, False)] * 3))
    assert constant["all"]["correlation"] is None
    assert json.loads(json.dumps(alone, allow_nan=False)) == alone


def test_a_groups_interval_holds_its_figure_and_narrows_with_groups():
    rng = np.random.default_rng(1)
    rows = [
        (r, min(1.0, r * 0.8 + 0.2 * rng.random()), 1.0, False)
        for r in rng.random(400).tolist()
    ]
    wide = group_rows(valued_groups(rows[:25]), seed=0)["all"]
    narrow = group_rows(valued_groups(rows), seed=0)["all"]
    for name in ("mae", "bias", "correlation", "constant_mae"):
        low, high = narrow.intervals[name]
        assert low < narrow.figures[name] < high
        few_low, few_high = wide.intervals[name]
        assert high - low < 0.5 * (few_high - few_low)


def test_intervals_cover_the_truth_as_often_as_they_say(monkeypatch):
    """Bias of 60 groups with a true one of .1: 95% of 200 intervals, within luck."""
    monkeypatch.setattr(calibration, "NUM_RESAMPLES", 400)
    hits = 0
    for seed in range(200):
        errors = np.random.default_rng(seed).normal(0.1, 0.2, 60)
        rows = [(0.0, float(e), 1.0, False) for e in errors]
        low, high = group_rows(valued_groups(rows), seed)["all"].intervals["bias"]
        hits += low <= 0.1 <= high
    assert 180 <= hits <= 198


@pytest.mark.parametrize(("num_groups", "has_interval"), [(1, 0), (4, 0), (5, 1)])
def test_fewer_than_five_groups_have_figures_and_no_interval(num_groups, has_interval):
    rows = [(i / 9, i / 9 + 0.2, 1.0, False) for i in range(num_groups)]
    row = group_rows(valued_groups(rows), seed=0)["all"]
    assert row.figures["mae"] == pytest.approx(0.2)
    assert bool(row.intervals) == bool(has_interval)
    values, outcomes, groups = correlated_pairs(num_groups, 20)
    prefixes = ValuedPrefixes(values, outcomes, torch.zeros_like(groups), groups)
    assert bool(prefix_rows(prefixes, 0)["all"].intervals) == bool(has_interval)


def test_a_tenth_that_few_groups_reach_has_no_interval():
    values, outcomes, groups = correlated_pairs(8, 10)
    late = (groups < 3) & (torch.arange(80) % 10 > 4)
    prefixes = ValuedPrefixes(values, outcomes, torch.where(late, 9, 0), groups)
    rows = prefix_rows(prefixes, seed=0)
    assert rows["0..10%"].intervals and rows["90..100%"].figures["prefixes"] == 15
    assert rows["90..100%"].intervals == {}


def test_the_excess_pairs_the_errors_of_each_resample(monkeypatch):
    """A bootstrap that draws every group once gives MAE less the constant's."""
    monkeypatch.setattr(
        calibration, "resamples", lambda n, seed, count: [np.arange(n)[None, :]]
    )
    rows = [(i % 2, 0.3 + 0.1 * i, 1.0, False) for i in range(6)]
    row = group_rows(valued_groups(rows), seed=0)["all"]
    expected = row.figures["mae"] - row.figures["constant_mae"]
    assert row.intervals["excess"] == pytest.approx((expected, expected))
    assert abs(expected) > 0.01


def test_the_seed_decides_the_intervals_and_nothing_else():
    rows = valued_groups([(i / 9, (i % 4) / 3, 1.0, False) for i in range(10)])
    first, same, other = (group_rows(rows, seed)["all"] for seed in (3, 3, 4))
    assert first == same
    assert first.figures == other.figures
    assert first.intervals != other.intervals


def test_prefix_figures_are_those_of_all_and_of_each_tenth():
    values, outcomes, groups = correlated_pairs(12, 40)
    deciles = torch.arange(len(values)) % 10
    rows = prefix_rows(ValuedPrefixes(values, outcomes, deciles, groups), seed=0)
    assert list(rows) == ["all", *(f"{i}..{i + 10}%" for i in range(0, 100, 10))]
    for name, kept in (("all", deciles >= 0), ("30..40%", deciles == 3)):
        v, r = values[kept], outcomes[kept]
        assert rows[name].figures == {
            "prefixes": len(v),
            "mae": pytest.approx(mean_absolute_error(v, r)),
            "bias": pytest.approx(bias(v, r)),
            "explained_variance": pytest.approx(explained_variance(v, r)),
            "correlation": pytest.approx(correlation(v, r)),
        }
        for key, (low, high) in rows[name].intervals.items():
            assert low < rows[name].figures[key] < high


def test_the_resampled_figures_are_the_figures(monkeypatch):
    """A bootstrap that draws every group once gives back what was measured."""
    values, outcomes, groups = correlated_pairs(6, 30)
    monkeypatch.setattr(
        calibration, "resamples", lambda n, seed, count: [np.arange(n)[None, :]]
    )
    prefixes = ValuedPrefixes(values, outcomes, torch.zeros_like(groups), groups)
    row = prefix_rows(prefixes, seed=0)["all"]
    assert set(row.intervals) == {"mae", "bias", "explained_variance", "correlation"}
    for key, (low, high) in row.intervals.items():
        assert low == high == pytest.approx(row.figures[key])


def test_prefixes_of_one_group_are_not_independent():
    """Forty prefixes that share their outcome tell hardly more than one of them."""
    values, outcomes, groups = correlated_pairs(16, 40)
    places = torch.zeros_like(groups)
    shared = prefix_rows(ValuedPrefixes(values, outcomes, places, groups), 0)["all"]
    apart = torch.arange(len(values))
    naive = prefix_rows(ValuedPrefixes(values, outcomes, places, apart), 0)["all"]
    assert shared.figures == naive.figures
    widths = [
        high - low for low, high in (r.intervals["bias"] for r in (shared, naive))
    ]
    assert widths[0] > 3.0 * widths[1]


def test_a_tenth_that_no_rollout_reaches_is_empty():
    values, outcomes, groups = correlated_pairs(6, 2)
    places = torch.where(torch.arange(12) % 2 == 0, 0, 5)
    rows = prefix_rows(ValuedPrefixes(values, outcomes, places, groups), 0)
    assert rows["10..20%"].figures["prefixes"] == 0
    assert rows["10..20%"].figures["mae"] is None
    assert rows["10..20%"].intervals == {}
    assert rows["50..60%"].figures["prefixes"] == 6
    assert rows["50..60%"].intervals


def test_reliability_is_what_came_by_what_was_said():
    values = torch.tensor([0.05, 0.07, 0.95, 0.95, 0.95, 0.95, 0.95, 1.0]).double()
    outcomes = torch.tensor([0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0]).double()
    groups = torch.tensor([0, 1, 0, 1, 2, 3, 4, 4])
    first, last = reliability(values, outcomes, groups, 0)
    assert (first.count, first.outcome) == (2, 0.5)
    assert first.value == pytest.approx(0.06)
    assert last.count == 6 and last.outcome == pytest.approx(5 / 6)
    assert last.value == pytest.approx(5.75 / 6)
    assert last.interval is not None and last.interval[0] <= 5 / 6 <= last.interval[1]
    # prefixes of two groups: too few for an interval
    assert first.interval is None


def test_bins_lie_where_the_values_do():
    """Ten bins over a corner of [0, 1], not one."""
    values = torch.linspace(0.02, 0.12, 50).double()
    points = reliability(values, (values > 0.1).double(), torch.arange(50), 0)
    assert [point.count for point in points] == [5] * 10
    assert points[0].value == pytest.approx(float(values[:5].mean()))
    alone = reliability(values[:1], values[:1], torch.arange(1), 0)
    assert [(point.count, point.interval) for point in alone] == [(1, None)]


def test_reliability_covers_values_outside_the_rewards():
    values = torch.tensor([-1.0, 0.4, 3.0], dtype=torch.float64)
    outcomes = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    points = reliability(values, outcomes, torch.arange(3), 0)
    assert [point.value for point in points] == pytest.approx([-1.0, 0.4, 3.0])
    assert [point.interval for point in points] == [None] * 3
    assert reliability(values[:0], outcomes[:0], torch.arange(0), 0) == []
