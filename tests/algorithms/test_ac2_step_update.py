"""Step 10 of AC2: in which order who learns, from what, how fast."""

import math

import pytest
import torch
from ac2_group import lines, minimised, watched

from ac2_worlds import (
    chosen,
    one_step,
    reads,
    remembering,
    row_advantages,
    spoken_world,
    text_of,
)
from accredit.algorithms.ac2.metrics import Routing
from accredit.algorithms.replay.update import replay_objective
from accredit.learner.update import step_rows
from worlds import algorithm, small_world, steps, weights

pytestmark = pytest.mark.whole_run

STORED = [("p1", "abcdefabcd", 0.2)]
names = pytest.mark.parametrize("name", ["prefix_grpo", "ac2", "ac2_plus"])


def taught_when(learner, critic, **keys):
    """What had happened when the critic learned, as the number of optimizer steps."""
    critic.happens = lambda: sum(isinstance(h, int) for h in learner.happened)
    world = spoken_world(lines, learner=learner)
    algorithm_ = chosen(critic, grid_size=11, **keys)
    _, record, _ = one_step(algorithm_, world, remembering(STORED))
    return critic.noted, record


@pytest.mark.parametrize(
    ("order", "keys", "expected"),
    [
        ("actor_critic_actor", {}, 1),
        ("actor_critic", {}, 2),
        ("critic_actor", {}, 0),
        # With more steps of the policy it stays behind the first, the last, none.
        ("actor_critic_actor", {"num_epochs": 2}, 1),
        ("actor_critic", {"num_epochs": 2}, 4),
        ("critic_actor", {"num_epochs": 2}, 0),
        ("actor_critic_actor", {"num_minibatches": 1}, 1),
    ],
)
def test_the_critic_has_its_one_step_where_the_order_says(order, keys, expected):
    learner, critic = watched(), reads({})
    found, record = taught_when(learner, critic, order=order, **keys)
    assert found == [expected]
    assert len(critic.taught) == 1
    assert record.critic.learning_rate == 1e-3
    # The policy's steps are all there, and the entropy was taken before them.
    count = keys.get("num_epochs", 1) * keys.get("num_minibatches", 2)
    assert learner.happened == ["entropy", *range(count)]


def test_a_joint_loss_is_one_step_of_the_policy_s_optimizer():
    learner, critic = watched(), reads({})
    found, record = taught_when(learner, critic, joint_loss=True)
    assert (found, critic.taught, len(critic.joint)) == ([0], [], 1)
    assert record.critic.losses == (0.5,)


def test_a_joint_loss_adds_the_critic_s_gradient_to_the_first_minibatch():
    """Equal rewards: all that moves the policy is what the critic learns."""
    norms = []
    for joint in (True, False):
        world = small_world(lambda text: 0.4)
        algorithm_ = algorithm("ac2", world=world, joint_loss=joint)
        _, (record,) = steps(algorithm_, world, 1)
        norms.append(record.policy.gradient_norms)
        assert record.critic.displacement is None or not joint
    assert norms[0][0] > 0.1
    # And only there.
    assert norms[0][1] == 0
    assert norms[1] == (0.0, 0.0)


def test_policy_and_critic_have_optimizers_and_rates_of_their_own():
    """Equal rewards: the critic's own step is all that moves the shared weights."""
    moved = []
    for rate in (1e-3, 2e-3):
        world = small_world(lambda text: 0.4)
        before = weights(world)
        keys = {"critic.learning_rate": rate, "order": "actor_critic"}
        _, (record,) = steps(algorithm("ac2", world=world, **keys), world, 1)
        after = weights(world)
        squares = sum(float((after[k] - before[k]).square().sum()) for k in after)
        assert record.policy.displacements == (0.0, 0.0)
        assert math.sqrt(squares) == pytest.approx(record.critic.displacement, rel=1e-3)
        moved.append(record.critic.displacement)
    # AdamW's first step is the rate in every coordinate.
    assert moved[1] == pytest.approx(2 * moved[0], rel=1e-2)


def test_weights_of_its_own_leave_the_policy_where_it_is():
    world = small_world(lambda text: 0.4)
    before = weights(world)
    keys = {"critic.weights": "separate"}
    _, (record,) = steps(algorithm("ac2", world=world, **keys), world, 1)
    assert record.critic.displacement > 0
    assert all(bool((weights(world)[key] == before[key]).all()) for key in before)


@names
def test_minibatches_are_cut_from_the_batch_s_own_order(name):
    learner = watched()
    world = spoken_world(lines, learner=learner)
    critic = None if name == "prefix_grpo" else reads({})
    algorithm_ = chosen(critic, name, prompts_per_step=3, group_size=4)
    _, record, _ = one_step(algorithm_, world, remembering(STORED))
    (objective,) = learner.objectives
    rows = [r.tolist() for r in step_rows(record.batch, objective, 0)]
    assert rows == [list(range(6)), list(range(6, 12))]
    # The middle group has two members in each, with the advantages of all four.
    (dealt,) = learner.advantages
    assert torch.equal(dealt, record.credit.advantages)
    members = torch.tensor(row_advantages(record)).view(3, 4)
    torch.testing.assert_close(members.sum(1), torch.zeros(3), atol=1e-6, rtol=0)
    assert members[1, :2].sum().abs() > 0.01


