"""Prefix GRPO: one step against a computation of its own, and what it has not."""

import pytest
import torch

from ac2_worlds import (
    chosen,
    ids,
    one_step,
    remembering,
    row_advantages,
    spoken_world,
    texts,
)
from accredit.algorithms.ac2.metrics import Routing
from accredit.algorithms.replay import routes
from accredit.algorithms.replay.update import EntropyControl, replay_objective
from accredit.algorithms.replay_configs import PrefixGRPOConfig
from accredit.types import StopReason
from worlds import prompts, small_policy, small_world

STORED = [("p1", "abcdefabcd", 0.2)]
LINES = ["eh", "fah", "gabch"]
REWARDS = {"abcdeh": 0.9, "abcdfah": 0.2, "abcdgabch": 0.4, "h": 0.0}
PROMPT = prompts(2)[1].token_ids
"""Of p1."""


@pytest.fixture(autouse=True)
def cut_at_four(monkeypatch):
    monkeypatch.setattr(routes, "drawn_cut", lambda *_: 4)


def stepped(rewards=REWARDS, learner=None, **keys):
    world = spoken_world(
        lambda problem, text, sibling: LINES[sibling] if text else "h",
        lambda text: rewards[text],
        learner=learner,
    )
    section = {"group_size": 3, **keys}
    return one_step(chosen(None, "prefix_grpo", **section), world, remembering(STORED))


def test_advantages_are_rewards_less_the_group_s_mean():
    """(.9 + .2 + .4) / 3 = .5; by no deviation divided."""
    _, record, _ = stepped()
    assert texts(record) == ["abcdeh", "abcdfah", "abcdgabch"]
    assert row_advantages(record) == pytest.approx([0.4, -0.3, -0.1], abs=1e-6)
    _, record, _ = stepped(baseline="leave_one_out")
    # .9 - .3, .2 - .65, .4 - .55
    assert row_advantages(record) == pytest.approx([0.6, -0.45, -0.15], abs=1e-6)


def test_a_step_equals_a_computation_by_hand():
    """L = -(1 / N) sum_i A_i sum_t log p(token t): N = 2 + 3 + 5 continued tokens."""
    learner = small_world(max_gradient_norm=None).learner
    _, record, _ = stepped(learner=learner, num_minibatches=1)
    model = small_policy()
    total = torch.zeros(())
    for line, advantage in zip(LINES, (0.4, -0.3, -0.1), strict=True):
        row = torch.tensor([[*PROMPT, *ids("abcd" + line)]])
        logprobs = model(input_ids=row).logits.float().log_softmax(-1)[0]
        for place in range(row.shape[1] - len(line), row.shape[1]):
            total = total - advantage * logprobs[place - 1, row[0, place]] / 10
    total.backward()
    squares = sum(
        float(p.grad.double().square().sum())
        for p in model.parameters()
        if p.grad is not None
    )
    (norm,) = record.policy.gradient_norms
    assert norm == pytest.approx(squares**0.5, rel=1e-4)
    # At ratio 1 the loss is -(2 .4 - 3 .3 - 5 .1) / 10.
    assert record.policy.losses == pytest.approx((0.06,), abs=1e-6)


def test_it_has_no_critic_and_no_gate():
    after, record, _ = stepped()
    assert (record.critic, record.section(Routing)) == (None, None)
    assert not record.valued_by_critic
    assert record.cost.num_questions == 0
    assert record.cost.critic_flops == 0
    assert set(vars(after.memory)) == {"rollouts", "entropy_offset"}


def test_its_values_are_those_of_the_siblings():
    _, record, _ = stepped()
    inside = record.values[:, :-1][record.batch.sampled]
    assert inside.tolist() == pytest.approx([0.5] * 10)


def test_every_continuation_runs_to_its_end_whatever_a_chunk_is():
    _, record, _ = stepped(chunk_length=1, cut_grid=2)
    (group,) = record.groups
    assert {rollout.stop_reason for rollout in group.rollouts} == {StopReason.STOP}
    assert record.batch.sampled.sum(1).tolist() == [2, 3, 5]


@pytest.mark.parametrize(
    ("mode", "expected", "verified"),
    [
        # (.9 + .4) / 2 = .65 without it; (.9 + 0 + .4) / 3 with it.
        ("masked", [0.25, 0.0, -0.25], [True, False, True]),
        ("zero", [1.4 / 3, -1.3 / 3, -0.1 / 3], [True, True, True]),
    ],
)
def test_a_failed_judge_masks_its_rollout_or_pays_nothing(mode, expected, verified):
    rewards = REWARDS | {"abcdfah": None}
    _, record, _ = stepped(rewards, unverified=mode)
    assert row_advantages(record) == pytest.approx(expected, abs=1e-6)
    assert record.batch.verified.tolist() == verified
    # What it is worth in training is no outcome that a critic is measured by.
    assert record.outcome_known.tolist() == [True, False, True]
    assert record.counts["rewards_invalid"] == 1


def test_without_any_verdict_the_policy_rests():
    rewards = dict.fromkeys(REWARDS)
    after, record, memory = stepped(rewards)
    assert record.policy is None
    assert record.counts["updates_skipped"] == 1
    # And what was not judged is not stored.
    assert memory.stored == [("p1", "abcdefabcd", 0.2)]
    assert after.step == 1


def test_refilled_rollouts_are_paid_and_counted():
    """10 tokens of the group and one of the refill; four judged."""
    _, record, memory = stepped()
    assert record.cost.tokens_generated == 11
    assert record.cost.num_verifications == 4
    assert record.counts["rollouts_drawn"] == 4
    assert record.counts["rollouts_judged"] == 4
    assert memory.stored[1][1:] == ("h", 0.0)


def test_a_step_says_which_clip_it_had_and_what_moves_it():
    """.28 and the offset of .08; H is of the refill, which began at the prompt."""
    _, record, memory = stepped()
    assert record.clip_bounds == pytest.approx((0.2, 0.36))
    assert record.section(EntropyControl).start_entropy == 0.0
    assert memory.offset == pytest.approx(0.08)
    _, record, _ = stepped(entropy_control=False)
    assert record.clip_bounds == pytest.approx((0.2, 0.28))
    assert record.section(EntropyControl).start_entropy is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Two of the four tokens are the long row's first half, ...
        ("token_mean", [[1 / 4, 1 / 4, 1 / 4], [1 / 4, 0.0, 0.0]]),
        # ... and here half of everything is the short row's one token.
        ("sequence_mean_token_mean", [[1 / 6, 1 / 6, 1 / 6], [1 / 2, 0.0, 0.0]]),
    ],
)
def test_tokens_or_continuations_count_alike(name, expected):
    objective = replay_objective(PrefixGRPOConfig(aggregation=name), 0.0)
    trains = torch.tensor([[True, True, True], [True, False, False]])
    weights = objective.aggregation(trains, torch.tensor([0, 0]))
    assert weights.tolist() == [pytest.approx(row) for row in expected]
