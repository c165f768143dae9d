"""One record in, one row out: closed forms, pooling, and the page that defines keys."""

import json
import math
import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from routed_record import routing
from synthetic_run import collated, problem_prompt, rollout, synthetic_record

from accredit.algorithms.replay.update import EntropyControl
from accredit.records import Cost, Credit, PolicyUpdate, Record, State
from accredit.reports.metrics.step import (
    is_timing,
    last_fault,
    num_judged,
    step_metrics,
)
from accredit.types import Group, StopReason, Verdict

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"


def small_record(
    rewards: list[float | None], lengths: list[int], group_size: int | None = None
) -> Record:
    """Values 0, advantages 0, all log-probs -1; rows are replaced by the tests."""
    group_size = group_size or len(rewards)
    groups = []
    for start in range(0, len(rewards), group_size):
        prompt = problem_prompt(f"p{start}")
        rows = range(start, start + group_size)
        groups.append(
            Group(
                prompt,
                tuple(
                    rollout(prompt, tuple(range(lengths[i])), [-1.0] * lengths[i])
                    for i in rows
                ),
                tuple(
                    Verdict(None, "cannot tell")
                    if rewards[i] is None
                    else Verdict(rewards[i])
                    for i in rows
                ),
            )
        )
    batch = collated(groups)
    shape = batch.token_ids.shape
    logprobs = torch.where(batch.sampled, -1.0, -7.0)
    policy = PolicyUpdate(
        old_logprobs=logprobs,
        logprobs=logprobs,
        entropies=torch.where(batch.sampled, 1.0, 7.0),
        reference_logprobs=None,
        losses=(0.25,),
        gradient_norms=(1.5,),
        learning_rate=1e-3,
        num_skipped=0,
        num_forward_tokens=0,
        num_backward_tokens=0,
    )
    return Record(
        groups=tuple(groups),
        batch=batch,
        shaped_rewards=batch.rewards,
        values=torch.zeros(shape[0], shape[1] + 1),
        credit=Credit(torch.zeros(shape)),
        policy=policy,
        cost=Cost(tokens_generated=30),
        times_s={"generate": 2.0, "update": 1.0},
    )


def with_policy(record: Record, **changes) -> Record:
    assert record.policy is not None
    return replace(record, policy=replace(record.policy, **changes))


def sampled_columns(record: Record, rows: list[list[float]]) -> torch.Tensor:
    """Per-rollout lists at the sampled tokens; what padding holds must not matter."""
    column = torch.full(record.batch.token_ids.shape, -7.0)
    column[record.batch.sampled] = torch.tensor([x for row in rows for x in row])
    return column


def test_p07_shares_are_pooled_over_tokens():
    # 3 clipped of 12 tokens, 3 of 4: 6 / 16 = .375; the mean of means would be .5
    record = small_record([1.0, 0.0], [12, 4])
    high, same = math.log(1.5) - 1.0, -1.0
    rows = [[high] * 3 + [same] * 9, [high] * 3 + [same]]
    logprobs = sampled_columns(record, rows)
    metrics = step_metrics(with_policy(record, logprobs=logprobs), State(), (0.2, 0.28))
    assert metrics["policy/clip_share"] == pytest.approx(0.375)
    assert metrics["policy/ratio_max"] == pytest.approx(1.5)
    assert metrics["policy/ratio_mean"] == pytest.approx((6 * 1.5 + 10) / 16)
    # k3 = r - 1 - log r = .5 - log 1.5 at six of sixteen tokens
    expected = 6 / 16 * (0.5 - math.log(1.5))
    assert metrics["policy/kl_k3_mean"] == pytest.approx(expected, rel=1e-5)