@pytest.mark.parametrize(
    ("keys", "offset", "expected"),
    [
        # 1 + .28 + .06; 1 - .2; 3
        ({}, 0.06, [-1.34, 0.8, 3.0]),
        ({}, -0.08, [-1.2, 0.8, 3.0]),
        ({"entropy_control": False}, 0.06, [-1.28, 0.8, 3.0]),
        ({"clip_low": 0.4, "clip_high": 0.1}, 0.06, [-1.16, 0.6, 3.0]),
        ({"dual_clip": None}, 0.0, [-1.28, 0.8, 9.0]),
        # A bound below the old policy bounds at it.
        ({"clip_high": 0.05}, -0.08, [-1.0, 0.8, 3.0]),
    ],
)
def test_the_surrogate_is_clipped_with_the_offset_on_top(keys, offset, expected):
    config = algorithm("ac2", **keys).config
    objective = replay_objective(config, offset)
    assert minimised(objective) == pytest.approx(expected)
    assert not objective.shuffled
    assert objective.num_minibatches == 2
    assert (objective.kl_estimator, objective.entropy_coefficient) == (None, 0.0)


@pytest.mark.parametrize(
    ("count", "sizes"), [(1, [6]), (2, [3, 3]), (4, [2, 2, 2]), (6, [1] * 6)]
)
def test_several_steps_of_the_critic_share_the_records(count, sizes):
    critic = reads({})
    critic.displacement = 1.5
    state = remembering(STORED, examples=LESSONS)
    algorithm_ = chosen(critic, grid_size=11, critic_steps=count)
    _, record, _ = one_step(algorithm_, spoken_world(lines), state)
    assert [len(part) for part in critic.taught] == sizes
    seen = [example.query.written for part in critic.taught for example in part]
    assert len(seen) == 6
    assert record.critic.losses == (0.5,) * len(sizes)
    # Their moves add up, as do their FLOPs.
    assert record.critic.displacement == pytest.approx(1.5 * len(sizes))
    assert record.critic.train_flops == pytest.approx(11.0 * len(sizes))


LESSONS = [("p1", "abcdef"[:n], 0.1 * n, None) for n in range(1, 6)]


def taught(state, **keys):
    critic = reads({})
    world = spoken_world(lines, num_prompts=keys.pop("num_prompts", 6))
    _, record, memory = one_step(chosen(critic, grid_size=11, **keys), world, state)
    (examples,) = critic.taught
    found = [(text_of(v.query.written), round(v.target, 6)) for v in examples]
    return found, record, memory


def test_what_is_new_is_taught_at_once_beside_what_is_in_store():
    found, record, memory = taught(remembering(STORED, examples=LESSONS))
    replayed_ids = record.groups[0].rollouts[0].completion_ids
    new = text_of(replayed_ids[: int(record.section(Routing).num_replayed[0])])
    assert sorted(text for text, _ in found) == sorted(
        ["a", "ab", "abc", "abcd", "abcde", new]
    )
    assert memory.examples[-1][:2] == ("p1", new)
    assert len(memory.examples) == 6


def test_so_many_records_are_drawn_without_replacement():
    seen = set()
    for step in range(6):
        state = remembering(STORED, examples=LESSONS, step=step)
        found, _, _ = taught(state, records_per_step=3, largest_cut_share=0.1)
        assert len({text for text, _ in found}) == 3
        seen.add(tuple(sorted(found)))
    assert len(seen) > 2


def test_the_oldest_records_leave_first():
    state = remembering(STORED, examples=LESSONS, critic_capacity=3)
    _, _, memory = taught(state, critic_capacity=3, largest_cut_share=0.1)
    assert [text for _, text, _, _ in memory.examples] == ["abcd", "abcde", ""]


def test_records_of_problems_that_are_gone_are_passed_over():
    state = remembering(STORED, examples=[*LESSONS, ("gone", "a", 0.5, None)])
    found, _, memory = taught(state, largest_cut_share=0.1)
    assert len(found) == 6
    assert len(memory.examples) == 7


def test_a_step_without_anything_for_the_policy_is_the_critic_s_alone():
    """Every judge fails; what is in store is taught all the same."""
    critic = reads({})
    learner = watched()
    world = spoken_world(lines, lambda text: None, learner=learner)
    state = remembering(STORED, examples=LESSONS)
    _, record, _ = one_step(chosen(critic, grid_size=11), world, state)
    assert record.policy is None
    assert learner.objectives == []
    assert len(critic.taught[0]) == len(LESSONS)
