"""Rows into token-budget micro-batches."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.models.micro_batches import micro_batches, row_parts

LENGTHS = st.lists(st.integers(1, 40), max_size=60)


def test_longest_rows_go_first_and_ties_keep_their_order() -> None:
    # Sorted: 7 (row 1), 5 (rows 0, 3), 2 (rows 2, 4). Budget 10: one row of 7, two of
    # 5, then both of 2.
    assert micro_batches([5, 7, 2, 5, 2], 10) == [[1], [0, 3], [2, 4]]


def test_a_row_above_the_budget_goes_alone() -> None:
    assert micro_batches([3, 50, 4], 10) == [[1], [2, 0]]


def test_a_budget_larger_than_the_batch_makes_one_micro_batch() -> None:
    assert micro_batches([3, 4], 10**9) == [[1, 0]]


def test_padding_that_costs_more_than_a_pass_begins_another() -> None:
    # Beside 200, rows of 150, 130 and 100 leave 50, 70 and 100 tokens of padding: the
    # third would make 220 of at most 128, so it begins anew.
    assert micro_batches([100, 200, 150, 130], 1024) == [[1, 2, 3], [0]]
    # A sixteenth of a budget of 4096 is 256, which 220 does not exceed.
    assert micro_batches([100, 200, 150, 130], 4096) == [[1, 2, 3, 0]]


def test_nothing_to_run_makes_no_micro_batch() -> None:
    assert micro_batches([], 10) == []


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 100))
def test_every_row_is_in_exactly_one_micro_batch(lengths: list[int], n: int) -> None:
    batches = micro_batches(lengths, n)
    assert sorted(row for rows in batches for row in rows) == list(range(len(lengths)))
    assert all(batches)


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 100))
def test_padding_stays_within_the_budget_unless_a_row_is_alone(
    lengths: list[int], n: int
) -> None:
    for rows in micro_batches(lengths, n):
        padded = len(rows) * max(lengths[row] for row in rows)
        assert padded <= n or len(rows) == 1


@pytest.mark.parametrize(
    ("lengths", "budget", "message"),
    [
        ([1], 0, "micro_batch_tokens must be >= 1, got 0"),
        ([3, 0], 5, "every row needs a token, got 0 in row 1"),
    ],
)
def test_bad_sizes_are_refused(lengths: list[int], budget: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        micro_batches(lengths, budget)


def test_row_parts_name_rows_and_width_and_leave_empty_rows_out():
    """Lengths 2, 0, 5, 5, 0, 1 at a budget of ten tokens."""
    parts = row_parts(torch.tensor([2, 0, 5, 5, 0, 1]), 10)
    assert [(rows.tolist(), width) for rows, width in parts] == [
        ([2, 3], 5),
        ([0, 5], 2),
    ]
    assert row_parts(torch.tensor([0, 0]), 10) == []
