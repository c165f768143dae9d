"""Group baselines and deviations: closed forms, validity, raggedness, P08, P09."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.functional.baselines import (
    group_deviation,
    group_mean_baseline,
    leave_one_out_baseline,
    leave_one_out_deviation,
    scaled_by_deviation,
)

F64 = torch.float64
NAN = float("nan")
BASELINES = [group_mean_baseline, leave_one_out_baseline]
DEVIATIONS = [group_deviation, leave_one_out_deviation]


def vector(*numbers):
    return torch.tensor(numbers, dtype=F64)


def one_group(rewards, valid=None):
    """The arguments for rewards that are all siblings."""
    if valid is None:
        valid = [1] * len(rewards)
    return (
        torch.as_tensor(rewards, dtype=F64),
        torch.tensor(valid, dtype=torch.bool),
        torch.zeros(len(rewards), dtype=torch.int64),
    )


def advantages(baseline, arguments):
    return arguments[0] - baseline(*arguments)


def ragged(seed):
    """Ten rollouts of four groups of 3, 1, 4 and 2, in mixed order, two invalid."""
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.randn(10, generator=generator, dtype=F64)
    valid = torch.tensor([1, 1, 0, 1, 1, 1, 0, 1, 1, 1], dtype=torch.bool)
    group_index = torch.tensor([2, 0, 0, 3, 2, 1, 2, 0, 3, 2])
    return rewards, valid, group_index


def test_closed_forms():
    arguments = one_group([2, 3, 10])
    torch.testing.assert_close(group_mean_baseline(*arguments), vector(5, 5, 5))
    torch.testing.assert_close(leave_one_out_baseline(*arguments), vector(6.5, 6, 2.5))
    # (9 + 4 + 25) / 2 = 19
    torch.testing.assert_close(group_deviation(*arguments), vector(19, 19, 19).sqrt())
    # peers (3, 10): 24.5; (2, 10): 32; (2, 3): .5
    torch.testing.assert_close(
        leave_one_out_deviation(*arguments), vector(24.5, 32, 0.5).sqrt()
    )


def test_b043_three_estimators_are_told_apart():
    """Case B043: [1,1,1,0,0,0,0,0]."""
    arguments = one_group([1, 1, 1, 0, 0, 0, 0, 0])

    def table(win, loss):
        return vector(*[win] * 3, *[loss] * 5)

    leave_one_out = advantages(leave_one_out_baseline, arguments)
    torch.testing.assert_close(
        leave_one_out, table(0.714286, -0.428571), atol=1e-6, rtol=0
    )
    centred = advantages(group_mean_baseline, arguments)
    torch.testing.assert_close(centred, table(0.625, -0.375))
    scaled = scaled_by_deviation(centred, group_deviation(*arguments), eps=0.0)
    torch.testing.assert_close(scaled, table(1.207615, -0.724569), atol=1e-6, rtol=0)


def test_p08_leave_one_out_with_equal_peers_stays_unscaled():
    """Case P08 (B036)."""
    arguments = one_group([1, 0, 0, 0])
    leave_one_out = advantages(leave_one_out_baseline, arguments)
    torch.testing.assert_close(leave_one_out, vector(1, -1 / 3, -1 / 3, -1 / 3))
    scaled = scaled_by_deviation(leave_one_out, leave_one_out_deviation(*arguments))
    assert scaled[0].item() == 1
    assert (scaled[1:] < -0.5).all()
    centred = advantages(group_mean_baseline, arguments)
    torch.testing.assert_close(
        scaled_by_deviation(centred, group_deviation(*arguments), eps=0.0),
        vector(1.5, -0.5, -0.5, -0.5),
    )


def test_p08_rounding_does_not_pass_for_a_deviation():
    """Case P08 (B037), in float32: bug -2075.4."""
    rewards = torch.tensor([0.0] + [0.95] * 7)
    arguments = (rewards, torch.ones(8).bool(), torch.zeros(8, dtype=torch.int64))
    leave_one_out = advantages(leave_one_out_baseline, arguments)
    expected = torch.tensor([-0.95] + [0.135714] * 7)
    torch.testing.assert_close(leave_one_out, expected, atol=1e-6, rtol=0)
    deviation = leave_one_out_deviation(*arguments)
    assert deviation[0].item() == 0
    scaled = scaled_by_deviation(leave_one_out, deviation)
    assert scaled[0].item() == pytest.approx(-0.95, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("reward", [0.95, 0.1, 1 / 3, -7.7])
@pytest.mark.parametrize("size", [2, 3, 8, 17])
def test_p08_an_equal_group_gives_exactly_zero(dtype, reward, size):
    """Case P08: [.95] * 8 and [.1] * 8, exactly 0 for all."""
    rewards = torch.full((size,), reward, dtype=dtype)
    arguments = (rewards, torch.ones(size).bool(), torch.zeros(size, dtype=torch.int64))
    for baseline in BASELINES:
        assert (advantages(baseline, arguments) == 0).all()
    for deviation in DEVIATIONS:
        assert (deviation(*arguments) == 0).all()


def test_p09_masked_siblings_do_not_vote():
    """Case P09 (B038), whatever the masked sibling's reward holds."""
    for masked in (1.0, NAN, float("inf")):
        arguments = one_group([1, masked, 0, 0], [1, 0, 1, 1])
        kept = arguments[1]
        centred = advantages(group_mean_baseline, arguments)[kept]
        torch.testing.assert_close(
            centred, vector(0.666667, -0.333333, -0.333333), atol=1e-6, rtol=0
        )
        scaled = scaled_by_deviation(
            centred, group_deviation(*arguments)[kept], eps=0.0
        )
        torch.testing.assert_close(
            scaled, vector(1.154701, -0.57735, -0.57735), atol=1e-6, rtol=0
        )
        leave_one_out = advantages(leave_one_out_baseline, arguments)[kept]
        torch.testing.assert_close(leave_one_out, vector(1, -0.5, -0.5))


