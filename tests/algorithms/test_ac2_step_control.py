"""What AC2 turns while it runs, in whole steps: offset and learning rate."""

import math

import pytest
from ac2_group import lines, minimised, watched

from ac2_worlds import (
    chosen,
    memory_in,
    one_step,
    reads,
    remembering,
    spoken_world,
    text_of,
)
from accredit.algorithms.replay import routes
from accredit.loops.synchronous import advance

STORED = [("p1", "abcdefabcd", 0.2)]
names = pytest.mark.parametrize("name", ["prefix_grpo", "ac2", "ac2_plus"])


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
        state, _ = advance(algorithm_, state, world)
        found.append(state.memory.entropy_offset)
    assert found == pytest.approx(ladder, abs=1e-12)
    # The entropy of a step moves the bound of that very step.
    bounds = [-minimised(objective)[0] - 1 for objective in learner.objectives]
    assert bounds == pytest.approx([0.28 + k for k in ladder], abs=1e-6)


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
    monkeypatch.setattr(routes, "drawn_cut", lambda *_: at.pop(0))
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
    monkeypatch.setattr(routes, "drawn_cut", lambda *_: 4)
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
        state, _ = advance(algorithm_, state, world)
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
        state, record = advance(algorithm_, state, world)
        counted.append(record.counts["critic_rate_halved"])
    assert counted == [0, 1]
