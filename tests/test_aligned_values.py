"""From a moved policy to a critic's targets, and one credit with two trace decays."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.credit import (
    aligned_value_targets,
    decoupled_credit,
    gae_credit,
    outcome_credit,
    paid_at_truncation,
    shuffled_change,
)
from accredit.functional.advantages import length_adaptive_lambda
from accredit.functional.value_losses import binary_cross_entropy
from accredit.functional.value_targets import (
    doubly_robust_targets,
    full_product_targets,
    pact_targets,
    plain_targets,
    vtrace_targets,
    weighted_targets,
    windowed_targets,
)
from accredit.records import PolicyChange
from marked import BATCH, F64, VALUES, batch_of, matrix, vector

NAN = float("nan")
RULES = {
    "plain": plain_targets,
    "pact": pact_targets,
    "weighted": weighted_targets,
    "doubly_robust": doubly_robust_targets,
    "windowed": partial(windowed_targets, window=2),
    "vtrace": partial(vtrace_targets, trace_cap=float("inf")),
    "full_product": partial(full_product_targets, product_cap=None),
}
rules = pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
REWARDS = vector(1, 0.5)
# Of BATCH: o s s o o s s o and o s s s; what stands at other tokens is not read.
RATIOS = matrix([NAN, 2, 3, 0, NAN, 0.5, 4, 7], [NAN, 1.5, 0.2, 3, 0, 0, NAN, NAN])


def change_of(batch, ratios, accepted=None):
    """A change with those ratios, every token accepted unless told."""
    old = torch.full_like(ratios, -1.25)
    every = torch.ones_like(batch.sampled)
    return PolicyChange(
        old, old + ratios.log(), every if accepted is None else accepted
    )


CHANGE = change_of(BATCH, RATIOS)


def at_trainable(batch, *rows):
    """Numbers for the trainable tokens of each row, 0 elsewhere."""
    found = torch.zeros(batch.sampled.shape, dtype=F64)
    return found.masked_scatter(batch.trainable, torch.cat([vector(*r) for r in rows]))


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("plain", [1, 1, 1, 1], [0.5, 0.5, 0.5]),
        ("pact", [2, 3, 0.5, 4], [0.75, 0.1, 1.5]),
        # V .1 .2 .5 .7: .1 + 2 * .9, ... and V .3 .6 .8: .3 + 1.5 * .2, ...
        ("doubly_robust", [1.9, 2.6, 0.75, 1.9], [0.6, 0.58, -0.1]),
        # Corrections .9 1.6 -.25 .9 and .1 .08 -.6
        ("windowed", [3.25, 3.25, 1.65, 1.9], [0.08, -0.02, -0.1]),
        # 1.9; .5 + .5 * 1.4; .2 + 3 * 1; .1 + 2 * 3.1
        # -.1; .6 + .2 * -.7; .3 + 1.5 * .16
        ("vtrace", [6.3, 3.2, 1.2, 1.9], [0.54, 0.46, -0.1]),
        ("full_product", [12, 6, 2, 4], [0.45, 0.3, 1.5]),
    ],
)
def test_targets_cross_observations(name, first, second):
    found = aligned_value_targets(BATCH, REWARDS, VALUES, CHANGE, RULES[name])
    torch.testing.assert_close(found.targets, at_trainable(BATCH, first, second))
    torch.testing.assert_close(found.weights, BATCH.trainable.double())
    assert torch.equal(found.where, BATCH.trainable)


def test_ratios_weigh_the_prefix_before_their_own_token():
    found = aligned_value_targets(BATCH, REWARDS, VALUES, CHANGE, weighted_targets)
    expected = at_trainable(BATCH, [2, 3, 0.5, 4], [1.5, 0.2, 3])
    torch.testing.assert_close(found.weights, expected)
    assert torch.equal(found.targets, REWARDS[:, None] * BATCH.trainable)


@rules
def test_a_rejected_ratio_corrects_nobody(rule):
    accepted = torch.ones_like(BATCH.sampled)
    accepted[0, 5] = accepted[1, 1] = False
    wild = RATIOS.clone()
    wild[0, 5], wild[1, 1] = torch.inf, NAN
    tame = RATIOS.clone()
    tame[0, 5] = tame[1, 1] = 1.0
    change = change_of(BATCH, wild, accepted)
    found = aligned_value_targets(BATCH, REWARDS, VALUES, change, rule)
    assert torch.equal(found.where, BATCH.trainable & accepted)
    assert (found.targets[~found.where] == 0).all()
    assert (found.weights[~found.where] == 0).all()
    expected = aligned_value_targets(
        BATCH, REWARDS, VALUES, change_of(BATCH, tame), rule
    )
    assert torch.equal(found.targets[found.where], expected.targets[found.where])


@rules
def test_an_unverified_rollout_has_no_targets(rule):
    batch = replace(BATCH, verified=torch.tensor([True, False]))
    rewards = vector(1, NAN)
    found = aligned_value_targets(batch, rewards, VALUES, CHANGE, rule)
    assert torch.equal(found.where, batch.trainable)
    assert (found.targets[1] == 0).all()
    assert (found.weights[1] == 0).all()
    both = aligned_value_targets(BATCH, REWARDS, VALUES, CHANGE, rule)
    assert torch.equal(found.targets[0], both.targets[0])
    assert (found.targets[0] != 0).any()


@rules
def test_a_truncated_rollout_is_taught_the_outcome_it_is_given(rule):
    cut = replace(BATCH, truncated=torch.tensor([True, True]))
    found = aligned_value_targets(cut, REWARDS, VALUES, CHANGE, rule)
    expected = aligned_value_targets(BATCH, REWARDS, VALUES, CHANGE, rule)
    assert torch.equal(found.targets, expected.targets)
    assert torch.equal(found.where, BATCH.trainable)


@rules
def test_an_unmoved_policy_gets_plain_targets(rule):
    unmoved = torch.zeros_like(RATIOS)
    change = PolicyChange(unmoved, unmoved, BATCH.trainable)
    found = aligned_value_targets(BATCH, REWARDS, VALUES, change, rule)
    plain = aligned_value_targets(BATCH, REWARDS, VALUES, CHANGE, plain_targets)
    torch.testing.assert_close(found.targets, plain.targets)
    assert torch.equal(found.weights, plain.weights)
    assert not found.targets.requires_grad


@rules
@given(st.integers(0, 2**31), st.sampled_from([0.0, 1e6, NAN, float("inf")]))
@settings(max_examples=20, deadline=None)
def test_what_is_not_a_decision_never_reaches_a_target(rule, seed, junk):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(2, 9, generator=generator, dtype=F64)
    logprobs = -torch.rand(2, 2, 8, generator=generator, dtype=F64)
    clean = PolicyChange(*logprobs, torch.ones_like(BATCH.sampled))
    dirty = PolicyChange(*logprobs.masked_fill(~BATCH.sampled, junk), clean.accepted)
    read = torch.cat([BATCH.sampled, torch.zeros(2, 1, dtype=torch.bool)], 1)
    expected = aligned_value_targets(BATCH, REWARDS, values, clean, rule)
    found = aligned_value_targets(
        BATCH, REWARDS, torch.where(read, values, junk), dirty, rule
    )
    assert torch.equal(found.targets, expected.targets)
    assert torch.equal(found.weights, expected.weights)


def test_targets_and_weights_carry_no_gradient():
    values = VALUES.clone().requires_grad_()
    change = replace(CHANGE, new_logprobs=CHANGE.new_logprobs.clone().requires_grad_())
    for rule in RULES.values():
        found = aligned_value_targets(BATCH, REWARDS, values, change, rule)
        assert not found.targets.requires_grad
        assert not found.weights.requires_grad


def test_the_critics_gradient_is_its_value_minus_ratio_times_reward():
    """pact.md 2: sigmoid(z) - ratio R; at ratio 1, that of plain BCE."""
    logits = torch.linspace(-3, 3, 16, dtype=F64).reshape(2, 8).requires_grad_()

    def gradient(change, rule):
        wanted = aligned_value_targets(BATCH, REWARDS, VALUES, change, rule)
        losses = wanted.weights * binary_cross_entropy(
            logits, wanted.targets, wanted.where
        )
        return torch.autograd.grad(losses.sum(), logits)[0]

    expected = logits.detach().sigmoid() - RATIOS * REWARDS[:, None]
    torch.testing.assert_close(
        gradient(CHANGE, pact_targets), torch.where(BATCH.trainable, expected, 0.0)
    )
    unmoved = change_of(BATCH, torch.ones_like(RATIOS))
    torch.testing.assert_close(
        gradient(unmoved, pact_targets),
        gradient(CHANGE, plain_targets),
        atol=1e-7,
        rtol=0,
    )


def test_shuffling_deals_the_accepted_ratios_anew():
    batch = batch_of("o" + "s" * 40, "oss" + "o" * 8 + "s" * 30, verified=[1, 1])
    generator = torch.Generator().manual_seed(0)
    ratios = torch.rand(batch.sampled.shape, generator=generator, dtype=F64) + 0.5
    accepted = ratios < 1.4
    change = change_of(batch, ratios, accepted)
    found = shuffled_change(batch, change, seed=1)
    dealt = batch.trainable & accepted
    torch.testing.assert_close(
        found.ratios[dealt].sort().values, ratios[dealt].sort().values
    )
    assert (found.ratios - ratios)[dealt].abs().gt(1e-9).double().mean() > 0.9
    assert torch.equal(found.new_logprobs[~dealt], change.new_logprobs[~dealt])
    assert torch.equal(found.old_logprobs, change.old_logprobs)
    assert torch.equal(found.accepted, accepted)
    again = shuffled_change(batch, change, seed=1)
    assert torch.equal(again.new_logprobs, found.new_logprobs)
    other = shuffled_change(batch, change, seed=2)
    assert not torch.equal(other.new_logprobs, found.new_logprobs)


def test_unverified_ratios_are_not_dealt():
    batch = batch_of("osss", "osss", verified=[1, 0])
    change = change_of(batch, matrix([1, 2, 3, 4], [1, 50, 60, 70]))
    for seed in range(5):
        found = shuffled_change(batch, change, seed).ratios
        torch.testing.assert_close(found[0].sort().values, vector(1, 2, 3, 4))


def test_decoupled_credit_takes_each_from_its_own_decay():
    knobs = {"gamma": 0.9, "lambda_policy": 0.5, "lambda_critic": 0.8}
    for truncated in ((), (0, 1)):
        batch = batch_of("ossoosso", "osss....", truncated=truncated)
        found = decoupled_credit(batch, REWARDS, VALUES, **knobs)
        policy = gae_credit(batch, REWARDS, VALUES, gamma=0.9, lambda_=0.5)
        critic = gae_credit(batch, REWARDS, VALUES, gamma=0.9, lambda_=0.8)
        assert torch.equal(found.advantages, policy.advantages)
        assert torch.equal(found.value_targets, critic.value_targets)
        assert not torch.equal(found.value_targets, policy.value_targets)


def test_decoupled_credit_is_undiscounted_return_minus_value_by_default():
    found = decoupled_credit(BATCH, REWARDS, VALUES)
    expected = outcome_credit(BATCH, REWARDS, VALUES)
    torch.testing.assert_close(found.advantages, expected.advantages)
    returns = torch.where(BATCH.trainable, REWARDS[:, None], 0.0)
    torch.testing.assert_close(found.value_targets[:, :-1], returns)


def test_a_decay_by_length_counts_sampled_tokens_only():
    # Four and three sampled tokens: 1 - 1 / (.5 * 4) = .5; 1 - 1 / 1.5 = 1 / 3
    rule = partial(length_adaptive_lambda, alpha=0.5, dtype=F64)
    found = decoupled_credit(BATCH, REWARDS, VALUES, lambda_policy=rule)
    for row, lambda_ in ((0, 0.5), (1, 1 / 3)):
        expected = gae_credit(BATCH, REWARDS, VALUES, lambda_=lambda_)
        torch.testing.assert_close(found.advantages[row], expected.advantages[row])


def test_the_targets_of_a_bootstrapped_rollout_are_kept():
    """A critic of finished rollouts only learns E[R | finished]."""
    batch = replace(BATCH, truncated=torch.tensor([True, False]))
    found = decoupled_credit(batch, vector(7, 0.5), VALUES)
    # The value after the trailing observation is .4.
    expected = at_trainable(batch, [0.4] * 4, [0.5] * 3)
    torch.testing.assert_close(found.value_targets[:, :-1], expected)


def test_a_rollout_paid_at_truncation_receives_its_outcome():
    cut = replace(BATCH, truncated=torch.tensor([True, False]))
    paid = paid_at_truncation(cut)
    assert not paid.truncated.any()
    assert cut.truncated.any()
    found, expected = (
        decoupled_credit(batch, REWARDS, VALUES, lambda_policy=0.5)
        for batch in (paid, BATCH)
    )
    assert torch.equal(found.advantages, expected.advantages)
    assert torch.equal(found.value_targets, expected.value_targets)
