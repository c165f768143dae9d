"""What happens when scoring fails, and the other ways to value a group.

The group is that of ac2_group.
"""

import math

import pytest
from ac2_group import LINES, STORED, asked, cut_in_turn, stepped

from ac2_worlds import (
    chosen,
    one_step,
    reads,
    remembering,
    row_advantages,
    spoken_world,
    texts,
)
from accredit.algorithms.ac2.metrics import Routing


@pytest.fixture(autouse=True)
def cuts():
    """Where slots are cut, in turn."""
    with cut_in_turn([4]) as places:
        yield places


JUDGED = ["ah", "bh", "ch", "dh"]
HALF_JUDGED = {"abcdah": 1.0, "abcdbh": None, "abcdch": 0.5, "abcddh": 0.3}


def test_a_failed_judge_masks_its_rollout_by_default():
    """The mean of 1, .5 and .3 is .6; the failed one neither votes nor learns."""
    record, memory, _, _ = stepped(JUDGED, {}, HALF_JUDGED, ready=False)
    assert row_advantages(record) == pytest.approx([0.4, 0.0, -0.1, -0.3], abs=1e-6)
    assert record.batch.verified.tolist() == [True, False, True, True]
    assert memory.examples == [("p1", "abcd", pytest.approx(0.6), None)]
    assert record.counts["rewards_invalid"] == 1


def test_a_failed_judge_is_worth_zero_where_the_recipe_says_so():
    """As in the paper: .45 on average, and still nothing for the critic."""
    record, memory, _, _ = stepped(
        JUDGED, {}, HALF_JUDGED, ready=False, unverified="zero"
    )
    expected = [0.55, -0.45, 0.05, -0.15]
    assert row_advantages(record) == pytest.approx(expected, abs=1e-6)
    assert record.batch.verified.all()
    assert memory.examples == [("p1", "abcd", pytest.approx(0.6), None)]
    assert record.counts["rewards_invalid"] == 1


def test_an_invalid_value_is_never_worth_zero():
    """`zero` is about judges: the critic's silence is masked as ever."""
    record, *_ = stepped(unverified="zero")
    assert row_advantages(record) == pytest.approx([0.3, -0.4, 0.1, 0.0], abs=1e-6)
    assert record.batch.verified.tolist() == [True, True, True, False]


def test_a_group_whose_every_value_is_invalid_teaches_nobody():
    says = {"abcd": 0.5, "abcdab": None, "abcdcc": None}
    record, memory, critic, _ = stepped([LINES[0], LINES[3]], says)
    assert row_advantages(record) == [0.0, 0.0]
    assert record.shaped_rewards.tolist() == [0.0, 0.0]
    assert math.isnan(record.section(Routing).targets[0])
    assert (record.policy, record.critic, critic.taught) == (None, None, [])
    assert memory.examples == []
    assert memory.gate.window == ((),)
    assert record.counts["critic_answers_invalid"] == 2
    assert record.counts["updates_skipped"] == 1
    assert record.counts["critic_updates_skipped"] == 1


def test_equal_values_leave_nothing_to_learn():
    """Pitfall 5: on one grid value all advantages are exactly 0."""
    says = {"abcd": 0.5, "abcdab": 0.8, "abcdcc": 0.8}
    record, *_ = stepped([LINES[0], LINES[3]], says)
    assert row_advantages(record) == [0.0, 0.0]
    assert record.policy is not None


def test_the_tokens_of_stopped_rollouts_have_a_weight_of_their_own():
    """Pitfall 6: a half for chunks, one for what ran to its end."""
    record, *_ = stepped(chunk_weight=0.5)
    assert row_advantages(record) == pytest.approx([0.15, -0.4, 0.1, 0.0], abs=1e-6)


BEYOND = ["abaah", "ah", "ggaah", "cch"]
"""Runs past the boundary; ends there; passes it with its answer; passes it."""
BEYOND_REWARDS = {"abcdabaah": 0.8, "abcdah": 0.2, "abcdggaah": 0.6, "abcdcch": 0.4}
BEYOND_SAYS = {"abcd": 0.5, "abcdab": 0.3, "abcdcc": None}


