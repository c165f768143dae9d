"""VinePPO's own step: whom it asks, what it deals, what it pays, that it learns."""

from dataclasses import replace

import pytest
import torch

from accredit.algorithms.configs import VineConfig
from accredit.algorithms.vine import vine
from accredit.records import State
from accredit.types import Group, StopReason, Verdict
from accredit.world import rollout_cost, update_cost
from worlds import (
    ScriptedEnvironment,
    answered,
    finished,
    mean_reward,
    prompts,
    small_world,
    steps,
)

pytestmark = pytest.mark.whole_run

ONE, TWO = prompts(2)


def built(max_new_tokens: int = 6, **keys):
    return vine(VineConfig(prompts_per_step=3, **keys), max_new_tokens)


def voted(*rewards: float | None) -> Group:
    """Continuations with these rewards; of what does not matter."""
    return answered(ONE, [((7,), reward) for reward in rewards])


def scripted(group: Group, *continuations: Group):
    world = small_world()
    script = [[group], list(continuations)]
    return replace(world, environment=ScriptedEnvironment(script))


def test_a_step_by_hand():
    """Five tokens in chunks of two: V = .25, .5, 1 and R = .5 give .25, .5, -.5."""
    world = scripted(
        answered(ONE, [((1, 2, 3, 4, 5), 0.5)]),
        voted(0.0, 0.5),
        voted(0.5, 0.5),
        voted(1.0, 1.0),
    )
    chosen = built(chunk_length=2, num_continuations=2)
    state, (record,) = steps(chosen, world, 1)
    expected = [0, 0.25, 0.25, 0.5, 0.5, -0.5]
    torch.testing.assert_close(record.credit.advantages, torch.tensor([expected]))
    values = [0, 0.25, 0.25, 0.5, 0.5, 1.0, 0.5]
    torch.testing.assert_close(record.values, torch.tensor([values]))
    assert world.environment.keys == [("train", 0), ("vine", 0)]
    assert record.shaped_rewards.tolist() == [0.5]
    assert record.valued_by_critic
    assert record.policy is not None and record.policy.gradient_norms[0] > 0
    assert state.step == world.learner.version == world.engine.version == 1


def test_each_step_has_draws_of_its_own():
    world, group = small_world(), answered(ONE, [((1, 2), 0.5)])
    script = [[group], [voted(0.5)], [group], [voted(0.5)]]
    world = replace(world, environment=ScriptedEnvironment(script))
    steps(built(chunk_length=2, num_continuations=1), world, 2)
    expected = [("train", 0), ("vine", 0), ("train", 1), ("vine", 1)]
    assert world.environment.keys == expected


def test_every_token_of_the_fresh_rollouts_is_paid_for():
    first = answered(ONE, [((1, 2, 3), 0.5)])
    fresh = [voted(0.0, None), voted(0.5, 0.5)]
    world = scripted(first, *fresh)
    state, (record,) = steps(built(chunk_length=2, num_continuations=2), world, 1)
    expected = rollout_cost([first, *fresh], world.shape) + update_cost(
        record.policy, record.batch, world.shape
    )
    assert record.cost == expected == state.cost
    assert record.cost.tokens_generated == 3 + 4
    assert record.cost.num_verifications == 5
    assert record.counts["continuations_unverified"] == 1
    assert state.counters["continuations_unverified"] == 1


def test_a_truncated_rollout_is_paid_its_reward():
    cut = replace(finished(ONE, (1, 2, 3)), stop_reason=StopReason.LENGTH)
    world = scripted(
        Group(ONE, (cut,), (Verdict(0.75),)), voted(0.25, 0.25), voted(0.5, 0.5)
    )
    _, (record,) = steps(built(chunk_length=2, num_continuations=2), world, 1)
    expected = torch.tensor([[0, 0.25, 0.25, 0.25]])
    torch.testing.assert_close(record.credit.advantages, expected)
    assert record.batch.truncated.tolist() == [True]


def test_credits_of_a_rollout_sum_to_its_outcome_minus_the_prompts_value():
    """Completeness, by chunk, with the real engine and budget as the end."""
    world = small_world(seed=4)
    chosen = built(chunk_length=2, num_continuations=3, group_size=2)
    _, (record,) = steps(chosen, world, 1)
    batch, dealt = record.batch, record.credit.advantages
    for row, prompt in enumerate(batch.prompts):
        first = record.values[row, len(prompt.token_ids)]
        one_a_chunk = dealt[row][batch.sampled[row]][::2]
        torch.testing.assert_close(one_a_chunk.sum(), batch.rewards[row] - first)
    assert dealt.abs().max() > 0.01


def test_siblings_are_asked_for_their_prompt_together():
    world = small_world(seed=4)
    chosen = built(chunk_length=6, num_continuations=2, group_size=4)
    _, (record,) = steps(chosen, world, 1)
    assert record.cost.tokens_generated == 3 * 6 * (4 + 2)
    for group in range(3):
        firsts = [
            float(record.values[row, len(record.batch.prompts[row].token_ids)])
            for row in range(4 * group, 4 * group + 4)
        ]
        assert len(set(firsts)) == 1


@pytest.mark.parametrize(("budget", "expected"), [(1, 1), (6, 2), (300, 60)])
def test_a_fifth_of_the_budget_is_a_chunk_where_none_is_given(budget, expected):
    assert built(budget).critic.chunk_length == expected
    own = built(budget, chunk_length=4).critic
    assert (own.chunk_length, own.num_continuations) == (4, 9)


def test_its_step_repeats_and_goes_on_from_a_state():
    """Two steps in one go are a step and the step after it, fresh rollouts included."""
    chosen = built(chunk_length=2, num_continuations=2)
    _, (_, expected) = steps(chosen, small_world(seed=5), 2)
    world = small_world(seed=5)
    state, _ = steps(chosen, world, 1)
    _, (found,) = steps(chosen, world, 1, State(**vars(state)))
    assert torch.equal(found.values, expected.values)
    assert torch.equal(found.credit.advantages, expected.credit.advantages)


def test_it_learns_the_letters_over_three_seeds():
    for seed in range(3):
        chosen = built(chunk_length=2, num_continuations=4, group_size=4)
        _, records = steps(chosen, small_world(seed=seed), 15)
        assert mean_reward(records[:3]) < 0.45
        assert mean_reward(records[-3:]) > 0.8, seed
