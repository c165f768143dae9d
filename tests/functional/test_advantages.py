"""GAE, n-step and returns: closed forms, identities, padding, cases P01-P03."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.functional.advantages import (
    bootstrapped_discounts,
    counted_observation_advantages,
    discounted_returns,
    generalized_advantages,
    length_adaptive_lambda,
    n_step_advantages,
    zeroed_observation_advantages,
)

F64 = torch.float64
NAN, INF = float("nan"), float("inf")


def row(*numbers):
    return torch.tensor([numbers], dtype=F64)


def real(*lengths):
    columns = torch.arange(max(lengths))
    return columns < torch.tensor(lengths)[:, None]


def random_steps(seed, rollouts, steps):
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.randn(rollouts, steps, generator=generator, dtype=F64)
    values = torch.randn(rollouts, steps + 1, generator=generator, dtype=F64)
    discounts = torch.rand(rollouts, steps, generator=generator, dtype=F64)
    return rewards, discounts, values


def test_gae_closed_form_two_steps():
    # delta_1 = 2 + 0 * 99 - 20 = -18; delta_0 = 1 + .5 * 20 - 10 = 1
    # A_0 = 1 + .5 * .8 * -18 = -6.2
    torch.testing.assert_close(
        generalized_advantages(
            row(1, 2), row(0.5, 0), row(10, 20, 99), real(2), lambda_=0.8
        ),
        row(-6.2, -18),
    )


def test_n_step_closed_form():
    rewards, discounts, values = row(1, 2, 3), row(0.5, 0.7, 0.3), row(5, 11, 13, 17)
    # one step: 1 + .5 * 11 - 5 = 1.5; 2 + .7 * 13 - 11 = .1; 3 + .3 * 17 - 13 = -4.9
    torch.testing.assert_close(
        n_step_advantages(rewards, discounts, values, real(3), 1), row(1.5, 0.1, -4.9)
    )
    # two steps: 1 + .5 (2 + .7 * 13) - 5 = 1.55; 2 + .7 (3 + .3 * 17) - 11 = -3.33
    torch.testing.assert_close(
        n_step_advantages(rewards, discounts, values, real(3), 2),
        row(1.55, -3.33, -4.9),
    )


def test_returns_closed_form():
    # 3 + .3 * 17 = 8.1; 2 + .7 * 8.1 = 7.67; 1 + .5 * 7.67 = 4.835
    torch.testing.assert_close(
        discounted_returns(
            row(1, 2, 3), row(0.5, 0.7, 0.3), torch.tensor([17.0], dtype=F64), real(3)
        ),
        row(4.835, 7.67, 8.1),
    )


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_gae_at_lambda_one_is_return_minus_value(steps, rollouts, seed):
    rewards, discounts, values = random_steps(seed, rollouts, steps)
    mask = real(*[steps] * rollouts)
    gae = generalized_advantages(rewards, discounts, values, mask, 1.0)
    following, returns = values[:, -1], []
    for t in reversed(range(steps)):
        following = rewards[:, t] + discounts[:, t] * following
        returns.insert(0, following)
    expected = torch.stack(returns, 1)
    torch.testing.assert_close(gae, expected - values[:, :-1])
    torch.testing.assert_close(
        discounted_returns(rewards, discounts, values[:, -1], mask), expected
    )


@given(st.integers(1, 6), st.integers(0, 3), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_n_step_runs_from_one_step_error_to_full_return(steps, pad, seed):
    rewards, discounts, values = random_steps(seed, 2, steps + pad)
    mask = real(steps, steps + pad)
    arguments = (rewards, discounts, values, mask)
    torch.testing.assert_close(
        n_step_advantages(*arguments, 1), generalized_advantages(*arguments, 0.0)
    )
    for num_steps in (steps + pad, steps + pad + 5):
        torch.testing.assert_close(
            n_step_advantages(*arguments, num_steps),
            generalized_advantages(*arguments, 1.0),
        )


@given(st.integers(2, 6), st.floats(0, 1), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_gae_is_the_geometric_mixture_of_n_step_advantages(steps, lambda_, seed):
    arguments = (*random_steps(seed, 1, steps), real(steps))
    mixture, left = torch.zeros(1, steps, dtype=F64), 1.0
    for n in range(1, steps):
        mixture += left * (1 - lambda_) * n_step_advantages(*arguments, n)
        left *= lambda_
    mixture += left * n_step_advantages(*arguments, steps)
    # Past the end of the rollout a longer n repeats the full return, so the mixture
    # holds at every step and not only at the first.
    torch.testing.assert_close(generalized_advantages(*arguments, lambda_), mixture)


@pytest.mark.parametrize("junk", [0.0, 1e6, NAN, INF, -INF])
@given(st.integers(1, 5), st.integers(1, 5), st.booleans(), st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_padding_never_reaches_a_real_step(junk, steps, pad, truncated, seed):
    """Case B002: bit for bit, for finished and truncated rollouts, NaN included."""
    rewards, _, values = random_steps(seed, 1, steps)
    mask = real(steps)
    discounts = bootstrapped_discounts(mask, torch.tensor([truncated]), 0.9, F64)
    fill = torch.full((1, pad), junk, dtype=F64)
    padded_mask = torch.cat([mask, torch.zeros(1, pad, dtype=torch.bool)], 1)
    alone = (rewards, discounts, values, mask)
    padded = (
        torch.cat([rewards, fill], 1),
        torch.cat([discounts, fill], 1),
        torch.cat([values, fill], 1),
        padded_mask,
    )
    for function, knob in ((generalized_advantages, 0.7), (n_step_advantages, 2)):
        found = function(*padded, knob)
        assert torch.equal(found[:, :steps], function(*alone, knob))
        assert (found[:, steps:] == 0).all()
    found = discounted_returns(padded[0], padded[1], values[:, -1], padded_mask)
    assert torch.equal(
        found[:, :steps], discounted_returns(rewards, discounts, values[:, -1], mask)
    )
    assert (found[:, steps:] == 0).all()


@pytest.mark.parametrize("junk", [NAN, INF])
def test_the_value_after_a_finished_rollout_is_not_read(junk):
    rewards, discounts = row(1, 2), row(0.5, 0)
    mask, clean, dirty = real(2), row(10, 20, 0), row(10, 20, junk)
    for function, knob in ((generalized_advantages, 0.8), (n_step_advantages, 2)):
        assert torch.equal(
            function(rewards, discounts, dirty, mask, knob),
            function(rewards, discounts, clean, mask, knob),
        )
    # 2; 1 + .5 * 2 = 2
    assert torch.equal(
        discounted_returns(rewards, discounts, dirty[:, -1], mask), row(2, 2)
    )


def test_batch_companions_never_reach_a_rollout():
    rewards, discounts, values = random_steps(3, 4, 6)
    mask = real(6, 2, 4, 6)
    order = torch.tensor([2, 0, 3, 1])
    for function, knob in ((generalized_advantages, 0.7), (n_step_advantages, 2)):
        together = function(rewards, discounts, values, mask, knob)
        permuted = function(
            rewards[order], discounts[order], values[order], mask[order], knob
        )
        assert torch.equal(permuted, together[order])
        alone = function(rewards[1:2], discounts[1:2], values[1:2], mask[1:2], knob)
        assert torch.equal(alone, together[1:2])


def test_padding_has_no_gradient_and_spoils_none():
    values = row(0.2, 0.4, NAN, NAN).requires_grad_()
    rewards, discounts, mask = row(0, 1, NAN), row(0.9, 0, NAN), real(2)
    mask = torch.cat([mask, torch.zeros(1, 1, dtype=torch.bool)], 1)
    generalized_advantages(rewards, discounts, values, mask, 0.5).sum().backward()
    # A_0 + A_1 = delta_0 + (1 + .45) delta_1; delta_0 = .9 V_1 - V_0; delta_1 = 1 - V_1
    torch.testing.assert_close(values.grad, row(-1, 0.9 - 1.45, 0, 0))


def test_gradcheck_of_gae_and_n_step():
    rewards, discounts, values = random_steps(4, 2, 4)
    mask = real(4, 3)
    assert torch.autograd.gradcheck(
        lambda r, v: (
            generalized_advantages(r, discounts, v, mask, 0.6),
            n_step_advantages(r, discounts, v, mask, 2),
        ),
        (rewards.requires_grad_(), values.requires_grad_()),
    )


def test_p01_values_at_padding_do_not_bootstrap():
    """Case P01 (B001)."""
    mask = torch.tensor([[True, True, False]])
    arguments = (row(0, 1, 0), row(1, 0, 0), row(0, 0, 100, 100), mask)
    torch.testing.assert_close(
        generalized_advantages(*arguments, 0.95), row(0.95, 1, 0)
    )
    mask = torch.tensor([[True, True, True, False, False]])
    values = row(0.2, 0.4, 0.6, 7, -3, -3)
    discounts = bootstrapped_discounts(mask, torch.tensor([False]), 0.99, F64)
    found = generalized_advantages(row(0, 0, 1, 0, 0), discounts, values, mask, 0.95)
    expected = row(0.732273, 0.5702, 0.4, 0, 0)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    returns = torch.where(mask, found + values[:, :-1], 0.0)
    expected = row(0.932273, 0.9702, 1, 0, 0)
    torch.testing.assert_close(returns, expected, atol=1e-6, rtol=0)


def test_p02_truncation_is_not_termination():
    """Case P02 (B003)."""
    rewards, values, mask = row(0, 0, 0), row(0.5, 0.6, 0.7, 0.8), real(3)
    for truncated, advantages, returns in (
        (True, row(0.28525, 0.195, 0.1), row(0.78525, 0.795, 0.8)),
        (False, row(-0.43675, -0.565, -0.7), row(0.06325, 0.035, 0)),
    ):
        discounts = bootstrapped_discounts(mask, torch.tensor([truncated]), 1.0, F64)
        found = generalized_advantages(rewards, discounts, values, mask, 0.95)
        torch.testing.assert_close(found, advantages)
        torch.testing.assert_close(found + values[:, :-1], returns)


def test_p02_truncation_is_not_guessed_from_the_width():
    """Case P02 (B004): the short row is the truncated one."""
    mask = real(2, 4)
    rewards = torch.cat([row(0, 0, NAN, NAN), row(0, 0, 0, 1)])
    values = torch.cat([row(0.3, 0.5, 0.9, NAN, NAN), row(0.1, 0.2, 0.3, 0.4, 0.9)])
    discounts = bootstrapped_discounts(mask, torch.tensor([True, False]), 1.0, F64)
    torch.testing.assert_close(
        generalized_advantages(rewards, discounts, values, mask, 1.0),
        torch.cat([row(0.6, 0.4, 0, 0), row(0.9, 0.8, 0.7, 0.6)]),
    )


def test_b005_a_bootstrap_folded_into_the_reward_cuts_the_carry():
    """Case B005: r + gamma V at discount 0 is the bootstrap; nothing leaks."""
    first = generalized_advantages(
        row(0.1, 0.2), row(0.9, 0.9), row(1, 2, 3), real(2), 0.8
    )
    second = generalized_advantages(row(5.0), row(0), row(7, 0), real(1), 0.8)
    together = generalized_advantages(
        row(0.1, 0.2 + 0.9 * 3, 5), row(0.9, 0, 0), row(1, 2, 7, 0), real(3), 0.8
    )
    torch.testing.assert_close(together, torch.cat([first, second], 1))


def test_b007_bootstrap_is_the_value_after_the_step():
    """Case B007: V(s_t) .2, V(s_t+1) .9, truncated: the target is .9, not .2."""
    found = generalized_advantages(row(0), row(1), row(0.2, 0.9), real(1), 0.95)
    torch.testing.assert_close(found + 0.2, row(0.9))


def test_b006_a_terminated_step_is_not_bootstrapped():
    """Case B006: r 1, V' .9, gamma .99; terminated gives 1, not 1.891."""
    discounts = bootstrapped_discounts(real(1), torch.tensor([False]), 0.99, F64)
    found = generalized_advantages(row(1), discounts, row(0, 0.9), real(1), 1.0)
    assert found.tolist() == [[1]]


