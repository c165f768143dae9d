"""The health of any critic, by hand; a group mean answers the same questions."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from synthetic_run import synthetic_record
from test_metrics import small_record, with_policy

from accredit.batches.decisions import token_steps
from accredit.critics.group import GroupMean, LeaveOneOut, ZeroBaseline
from accredit.records import Credit, CriticUpdate, PolicyChange, Record, State
from accredit.reports.alarms.alarms import warning_lines
from accredit.reports.metrics.critic import step_values
from accredit.reports.metrics.step import step_metrics

BOUND_OF_THEOREM_4 = 25.0
"""Var(R) <= 1/4 over .1^2."""


def with_values(record: Record, rows: list[list[float]]) -> Record:
    """Values before the sampled tokens of each row; 9 wherever they must not matter."""
    values = torch.full_like(record.values, 9.0)
    for row, found in enumerate(rows):
        columns = record.batch.sampled[row].nonzero()[:, 0]
        values[row, columns] = torch.tensor(found)
    return replace(record, values=values)


def with_change(record: Record, ratios: list[float], accepted: list[bool]) -> Record:
    """Ratios of the trainable tokens in order; junk at all others."""
    kept = record.batch.trainable
    new = torch.full(kept.shape, 50.0)
    new[kept] = torch.tensor(ratios).log() - 1.0
    old = torch.where(kept, -1.0, -50.0)
    taken = torch.ones_like(kept)
    taken[kept] = torch.tensor(accepted, dtype=torch.bool)
    return replace(record, change=PolicyChange(old, new, taken))


def test_steps_end_in_the_outcome_and_padding_is_nothing():
    record = with_values(small_record([1.0, 0.25], [3, 1]), [[0.5, 0.6, 0.9], [0.7]])
    steps = token_steps(record.batch.sampled, record.batch.token_mask)
    found = step_values(steps, record.values, record.shaped_rewards)
    expected = [[0.5, 0.6, 0.9, 1.0], [0.7, 0.25, 0.0, 0.0]]
    torch.testing.assert_close(found, torch.tensor(expected))


def test_step_credits_by_hand():
    # moves .05, .3, .15 of a success, .2 of a failure with one token
    rows = [[0.5, 0.55, 0.85], [0.2]]
    metrics = step_metrics(with_values(small_record([1.0, 0.0], [3, 1]), rows), State())
    assert metrics["credit/step_abs_mean"] == pytest.approx(0.7 / 4)
    assert metrics["credit/step_large_mean"] == pytest.approx(3 / 2)
    # Var(R) of (1, 0) with n - 1 is .5: held at the largest of a reward in [0, 1]
    assert metrics["credit/step_large_bound"] == pytest.approx(BOUND_OF_THEOREM_4)
    assert metrics["credit/step_abs_bound"] == pytest.approx(math.sqrt(0.25 / 2))


def test_credit_crosses_an_observation_and_is_read_after_it():
    record = with_values(small_record([1.0], [4]), [[0.5, 0.1, 0.1, 0.75]])
    sampled = record.batch.sampled.clone()
    hidden = sampled[0].nonzero()[1:3, 0]
    sampled[0, hidden] = False
    logprobs = torch.where(sampled, record.batch.sampling_logprobs, 0.0)
    batch = replace(record.batch, sampled=sampled, sampling_logprobs=logprobs)
    metrics = step_metrics(replace(record, batch=batch, policy=None), State())
    # .75 - .5 across the two observed tokens, then 1 - .75
    assert metrics["credit/step_abs_mean"] == pytest.approx(0.25)
    assert metrics["credit/step_large_mean"] == 2


def test_the_bound_takes_the_variance_given_the_prompt():
    # two sure prompts and one with (0, 0, 0, 1): deviations .75 once, .25 thrice
    rewards = [1.0] * 4 + [0.0] * 4 + [0.0, 0.0, 0.0, 1.0]
    record = small_record(rewards, [2] * 12, group_size=4)
    metrics = step_metrics(record, State())
    assert metrics["credit/step_large_bound"] == pytest.approx(0.75 / 9 / 0.01)
    assert metrics["credit/step_abs_bound"] == pytest.approx(math.sqrt(0.75 / 9 / 2))
    # one rollout a prompt: what is between prompts counts too, 5 of 12 won
    single = step_metrics(small_record(rewards, [2] * 12, group_size=1), State())
    assert single["credit/step_large_bound"] == pytest.approx(25.0)
    rare = step_metrics(small_record([1.0] + [0.0] * 9, [2] * 10, 1), State())
    # Var = .1 * .9 * 10 / 9
    assert rare["credit/step_large_bound"] == pytest.approx(10.0)


def test_rewards_beyond_one_have_a_larger_bound():
    metrics = step_metrics(small_record([2.0, -2.0], [2, 2]), State())
    assert metrics["credit/step_large_bound"] == pytest.approx(8.0 / 0.01)


def test_a_lone_rollout_has_no_variance_and_no_bound():
    metrics = step_metrics(small_record([1.0], [2]), State())
    assert "credit/step_large_bound" not in metrics
    assert metrics["credit/step_large_mean"] == 1


@pytest.mark.parametrize("seed", range(3))
def test_exact_values_stay_under_both_bounds(seed):
    """A fair walk on 0..16 that pays at 16: V is the position over 16."""
    rng = np.random.default_rng(seed)
    num_rollouts, most = 256, 400
    paths = []
    for _ in range(num_rollouts):
        path = [8]
        while 0 < path[-1] < 16 and len(path) <= most:
            path.append(path[-1] + int(rng.choice([-1, 1])))
        paths.append(path)
    rewards = [path[-1] / 16 for path in paths]
    record = small_record(rewards, [len(path) - 1 for path in paths])
    record = with_values(record, [[x / 16 for x in path[:-1]] for path in paths])
    metrics = step_metrics(record, State())
    assert metrics["credit/step_abs_mean"] == pytest.approx(1 / 16)
    # every move is of one size, so that the bound is met but for the sample's luck
    assert metrics["credit/step_abs_bound"] == pytest.approx(1 / 16, rel=0.1)
    assert metrics["credit/step_large_mean"] == 0
    assert 15.0 < metrics["credit/step_large_bound"] <= BOUND_OF_THEOREM_4
    assert abs(metrics["critic/bias"]) < 0.06
    assert metrics["critic/explained_variance"] > 0.1


def bootstrapped_record() -> Record:
    """A success, a failure, and one cut short whose worth the critic says itself."""
    record = small_record([1.0, 0.0, 0.0], [2, 1, 2])
    record = with_values(record, [[0.6, 0.8], [0.3], [0.5, 0.7]])
    return replace(
        record,
        shaped_rewards=torch.tensor([1.0, 0.0, 0.7]),
        outcome_known=torch.tensor([True, True, False]),
    )


def test_a_critic_is_not_measured_by_its_own_word():
    record = bootstrapped_record()
    metrics = step_metrics(record, State())
    # errors -.4, -.2, .3 of the two that ended
    assert metrics["critic/mae"] == pytest.approx(0.9 / 3)
    assert metrics["critic/bias"] == pytest.approx(-0.3 / 3)
    assert metrics["critic/constant_mae"] == pytest.approx(4 / 9)
    assert metrics["critic/value_mean"] == pytest.approx(1.7 / 3)
    # one group: V of the prompts .6 and .3, mean outcome .5
    assert metrics["critic/prompt_bias"] == pytest.approx(-0.05)
    # moves .2, .2 and .3
    assert metrics["credit/step_abs_mean"] == pytest.approx(0.7 / 3)
    assert metrics["credit/step_large_mean"] == pytest.approx(3 / 2)
    assert metrics["credit/step_large_bound"] == pytest.approx(BOUND_OF_THEOREM_4)
    shorter = small_record([1.0, 0.0], [2, 1])
    alone = step_metrics(with_values(shorter, [[0.6, 0.8], [0.3]]), State())
    assert metrics["critic/unknown_share"] == pytest.approx(1 / 3)
    assert alone.pop("critic/unknown_share") == 0.0
    asked = {key for key in alone if key.startswith(("critic/", "credit/step"))}
    assert {key: metrics[key] for key in asked} == pytest.approx(
        {key: alone[key] for key in asked}
    )


def test_advantages_of_a_bootstrapped_rollout_are_spent_and_counted():
    record = bootstrapped_record()
    dealt = torch.where(record.batch.sampled, 0.2, 9.0)
    metrics = step_metrics(replace(record, credit=Credit(dealt)), State())
    assert metrics["credit/large_count"] == 5
    assert metrics["credit/abs_mean"] == pytest.approx(0.2)


def test_where_every_rollout_was_cut_short_no_critic_is_measured():
    record = bootstrapped_record()
    nothing = torch.zeros(3, dtype=torch.bool)
    metrics = step_metrics(replace(record, outcome_known=nothing), State())
    kept = {key for key in metrics if key.startswith(("critic/", "credit/"))}
    assert kept == {"credit/abs_mean", "credit/large_count", "critic/unknown_share"}
    assert metrics["critic/unknown_share"] == 1.0


def test_what_was_never_verified_is_not_known_whatever_is_told():
    record = small_record([1.0, None], [2, 2])
    told = replace(record, outcome_known=torch.tensor([True, True]))
    assert step_metrics(told, State()) == step_metrics(record, State())


def test_a_step_says_whether_a_critic_valued_it():
    record = small_record([1.0, 0.0], [2, 1])
    assert "critic/valued_share" not in step_metrics(record, State())
    valued = replace(record, valued_by_critic=True)
    assert step_metrics(valued, State())["critic/valued_share"] == 1.0


def test_errors_at_the_prompt_are_a_groups():
    # groups: V .5 and .7 against (1, 0); V .2 against (0, 0)
    record = small_record([1.0, 0.0, 0.0, 0.0], [2] * 4, group_size=2)
    rows = [[0.5, 9.0], [0.7, 9.0], [0.2, 9.0], [0.2, 9.0]]
    metrics = step_metrics(with_values(record, rows), State())
    assert metrics["critic/prompt_mae"] == pytest.approx((0.1 + 0.2) / 2)
    assert metrics["critic/prompt_bias"] == pytest.approx((0.1 + 0.2) / 2)
    below = [[0.3, 9.0], [0.3, 9.0], [0.2, 9.0], [0.2, 9.0]]
    metrics = step_metrics(with_values(record, below), State())
    assert metrics["critic/prompt_mae"] == pytest.approx((0.2 + 0.2) / 2)
    assert metrics["critic/prompt_bias"] == pytest.approx(0.0, abs=1e-6)


def test_a_constant_is_judged_by_its_own_error():
    # 3 tokens of R 1, 1 of R 0: mean .75, errors .25 thrice and .75
    metrics = step_metrics(small_record([1.0, 0.0], [3, 1]), State())
    assert metrics["critic/constant_mae"] == pytest.approx(1.5 / 4)


def test_what_the_critic_did_is_in_the_row():
    update = CriticUpdate((0.5, math.nan, 0.25), (2.0, math.nan, 1.0), 5e-6, 1, 7.0)
    record = replace(small_record([1.0, 0.0], [2, 2]), critic=update)
    metrics = step_metrics(record, State())
    assert metrics["critic/loss"] == pytest.approx(0.375)
    assert metrics["critic/gradient_norm"] == pytest.approx(1.5)
    assert metrics["critic/learning_rate"] == 5e-6
    assert metrics["critic/num_skipped"] == 1


def test_ratios_and_rejections_are_of_trainable_tokens():
    record = small_record([1.0, 0.0, None], [2, 1, 2], group_size=3)
    record = with_change(record, [1.5, 8.0, 0.25], [True, False, True])
    metrics = step_metrics(record, State())
    assert metrics["critic/ratio_mean"] == pytest.approx(9.75 / 3)
    assert metrics["critic/ratio_max"] == pytest.approx(8.0)
    assert metrics["critic/rejected_share"] == pytest.approx(1 / 3)


def test_a_step_whose_tokens_were_all_rejected_still_has_a_row():
    record = with_change(small_record([1.0, 0.0], [2, 2]), [9.0] * 4, [False] * 4)
    nothing = CriticUpdate((math.nan,), (math.nan,), 5e-6, 1, 0.0)
    metrics = step_metrics(replace(record, critic=nothing), State(step=1))
    assert metrics["critic/rejected_share"] == 1.0
    assert metrics["critic/num_skipped"] == 1
    assert "critic/loss" not in metrics and "critic/gradient_norm" not in metrics
    assert all(math.isfinite(value) for value in metrics.values())


def test_nothing_verified_is_no_figure_and_no_failure():
    record = with_change(small_record([None, None], [2, 2]), [], [])
    metrics = step_metrics(replace(record, policy=None), State())
    kept = {key for key in metrics if key.startswith(("critic/", "credit/"))}
    assert kept == {"credit/large_count"}


@pytest.mark.parametrize("critic", [GroupMean(), LeaveOneOut(), ZeroBaseline()])
@pytest.mark.parametrize("skill", [0.1, 0.5, 1.0])
def test_group_critics_answer_the_same_questions_without_an_alarm(critic, skill):
    rng = np.random.default_rng(3)
    rows = []
    for step in range(1, 13):
        record = synthetic_record(rng, skill, num_groups=4, group_size=4, num_tokens=12)
        values = critic.values(record.batch, record.shaped_rewards)
        record = replace(record, values=values, critic=None, change=None)
        record = replace(record, valued_by_critic=False)
        row = step_metrics(with_policy(record), State(step=step))
        assert {"critic/mae", "critic/bias", "credit/step_abs_mean"} <= row.keys()
        assert "critic/loss" not in row and "critic/ratio_mean" not in row
        rows.append(row)
    told = [line for line in warning_lines(rows) if "critic" in line or "value" in line]
    assert told == []
    if critic != ZeroBaseline():
        assert rows[0]["critic/prompt_mae"] == pytest.approx(0.0, abs=1e-6)


def test_a_critic_that_foresees_is_told_from_one_that_does_not():
    record = synthetic_record(np.random.default_rng(5), 0.5)
    seen = step_metrics(record, State())
    noise = torch.rand(record.values.shape, generator=torch.manual_seed(0))
    blind = step_metrics(replace(record, values=noise), State())
    assert (
        seen["critic/explained_variance"] > 0.1 > 0 > blind["critic/explained_variance"]
    )
    assert seen["credit/step_large_mean"] < blind["credit/step_large_mean"]
    rows = [blind | {"step": step} for step in range(1, 6)]
    assert any("the critic is noisy" in line for line in warning_lines(rows))
    assert any(
        "the critic's explained variance was below 0" in line
        for line in warning_lines(rows)
    )


@pytest.mark.parametrize("rewards", [[1.0, 1.0 + 2**-23], [1000.0, 1000.0 + 2**-13]])
def test_what_differs_by_rounding_only_explains_nothing(rewards):
    """float32 neighbours: their variance is noise, and so is what explains it."""
    record = with_values(small_record(rewards, [1, 1]), [[0.25], [0.75]])
    assert record.shaped_rewards[0] != record.shaped_rewards[1]
    metrics = step_metrics(record, State())
    assert "critic/explained_variance" not in metrics
    assert "critic/correlation" not in metrics
    assert metrics["critic/mae"] > 0
    apart = with_values(small_record([1.0, 0.0], [1, 1]), [[0.25], [0.75]])
    assert step_metrics(apart, State())["critic/correlation"] == pytest.approx(-1.0)


def test_values_that_differ_by_rounding_only_correlate_with_nothing():
    record = with_values(small_record([1.0, 0.0], [1, 1]), [[0.5], [0.5 + 2**-24]])
    metrics = step_metrics(record, State())
    assert "critic/correlation" not in metrics
    assert metrics["critic/explained_variance"] == pytest.approx(0.0, abs=1e-6)
