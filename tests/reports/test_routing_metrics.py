"""Readiness, errors, losses and savings of a step that was counted by hand."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from routed_record import NAN, STOPPED, routed_record, routing
from test_metrics import documented_keys, family

from accredit.algorithms.ac2.alarms import AC2_ALARMS
from accredit.algorithms.ac2.metrics import Routed, Routing, audited_reward
from accredit.functional.flops import ModelShape, decode_coefficients, gpu_hours
from accredit.records import Cost, Record, State
from accredit.reports.alarms import alarms
from accredit.reports.metrics.step import step_metrics
from accredit.types import Group, StopReason, Verdict

warning_lines = partial(alarms.warning_lines, further=AC2_ALARMS)


SHAPE = ModelShape(
    num_layers=2,
    hidden=3,
    feed_forward=5,
    num_heads=2,
    num_kv_heads=1,
    head_dim=7,
    vocab=11,
)


def metrics_of(record: Record, shape: ModelShape | None = None) -> dict:
    return step_metrics(record, State(step=1, cost=record.cost), shape=shape)


def with_rewards(record: Record, group: int, rewards: list[float | None]) -> Record:
    """The same rollouts, judged otherwise."""
    verdicts = tuple(
        Verdict(None, "timed out") if r is None else Verdict(r) for r in rewards
    )
    old = record.groups[group]
    changed = Group(old.prompt, old.rollouts, verdicts)
    groups = (*record.groups[:group], changed, *record.groups[group + 1 :])
    return replace(record, groups=groups)


@pytest.fixture(scope="module")
def metrics() -> dict:
    return metrics_of(routed_record())


def test_readiness_by_hand(metrics):
    assert metrics["readiness/share"] == pytest.approx(3 / 10)
    assert metrics["readiness/sampled_share"] == pytest.approx(3 / 4)
    assert metrics["readiness/flips"] == 2
    assert metrics["readiness/revocations"] == 1
    assert metrics["readiness/audited_share"] == pytest.approx(1 / 3)
    assert metrics["ac2/reference_share"] == pytest.approx(2 / 4)
    assert metrics["ac2/prefix_tokens_mean"] == pytest.approx((2 + 0 + 3 + 1) / 4)
    assert metrics["critic/questions"] == 9


def test_accuracy_is_against_rewards_and_consistency_is_not(metrics):
    # V .75 of rewards (1, 0), and .2 of the audited (0, .5)
    assert metrics["ac2/error_rewards"] == pytest.approx((0.25 + 0.05) / 2)
    assert metrics["ac2/bias_rewards"] == pytest.approx((0.25 - 0.05) / 2)
    assert metrics["ac2/error_audited"] == pytest.approx(0.05)
    # .3 against its own .2; the other stopped group has neither
    assert metrics["ac2/error_self"] == pytest.approx(0.1)


def test_a_ready_group_that_ended_early_is_no_measure_of_accuracy():
    """It was not stopped only because of how it ended."""
    stopped = torch.tensor([False] * 6 + [True] * 2)
    record = with_rewards(routed_record(asked=stopped), 1, [1.0, 1.0])
    found = metrics_of(record)
    assert found["ac2/error_rewards"] == pytest.approx((0.25 + 0.05) / 2)
    # nobody stopped anywhere: all were judged, .3 against 1 and no V of the last
    nobody = with_rewards(routed_record(asked=stopped & False), 1, [1.0, 1.0])
    nobody = with_rewards(nobody, 3, [1.0, 1.0])
    found = metrics_of(nobody)
    assert found["ac2/error_rewards"] == pytest.approx((0.25 + 0.7 + 0.05) / 3)
    assert found["ac2/reward_audited"] == pytest.approx((0.5 + 1.0 + 0.25 + 1.0) / 4)
    assert "ac2/equal_values_share" not in found and "ac2/error_self" not in found


def test_pitfall_3_the_gap_is_hope_at_the_border_less_what_was_earned(metrics):
    # (.75 - 0) and (.25 - .5)
    assert metrics["ac2/hacking_gap"] == pytest.approx((0.75 - 0.25) / 2)
    boundaries = torch.tensor([NAN] * 4 + [0.75, NAN] + [NAN] * 2)
    one = metrics_of(routed_record(boundary_values=boundaries))
    assert one["ac2/hacking_gap"] == pytest.approx(0.75)
    lost = with_rewards(routed_record(), 2, [None, 0.5])
    assert metrics_of(lost)["ac2/hacking_gap"] == pytest.approx(-0.25)


def test_how_much_of_a_difference_between_siblings_comes_true(metrics):
    # V (.75, .25) and R (0, .5): .25^2 and .25 x -.25 of each
    assert metrics["ac2/sibling_variance"] == pytest.approx(0.0625)
    assert metrics["ac2/sibling_covariance"] == pytest.approx(-0.0625)
    better = with_rewards(routed_record(), 2, [1.0, 0.25])
    assert metrics_of(better)["ac2/sibling_covariance"] == pytest.approx(0.25 * 0.375)
    lost = with_rewards(routed_record(), 2, [None, 0.5])
    assert "ac2/sibling_covariance" not in metrics_of(lost)


def test_siblings_are_compared_with_their_own_group():
    """Two audited groups whose means are far apart; who was not audited is no sibling
    of theirs."""
    boundaries = torch.tensor([0.9, 0.1, 0.9, 0.7, 0.3, 0.1, NAN, NAN])
    routed = {
        "ready": torch.tensor([False, True, True, True]),
        "audited": torch.tensor([False, True, True, False]),
        "asked": torch.tensor([False] * 6 + [True] * 2),
        "boundary_values": boundaries,
        "boundary_reached": ~boundaries.isnan(),
    }
    record = with_rewards(routed_record(**routed), 1, [1.0, 0.8])
    found = metrics_of(with_rewards(record, 2, [0.4, 0.0]))
    assert found["ac2/sibling_variance"] == pytest.approx(0.01)
    assert found["ac2/sibling_covariance"] == pytest.approx((0.01 + 0.02) / 2)


def test_how_far_the_critic_was_moved(metrics):
    assert metrics["ac2/recalibration"] == 0.0
    assert metrics_of(routed_record(shift=0.7))["ac2/recalibration"] == 0.7


def test_borders_of_problems_that_are_not_ready_are_nobodys_hacking():
    """They are asked about where the critic learns one chunk on."""
    values = torch.tensor([0.9, NAN, NAN, NAN, 0.75, 0.25, NAN, NAN])
    reached = ~values.isnan()
    found = metrics_of(routed_record(boundary_values=values, boundary_reached=reached))
    assert found["ac2/hacking_gap"] == pytest.approx(0.25)


def test_pitfall_5_groups_whose_values_are_all_equal(metrics):
    # (.4, 0) tells siblings apart; of (.6, invalid) one value is left
    assert metrics["ac2/equal_values_share"] == pytest.approx(1 / 2)
    record = routed_record()
    rewards = record.batch.rewards.clone()
    rewards[3] = 0.4 + 1e-7
    flat = replace(record, batch=replace(record.batch, rewards=rewards))
    assert metrics_of(flat)["ac2/equal_values_share"] == 1.0


def test_pitfall_6_the_stopped_have_a_small_share_of_the_gradient(metrics):
    # 2 + 2 of 5 + 3, 2 + 1, 6 + 4, 2; nobody learns from the invalid one's tokens
    assert metrics["ac2/chunk_token_share"] == pytest.approx(4 / 23)


def test_pitfall_7_the_audit_lane_stands_for_all_ready_groups(metrics):
    # one not ready with .5, and three ready ones that the audited .25 stands for
    assert metrics["ac2/reward_audited"] == pytest.approx((0.5 + 3 * 0.25) / 4)
    assert metrics["reward/mean"] == pytest.approx(1.5 / 5)
    nobody = metrics_of(routed_record(audited=torch.tensor([False] * 4)))
    assert "ac2/reward_audited" not in nobody
    unjudged = with_rewards(routed_record(), 2, [None, None])
    assert "ac2/reward_audited" not in metrics_of(unjudged)


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_pitfall_7_the_audit_lane_is_unbiased(data):
    """Over all choices of one audit of three, the mean is that of all groups."""
    rewards = data.draw(st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4))
    found = []
    for audited in (1, 2, 3):
        record = routed_record(audited=torch.arange(4) == audited)
        for group in range(4):
            if group == 0 or group == audited:
                record = with_rewards(record, group, [rewards[group]] * 2)
        assert record.section(Routing) is not None
        found.append(audited_reward(Routed(record, record.section(Routing))))
    assert np.mean(found) == pytest.approx(np.mean(rewards), abs=1e-9)


@given(
    rewards=st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4),
    chances=st.lists(st.integers(1, 9), min_size=3, max_size=3),
)
@settings(max_examples=25, deadline=None)
def test_the_audit_lane_is_unbiased_whatever_the_shares(rewards, chances):
    """One audit of three ready groups, some of them audited less than others."""
    found = 0.0
    inclusion = torch.tensor([1.0, *(chance / sum(chances) for chance in chances)])
    for audited in (1, 2, 3):
        record = routed_record(audited=torch.arange(4) == audited, inclusion=inclusion)
        for group in (0, audited):
            record = with_rewards(record, group, [rewards[group]] * 2)
        assert record.section(Routing) is not None
        mean = audited_reward(Routed(record, record.section(Routing)))
        assert mean is not None
        found += float(inclusion[audited]) * mean
    assert found == pytest.approx(np.mean(rewards), abs=1e-6)


def test_an_audit_counts_by_its_share_and_one_without_verdict_by_the_others():
    """Groups 1 and 2 were audited, by 1/2 and 1/4: 1 + 2 x + 4 y of four."""
    routed = {
        "audited": torch.tensor([False, True, True, False]),
        "inclusion": torch.tensor([1.0, 0.5, 0.25, 0.5]),
        "asked": torch.tensor([False] * 6 + [True] * 2),
    }
    record = with_rewards(routed_record(**routed), 1, [0.75, 0.25])
    expected = (0.5 + 2 * 0.5 + 4 * 0.25) / 4
    assert metrics_of(record)["ac2/reward_audited"] == pytest.approx(expected)
    lost = with_rewards(record, 1, [None, None])
    expected = (0.5 + (2 + 4) * 0.25) / 4
    assert metrics_of(lost)["ac2/reward_audited"] == pytest.approx(expected)


def test_who_was_valued_and_who_only_asked(metrics):
    assert metrics["critic/valued_share"] == pytest.approx(3 / 8)
    assert metrics["ac2/valued_share"] == pytest.approx(2 / 8)
    assert metrics["ac2/invalid_share"] == pytest.approx(2 / 9)


def test_tokens_saved_are_what_audits_went_on_for(metrics):
    # audits wrote 6 and 4 where a chunk is 2: three more each, for three stopped
    assert metrics["tokens/saved_share"] == pytest.approx(9 / (9 + 31))
    assert "flops/saved_share" not in metrics


def test_flops_saved_are_the_longer_request_less_the_shorter():
    fixed, each = decode_coefficients(SHAPE)
    # begun at 4, 5, 5 tokens; 5 new ones for 2: 3 A + B (3 p + 4 * 5 / 2 - 1)
    saved = 9 * fixed + each * (3 * (4 + 5 + 5) + 3 * 9)
    record = routed_record()
    record = replace(record, cost=replace(record.cost, decode_flops=3.0 * saved))
    found = metrics_of(record, SHAPE)
    assert found["flops/saved_share"] == pytest.approx(1 / 4)
    assert found["tokens/saved_share"] == pytest.approx(9 / 40)


def test_without_an_audit_the_others_tell_what_was_saved():
    """Those not ready wrote 5 and 3: two more than a chunk on average."""
    record = routed_record(boundary_reached=torch.tensor([False] * 8))
    assert metrics_of(record)["tokens/saved_share"] == pytest.approx(6 / (6 + 31))


def test_what_nobody_outlasts_is_left_out():
    every = torch.tensor([True] * 4)
    alone = routed_record(ready=every, boundary_reached=torch.tensor([False] * 8))
    assert "tokens/saved_share" not in metrics_of(alone)
    nobody = routed_record(asked=torch.tensor([False] * 8))
    assert metrics_of(nobody, SHAPE)["tokens/saved_share"] == 0.0


def test_failed_rollouts_tell_nothing_about_what_was_saved():
    record = routed_record()
    group = record.groups[2]
    broken = replace(group.rollouts[0], stop_reason=StopReason.FAILURE)
    group = replace(group, rollouts=(broken, group.rollouts[1]))
    groups = (*record.groups[:2], group, record.groups[3])
    found = metrics_of(replace(record, groups=groups))
    # the other audit went on for 2
    assert found["tokens/saved_share"] == pytest.approx(6 / (6 + 31))


def test_a_stopped_rollout_is_neither_invalid_nor_finished_nor_truncated(metrics):
    assert metrics["reward/invalid_share"] == 0.0
    assert metrics["rollout/finished_share"] == pytest.approx(4 / 8)
    assert metrics["length/truncated_share"] == pytest.approx(1 / 8)
    lost = metrics_of(with_rewards(routed_record(), 2, [None, 0.5]))
    assert lost["reward/invalid_share"] == pytest.approx(1 / 5)


def test_groups_with_a_stopped_member_are_not_equal_by_their_rewards():
    record = with_rewards(routed_record(), 0, [1.0, 1.0])
    # (1, 1) and (0, .5); what was stopped is worth more than its rewards
    assert metrics_of(record)["group/all_equal_share"] == pytest.approx(1 / 2)
    group = record.groups[1]
    third = replace(
        group,
        rollouts=(group.rollouts[0], group.rollouts[1], group.rollouts[1]),
        verdicts=(STOPPED, Verdict(0.0), Verdict(0.0)),
    )
    groups = (record.groups[0], third, *record.groups[2:])
    found = step_metrics(replace(routed_record(), groups=groups, sections=()), State())
    assert found["group/all_equal_share"] == pytest.approx(1 / 2)


def test_the_critics_figures_are_of_what_was_judged(metrics):
    # V .75: 5 tokens of 1 and 3 of 0; .3: one of 0; .2 then .75: 2 and 4 of 0;
    # .2 then .25: 2 and 2 of .5
    over = 3 * 0.75 + 0.3 + 2 * 0.2 + 4 * 0.75
    under = 5 * 0.25 + 2 * 0.3 + 2 * 0.25
    assert metrics["critic/mae"] == pytest.approx((over + under) / 19)
    assert metrics["critic/bias"] == pytest.approx((over - under) / 19)
    errors = np.array(
        [-0.25] * 5
        + [0.75] * 3
        + [0.3]
        + [0.2] * 2
        + [0.75] * 4
        + [-0.3] * 2
        + [-0.25] * 2
    )
    outcomes = np.array([1.0] * 5 + [0.0] * 10 + [0.5] * 4)
    explained = 1 - errors.var() / outcomes.var()
    assert metrics["critic/explained_variance"] == pytest.approx(explained, rel=1e-5)
    # two of the seven that the policy learns from are the critic's word
    assert metrics["critic/unknown_share"] == pytest.approx(2 / 7)


def test_no_alarm_of_token_level_critics_is_about_a_gated_one():
    bad = {
        "critic/unknown_share": 0.0,
        "critic/num_skipped": 0,
        "policy/num_skipped": 0,
        "critic/valued_share": 0.0,
        "critic/explained_variance": -5.0,
        "critic/mae": 0.9,
        "critic/constant_mae": 0.1,
        "critic/bias": 0.8,
        "critic/correlation": -0.5,
        "critic/value_gap": -0.5,
        "credit/step_abs_mean": 0.9,
        "credit/step_abs_bound": 0.01,
        "credit/step_large_mean": 90.0,
        "credit/step_large_bound": 1.0,
    }
    rows = [{"step": i, **bad} for i in range(1, 7)]
    assert len(warning_lines(rows)) == 6
    # of fresh rollouts and of baselines: nobody updated a critic
    asked = [{k: v for k, v in r.items() if k != "critic/num_skipped"} for r in rows]
    assert len(warning_lines(asked)) == 4
    for history in (rows, asked):
        assert warning_lines([row | {"readiness/flips": 0} for row in history]) == []


def test_a_critic_that_is_fooled_for_long_is_told():
    rows = [{"step": i, "readiness/flips": 0} for i in range(1, 6)]
    (line,) = warning_lines([row | {"ac2/hacking_gap": 0.21} for row in rows])
    assert "promised over 0.2 more than they earned" in line
    assert warning_lines([row | {"ac2/hacking_gap": 0.2} for row in rows]) == []
    assert warning_lines([row | {"ac2/hacking_gap": 0.9} for row in rows[:4]]) == []


def test_equal_rewards_are_no_alarm_where_the_critic_tells_siblings_apart():
    rows = [{"step": i, "group/all_equal_share": 1.0} for i in range(1, 6)]
    assert len(warning_lines(rows)) == 1
    assert warning_lines([row | {"ac2/equal_values_share": 0.0} for row in rows]) == []


def test_a_step_of_the_gate_alone_is_counted_and_nothing_else():
    """The first step: nobody is ready, nothing was stored, nobody knows anything."""
    record = routed_record(
        ready=torch.tensor([False] * 4),
        audited=torch.tensor([False] * 4),
        asked=torch.tensor([False] * 8),
        prefix_values=torch.full((4,), NAN),
        targets=torch.full((4,), NAN),
        endpoint_values=torch.full((8,), NAN),
        boundary_values=torch.full((8,), NAN),
        boundary_reached=torch.tensor([False] * 8),
        num_ready=0,
    )
    found = metrics_of(replace(record, cost=Cost(tokens_generated=25)))
    assert found["readiness/share"] == 0.0
    assert found["tokens/saved_share"] == 0.0
    assert found["ac2/chunk_token_share"] == 0.0
    gone = {"error_rewards", "error_self", "error_audited", "hacking_gap"}
    gone |= {"sibling_variance", "sibling_covariance"}
    assert not {f"ac2/{name}" for name in (*gone, "invalid_share")} & set(found)
    assert "readiness/audited_share" not in found


def test_every_key_of_a_gated_step_is_documented_and_exists():
    record = routed_record()
    plain = metrics_of(replace(record, sections=()))
    record = replace(record, cost=replace(record.cost, decode_flops=1.0))
    emitted = {family(key) for key in metrics_of(record, SHAPE)}
    assert emitted - {family(key) for key in plain} == documented_keys(
        "Steps with a gate"
    )
    assert all(math.isfinite(value) for value in metrics_of(record, SHAPE).values())


def test_the_ledger_of_the_critic_and_the_estimate_of_hours():
    cost = Cost(
        decode_flops=1e15,
        prefill_flops=2e15,
        train_flops=4e15,
        evaluation_flops=8e15,
        critic_flops=16e15,
    )
    found = step_metrics(routed_record(), State(step=1, cost=cost))
    assert found["flops/critic"] == 16e15
    assert found["flops/total"] == 31e15
    assert found["cost/gpu_hours"] == pytest.approx(gpu_hours(9e15, 22e15))
    # 9e15 at a tenth of 989 TFLOP/s is 91.0 s, 22e15 at .4 of it 55.6 s
    assert found["cost/gpu_hours"] * 3600 == pytest.approx(146.6, abs=0.1)


def test_the_builder_is_a_routing():
    assert int(routing().asked.sum()) == 3