def test_p10_invalid_rewards_leave_the_group():
    """Case P10 (B039): totals [2, 1, 0, invalid] give [1, 0, -1], deviation 1."""
    for invalid in (NAN, 0.0):
        arguments = one_group([2, 1, 0, invalid], [1, 1, 1, 0])
        centred = advantages(group_mean_baseline, arguments)[:3]
        torch.testing.assert_close(centred, vector(1, 0, -1))
        torch.testing.assert_close(group_deviation(*arguments), vector(1, 1, 1, 1))


def test_an_invalid_rollout_still_has_a_baseline_from_its_siblings():
    arguments = one_group([2, NAN, 10], [1, 0, 1])
    assert group_mean_baseline(*arguments).tolist() == [6, 6, 6]
    assert leave_one_out_baseline(*arguments).tolist() == [10, 6, 2]
    torch.testing.assert_close(
        leave_one_out_deviation(*arguments), vector(0, 32**0.5, 0)
    )


def test_b041_a_lone_voter_has_advantage_zero():
    """Case B041: never NaN; a configured group of one is refused by the recipe."""
    for arguments in (one_group([0.7]), one_group([NAN, 0.7, NAN], [0, 1, 0])):
        lone = int(arguments[1].nonzero())
        for baseline in BASELINES:
            assert baseline(*arguments)[lone].item() == 0.7
        for deviation in DEVIATIONS:
            assert deviation(*arguments)[lone].item() == 0


def test_nobody_votes_and_nothing_is_nan():
    arguments = one_group([NAN, NAN], [0, 0])
    for function in BASELINES + DEVIATIONS:
        assert function(*arguments).tolist() == [0, 0]


def test_an_empty_batch_has_no_baselines():
    arguments = one_group([])
    for function in BASELINES + DEVIATIONS:
        assert function(*arguments).shape == (0,)


def test_b042_statistics_are_of_the_group_and_not_of_the_batch():
    """Case B042: groups [1, 0] and [1, 1]."""
    rewards = vector(1, 0, 1, 1)
    arguments = (rewards, torch.ones(4).bool(), torch.tensor([0, 0, 1, 1]))
    centred = advantages(group_mean_baseline, arguments)
    scaled = scaled_by_deviation(centred, group_deviation(*arguments), eps=0.0)
    torch.testing.assert_close(
        scaled, vector(0.707107, -0.707107, 0, 0), atol=1e-6, rtol=0
    )


