"""Credit rules: closed forms, conventions, and what credit never sees."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.credit import (
    batch_whitened_credit,
    chunk_credit,
    decoupled_credit,
    gae_credit,
    normalized_outcome_credit,
    outcome_credit,
)
from accredit.critics.group import GroupMean, LeaveOneOut, ZeroBaseline
from accredit.functional.baselines import leave_one_out_deviation
from marked import BATCH, F64, VALUES, batch_of, matrix, vector

NAN = float("nan")
RULES = {
    "outcome": outcome_credit,
    "normalized": normalized_outcome_credit,
    "gae": partial(gae_credit, gamma=0.9, lambda_=0.7),
    "decoupled": partial(decoupled_credit, gamma=0.9, lambda_policy=0.7),
    "chunk": partial(chunk_credit, chunk_length=2),
    "whitened": batch_whitened_credit,
}
rules = pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())


def test_outcome_credit_closed_form():
    credit = outcome_credit(BATCH, vector(1, 0), VALUES)
    expected = matrix([0, 0.9, 0.8, 0, 0, 0.5, 0.3, 0], [0, -0.3, -0.6, -0.8] + [0] * 4)
    torch.testing.assert_close(credit.advantages, expected)
    assert credit.value_targets is None


def test_gae_credit_closed_form_across_an_observation():
    # gamma .9, lambda .5, R 1. Row 0 decisions have V .1 .2 .5 .7:
    # delta 1 - .7 = .3; .9 * .7 - .5 = .13; .9 * .5 - .2 = .25; .9 * .2 - .1 = .08
    # A .3; .13 + .45 * .3 = .265; .25 + .45 * .265 = .36925; .08 + .45 * .36925
    # Row 1: -.8; .9 * .8 - .6 = .12 -> -.24; .9 * .6 - .3 = .24 -> .24 - .108 = .132
    credit = gae_credit(BATCH, vector(1, 0), VALUES, gamma=0.9, lambda_=0.5)
    first = [0, 0.2461625, 0.36925, 0, 0, 0.265, 0.3, 0]
    second = [0, 0.132, -0.24, -0.8, 0, 0, 0, 0]
    torch.testing.assert_close(credit.advantages, matrix(first, second))
    trained = BATCH.trainable
    torch.testing.assert_close(
        credit.value_targets[:, :-1],
        torch.where(trained, credit.advantages + VALUES[:, :-1], 0.0),
    )
    assert (credit.value_targets[:, -1] == 0).all()


def test_chunk_credit_closed_form():
    # Row 0: chunks (.1 -> .5) and (.5 -> R 1). Row 1: (.3 -> .8), (.8 -> R 0).
    credit = chunk_credit(BATCH, vector(1, 0), VALUES, chunk_length=2)
    expected = matrix([0, 0.4, 0.4, 0, 0, 0.5, 0.5, 0], [0, 0.5, 0.5, -0.8, 0, 0, 0, 0])
    torch.testing.assert_close(credit.advantages, expected)
    targets = matrix([0, 0.5, 0, 0, 0, 1, 0, 0, 0], [0, 0.8, 0, 0, 0, 0, 0, 0, 0])
    torch.testing.assert_close(credit.value_targets, targets)


def test_truncated_chunk_ends_in_the_value_of_the_last_prefix():
    truncated = replace(BATCH, truncated=torch.tensor([True, True]))
    credit = chunk_credit(truncated, vector(1, 0), VALUES, chunk_length=2)
    # Row 0 ends after its trailing observation: .4 - .5; row 1: .9 - .8
    torch.testing.assert_close(credit.advantages[0, 5:7], vector(-0.1, -0.1))
    torch.testing.assert_close(credit.advantages[1, 3], vector(0.1)[0])


@pytest.mark.parametrize("chunk_length", [1, 2, 3, 7])
def test_chunk_credits_sum_to_reward_minus_first_value(chunk_length):
    """Completeness (PACT, Theorem 1's corollary), whatever the chunks are."""
    credit = chunk_credit(BATCH, vector(1, 0), VALUES, chunk_length=chunk_length)
    for row, reward, first in ((0, 1, 0.1), (1, 0, 0.3)):
        of_chunks = credit.advantages[row][BATCH.sampled[row]][::chunk_length]
        assert of_chunks.sum().item() == pytest.approx(reward - first)


@pytest.mark.parametrize("lambda_, first", [(0.95, 0.407), (1.0, 0.5)])
def test_skip_observation_rule(lambda_, first):
    """baselines.md 5: 3 action + 3 observation + 2 action tokens, V .5, R 1: .407."""
    batch = batch_of("sssoooss")
    credit = gae_credit(
        batch, vector(1), torch.full((1, 9), 0.5, dtype=F64), lambda_=lambda_
    )
    assert credit.advantages[0, 0].item() == pytest.approx(first, abs=5e-4)
    # .5 * .95 ** 4 after four decisions
    assert credit.advantages[0, 0].item() == pytest.approx(0.5 * lambda_**4)


def test_p02_truncated_rollouts_bootstrap():
    """Case P02 (B003, B004)."""
    batch = batch_of("osss", truncated=[0])
    values = matrix([9, 0.5, 0.6, 0.7, 0.8])
    credit = gae_credit(batch, vector(0), values, lambda_=0.95)
    torch.testing.assert_close(credit.advantages[0, 1:], vector(0.28525, 0.195, 0.1))
    torch.testing.assert_close(
        credit.value_targets[0, 1:4], vector(0.78525, 0.795, 0.8)
    )
    finished = replace(batch, truncated=torch.tensor([False]))
    credit = gae_credit(finished, vector(0), values, lambda_=0.95)
    torch.testing.assert_close(credit.advantages[0, 1:], vector(-0.43675, -0.565, -0.7))
    pair = batch_of("ss..", "ssss", truncated=[0])
    values = matrix([0.3, 0.5, 0.9, NAN, NAN], [0.1, 0.2, 0.3, 0.4, NAN])
    credit = gae_credit(pair, vector(0, 1), values)
    expected = matrix([0.6, 0.4, 0, 0], [0.9, 0.8, 0.7, 0.6])
    torch.testing.assert_close(credit.advantages, expected)


def test_a_truncated_rollout_has_not_received_its_outcome():
    batch = batch_of("oss", truncated=[0])
    values = matrix([0, 0.5, 0.6, 0.8])
    for rule in (gae_credit, RULES["chunk"]):
        paid, unpaid = rule(batch, vector(7), values), rule(batch, vector(0), values)
        assert torch.equal(paid.advantages, unpaid.advantages)
    assert outcome_credit(batch, vector(7), values).advantages[0, 2] == 6.4


def test_gae_at_lambda_one_is_outcome_credit():
    rewards = vector(1, 0)
    torch.testing.assert_close(
        gae_credit(BATCH, rewards, VALUES).advantages,
        outcome_credit(BATCH, rewards, VALUES).advantages,
    )


def test_gae_at_lambda_zero_is_chunk_credit_of_single_tokens():
    rewards = vector(1, 0)
    by_token = gae_credit(BATCH, rewards, VALUES, lambda_=0.0)
    by_chunk = chunk_credit(BATCH, rewards, VALUES, chunk_length=1)
    torch.testing.assert_close(by_token.advantages, by_chunk.advantages)
    torch.testing.assert_close(by_token.value_targets, by_chunk.value_targets)


GROUPS = batch_of(*["os"] * 8, groups=[0, 0, 0, 0, 1, 1, 1, 1])
OUTCOMES = vector(1, 0, 0, 0, 0.95, 0.95, 0.95, 0.95)


def test_p08_normalized_credit():
    """Case P08: GRPO n - 1 [1.5, -.5, -.5, -.5]; an equal group exactly 0."""
    values = GroupMean().values(GROUPS, OUTCOMES)
    exact = normalized_outcome_credit(GROUPS, OUTCOMES, values, eps=0.0)
    assert exact.advantages[:4, 1].tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5])
    softened = normalized_outcome_credit(GROUPS, OUTCOMES, values, eps=0.5)
    assert softened.advantages[0, 1].item() == pytest.approx(0.75)
    default = normalized_outcome_credit(GROUPS, OUTCOMES, values)
    torch.testing.assert_close(default.advantages, exact.advantages, rtol=1e-5, atol=0)
    assert (default.advantages[4:] == 0).all()


