"""Reward shaping: overlong table, terminal slot, KL in the reward; P12, P17."""

import pytest
import torch

from accredit.functional.advantages import discounted_returns
from accredit.functional.baselines import leave_one_out_baseline
from accredit.functional.shaping import (
    kl_shaped_rewards,
    soft_overlong_penalty,
    terminal_rewards,
)

F64 = torch.float64
NAN = float("nan")


def row(*numbers):
    return torch.tensor([numbers], dtype=F64)


def mask(*flags):
    return torch.tensor([flags], dtype=torch.bool)


LENGTHS = torch.tensor([0, 10, 15, 16, 18, 20, 21])


@pytest.mark.parametrize(
    "factor, expected",
    [
        (1.0, [0, 0, 0, -0.2, -0.6, -1, -1]),
        (0.5, [0, 0, 0, -0.1, -0.3, -0.5, -0.5]),
    ],
)
def test_p17_soft_overlong(factor, expected):
    """Case P17 (B092): limit 20, cache 5."""
    found = soft_overlong_penalty(LENGTHS, max_length=20, cache=5, factor=factor)
    assert found.tolist() == pytest.approx(expected)


def test_overlong_ramp_may_cover_the_whole_budget():
    found = soft_overlong_penalty(torch.tensor([0, 5, 10]), max_length=10, cache=10)
    assert found.tolist() == pytest.approx([0, -0.5, -1])


def test_overlong_knobs_outside_their_range_are_named():
    for cache in (0, 21):
        with pytest.raises(ValueError, match=rf"cache must be in 1\.\..*cache={cache}"):
            soft_overlong_penalty(LENGTHS, max_length=20, cache=cache)
    with pytest.raises(ValueError, match=r"factor must be >= 0, got -1\.0"):
        soft_overlong_penalty(LENGTHS, max_length=20, cache=5, factor=-1.0)


def test_p12_score_is_paid_on_the_last_sampled_token():
    """Case P12 (B010): response [t0, t1, EOS, PAD, PAD]."""
    sampled = mask(1, 1, 1, 0, 0)
    token_rewards = kl_shaped_rewards(
        torch.tensor([2.0], dtype=F64),
        row(-1, -2, -0.5, NAN, NAN),
        row(-1.5, -1.5, -0.5, NAN, -7),
        sampled,
        kl_coefficient=0.1,
    )
    torch.testing.assert_close(token_rewards, row(-0.05, 0.05, 2, 0, 0))
    returns = discounted_returns(
        token_rewards, sampled.to(F64), torch.zeros(1, dtype=F64), sampled
    )
    torch.testing.assert_close(returns, row(2, 2.05, 2, 0, 0))


def test_b011_one_score_and_each_kl_once():
    """Case B011: length 3 of width 5, score 1; the row sums to score - beta KL."""
    sampled = mask(1, 1, 1, 0, 0)
    logprobs, reference = row(-1, -2, -3, -9, -9), row(-1.5, -2.25, -2.5, -1, -1)
    found = kl_shaped_rewards(
        torch.tensor([1.0], dtype=F64), logprobs, reference, sampled, kl_coefficient=0.2
    )
    # KL .5 + .25 - .5 = .25
    assert found.sum().item() == pytest.approx(1 - 0.2 * 0.25)
    assert found[0, 2].item() == pytest.approx(1 + 0.2 * 0.5)


def test_terminal_rewards_skip_observations_and_empty_rows():
    sampled = torch.cat(
        [mask(0, 1, 1, 0, 1, 0, 0), mask(0, 1, 0, 0, 0, 0, 0), mask(*[0] * 7)]
    )
    found = terminal_rewards(torch.tensor([3.0, 5.0, 7.0]), sampled)
    assert found.tolist() == [[0, 0, 0, 0, 3, 0, 0], [0, 5, 0, 0, 0, 0, 0], [0] * 7]


def test_b013_the_score_stands_on_the_stop_token():
    """Case B013: ids [a, b, EOS, PAD]: index 2."""
    found = terminal_rewards(torch.tensor([1.0]), mask(1, 1, 1, 0))
    assert found.tolist() == [[0, 0, 1, 0]]


def test_kl_in_the_reward_carries_no_gradient():
    logprobs = row(-1, -2).requires_grad_()
    found = kl_shaped_rewards(
        torch.ones(1, dtype=F64), logprobs, row(-2, -2), mask(1, 1), kl_coefficient=0.1
    )
    assert not found.requires_grad


def test_b044_shaped_sums_enter_the_leave_one_out_baseline():
    """Case B044: KL first gives [.95, -.95]; baseline first would give [.95, -1]."""
    sampled = mask(1, 1).expand(2, 2)
    token_rewards = kl_shaped_rewards(
        torch.tensor([1.0, 0.0], dtype=F64),
        torch.cat([row(-1, -1), row(-1, -1)]),
        torch.cat([row(-1.25, -1.25), row(-1, -1)]),
        sampled,
        kl_coefficient=0.1,
    )
    shaped = token_rewards.sum(1)
    baseline = leave_one_out_baseline(
        shaped, torch.ones(2).bool(), torch.zeros(2, dtype=torch.int64)
    )
    torch.testing.assert_close(shaped - baseline, row(0.95, -0.95)[0])
