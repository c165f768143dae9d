"""Steps 5 to 8 of AC2: one group, by hand; see ac2_group."""

import math

import pytest
from ac2_group import LINES, SAYS, STORED, asked, cut_in_turn, stepped

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


def test_the_critic_values_what_was_stopped_and_the_judge_everything_else():
    record, _, critic, judged = stepped()
    assert texts(record) == ["abcdab", "abcdah", "abcdgg", "abcdcc"]
    assert judged == ["abcdah", "abcdgg"]
    assert asked(critic) == ["abcd", "abcdab", "abcdcc"]
    assert record.section(Routing).asked.tolist() == [True, False, False, True]
    # The last one's value is not valid: the mean of .9, .2 and .7 in its place.
    assert record.shaped_rewards.tolist() == pytest.approx([0.9, 0.2, 0.7, 0.6])
    assert record.batch.verified.tolist() == [True, True, True, False]
    ends = record.section(Routing).endpoint_values.tolist()
    assert (ends[0], math.isnan(ends[1]), math.isnan(ends[3])) == (
        pytest.approx(0.9),
        True,
        True,
    )


def test_one_that_ends_exactly_at_the_budget_is_never_valued_by_the_critic(cuts):
    """Pitfall 9: a prefix of 8, a chunk of 2, a budget of 10."""
    cuts[:] = [8]
    rewards = {"abcdefababab": 0.0, "abcdefabab": 0.3, "abcdefabcc": 0.1}
    record, _, critic, judged = stepped(["ab", "cc"], {}, rewards)
    assert record.section(Routing).ready.tolist() == [True]
    assert judged == ["abcdefabab", "abcdefabcc"]
    assert asked(critic) == ["abcdefab"]
    assert record.section(Routing).asked.tolist() == [False, False]
    assert row_advantages(record) == pytest.approx([0.1, -0.1])


def test_an_endpoint_is_asked_about_with_all_that_is_written():
    """Pitfall 4: the critic can know the budget that is left, 10 - 6."""
    _, _, critic, _ = stepped()
    assert [len(attempt.written) for attempt in critic.asked[0]] == [4, 6, 6]
    assert all(a.prompt.problem.id == "p1" for a in critic.asked[0])


def test_an_advantage_is_the_end_less_the_mean_itself_included():
    """(.9 + .2 + .7 + .6) / 4 = .6; constant over tokens, by no deviation divided."""
    record, *_ = stepped()
    assert row_advantages(record) == pytest.approx([0.3, -0.4, 0.1, 0.0], abs=1e-6)
    assert record.batch.trainable.any(1).tolist() == [True, True, True, False]


def test_leave_one_out_compares_with_the_others():
    record, *_ = stepped(baseline="leave_one_out")
    # .9 - 1.5 / 3,  .2 - 2.2 / 3,  .7 - 1.7 / 3
    expected = [0.4, 0.2 - 2.2 / 3, 0.7 - 1.7 / 3, 0.0]
    assert row_advantages(record) == pytest.approx(expected, abs=1e-6)


def test_value_compares_with_the_critic_s_word_about_the_prefix():
    record, *_ = stepped(baseline="value")
    assert row_advantages(record) == pytest.approx([0.4, -0.3, 0.2, 0.0], abs=1e-6)


def test_without_that_word_nobody_learns_but_the_critic():
    says = SAYS | {"abcd": None}
    record, memory, _, _ = stepped(says=says, baseline="value")
    assert row_advantages(record) == [0.0] * 4
    assert not record.batch.trainable.any()
    assert record.policy is None
    assert record.critic is not None
    assert memory.examples == [("p1", "abcd", 0.6, None)]


@pytest.mark.parametrize(
    ("says", "error"), [(0.5, 0.1), (0.8, 0.2), (0.0, 0.6), (None, 1.0)]
)
def test_the_error_is_the_distance_to_the_target_and_one_where_nothing_was_said(
    says, error
):
    """z = .6 = mean(.9, .2, .7)."""
    record, memory, critic, _ = stepped(says=SAYS | {"abcd": says})
    assert record.section(Routing).targets.tolist() == pytest.approx([0.6])
    assert memory.gate.window[-1] == pytest.approx((error,))
    assert memory.gate.tracks["p1"].last_error == pytest.approx(error)
    assert record.counts["critic_answers_invalid"] == 1 + (says is None)
    # The prediction is that of before the update: nothing is asked after it.
    assert (len(critic.asked), len(critic.taught)) == (1, 1)


def test_everything_is_asked_before_anything_is_learned():
    record, _, critic, _ = stepped()
    assert record.section(Routing).prefix_values.tolist() == pytest.approx([0.5])
    order = []
    critic = reads(SAYS)
    critic.happens = lambda: order.append(len(critic.asked))
    world = spoken_world(lambda problem, text, sibling: LINES[sibling] if text else "h")
    keys = {"group_size": 4, "audit_share": 0.0, "grid_size": 11}
    one_step(chosen(critic, **keys), world, remembering(STORED, ready=["p1"]))
    assert order == [1]


@pytest.mark.parametrize(
    ("ends", "target"),
    [
        ((0.3, 0.4), 0.3),
        ((0.9, 0.2), 0.5),
        ((0.0, 0.1), 0.0),
        ((1.0, 1.0), 1.0),
        ((0.28, 0.28), 0.3),
    ],
)
def test_a_target_is_the_mean_on_the_grid_ties_down(ends, target):
    rewards = dict(zip(("abcdah", "abcdbh"), ends, strict=True))
    record, memory, _, _ = stepped(["ah", "bh"], {}, rewards, ready=False)
    assert record.section(Routing).targets.tolist() == pytest.approx([target])
    assert memory.examples == [("p1", "abcd", pytest.approx(target), None)]


def test_targets_may_stay_between_two_grid_values():
    rewards = {"abcdah": 0.3, "abcdbh": 0.4}
    record, *_ = stepped(["ah", "bh"], {}, rewards, ready=False, target_rounding="none")
    assert record.section(Routing).targets.tolist() == pytest.approx([0.35])


@pytest.mark.parametrize(
    ("num_valid", "size", "least", "known"),
    [
        (2, 4, None, True),
        (1, 4, None, False),
        (2, 5, None, False),
        (3, 5, None, True),
        (1, 2, None, True),
        (2, 4, 3, False),
        (3, 4, 3, True),
        (1, 4, 1, True),
        (0, 2, None, False),
    ],
)
def test_a_target_needs_half_of_the_group_or_as_many_as_it_is_told(
    num_valid, size, least, known
):
    lines = ["abcdefg"[n] + "h" for n in range(size)]
    rewards = {
        "abcd" + line: 0.4 if n < num_valid else None for n, line in enumerate(lines)
    }
    record, memory, _, _ = stepped(lines, {}, rewards, ready=False, min_valid=least)
    (target,) = record.section(Routing).targets.tolist()
    assert (target == pytest.approx(0.4)) if known else math.isnan(target)
    assert len(memory.examples) == known
    # Without a target there is no error either, and the visit is one all the same.
    assert len(memory.gate.window[-1]) == known
    assert len(memory.gate.window) == 1