def test_clip_share_counts_both_sides_of_asymmetric_bounds():
    record = small_record([1.0], [4])
    row = [math.log(r) - 1 for r in (0.79, 0.81, 1.27, 1.29)]
    record = with_policy(record, logprobs=sampled_columns(record, [row]))
    metrics = step_metrics(record, State(), clip_bounds=(0.2, 0.28))
    assert metrics["policy/clip_share"] == pytest.approx(0.5)
    assert "policy/clip_share" not in step_metrics(record, State())


def test_clip_share_is_by_the_bounds_of_the_step():
    """1 + .28 - .08 here: 1.27 is clipped as well."""
    record = small_record([1.0], [4])
    row = [math.log(r) - 1 for r in (0.79, 0.81, 1.27, 1.29)]
    record = with_policy(record, logprobs=sampled_columns(record, [row]))
    moved = replace(
        record, clip_bounds=(0.2, 0.2), sections=(EntropyControl(0.2, 0.5),)
    )
    metrics = step_metrics(moved, State(), clip_bounds=(0.2, 0.28))
    assert metrics["policy/clip_share"] == pytest.approx(0.75)
    assert metrics["policy/clip_high"] == 0.2
    assert metrics["ac2/start_entropy"] == 0.5
    plain = step_metrics(record, State(), clip_bounds=(0.2, 0.28))
    assert not {"policy/clip_high", "ac2/start_entropy"} & set(plain)


def test_b176_padding_never_enters_a_token_mean():
    metrics = step_metrics(small_record([1.0, 0.0], [2, 4]), State())
    assert metrics["policy/entropy_mean"] == 1.0
    assert metrics["policy/ratio_max"] == 1.0
    assert metrics["mismatch/kl_k3_mean"] == 0.0


def test_b177_masked_truncated_rollouts_keep_their_length():
    record = small_record([1.0, None], [3, 8])
    group = record.groups[0]
    cut = replace(group.rollouts[1], stop_reason=StopReason.LENGTH)
    group = replace(group, rollouts=(group.rollouts[0], cut))
    metrics = step_metrics(replace(record, groups=(group,)), State())
    assert metrics["length/mean"] == 5.5
    assert (metrics["length/min"], metrics["length/max"]) == (3, 8)
    assert metrics["length/truncated_share"] == 0.5
    assert metrics["rollout/finished_share"] == 0.5


def test_b178_raw_and_shaped_rewards_are_two_numbers():
    record = small_record([1.0, 0.0], [2, 2])
    record = replace(record, shaped_rewards=torch.tensor([0.95, -0.05]))
    metrics = step_metrics(record, State())
    assert metrics["reward/mean"] == pytest.approx(0.5)
    assert metrics["reward/shaped_mean"] == pytest.approx(0.45)
    # sqrt(.25 + .25) with n - 1 = 1
    assert metrics["reward/deviation"] == pytest.approx(0.5**0.5)


def test_b179_one_unverified_reward_leaves_the_mean_and_is_counted():
    metrics = step_metrics(small_record([1.0, None], [2, 2]), State())
    assert metrics["reward/mean"] == metrics["reward/shaped_mean"] == 1.0
    assert metrics["reward/invalid_share"] == 0.5
    assert "reward/deviation" not in metrics


def test_b180_the_logged_loss_is_the_optimised_one():
    record = small_record([1.0, 0.0], [2, 2])
    one = step_metrics(with_policy(record, losses=(0.125,)), State())
    assert one["policy/loss"] == 0.125
    several = with_policy(record, losses=(0.1, math.nan, 0.3), num_skipped=1)
    metrics = step_metrics(several, State())
    assert metrics["policy/loss"] == pytest.approx(0.2)
    assert metrics["policy/num_skipped"] == 1


