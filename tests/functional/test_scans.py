"""Sums along steps: closed forms, and columns of zeros that change no bit."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.functional.scans import (
    has_next,
    require_right_padding,
    reverse_scan,
    window_sums,
)

F64 = torch.float64


def row(*numbers):
    return torch.tensor([numbers], dtype=F64)


def test_reverse_scan_closed_form():
    # 5; 3 + .5 * 5 = 5.5; 2 + .1 * 5.5 = 2.55. The last decay meets nothing.
    found = reverse_scan(row(2, 3, 5), row(0.1, 0.5, 0.9))
    torch.testing.assert_close(found, row(2.55, 5.5, 5))
    assert reverse_scan(torch.zeros(2, 0), torch.zeros(2, 0)).shape == (2, 0)


def test_window_sums_closed_form():
    x = row(2, 3, 5, 7, 11)
    for width, expected in (
        (1, row(2, 3, 5, 7, 11)),
        (2, row(5, 8, 12, 18, 11)),
        (3, row(10, 15, 23, 18, 11)),
        (5, row(28, 26, 23, 18, 11)),
        (10**12, row(28, 26, 23, 18, 11)),
    ):
        assert torch.equal(window_sums(x, width), expected)
    assert window_sums(torch.zeros(2, 0), 3).shape == (2, 0)


@given(st.integers(1, 9), st.integers(1, 12), st.integers(0, 5), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_window_sums_are_sums_of_slices_whatever_zeros_follow(steps, width, pad, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, steps, generator=generator, dtype=F64)
    found = window_sums(x, width)
    slices = [x[:, t : t + width].sum(1) for t in range(steps)]
    torch.testing.assert_close(found, torch.stack(slices, 1))
    zeros = torch.zeros(2, pad, dtype=F64)
    padded = window_sums(torch.cat([x, zeros], 1), width)
    assert torch.equal(padded, torch.cat([found, zeros], 1))


def test_a_step_has_a_next_where_a_real_one_follows():
    mask = torch.tensor([[True, True, True], [True, False, False], [False] * 3])
    expected = [[True, True, False], [False] * 3, [False] * 3]
    assert has_next(mask).tolist() == expected


def test_a_gap_is_refused_and_right_padding_is_not():
    require_right_padding(torch.tensor([[True, False], [False, False], [True, True]]))
    require_right_padding(torch.zeros(2, 0, dtype=torch.bool))
    mask = torch.tensor([[True, True, True], [True, False, True]])
    with pytest.raises(ValueError, match="got a gap in row 1; pack the sampled tokens"):
        require_right_padding(mask)
