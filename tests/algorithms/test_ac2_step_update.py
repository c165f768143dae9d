"""Step 10 of AC2: in which order who learns, from what, how fast."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from ac2_worlds import (
    IdleLearner,
    chosen,
    memory_in,
    one_step,
    reads,
    remembering,
    row_advantages,
    spoken_world,
    text_of,
)
from accredit.algorithms import replayed
from accredit.algorithms.replay_parts import replay_objective
from accredit.learner.update import step_rows
from accredit.protocols import Interlude, Objective
from accredit.records import PolicyUpdate
from accredit.types import Batch
from worlds import algorithm, small_world, steps, weights

NOTHING = torch.zeros(0)
STORED = [("p1", "abcdefabcd", 0.2)]
names = pytest.mark.parametrize("name", ["prefix_grpo", "ac2", "ac2_plus"])


@dataclass
class WatchedLearner(IdleLearner):
    """Notes what it is asked to do, and moves as far as it is told."""

    moves: tuple[float, ...] = (0.0, 0.0)
    objectives: list[Objective] = field(default_factory=list)
    happened: list[Any] = field(default_factory=list)
    entropy_batches: list[Batch] = field(default_factory=list)

    def entropies(self, batch: Batch) -> Tensor:
        self.entropy_batches.append(batch)
        self.happened.append("entropy")
        return super().entropies(batch)

    def update_policy(
        self,
        batch: Batch,
        advantages: Tensor,
        objective: Objective,
        seed: int,
        interlude: Interlude | None = None,
    ) -> PolicyUpdate:
        self.objectives.append(objective)
        other = interlude or Interlude()

        def after_step(index: int) -> None:
            self.happened.append(index)
            if other.after_step is not None:
                other.after_step(index)

        watched = Interlude(other.add_gradient, after_step)
        update = super().update_policy(batch, advantages, objective, seed, watched)
        return replace(update, displacements=self.moves)


def watched(**keys):
    return WatchedLearner(NOTHING, NOTHING, **keys)


def lines(problem, text, sibling):
    return ["ah", "bh", "ch", "aah"][sibling % 4]


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


def minimised(objective):
    """Loss at the ratios 2, .5 and 9 for the advantages 1, -1 and -1."""
    ratios = torch.tensor([[2.0, 0.5, 9.0]])
    advantages = torch.tensor([[1.0, -1.0, -1.0]])
    old = torch.full((1, 3), -3.0)
    sampled = torch.ones(1, 3) > 0
    losses = objective.loss(old + ratios.log(), old, advantages, sampled)
    weights_ = objective.aggregation(torch.ones(2, 3) > 0, torch.arange(2))
    torch.testing.assert_close(weights_, torch.full((2, 3), 1 / 6))
    return losses[0].tolist()


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


@names
@pytest.mark.parametrize(
    ("entropy", "ladder"),
    [
        # Below .28 the bound widens, above it narrows; .08 is the end of either way.
        (0.1, [0.08, 0.08]),
        (0.5, [0.04, 0.02, 0.0, -0.02, -0.04, -0.06, -0.08, -0.08]),
    ],
)
def test_the_offset_moves_once_a_step_towards_the_target_entropy(name, entropy, ladder):
    learner = watched(entropy=entropy)
    world = spoken_world(lines, learner=learner)
    algorithm_ = chosen(None if name == "prefix_grpo" else reads({}), name)
    state, found = remembering(STORED), []
    for _ in ladder:
        state, _ = algorithm_.advance(state, world)
        found.append(state.memory["entropy_offset"])
    assert found == pytest.approx(ladder, abs=1e-12)
    # Each update takes the offset of before it.
    bounds = [-minimised(objective)[0] - 1 for objective in learner.objectives]
    assert bounds == pytest.approx([0.28 + k for k in [0.06, *ladder[:-1]]], abs=1e-6)


@names
def test_without_control_the_offset_stays_and_no_entropy_is_asked_for(name):
    learner = watched(entropy=0.1)
    world = spoken_world(lines, learner=learner)
    critic = None if name == "prefix_grpo" else reads({})
    algorithm_ = chosen(critic, name, entropy_control=False)
    _, _, memory = one_step(algorithm_, world, remembering(STORED))
    assert memory.offset == 0.06
    assert learner.entropy_batches == []


@names
def test_the_target_entropy_is_a_knob(name):
    learner = watched(entropy=0.5)
    world = spoken_world(lines, learner=learner)
    critic = None if name == "prefix_grpo" else reads({})
    algorithm_ = chosen(critic, name, entropy_target=0.9)
    _, _, memory = one_step(algorithm_, world, remembering(STORED))
    assert memory.offset == pytest.approx(0.08)


@names
def test_the_entropy_is_that_of_completions_with_an_empty_prefix_only(
    name, monkeypatch
):
    """Refilled ones and cuts at 0."""
    at = [0, 4, 0]
    monkeypatch.setattr(replayed, "drawn_cut", lambda *_: at.pop(0))
    learner = watched()
    world = spoken_world(lambda *said: ["ah", "bh"][said[2] % 2], learner=learner)
    critic = None if name == "prefix_grpo" else reads({})
    algorithm_ = chosen(critic, name, prompts_per_step=3, num_refill=2)
    one_step(algorithm_, world, remembering(STORED))
    (batch,) = learner.entropy_batches
    found = [
        text_of(row[len(prompt.token_ids) :][mask[len(prompt.token_ids) :]].tolist())
        for row, mask, prompt in zip(
            batch.token_ids, batch.token_mask, batch.prompts, strict=True
        )
    ]
    assert found == ["ah", "bh", "ah", "bh", "ah", "ah"]


@names
def test_where_nobody_began_at_the_prompt_the_offset_stays(name, monkeypatch):
    monkeypatch.setattr(replayed, "drawn_cut", lambda *_: 4)
    learner = watched(entropy=0.1)
    world = spoken_world(lines, learner=learner)
    critic = None if name == "prefix_grpo" else reads({})
    algorithm_ = chosen(critic, name, refill_every=2)
    _, _, memory = one_step(algorithm_, world, remembering(STORED, step=1))
    assert memory.offset == 0.06
    assert learner.entropy_batches == []


def rates(count, *, moves=(1.0, 1.0), state=None, critic=None, **keys):
    """The critic's rate in each step, and the streak after each."""
    world = spoken_world(lines, learner=watched(moves=moves))
    algorithm_ = chosen(critic, grid_size=11, **keys)
    state, streaks = state or remembering(STORED), []
    for _ in range(count):
        state, _ = algorithm_.advance(state, world)
        streaks.append(memory_in(state).breaches)
    return critic.rates, streaks