def test_b098_explained_variance_of_a_constant_and_of_the_mirror_image():
    record = small_record([0.0, 1.0, 0.0, 1.0], [3, 3, 3, 3])
    constant = step_metrics(record, State())
    assert constant["critic/explained_variance"] == pytest.approx(0.0)
    assert "critic/correlation" not in constant
    mirror = (1.0 - record.batch.rewards)[:, None].expand_as(record.values).clone()
    metrics = step_metrics(replace(record, values=mirror), State())
    # errors +-1: 1 - 1 / .25
    assert metrics["critic/explained_variance"] == pytest.approx(-3.0)
    assert metrics["critic/correlation"] == pytest.approx(-1.0)
    assert metrics["critic/mae"] == pytest.approx(1.0)
    assert metrics["critic/bias"] == pytest.approx(0.0)
    assert metrics["critic/value_gap"] == pytest.approx(-1.0)


def test_critic_health_by_hand_over_pooled_tokens():
    # V .6, .8, 1 before the tokens of a success, .5 before a failure's one token
    record = small_record([1.0, 0.0], [3, 1])
    values = torch.full_like(record.values, 9.0)
    values[:, :-1][record.batch.sampled] = torch.tensor([0.6, 0.8, 1.0, 0.5])
    advantages = torch.full_like(record.credit.advantages, 9.0)
    advantages[record.batch.sampled] = torch.tensor([0.2, 0.05, -0.3, 0.08])
    record = replace(record, values=values, credit=Credit(advantages))
    metrics = step_metrics(record, State())
    # errors -.4, -.2, 0, .5
    assert metrics["critic/mae"] == pytest.approx(1.1 / 4)
    assert metrics["critic/bias"] == pytest.approx(-0.1 / 4)
    # Var(errors) = .45 / 4 - .025^2 = .111875, Var(R) = 3 / 16
    assert metrics["critic/explained_variance"] == pytest.approx(1 - 0.111875 / 0.1875)
    assert metrics["critic/value_mean"] == pytest.approx(2.9 / 4)
    assert metrics["critic/value_gap"] == pytest.approx(0.8 - 0.5)
    assert metrics["credit/abs_mean"] == pytest.approx(0.63 / 4)
    assert metrics["credit/large_count"] == 2


def test_unverified_rollouts_never_reach_the_critics_figures():
    record = small_record([1.0, 0.0, None], [2, 2, 2])
    values = torch.zeros_like(record.values)
    values[2] = 99.0
    metrics = step_metrics(replace(record, values=values), State())
    assert metrics["critic/value_mean"] == 0.0


def test_mismatch_is_between_the_engine_and_the_trainer():
    # trainer / engine = 3 at one of two tokens
    record = small_record([1.0], [2])
    old = sampled_columns(record, [[math.log(3.0) - 1.0, -1.0]])
    metrics = step_metrics(with_policy(record, old_logprobs=old), State())
    assert metrics["mismatch/ratio_max"] == pytest.approx(3.0)
    assert metrics["mismatch/ratio_mean"] == pytest.approx(2.0)
    assert metrics["mismatch/clip_share"] == pytest.approx(0.5)
    assert metrics["mismatch/kl_k3_mean"] == pytest.approx((2 - math.log(3.0)) / 2)


def test_ratios_to_the_engine_leave_the_mismatch_its_trainer():
    """The engine's own words as the old ones are nobody's agreement with it."""
    record = small_record([1.0, None], [2, 1], group_size=2)
    engines = record.batch.sampling_logprobs.clone()
    # nothing is known of what was not verified, nor trained on it
    old = torch.where(record.batch.trainable, engines, 0.0)
    new = sampled_columns(record, [[math.log(3.0) - 1.0, -1.0], [5.0]])
    told = with_policy(record, old_logprobs=old, logprobs=new)
    metrics = step_metrics(told, State())
    assert metrics["mismatch/ratio_max"] == pytest.approx(3.0)
    assert metrics["mismatch/ratio_mean"] == pytest.approx(2.0)
    assert metrics["mismatch/clip_share"] == pytest.approx(0.5)
    assert metrics["mismatch/kl_k3_mean"] == pytest.approx((2 - math.log(3.0)) / 2)