def test_p08_leave_one_out_with_deviation():
    """Case P08: an all-equal peer set leaves the advantage unscaled at 1."""
    values = LeaveOneOut().values(GROUPS, OUTCOMES)
    credit = normalized_outcome_credit(
        GROUPS, OUTCOMES, values, deviation=leave_one_out_deviation
    )
    assert credit.advantages[0, 1].item() == 1
    assert (credit.advantages[4:] == 0).all()


def test_p09_unverified_rollouts_have_no_credit_and_no_vote():
    """Case P09 (B038): rewards [1, _, 0, 0]."""
    batch = batch_of(*["os"] * 4, verified=[1, 0, 1, 1])
    rewards = vector(1, NAN, 0, 0)
    values = GroupMean().values(batch, rewards)
    centred = outcome_credit(batch, rewards, values).advantages[:, 1]
    assert centred.tolist() == pytest.approx([2 / 3, 0, -1 / 3, -1 / 3])
    scaled = normalized_outcome_credit(batch, rewards, values, eps=0.0)
    assert scaled.advantages[:, 1].tolist() == pytest.approx(
        [1.154701, 0, -0.57735, -0.57735], abs=1e-6
    )


def test_batch_whitened_credit_closed_form():
    # Two rollouts of two tokens, R (3, 0), token rewards -.5 on row 0's first token and
    # -1 on row 1's second: to-go (2.5, 3), (-1, -1). Mean .875, deviation sqrt(n - 1).
    batch = batch_of("oss", "oss")
    token_rewards = matrix([7, -0.5, 0], [7, 0, -1])
    values = ZeroBaseline().values(batch, vector(3, 0))
    credit = batch_whitened_credit(
        batch, vector(3, 0), values, token_rewards=token_rewards
    )
    to_go = vector(2.5, 3, -1, -1)
    expected = (to_go - 0.875) / to_go.std()
    torch.testing.assert_close(credit.advantages[:, 1:].flatten(), expected)
    assert (credit.advantages[:, 0] == 0).all()
    plain = batch_whitened_credit(batch, vector(3, 0), values).advantages[:, 1:]
    # Four entries 1.5 from their mean: variance 9 / 3
    torch.testing.assert_close(plain, matrix([1, 1], [-1, -1]) * 1.5 / 3**0.5)