@pytest.mark.parametrize(
    ("lambda_", "ends"),
    [
        # .5 .3 + .5 .8 = .55; nothing to mix where the boundary was not valued.
        (0.5, [0.55, 0.2, 0.6, 0.4]),
        # .75 .3 + .25 .8 = .425
        (0.25, [0.425, 0.2, 0.6, 0.4]),
        (1.0, [0.8, 0.2, 0.6, 0.4]),
    ],
)
def test_lambda_of_a_ready_slot_mixes_border_and_reward(lambda_, ends):
    record, _, critic, judged = stepped(
        BEYOND, BEYOND_SAYS, BEYOND_REWARDS, ready_lambda=lambda_, audit_share=0.25
    )
    assert judged == list(BEYOND_REWARDS)
    assert asked(critic) == ["abcd", "abcdab", "abcdcc"]
    assert not record.section(Routing).audited.any()
    assert not record.section(Routing).asked.any()
    mean = sum(ends) / 4
    expected = [end - mean for end in ends]
    assert row_advantages(record) == pytest.approx(expected, abs=1e-6)


def test_lambda_is_one_where_the_problem_is_not_ready():
    record, *_ = stepped(
        BEYOND,
        BEYOND_SAYS,
        BEYOND_REWARDS,
        ready=False,
        ready_lambda=0.5,
        audit_share=0.25,
    )
    assert row_advantages(record) == pytest.approx([0.3, -0.3, 0.1, -0.1], abs=1e-6)


def test_audits_are_judged_and_asked_about_where_they_would_have_been_stopped():
    """Pitfall 3: the critic's hope at the cut stands beside what came of it."""
    record, _, critic, judged = stepped(
        BEYOND, BEYOND_SAYS, BEYOND_REWARDS, audit_share=1.0
    )
    assert record.section(Routing).audited.tolist() == [True]
    assert judged == list(BEYOND_REWARDS)
    # Not behind an answer, and not where the rollout ended.
    assert asked(critic) == ["abcd", "abcdab", "abcdcc"]
    assert record.section(Routing).boundary_reached.tolist() == [
        True,
        False,
        False,
        True,
    ]
    hope = record.section(Routing).boundary_values.tolist()
    assert hope[0] == pytest.approx(0.3)
    assert all(math.isnan(value) for value in hope[1:])
    assert row_advantages(record) == pytest.approx([0.3, -0.3, 0.1, -0.1], abs=1e-6)


@pytest.mark.parametrize(
    ("mode", "ready", "target"),
    [
        # What the endpoints say: .6 = mean(.9, .2, .7)
        ("mixed", True, 0.6),
        ("bootstrap", True, 0.6),
        # A stopped member is the critic's own word.
        ("monte_carlo", True, None),
    ],
)
def test_what_a_stopped_group_teaches(mode, ready, target):
    record, memory, _, _ = stepped(critic_targets=mode)
    assert memory.examples == (
        [] if target is None else [("p1", "abcd", pytest.approx(target), None)]
    )
    assert row_advantages(record) == pytest.approx([0.3, -0.4, 0.1, 0.0], abs=1e-6)


@pytest.mark.parametrize(
    ("mode", "target"),
    [
        # (.8 + .2 + .6 + .4) / 4
        ("mixed", 0.5),
        ("monte_carlo", 0.5),
        # .3 at the boundary of the first, .2 and .6 as they ended; the last is unknown:
        # 1.1 / 3 = .367
        ("bootstrap", 0.4),
    ],
)
def test_what_a_judged_group_teaches(mode, target):
    record, memory, critic, _ = stepped(
        BEYOND, BEYOND_SAYS, BEYOND_REWARDS, ready=False, critic_targets=mode
    )
    assert memory.examples == [("p1", "abcd", pytest.approx(target), None)]
    # The policy learns from the rewards whatever the critic is taught.
    assert row_advantages(record) == pytest.approx([0.3, -0.3, 0.1, -0.1], abs=1e-6)
    more = ["abcdab", "abcdcc"] if mode == "bootstrap" else []
    assert asked(critic) == ["abcd", *more]


PREFIXES = {"grouping": "prefixes"}


