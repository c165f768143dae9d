"""Advantages and targets of a group's ends, where some are not valid."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from accredit.functional.baselines import group_mean_baseline
from accredit.functional.endpoints import (
    endpoint_advantages,
    filled_endpoints,
    group_sums,
    group_targets,
)

NAN = math.nan
ENDS = (0.7, 0.2, 0.55)
ALL = torch.tensor([True, True, True])


def tensors(values, valid, group_index=None):
    if group_index is None:
        group_index = [0] * len(values)
    return (
        torch.tensor(values, dtype=torch.float64),
        torch.tensor(valid),
        torch.tensor(group_index),
    )


def close(found, expected):
    torch.testing.assert_close(
        found, torch.tensor(expected, dtype=found.dtype), equal_nan=True
    )


def test_the_sum_of_each_group():
    close(
        group_sums(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 1, 1])), [1.0, 6.0]
    )
    assert group_sums(torch.zeros(0), torch.zeros(0, dtype=torch.long)).tolist() == []


def test_an_advantage_is_the_end_less_the_mean_itself_included():
    # (.7 + .2 + .55) / 3 = .48333; no division by the deviation .2566
    close(
        endpoint_advantages(*tensors(ENDS, [True] * 3)),
        [0.7 - 1.45 / 3, 0.2 - 1.45 / 3, 0.55 - 1.45 / 3],
    )


def test_leave_one_out_compares_with_the_others_only():
    # .7 - (.2 + .55) / 2,  .2 - (.7 + .55) / 2,  .55 - (.7 + .2) / 2
    found = endpoint_advantages(*tensors(ENDS, [True] * 3), baseline="leave_one_out")
    close(found, [0.325, -0.425, 0.1])


def test_value_compares_with_the_value_of_the_prefix_and_nobody_else():
    found = endpoint_advantages(
        *tensors(ENDS, [True, True, False]),
        baseline="value",
        prefix_values=torch.tensor([0.3, NAN, 0.3], dtype=torch.float64),
    )
    # An unknown baseline, or an end that is not valid, leaves nothing to learn.
    close(found, [0.4, 0.0, 0.0])
    with pytest.raises(ValueError, match="'value' needs the values of the prefixes"):
        endpoint_advantages(*tensors(ENDS, [True] * 3), baseline="value")


@pytest.mark.parametrize("valid", [*itertools.product([True, False], repeat=3)])
def test_every_pattern_of_valid_ends_in_a_group_of_three(valid):
    """Exhaustive: what is not valid stands for the mean of the others, and weighs 0."""
    ends = [v if ok else NAN for v, ok in zip(ENDS, valid, strict=True)]
    sound = [v for v, ok in zip(ENDS, valid, strict=True) if ok]
    mean = sum(sound) / len(sound) if sound else 0.0
    filled = [v if ok else mean for v, ok in zip(ENDS, valid, strict=True)]
    arguments = tensors(ends, list(valid))
    close(filled_endpoints(*arguments), filled)
    total = sum(filled)
    by_mean = [
        v - total / 3 if ok else 0.0 for v, ok in zip(filled, valid, strict=True)
    ]
    close(endpoint_advantages(*arguments), by_mean)
    by_others = [
        v - (total - v) / 2 if ok else 0.0 for v, ok in zip(filled, valid, strict=True)
    ]
    close(endpoint_advantages(*arguments, baseline="leave_one_out"), by_others)
    for least in (1, 2, 3):
        (target,) = group_targets(
            *arguments, min_valid=torch.tensor([least]), grid_size=None
        ).tolist()
        if len(sound) < least:
            assert math.isnan(target)
        else:
            assert target == pytest.approx(mean)


def test_a_mean_of_the_valid_ends_is_that_of_the_group_and_no_other():
    arguments = tensors(
        [1.0, NAN, 0.5, NAN, NAN, 0.25],
        [True, False, True, False, False, True],
        [0, 0, 0, 1, 1, 2],
    )
    close(filled_endpoints(*arguments), [1.0, 0.75, 0.5, 0.0, 0.0, 0.25])
    close(endpoint_advantages(*arguments), [0.25, 0.0, -0.25, 0.0, 0.0, 0.0])
    # A group of one has nobody to compare with.
    single = endpoint_advantages(*arguments, baseline="leave_one_out")
    close(single, [0.375, 0.0, -0.375, 0.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("ends", "target"),
    [
        # .35 lies between .3 and .4: ties go down; .3501 does not.
        ([0.3, 0.4], 0.3),
        ([0.3, 0.4002], 0.4),
        ([0.0, 0.1], 0.0),
        ([0.9, 1.0], 0.9),
        # .55 between .5 and .6, whose mean float32 does not hold exactly.
        ([1.0, 0.1], 0.5),
        ([1.0, 1.0], 1.0),
        ([0.26, 0.26], 0.3),
    ],
)
def test_a_target_is_the_mean_on_the_grid_ties_down(ends, target):
    for dtype in (torch.float32, torch.float64):
        (found,) = group_targets(
            torch.tensor(ends, dtype=dtype),
            torch.tensor([True, True]),
            torch.tensor([0, 0]),
            min_valid=torch.tensor([1]),
            grid_size=11,
        ).tolist()
        assert found == pytest.approx(target, abs=1e-6)


def test_a_target_without_a_grid_is_the_mean():
    arguments = tensors([0.31, 0.46, NAN], [True, True, False])
    found = group_targets(*arguments, min_valid=torch.tensor([2]), grid_size=None)
    close(found, [0.385])


def test_each_group_has_its_own_least_number():
    arguments = tensors([0.5, NAN, 0.5, NAN], [True, False] * 2, [0, 0, 1, 1])
    least = torch.tensor([1, 2])
    close(group_targets(*arguments, min_valid=least, grid_size=11), [0.5, NAN])


GROUPS = st.lists(
    st.tuples(st.floats(0, 1), st.booleans(), st.integers(0, 2)), min_size=1, max_size=9
)


def sorted_tensors(rows):
    rows = sorted(rows, key=lambda row: row[2])
    numbers = {name: n for n, name in enumerate(dict.fromkeys(r[2] for r in rows))}
    return tensors(
        [row[0] for row in rows],
        [row[1] for row in rows],
        [numbers[row[2]] for row in rows],
    )


@given(GROUPS, st.floats(-3, 3))
def test_a_shift_of_all_ends_changes_no_advantage(rows, shift):
    ends, valid, index = sorted_tensors(rows)
    for baseline in ("group_mean", "leave_one_out"):
        before = endpoint_advantages(ends, valid, index, baseline=baseline)
        after = endpoint_advantages(ends + shift, valid, index, baseline=baseline)
        some = group_sums(valid.double(), index)[index] > 0
        torch.testing.assert_close(after[some], before[some])


@given(GROUPS)
def test_what_stands_at_an_invalid_place_is_not_read(rows):
    ends, valid, index = sorted_tensors(rows)
    broken = torch.where(valid, ends, NAN)
    for baseline in ("group_mean", "leave_one_out"):
        torch.testing.assert_close(
            endpoint_advantages(broken, valid, index, baseline=baseline),
            endpoint_advantages(ends, valid, index, baseline=baseline),
        )
    least = torch.ones(int(index.max()) + 1, dtype=torch.long)
    for grid_size in (None, 11):
        torch.testing.assert_close(
            group_targets(broken, valid, index, min_valid=least, grid_size=grid_size),
            group_targets(ends, valid, index, min_valid=least, grid_size=grid_size),
            equal_nan=True,
        )


@given(GROUPS)
def test_with_all_valid_the_advantages_are_the_group_means(rows):
    ends, _, index = sorted_tensors(rows)
    valid = torch.ones(len(ends), dtype=torch.bool)
    expected = ends - group_mean_baseline(ends, valid, index)
    torch.testing.assert_close(endpoint_advantages(ends, valid, index), expected)
    total = group_sums(endpoint_advantages(ends, valid, index), index)
    torch.testing.assert_close(total, torch.zeros_like(total))


def test_no_gradient_is_lost_on_the_way():
    ends = torch.tensor(ENDS, requires_grad=True)
    endpoint_advantages(ends, ALL, torch.zeros(3, dtype=torch.long))[0].backward()
    torch.testing.assert_close(ends.grad, torch.tensor([2 / 3, -1 / 3, -1 / 3]))


def test_two_siblings_are_compared_with_each_other():
    found = endpoint_advantages(
        torch.tensor([0.75, 0.25]),
        torch.tensor([True, True]),
        torch.tensor([0, 0]),
        baseline="leave_one_out",
    )
    assert found.tolist() == [0.5, -0.5]