def moving(far, **keys):
    critic = reads({})
    critic.displacement = far
    for key, value in keys.items():
        setattr(critic, key, value)
    return critic


def test_two_breaches_in_a_row_halve_the_rate_down_to_a_quarter():
    """2.9 > sqrt(2) (1 + 1) = 2.83."""
    found, streaks = rates(7, critic=moving(2.9))
    assert found == [1e-3, 1e-3, 5e-4, 5e-4, 2.5e-4, 2.5e-4, 2.5e-4]
    assert streaks == [1, 0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("far", "keys"),
    [
        # As far as that is no breach yet.
        (2.8, {}),
        (2.9, {"displacement_limit": 1.5}),
        (2.9, {"displacement_limit": None}),
        (None, {}),
    ],
)
def test_without_a_breach_the_rate_stays(far, keys):
    assert rates(3, critic=moving(far), **keys) == ([1e-3] * 3, [0] * 3)


def test_floor_and_limit_are_knobs():
    found, _ = rates(5, critic=moving(1.2), rate_floor=0.5, displacement_limit=0.5)
    assert found == [1e-3, 1e-3, 5e-4, 5e-4, 5e-4]


def test_a_loss_that_is_not_finite_halves_the_rate_at_once():
    found, streaks = rates(2, critic=moving(0.0, loss=math.nan))
    assert found == [1e-3, 5e-4]
    assert streaks == [0, 0]


