"""Bounded resampling and the overlong penalty."""

from dataclasses import replace

import pytest
import torch

from accredit.functional.flops import decode_flops
from accredit.records import State
from accredit.reports.metrics.step import step_metrics
from worlds import (
    ScriptedEnvironment,
    algorithm,
    answered,
    moved,
    prompts,
    small_world,
    steps,
    weights,
)

ONE, TWO, THREE, FOUR, FIVE = prompts(5)
TOKENS = (1, 2, 3)


def group(prompt, *rewards):
    return answered(prompt, [(TOKENS, reward) for reward in rewards])


def scripted(*rounds):
    """A world whose environment answers each round with these groups."""
    return replace(small_world(), environment=ScriptedEnvironment(list(rounds)))


def dapo(**keys):
    return algorithm("dapo", **{"prompts_per_step": 2, "group_size": 2} | keys)


def test_b171_all_equal_rewards_end_in_a_counted_skip():
    """Case B171: three rounds, nothing trained on, everything paid for."""
    world = scripted(*[[group(ONE, r, r), group(TWO, r, r)] for r in (0.0, 1.0, 0.5)])
    before = weights(world)
    state, (record,) = steps(dapo(max_draws=3), world, 1, State(num_drawn=10))
    assert record.policy is None
    assert not moved(world, before)
    assert world.learner.version == 0
    assert record.counts == {
        "groups_rejected": 6,
        "rollouts_drawn": 12,
        "rollouts_judged": 12,
        "rewards_invalid": 0,
        "updates_skipped": 1,
    }
    assert dict(state.counters) == record.counts
    assert (state.step, state.num_drawn) == (1, 16)
    spent = sum(
        decode_flops(world.shape, len(prompt.token_ids), 3)
        for prompt in (ONE, ONE, TWO, TWO) * 3
    )
    assert record.cost.decode_flops == spent
    assert record.cost.tokens_generated == 3 * 12
    assert record.cost.train_flops == 0
    assert step_metrics(record, state)["count/updates_skipped"] == 1


def test_b171_rejected_groups_are_never_trained_on():
    """Case B171: the step equals one that never saw them."""
    useful = [group(THREE, 1.0, 0.0), group(FOUR, 0.0, 1.0)]
    found = scripted([group(ONE, 1.0, 1.0), useful[0]], [useful[1]])
    plain = scripted(useful)
    _, (record,) = steps(dapo(), found, 1)
    steps(dapo(), plain, 1)
    assert record.groups == tuple(useful)
    assert record.counts["groups_rejected"] == 1
    assert record.batch.num_rollouts == 4
    assert not moved(found, weights(plain))


def test_each_round_draws_only_what_is_missing_under_a_key_of_its_own():
    world = scripted(
        [group(ONE, 1.0, 1.0), group(TWO, 1.0, 0.0)],
        [group(THREE, 0.0, 0.0)],
        [group(FOUR, 1.0, 0.0)],
    )
    state, (record,) = steps(dapo(max_draws=5), world, 1)
    environment = world.environment
    assert [len(asked) for asked in environment.asked] == [2, 1, 1]
    order = [prompt.problem.id for prompt in world.problems.draw(0, 4)]
    assert [id for asked in environment.asked for id in asked] == order
    assert environment.keys == [("train", 0, 0), ("train", 0, 1), ("train", 0, 2)]
    assert len(record.groups) == 2
    assert state.num_drawn == 4


def test_rounds_end_as_soon_as_enough_groups_disagree():
    world = scripted([group(ONE, 1.0, 0.0), group(TWO, 1.0, 0.0)])
    state, (record,) = steps(dapo(max_draws=9), world, 1)
    assert len(world.environment.keys) == 1
    assert (state.num_drawn, record.counts["groups_rejected"]) == (2, 0)


def test_a_step_trains_on_what_it_has_when_the_rounds_are_over():
    world = scripted(
        [group(ONE, 1.0, 1.0), group(TWO, 1.0, 0.0)], [group(FIVE, 0.0, 0.0)]
    )
    _, (record,) = steps(dapo(max_draws=2), world, 1)
    assert [g.prompt for g in record.groups] == [TWO]
    assert record.policy is not None
    assert record.counts["groups_rejected"] == 2


def test_unverified_siblings_have_no_say_in_whether_a_group_is_informative():
    """Case P09: [1, None] does not disagree, [1, None, 0] does."""
    world = scripted(
        [group(ONE, 1.0, None), answered(TWO, [(TOKENS, r) for r in (1.0, None, 0.0)])],
        [group(THREE, None, None)],
    )
    _, (record,) = steps(dapo(max_draws=2), world, 1)
    assert [g.prompt for g in record.groups] == [TWO]


def long_and_short(*rewards):
    """Two prompts; siblings of 6, 4 tokens each, the budget being 6."""
    return [
        answered(prompt, [((1,) * 6, first), ((1,) * 4, second)])
        for prompt, (first, second) in zip((ONE, TWO), rewards, strict=True)
    ]


@pytest.mark.parametrize(
    ("applies_to", "shaped"),
    # Ramp of 4 before 6: 6 tokens cost all of .5, 4 tokens half of it.
    [("all", [0.5, -0.25, -0.5, 0.75]), ("successes", [0.5, 0.0, 0.0, 0.75])],
)
def test_p17_b094_b178_raw_reward_is_kept_beside_the_shaped_one(applies_to, shaped):
    """Cases P17, B094 (failures can be spared) and B178 (both are reported)."""
    world = scripted(long_and_short((1.0, 0.0), (0.0, 1.0)))
    chosen = dapo(overlong_cache=4, overlong_factor=0.5, overlong_applies_to=applies_to)
    state, (record,) = steps(chosen, world, 1)
    assert record.shaped_rewards.tolist() == pytest.approx(shaped)
    assert record.batch.rewards.tolist() == [1.0, 0.0, 0.0, 1.0]
    metrics = step_metrics(record, state)
    assert metrics["reward/mean"] == pytest.approx(0.5)
    assert metrics["reward/shaped_mean"] == pytest.approx(sum(shaped) / 4)
    # The group mean is of shaped rewards: .5 and -.25 give .125.
    means = [(shaped[0] + shaped[1]) / 2] * 2 + [(shaped[2] + shaped[3]) / 2] * 2
    assert record.values[:, 0].tolist() == pytest.approx(means)


def test_groups_are_judged_before_the_penalty():
    """Equal answers of unequal length are not informative, whatever the penalty."""
    world = scripted(long_and_short((1.0, 1.0), (1.0, 0.0)), [group(FIVE, 1.0, 1.0)])
    _, (record,) = steps(dapo(overlong_cache=4, max_draws=2), world, 1)
    assert [g.prompt for g in record.groups] == [TWO]


def test_without_a_cache_nothing_is_shaped():
    world = scripted(long_and_short((1.0, 0.0), (0.0, 1.0)))
    _, (record,) = steps(dapo(), world, 1)
    assert torch.equal(record.shaped_rewards, record.batch.rewards)