def test_prefixes_in_place_of_siblings_have_a_chunk_and_their_own_value_each(cuts):
    """A = v - V(prefix), and v is the target: no group, no audit."""
    cuts[:] = [2, 4, 0]
    says = {"ab": 0.3, "abcd": 0.5, "": 0.4, "abcc": 0.71, "abcdcc": 0.2, "cc": 0.4}

    def lines(problem, text, sibling):
        return "ccaaaaaaaa"

    world = spoken_world(lines)
    critic = reads(says)
    algorithm_ = chosen(critic, group_size=3, grid_size=11, **PREFIXES)
    _, record, memory = one_step(algorithm_, world, remembering(STORED, ready=["p1"]))
    assert texts(record) == ["abcc", "abcdcc", "cc"]
    assert record.batch.group_index.tolist() == [0, 1, 2]
    assert record.section(Routing).num_replayed.tolist() == [2, 4, 0]
    assert not record.section(Routing).audited.any()
    assert record.batch.sampled.sum(1).tolist() == [2, 2, 2]
    assert row_advantages(record) == pytest.approx([0.41, -0.3, 0.0], abs=1e-6)
    assert memory.examples == [
        ("p1", "ab", pytest.approx(0.7), None),
        ("p1", "abcd", pytest.approx(0.2), None),
        ("p1", "", pytest.approx(0.4), None),
    ]


def test_a_prefix_alone_needs_a_valid_end_and_a_valid_baseline(cuts):
    cuts[:] = [2, 4, 0]
    says = {"ab": None, "abcc": 0.7, "abcd": 0.5, "abcdcc": None, "": 0.4, "cc": 0.9}
    world = spoken_world(lambda *_: "ccaaaaaaaa")
    algorithm_ = chosen(reads(says), group_size=3, grid_size=11, **PREFIXES)
    _, record, memory = one_step(algorithm_, world, remembering(STORED, ready=["p1"]))
    assert row_advantages(record) == pytest.approx([0.0, 0.0, 0.5], abs=1e-6)
    assert record.batch.verified.tolist() == [False, False, True]
    # An end that is not valid is no target.
    assert "abcd" not in [text for _, text, _, _ in memory.examples]


@pytest.mark.parametrize(
    ("baseline", "expected"), [("group_mean", [0.4, -0.4]), ("value", [0.6, -0.2])]
)
def test_slots_that_are_not_ready_keep_siblings_and_baseline(baseline, expected):
    record, *_ = stepped(
        ["ah", "bh"],
        {"abcd": 0.3},
        {"abcdah": 0.9, "abcdbh": 0.1},
        ready=False,
        audit_share=0.25,
        grouping="prefixes",
        baseline=baseline,
    )
    assert record.batch.group_index.tolist() == [0, 0]
    assert row_advantages(record) == pytest.approx(expected, abs=1e-6)


def test_a_question_without_room_is_no_error_of_the_critic():
    """Neither an error of 1 nor an invalid answer: nobody was asked."""
    world = spoken_world(lambda problem, text, sibling: ["ah", "bh"][sibling % 2])
    critic = reads({})
    critic.no_room = lambda attempt: len(attempt.written) == 4
    algorithm_ = chosen(critic, grid_size=11)
    _, record, memory = one_step(algorithm_, world, remembering(STORED))
    assert memory.gate.window == ((),)
    assert record.counts["questions_left_out"] == 1
    assert record.counts["critic_answers_invalid"] == 0
    assert math.isnan(record.section(Routing).prefix_values[0])


def test_a_stopped_group_is_no_outcome_even_where_all_ended_before_the_border():
    """It is a lucky or an unlucky one: by its route it tells the gate nothing."""
    rewards = {"abcdah": 0.2, "abcdbh": 0.4}
    gate = {"error_against": "rewards"}
    _, memory, _, judged = stepped(["ah", "bh"], {}, rewards, gate=gate)
    assert judged == list(rewards)
    assert memory.gate.window == ((),)
    _, memory, _, _ = stepped(["ah", "bh"], {}, rewards, gate=gate, ready=False)
    # |.5 - .3|
    assert memory.gate.window == (pytest.approx((0.2,)),)
