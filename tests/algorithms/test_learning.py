"""Every algorithm learns a tiny problem with the real engine and learner."""

import copy

import pytest

from accredit.algorithms.build import Parts, build_algorithm
from accredit.learner.teacher import Teacher
from accredit.loops.synchronous import advance, first_state
from accredit.recipe.config import recipe_from
from worlds import (
    ALGORITHMS,
    LETTERS,
    REPLAYED,
    algorithm,
    mean_reward,
    small_world,
    steps,
)

pytestmark = pytest.mark.whole_run

ONE_OF_EACH_FAMILY = ["grpo", "gspo", "reinforce_pp", "ppo", "pact", "opd", "vine"]
ONE_OF_EACH_FAMILY += ["prefix_grpo", "ac2"]
KNOW_BEFOREHAND = {"ppo", "sao", "pact", "opd"}
"""A critic begins with a value of its own, a teacher with a policy."""


def learned(algorithm, world, most):
    """The records of the steps until three of them are good, and at least six."""
    state, records = first_state(algorithm), []
    while len(records) < most and (
        len(records) < 6 or mean_reward(records[-3:]) <= 0.8
    ):
        state, record = advance(algorithm, state, world)
        records.append(record)
    return records


@pytest.mark.parametrize("name", ["opd", *REPLAYED])
def test_it_climbs_from_chance_over_three_seeds(name):
    """One letter of eight is worth 1: chance .125, and 20 steps of 12 rollouts."""
    for seed in range(3):
        records = learned(algorithm(name), small_world(seed=seed), 20)
        assert mean_reward(records[:3]) < 0.45
        assert mean_reward(records[-3:]) > 0.8, (name, seed)


@pytest.mark.parametrize("name", ONE_OF_EACH_FAMILY)
def test_it_learns_in_minibatches_and_epochs_too(name):
    """Ratios leave 1 from the second optimizer step on; it is still sound."""
    chosen = algorithm(name, num_minibatches=2, num_epochs=2)
    _, records = steps(chosen, small_world(seed=1, rate=1e-2), 15)
    assert len(records[0].policy.losses) == 4
    drift = records[0].policy.logprobs - records[0].policy.old_logprobs
    assert drift.abs().max() > 1e-4
    assert mean_reward(records[-3:]) > mean_reward(records[:3]) + 0.3


@pytest.mark.parametrize("name", sorted({*ALGORITHMS} - KNOW_BEFOREHAND))
def test_a_constant_reward_gives_no_credit(name):
    free = {"kl_coefficient": 0.0} if name == "reinforce_pp" else {}
    world = small_world(lambda text: 1.0)
    _, (record,) = steps(algorithm(name, **free), world, 1)
    assert record.credit.advantages.abs().max() == 0


def one_word(text):
    """The tiny language of the oracle, every token of it spelled by four letters."""
    bits = [LETTERS.index(letter) % 2 for letter in text]
    return float(bits == [1, 0, 1])


def word_world(seed):
    return small_world(one_word, seed=seed, rate=3e-2, max_new_tokens=3, num_prompts=1)


@pytest.mark.parametrize("name", sorted({*ALGORITHMS} - {"opd", *REPLAYED}))
def test_it_learns_the_one_word_that_pays_over_three_seeds(name):
    """One of eight words is worth 1, and nothing on the way to it."""
    for seed in range(3):
        world = word_world(seed)
        chosen = algorithm(name, 3, world, prompts_per_step=1, group_size=32)
        records = learned(chosen, world, 60)
        assert mean_reward(records[:3]) < 0.3, (name, seed)
        assert mean_reward(records[-3:]) > 0.8, (name, seed)


@pytest.mark.parametrize("name", REPLAYED)
def test_it_learns_the_word_from_prefixes_that_may_be_lost_already(name):
    """What counts is the fresh rollouts: a replayed prefix can have spelled another."""
    for seed in range(3):
        world = small_world(
            one_word, seed=seed, rate=2e-2, max_new_tokens=3, num_prompts=1
        )
        keys = {"prompts_per_step": 4, "group_size": 16, "num_refill": 4}
        # A step of four prefixes would else have a store and a buffer for as few.
        keys |= {"largest_cut_share": 0.4, "replay_capacity": 256}
        if name != "prefix_grpo":
            keys |= {"critic_capacity": 1920, "records_per_step": 768}
        chosen, fresh = algorithm(name, 3, world, **keys), []
        state = first_state(chosen)
        for step in range(40):
            state, _ = advance(chosen, state, world)
            fresh.append([item.reward for item in state.memory.rollouts.items[-4:]])
            if step > 10 and sum(sum(rewards) for rewards in fresh[-5:]) > 18:
                break
        assert sum(sum(rewards) for rewards in fresh[:5]) / 20 < 0.4, (name, seed)
        assert sum(sum(rewards) for rewards in fresh[-5:]) / 20 > 0.8, (name, seed)


def test_a_student_learns_the_word_from_a_teacher_who_knows_it():
    """No reward is read: credit comes from the teacher alone."""
    taught = word_world(seed=1)
    steps(algorithm("grpo", 3, prompts_per_step=1, group_size=32), taught, 30)
    teacher = Teacher(copy.deepcopy(taught.learner.model))
    for seed in range(3):
        world = word_world(seed)
        section = {"name": "opd", "teacher": "its folder", "group_size": 32}
        section["prompts_per_step"] = 1
        config = recipe_from({"algorithm": section}, "test").algorithm
        chosen = build_algorithm(config, Parts(3, teacher=teacher))
        _, records = steps(chosen, world, 30)
        assert mean_reward(records[:3]) < 0.3, seed
        assert mean_reward(records[-3:]) > 0.8, seed


def test_every_name_builds_and_an_unknown_one_does_not():
    class Unknown:
        name = "trpo"

    assert len(ALGORITHMS) == 15
    with pytest.raises(KeyError, match="trpo"):
        build_algorithm(Unknown(), Parts(8))