def test_batch_whitening_subtracts_the_values_first_and_skips_the_unverified():
    batch = batch_of("os", "os", "os", "os", verified=[1, 1, 1, 0])
    values = matrix([0, 1, 0], [0, 4, 0], [0, 0, 0], [0, NAN, 0])
    credit = batch_whitened_credit(batch, vector(3, 0, 2, NAN), values)
    # Differences 2, -4, 2: mean 0, variance (4 + 16 + 4) / 2 = 12
    torch.testing.assert_close(credit.advantages[:, 1], vector(2, -4, 2, 0) / 12**0.5)


@rules
def test_credit_is_zero_where_nothing_can_be_trained(rule):
    rows = ("ossoosso", "osss....", "osos....", "ooo.....")
    batch = batch_of(*rows, verified=[1, 1, 0, 0])
    values = torch.cat([VALUES, VALUES])
    credit = rule(batch, vector(1, 0, 1, 1), values)
    assert (credit.advantages[~batch.trainable] == 0).all()
    assert (credit.advantages[batch.trainable] != 0).any()
    if credit.value_targets is not None:
        assert (credit.value_targets[:, :-1][~batch.trainable] == 0).all()
        assert (credit.value_targets[:, -1] == 0).all()
        assert (credit.value_targets != 0).any()


@rules
def test_credit_carries_no_gradient(rule):
    values = VALUES.clone().requires_grad_()
    credit = rule(BATCH, vector(1, 0).requires_grad_(), values)
    assert not credit.advantages.requires_grad
    if credit.value_targets is not None:
        assert not credit.value_targets.requires_grad


def random_values(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, 9, generator=generator, dtype=F64)


RAGGED = ("ossoosso", "osss....", "osos....")