def test_discounts_follow_the_truncation_flag():
    mask = real(3, 2, 1)
    found = bootstrapped_discounts(mask, torch.tensor([False, True, False]), 0.9, F64)
    expected = torch.cat([row(0.9, 0.9, 0), row(0.9, 0.9, 0), row(0, 0, 0)])
    torch.testing.assert_close(found, expected)
    assert (
        bootstrapped_discounts(mask, torch.ones(3).bool(), 0.9).dtype is torch.float32
    )


def test_no_steps_at_all_give_no_advantages():
    mask, nothing = torch.zeros(2, 0, dtype=torch.bool), torch.zeros(2, 0)
    values = torch.zeros(2, 1)
    arguments = (nothing, nothing, values, mask)
    assert generalized_advantages(*arguments, 0.5).shape == (2, 0)
    assert n_step_advantages(*arguments, 3).shape == (2, 0)
    assert bootstrapped_discounts(mask, torch.ones(2).bool(), 1.0).shape == (2, 0)


def test_a_mask_with_a_gap_is_refused():
    """Case P03's bug: a scan that resets at an observation loses the credit."""
    mask = torch.tensor([[True, True, True], [True, False, True]])
    zeros = torch.zeros(2, 3)
    message = "right padding.*row 1; pack the sampled tokens"
    for call in (
        lambda: generalized_advantages(zeros, zeros, torch.zeros(2, 4), mask, 1.0),
        lambda: n_step_advantages(zeros, zeros, torch.zeros(2, 4), mask, 1),
        lambda: discounted_returns(zeros, zeros, torch.zeros(2), mask),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("lambda_", [-0.1, 1.5, NAN])
def test_lambda_outside_the_unit_interval_is_named(lambda_):
    zeros = torch.zeros(1, 1)
    with pytest.raises(ValueError, match=r"lambda_ must be in \[0, 1\], got"):
        generalized_advantages(zeros, zeros, torch.zeros(1, 2), real(1), lambda_)


@pytest.mark.parametrize("gamma", [-0.1, 1.01, NAN])
def test_gamma_outside_the_unit_interval_is_named(gamma):
    with pytest.raises(ValueError, match=r"gamma must be in \[0, 1\], got"):
        bootstrapped_discounts(real(1), torch.tensor([True]), gamma)


def test_less_than_one_step_is_refused():
    zeros = torch.zeros(1, 1)
    with pytest.raises(ValueError, match="num_steps must be at least 1, got 0"):
        n_step_advantages(zeros, zeros, torch.zeros(1, 2), real(1), 0)


def test_a_lambda_of_its_own_for_each_rollout():
    rewards, discounts, values = random_steps(6, 3, 5)
    mask, lambdas = real(5, 2, 4), torch.tensor([0.0, 0.6, 1.0], dtype=F64)
    together = generalized_advantages(rewards, discounts, values, mask, lambdas)
    for i, lambda_ in enumerate(lambdas.tolist()):
        alone = generalized_advantages(rewards, discounts, values, mask, lambda_)
        assert torch.equal(together[i], alone[i])


def test_a_lambda_outside_the_unit_interval_is_named_among_many():
    zeros = torch.zeros(3, 1)
    lambdas = torch.tensor([0.5, 1.25, -3.0])
    with pytest.raises(ValueError, match=r"lambda_ must be in \[0, 1\], got 1.25;"):
        generalized_advantages(zeros, zeros, torch.zeros(3, 2), real(1, 1, 1), lambdas)


def test_length_adaptive_lambda_closed_form():
    lengths = torch.tensor([0, 1, 20, 25, 200, 64000])
    # 1 - 1 / (.05 L): 0 up to L = 20; 1 - 1 / 1.25; 1 - 1 / 10; 1 - 1 / 3200
    found = length_adaptive_lambda(lengths, 0.05, F64)
    torch.testing.assert_close(found[None], row(0, 0, 0, 0.2, 0.9, 1 - 1 / 3200))
    # 1 - 1 / (1.5 L)
    found = length_adaptive_lambda(torch.tensor([1, 2, 4]), 1.5, F64)
    torch.testing.assert_close(found[None], row(1 / 3, 2 / 3, 5 / 6))
    assert length_adaptive_lambda(lengths, 1.5).dtype is torch.float32


@pytest.mark.parametrize("alpha", [0.0, -1.0, NAN])
def test_an_alpha_that_is_not_positive_is_named(alpha):
    with pytest.raises(ValueError, match=f"alpha must be > 0, got {alpha}"):
        length_adaptive_lambda(torch.tensor([3]), alpha)


def turns(marks):
    """Arguments of the conventions: V .5 everywhere, R 1 after the last token."""
    mask = torch.ones(1, len(marks), dtype=torch.bool)
    sampled = torch.tensor([[mark == "s" for mark in marks]])
    rewards = torch.zeros(1, len(marks), dtype=F64)
    rewards[:, -1] = 1.0
    discounts = bootstrapped_discounts(mask, torch.tensor([False]), 1.0, F64)
    values = torch.full((1, len(marks) + 1), 0.5, dtype=F64)
    return rewards, discounts, values, mask, sampled


@pytest.mark.parametrize(
    ("convention", "first"),
    [(counted_observation_advantages, 0.349), (zeroed_observation_advantages, 0.285)],
)
def test_conventions_of_other_libraries_across_an_observation(convention, first):
    """baselines.md 5: where skipping observations gives .407, and 1 gives .5 to all."""
    arguments = turns("sssoooss")
    found = convention(*arguments, 0.95)
    assert found[0, 0].item() == pytest.approx(first, abs=5e-4)
    assert (found[0, 3:6] == 0).all()
    at_one = convention(*arguments, 1.0)
    torch.testing.assert_close(at_one, 0.5 * arguments[-1].double())
    # Without an observation each is GAE over tokens.
    plain = turns("ssssss")
    expected = generalized_advantages(*plain[:4], 0.95)
    torch.testing.assert_close(convention(*plain, 0.95), expected)


def test_conventions_closed_form_across_an_observation():
    # delta .25, .25 of the observation, .25; and -.25, .75, .25 with V_1 = 0.
    rewards, discounts, _, mask, sampled = turns("sos")
    arguments = (rewards, discounts, row(0.25, 0.5, 0.75, NAN), mask, sampled)
    torch.testing.assert_close(
        counted_observation_advantages(*arguments, 0.5), row(0.4375, 0, 0.25)
    )
    torch.testing.assert_close(
        zeroed_observation_advantages(*arguments, 0.5), row(0.1875, 0, 0.25)
    )


def test_the_bootstrap_and_the_padding_are_no_observations():
    """Truncated after an observation: the last prefix keeps its value."""
    rewards, _, _, mask, sampled = turns("sso")
    rewards = torch.zeros_like(rewards)
    discounts = bootstrapped_discounts(mask, torch.tensor([True]), 1.0, F64)
    values = row(0.1, 0.2, 0.4, 0.8)
    alone = zeroed_observation_advantages(
        rewards, discounts, values, mask, sampled, 1.0
    )
    torch.testing.assert_close(alone, row(0.7, 0.6, 0))
    padded = [
        torch.cat([x, torch.full_like(x[:, :2], fill)], 1)
        for x, fill in (
            (rewards, NAN),
            (discounts, NAN),
            (values, NAN),
            (mask, False),
            (sampled, False),
        )
    ]
    for convention in (counted_observation_advantages, zeroed_observation_advantages):
        found = convention(*padded, 1.0)
        torch.testing.assert_close(found, row(0.7, 0.6, 0, 0, 0))