def test_b048_groups_are_keyed_by_index_and_not_by_prompt():
    """Case B048: one prompt drawn twice makes two groups."""
    arguments = (vector(1, 0, 1, 1), torch.ones(4).bool(), torch.tensor([0, 0, 1, 1]))
    found = advantages(group_mean_baseline, arguments)
    torch.testing.assert_close(found, vector(0.5, -0.5, 0, 0))


def test_b044_kl_enters_before_the_leave_one_out_baseline():
    """Case B044: scores [1, 0], KL sums [.5, 0], beta .1: [.95, -.95]."""
    shaped = vector(1 - 0.1 * 0.5, 0)
    found = advantages(leave_one_out_baseline, one_group(shaped))
    torch.testing.assert_close(found, vector(0.95, -0.95))


def test_b045_a_penalty_of_the_whole_group_cancels():
    """Case B045: [1, 0] and [.7, -.3] have the same advantages."""
    for baseline in BASELINES:
        torch.testing.assert_close(
            advantages(baseline, one_group([1, 0])),
            advantages(baseline, one_group([0.7, -0.3])),
        )


@pytest.mark.parametrize("function", BASELINES + DEVIATIONS)
def test_ragged_groups_are_those_of_each_group_alone(function):
    rewards, valid, group_index = ragged(0)
    together = function(rewards, valid, group_index)
    for group in range(4):
        rows = group_index == group
        alone = function(rewards[rows], valid[rows], group_index[rows] * 0)
        torch.testing.assert_close(together[rows], alone)


@pytest.mark.parametrize("function", BASELINES + DEVIATIONS)
def test_groups_that_are_absent_from_the_batch_change_nothing(function):
    rewards, valid, group_index = ragged(1)
    torch.testing.assert_close(
        function(rewards, valid, group_index * 3 + 2),
        function(rewards, valid, group_index),
    )


@pytest.mark.parametrize("function", BASELINES + DEVIATIONS)
@given(st.permutations(range(10)), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_permuting_rollouts_permutes_the_result(function, order, seed):
    rewards, valid, group_index = ragged(seed)
    expected = function(rewards, valid, group_index)[order]
    found = function(rewards[order], valid[order], group_index[order])
    torch.testing.assert_close(found, expected)


@given(st.floats(-50, 50), st.floats(0.02, 50), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_shifting_rewards_leaves_advantages_and_scaling_scales_them(shift, scale, seed):
    rewards, valid, group_index = ragged(seed)
    arguments = (rewards, valid, group_index)
    moved = (rewards * scale + shift, valid, group_index)
    for baseline in BASELINES:
        torch.testing.assert_close(
            advantages(baseline, moved)[valid],
            advantages(baseline, arguments)[valid] * scale,
        )
    for deviation in DEVIATIONS:
        torch.testing.assert_close(deviation(*moved), deviation(*arguments) * scale)


def test_deviation_agrees_with_torch():
    rewards = torch.randn(6, generator=torch.Generator().manual_seed(5), dtype=F64)
    arguments = one_group(rewards)
    torch.testing.assert_close(group_deviation(*arguments)[0], rewards.std())
    others = torch.stack([rewards[torch.arange(6) != i].std() for i in range(6)])
    torch.testing.assert_close(leave_one_out_deviation(*arguments), others)


def test_scaling_adds_its_epsilon_only_where_there_is_a_deviation():
    found = scaled_by_deviation(vector(6, 6), vector(1, 0), eps=0.5)
    assert found.tolist() == [4, 6]


def test_b040_counts_that_differ_are_refused_and_not_broadcast():
    """Case B040's kind: one reward for three rollouts."""
    for function in BASELINES + DEVIATIONS:
        with pytest.raises(ValueError, match="one entry a rollout, got 1, 3 and 3"):
            unchecked = getattr(function, "__wrapped__", function)
            unchecked(
                torch.ones(1), torch.ones(3).bool(), torch.zeros(3, dtype=torch.int64)
            )