def test_a_step_without_a_critic_update_ends_the_streak():
    critic = moving(2.9)
    critic.value_of = lambda attempt: None
    state = remembering(STORED, ready=["p1"], breaches=1)
    algorithm_ = chosen(critic, audit_share=0.0, largest_cut_share=0.1, num_refill=1)
    world = spoken_world(lambda *_: "ababababab", lambda text: None)
    _, record, memory = one_step(algorithm_, world, state)
    assert record.critic is None
    assert (memory.breaches, memory.learning_rate) == (0, 1e-3)


def test_a_joint_step_says_nothing_of_the_critic_s_own_rate():
    critic = moving(9.0)
    world = spoken_world(lines, learner=watched(moves=(1.0, 1.0)))
    algorithm_ = chosen(critic, grid_size=11, joint_loss=True)
    state = remembering(STORED, breaches=1)
    _, _, memory = one_step(algorithm_, world, state)
    assert (memory.breaches, memory.learning_rate) == (0, 1e-3)


def test_a_halved_rate_is_counted():
    critic = moving(2.9)
    world = spoken_world(lines, learner=watched(moves=(1.0, 1.0)))
    algorithm_ = chosen(critic, grid_size=11)
    counted = []
    state = remembering(STORED)
    for _ in range(2):
        state, record = algorithm_.advance(state, world)
        counted.append(record.counts["critic_rate_halved"])
    assert counted == [0, 1]


@pytest.mark.parametrize(
    ("count", "sizes"), [(1, [6]), (2, [3, 3]), (4, [2, 2, 2]), (6, [1] * 6)]
)
def test_several_steps_of_the_critic_share_the_records(count, sizes):
    critic = reads({})
    critic.displacement = 1.5
    state = remembering(STORED, lessons=LESSONS)
    algorithm_ = chosen(critic, grid_size=11, critic_steps=count)
    _, record, _ = one_step(algorithm_, spoken_world(lines), state)
    assert [len(part) for part in critic.taught] == sizes
    seen = [lesson.attempt.written for part in critic.taught for lesson in part]
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
    (lessons,) = critic.taught
    found = [(text_of(v.attempt.written), round(v.target, 6)) for v in lessons]
    return found, record, memory


def test_what_is_new_is_taught_at_once_beside_what_is_in_store():
    found, record, memory = taught(remembering(STORED, lessons=LESSONS))
    replayed_ids = record.groups[0].rollouts[0].completion_ids
    new = text_of(replayed_ids[: int(record.routing.num_replayed[0])])
    assert sorted(text for text, _ in found) == sorted(
        ["a", "ab", "abc", "abcd", "abcde", new]
    )
    assert memory.lessons[-1][:2] == ("p1", new)
    assert len(memory.lessons) == 6


def test_so_many_records_are_drawn_without_replacement():
    seen = set()
    for step in range(6):
        state = remembering(STORED, lessons=LESSONS, step=step)
        found, _, _ = taught(state, records_per_step=3, largest_cut_share=0.1)
        assert len({text for text, _ in found}) == 3
        seen.add(tuple(sorted(found)))
    assert len(seen) > 2


def test_the_oldest_records_leave_first():
    state = remembering(STORED, lessons=LESSONS)
    _, _, memory = taught(state, critic_capacity=3, largest_cut_share=0.1)
    assert [text for _, text, _, _ in memory.lessons] == ["abcd", "abcde", ""]


def test_records_of_problems_that_are_gone_are_passed_over():
    state = remembering(STORED, lessons=[*LESSONS, ("gone", "a", 0.5, None)])
    found, _, memory = taught(state, largest_cut_share=0.1)
    assert len(found) == 6
    assert len(memory.lessons) == 7


def test_a_step_without_anything_for_the_policy_is_the_critic_s_alone():
    """Every judge fails; what is in store is taught all the same."""
    critic = reads({})
    learner = watched()
    world = spoken_world(lines, lambda text: None, learner=learner)
    state = remembering(STORED, lessons=LESSONS)
    _, record, _ = one_step(chosen(critic, grid_size=11), world, state)
    assert record.policy is None
    assert learner.objectives == []
    assert len(critic.taught[0]) == len(LESSONS)
