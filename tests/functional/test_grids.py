"""Rounding to a grid, ties down; and a number as shares of its two neighbours."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from accredit.functional.grids import grid_shares, grid_values, on_grid

DTYPES = [torch.float32, torch.float64]


def rounded(numbers, grid_size=11, dtype=torch.float64):
    return on_grid(torch.tensor(numbers, dtype=dtype), grid_size)


@pytest.mark.parametrize("dtype", DTYPES)
def test_ties_go_down_whatever_the_float(dtype):
    """.15, .35 and .85 are no binary numbers: plain rounding takes some of them up."""
    ties = [0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95]
    expected = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    found = rounded(ties, dtype=dtype)
    assert found.dtype == dtype
    assert torch.equal(found, torch.tensor(expected, dtype=dtype))
    # The last bit of a mean decides nothing.
    for towards in (0.0, 1.0):
        beside = torch.tensor(ties, dtype=dtype).nextafter(
            torch.tensor(towards, dtype=dtype)
        )
        tied = on_grid(beside, 11)
        assert torch.equal(tied, torch.tensor(expected, dtype=dtype))


def test_what_is_a_tie_is_a_matter_of_a_billionth():
    near = [0.25 + 5e-10, 0.25 - 5e-10, 0.25 + 2e-9, 0.250001, 0.249999]
    assert rounded(near).tolist() == [0.2, 0.2, 0.3, 0.3, 0.2]
    # 1 / 8 of a coarse grid of five: the billionth is of the value, not of the step.
    assert rounded([0.125 + 8e-10, 0.125 + 1.2e-9], 5).tolist() == [0.0, 0.25]


def test_nearest_by_hand():
    assert rounded([0.31, 0.34, 0.36, 0.39]).tolist() == [0.3, 0.3, 0.4, 0.4]
    # Thirds: 1/6 is a tie, .17 is not; 1/2 is one.
    found = rounded([1 / 6, 0.17, 0.5, 0.51, 5 / 6], 4)
    assert found.tolist() == [0.0, 1 / 3, 1 / 3, 2 / 3, 2 / 3]
    assert rounded([0.5, 0.51], 2).tolist() == [0.0, 1.0]


def test_what_is_outside_is_clipped_and_nan_stays():
    found = rounded([-3.0, -1e-12, 1.0 + 1e-12, 7.0, math.inf, -math.inf, math.nan])
    assert found[:6].tolist() == [0.0, 0.0, 1.0, 1.0, 1.0, 0.0]
    assert bool(found[6].isnan())
    assert not torch.signbit(rounded([0.0, 0.01, -1.0])).any()
    assert rounded([]).shape == (0,)


def test_a_target_carries_no_gradient():
    x = torch.tensor([0.32], requires_grad=True)
    assert not on_grid(x, 11).requires_grad


@pytest.mark.parametrize("dtype", DTYPES)
@given(st.integers(2, 40))
def test_grid_values_stay_where_they_are(dtype, grid_size):
    values = torch.tensor(grid_values(grid_size), dtype=dtype)
    assert torch.equal(on_grid(values, grid_size), values)


def test_the_grid_is_even():
    assert grid_values(5) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert grid_values(11)[3] == 0.3


@given(st.floats(0, 1), st.integers(2, 40))
def test_nothing_on_the_grid_is_nearer(x, grid_size):
    found = rounded([x], grid_size).item()
    values = grid_values(grid_size)
    assert found in values
    assert abs(x - found) <= min(abs(x - value) for value in values) + 2e-9


@given(st.floats(-0.2, 1.2), st.integers(2, 40))
def test_shares_are_of_neighbours_and_give_the_number_back(x, grid_size):
    shares = grid_shares(x, grid_size)
    values = grid_values(grid_size)
    assert len(shares) in (1, 2)
    assert max(shares) - min(shares) == len(shares) - 1
    assert all(share > 0 for share in shares.values())
    assert sum(shares.values()) == pytest.approx(1.0, abs=1e-12)
    mean = sum(share * values[index] for index, share in shares.items())
    assert mean == pytest.approx(min(max(x, 0.0), 1.0), abs=1.1e-6)


def test_shares_by_hand():
    assert grid_shares(0.32, 11) == pytest.approx({3: 0.8, 4: 0.2})
    assert grid_shares(0.9, 4) == pytest.approx({2: 0.3, 3: 0.7})
    assert grid_shares(0.25, 2) == {0: 0.75, 1: 0.25}


@given(st.integers(2, 40), st.data())
def test_a_number_on_the_grid_has_itself(grid_size, data):
    index = data.draw(st.integers(0, grid_size - 1))
    value = grid_values(grid_size)[index]
    assert grid_shares(value, grid_size) == {index: 1.0}
    in_single_precision = torch.tensor(value, dtype=torch.float32).item()
    assert grid_shares(in_single_precision, grid_size) == {index: 1.0}


def test_a_number_beside_the_grid_has_two():
    assert set(grid_shares(0.3 + 9e-7, 11)) == {3}
    assert set(grid_shares(0.3 - 9e-7, 11)) == {3}
    assert set(grid_shares(0.3 + 2e-6, 11)) == {3, 4}
    assert set(grid_shares(0.3 - 2e-6, 11)) == {2, 3}
    assert grid_shares(-0.4, 11) == {0: 1.0}
    assert grid_shares(1.4, 11) == {10: 1.0}


def test_a_grid_holds_two_values_and_numbers_only():
    with pytest.raises(ValueError, match=r"grid_size must be >= 2, got 1"):
        grid_values(1)
    with pytest.raises(ValueError, match=r"grid_size must be >= 2, got 0"):
        rounded([0.5], 0)
    with pytest.raises(ValueError, match=r"grid_size must be >= 2, got 1"):
        grid_shares(0.5, 1)
    with pytest.raises(ValueError, match=r"must be a number .* got nan"):
        grid_shares(math.nan, 11)