def test_a_policy_that_moved_is_no_mismatch_where_old_ones_are_the_trainers():
    # a rounding away from the engine at one token: trainer's own old log-probs
    record = small_record([1.0], [2])
    old = sampled_columns(record, [[-1.0 + 1e-6, -1.0]])
    new = sampled_columns(record, [[math.log(3.0) - 1.0, -1.0]])
    told = with_policy(record, old_logprobs=old, logprobs=new)
    metrics = step_metrics(told, State())
    assert metrics["mismatch/ratio_max"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["policy/ratio_max"] == pytest.approx(3.0, rel=1e-5)


def test_reference_divergence_is_p11s_k3():
    # Case P11: log-prob -1, reference -1.5 gives k3 .106531
    record = small_record([1.0], [1])
    reference = sampled_columns(record, [[-1.5]])
    metrics = step_metrics(with_policy(record, reference_logprobs=reference), State())
    assert metrics["policy/reference_kl_k3_mean"] == pytest.approx(0.106531, abs=1e-6)


def test_groups_without_signal_are_counted_among_those_that_can_have_one():
    rewards = [1.0, 1.0, 0.0, 1.0, None, 0.0, None, None]
    metrics = step_metrics(small_record(rewards, [2] * 8, group_size=2), State())
    # (1, 1) of (1, 1) and (0, 1); (None, 0) and (None, None) have nothing to compare
    assert metrics["group/all_equal_share"] == 0.5
    assert metrics["group/num"] == 4
    single = step_metrics(small_record([1.0, 0.0], [2, 2], group_size=1), State())
    assert "group/all_equal_share" not in single


def test_rewards_that_are_missing_are_not_equal_rewards():
    for rewards in ([None] * 4, [1.0, None, None, 0.0]):
        metrics = step_metrics(small_record(rewards, [2] * 4, group_size=2), State())
        assert "group/all_equal_share" not in metrics
    rewards = [1.0, 1.0, None, 1.0, None, None]
    metrics = step_metrics(small_record(rewards, [2] * 6, group_size=3), State())
    assert metrics["group/all_equal_share"] == 1.0


def test_costs_are_the_runs_and_speed_is_the_steps():
    cost = Cost(1e9, 2e9, 4e9, 8e9, tokens_generated=500, num_verifications=16)
    state = State(step=3, cost=cost, counters={"skipped_steps": 2})
    record = replace(small_record([1.0], [2]), counts={"dropped_groups": 1})
    metrics = step_metrics(record, state)
    assert metrics["step"] == 3
    assert metrics["flops/decode"] == 1e9
    assert metrics["flops/total"] == 15e9
    assert metrics["tokens/generated"] == 500
    assert metrics["time/step_s"] == 3.0
    assert metrics["time/generate_s"] == 2.0
    assert metrics["tokens/per_s"] == 10.0
    assert metrics["count/dropped_groups"] == 1
    assert metrics["total/skipped_steps"] == 2


def test_a_measured_step_time_wins_over_the_sum_of_its_stages():
    record = replace(small_record([1.0], [2]), times_s={"update": 1.0, "step": 1.5})
    assert step_metrics(record, State())["time/step_s"] == 1.5


def test_a_skipped_update_leaves_the_critics_health():
    metrics = step_metrics(
        replace(small_record([1.0, 0.0], [2, 2]), policy=None), State()
    )
    assert metrics["critic/explained_variance"] == pytest.approx(0.0)
    assert not any(key.startswith(("policy/", "mismatch/")) for key in metrics)


@pytest.mark.parametrize("rewards", [[None, None], [0.7, 0.7], [1.0, 0.0]])
def test_rows_are_json_without_nan(rewards):
    record = small_record(rewards, [2, 2])
    broken = with_policy(
        record, losses=(math.nan,), gradient_norms=(math.inf,), learning_rate=0.0
    )
    row = step_metrics(broken, State())
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    assert "policy/gradient_norm" not in row


def test_equal_rewards_of_any_size_have_no_explained_variance():
    # .95 is no float32: its rounding must not pass for a spread
    metrics = step_metrics(small_record([0.95] * 7, [2] * 7), State())
    assert "critic/explained_variance" not in metrics


def test_one_broken_token_leaves_finite_numbers():
    record = small_record([1.0], [2])
    logprobs = sampled_columns(record, [[-1.0, -1.0]])
    old = sampled_columns(record, [[-1.0, -2000.0]])
    metrics = step_metrics(
        with_policy(record, logprobs=logprobs, old_logprobs=old), State()
    )
    assert metrics["policy/ratio_max"] == pytest.approx(math.exp(60.0))
    assert math.isfinite(metrics["policy/kl_k3_mean"])


def test_only_the_clock_is_timing(record):
    keys = step_metrics(record, State(step=1), (0.2, 0.28))
    assert {key for key in keys if is_timing(key)} == {
        "tokens/per_s",
        *(key for key in keys if key.startswith("time/")),
    }


def test_what_was_stopped_on_purpose_was_not_judged():
    assert num_judged({"count/rollouts_drawn": 8, "count/rollouts_judged": 3}) == 3
    assert num_judged({"count/rollouts_drawn": 8}) == 8


def test_the_last_fault_is_no_chunk_border_and_may_be_a_refills():
    record = small_record([None, 0.5, None], [2, 2, 2])
    (group,) = record.groups
    stopped = replace(group.rollouts[2], stop_reason=StopReason.CHUNK)
    verdicts = (
        Verdict(None, "the judge is down"),
        Verdict(0.5, "half of it"),
        Verdict(None, "stopped"),
    )
    group = replace(group, rollouts=(*group.rollouts[:2], stopped), verdicts=verdicts)
    record = replace(record, groups=(group,))
    assert last_fault(record) == "the judge is down"
    assert last_fault(small_record([0.5], [2])) == "none given"
    fresh = replace(
        group, rollouts=group.rollouts[:1], verdicts=(Verdict(None, "still down"),)
    )
    refilled = replace(record, sections=(routing(refill=(fresh,)),))
    assert last_fault(refilled) == "still down"


def documented_keys(title: str) -> set[str]:
    section = DOCUMENT.read_text(encoding="utf-8").split(f"## {title}")[1]
    section = section.split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 6 and all(cells), f"six filled cells, got {row}"
    return {re.findall(r"`([^`]+)`", row)[0] for row in rows}


def family(key: str) -> str:
    if key.startswith("time/") and key != "time/step_s":
        return "time/<stage>_s"
    key = re.sub(r"^(count|total)/.*", r"\1/<name>", key)
    key = re.sub(r"^eval/.*_(low|high)$", r"eval/<score>_\1", key)
    key = re.sub(r"^eval/.*_all$", "eval/<score>_all", key)
    return re.sub(r"@\d+$", "@k", key)


def test_every_key_is_documented_and_every_documented_key_exists(record):
    state = State(step=1, counters={"skipped_steps": 0})
    moved = replace(
        record, clip_bounds=(0.2, 0.28), sections=(EntropyControl(0.28, 0.3),)
    )
    emitted = step_metrics(moved, state)
    assert {family(key) for key in emitted} == documented_keys("Every step")


def test_every_evaluation_key_is_documented(finished_run):
    emitted = {family(key) for key in finished_run.evaluations()[-1]}
    assert emitted == documented_keys("Every evaluation")


def test_metrics_of_128_rollouts_take_milliseconds():
    record = synthetic_record(np.random.default_rng(0), 0.5, 16, 8, 100)
    durations = []
    for _ in range(15):
        start = time.perf_counter()
        step_metrics(record, State())
        durations.append(time.perf_counter() - start)
    # 3 ms on one busy core, several times that under runtime type checks
    assert min(durations) < 0.05