@rules
@given(st.integers(0, 2**31), st.sampled_from([0.0, 1e6, NAN, float("inf")]))
@settings(max_examples=20, deadline=None)
def test_values_at_padding_and_inside_observations_never_reach_credit(rule, seed, junk):
    """Cases B001, B002, B009: bit for bit, for finished and truncated rollouts."""
    values = random_values(seed)
    read = torch.zeros(3, 9, dtype=torch.bool)
    for row, columns in ((0, [1, 2, 5, 6, 8]), (1, [1, 2, 3, 4]), (2, [1, 3, 4])):
        read[row, columns] = True
    for truncated in ((), (0, 1, 2), (1,)):
        batch = batch_of(*RAGGED, truncated=truncated)
        clean = rule(batch, vector(1, 0, 0.5), values)
        dirty = rule(batch, vector(1, 0, 0.5), torch.where(read, values, junk))
        assert torch.equal(clean.advantages, dirty.advantages)
        padded = batch_of(*(row + "..." for row in RAGGED), truncated=truncated)
        fill = torch.full((3, 3), junk, dtype=F64)
        wider = rule(padded, vector(1, 0, 0.5), torch.cat([values, fill], 1))
        assert torch.equal(wider.advantages[:, :8], clean.advantages)
        if clean.value_targets is not None:
            assert torch.equal(clean.value_targets, dirty.value_targets)


@rules
@given(st.integers(0, 2**31), st.permutations(range(3)))
@settings(max_examples=20, deadline=None)
def test_permuting_rollouts_permutes_credit(rule, seed, order):
    batch = batch_of(*RAGGED, truncated=(1,), groups=[0, 1, 0])
    values, rewards = random_values(seed), vector(1, 0, 0.5)
    index = torch.tensor(order)
    permuted = rule(batch.rows(index), rewards[index], values[index])
    torch.testing.assert_close(
        permuted.advantages, rule(batch, rewards, values).advantages[index]
    )


@pytest.mark.parametrize("critic", [GroupMean(), LeaveOneOut()])
@given(st.floats(-20, 20), st.floats(0.1, 20))
@settings(max_examples=20, deadline=None)
def test_group_credit_ignores_shift_and_follows_scale(critic, shift, scale):
    def dealt(rule, rewards):
        return rule(GROUPS, rewards, critic.values(GROUPS, rewards)).advantages

    outcomes = vector(1, 0, 0.25, 0, 3, 1, 0, 2)
    moved = outcomes * scale + shift
    plain = dealt(outcome_credit, outcomes)
    torch.testing.assert_close(dealt(outcome_credit, moved), plain * scale)
    unscaled = partial(normalized_outcome_credit, eps=0.0)
    torch.testing.assert_close(dealt(unscaled, moved), dealt(unscaled, outcomes))


@given(st.integers(1, 4), st.integers(0, 4), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_credit_crosses_observation_spans_of_any_length(before, observed, after):
    """Case P03's kind: an observation inserted between decisions changes no credit."""
    together = batch_of("o" + "s" * (before + after))
    apart = batch_of("o" + "s" * before + "o" * observed + "s" * after)
    values = random_values(before + after)[:1, : before + after + 2]
    spread = torch.full((1, before + observed + after + 2), NAN, dtype=F64)
    spread[:, : before + 1] = values[:, : before + 1]
    spread[:, before + observed + 1 :] = values[:, before + 1 :]
    for name in ("gae", "chunk", "outcome"):
        expected = RULES[name](together, vector(1), values).advantages
        found = RULES[name](apart, vector(1), spread).advantages
        assert torch.equal(found[apart.sampled], expected[together.sampled])


def test_b047_the_outcome_is_not_read_through_a_token_mask():
    """Case B047: masking the last token keeps the reward for the others."""
    values = torch.zeros(1, 4, dtype=F64)
    for row in ("oss", "oso"):
        for rule in (outcome_credit, gae_credit):
            credit = rule(batch_of(row), vector(1), values)
            assert credit.advantages[0, 1] == 1


def test_b046_a_group_without_variance_has_no_policy_term():
    """Case B046: credit exactly 0; a KL term in the loss is not claimed to be."""
    outcomes = torch.full((8,), 0.1, dtype=F64)
    credit = normalized_outcome_credit(
        GROUPS, outcomes, GroupMean().values(GROUPS, outcomes)
    )
    assert (credit.advantages == 0).all()
