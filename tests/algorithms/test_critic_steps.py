"""What a step does with a critic: order, warm-up, targets, truncation, costs."""

from dataclasses import dataclass

import pytest
import torch

from accredit.algorithms.actor_critic import (
    critic_cost,
    fit_critic,
    plain_value_targets,
    update_warm_policy,
)
from accredit.algorithms.alignment import Acceptance, policy_change
from accredit.algorithms.pact import PACT
from accredit.algorithms.step import finished, publish, step_record
from accredit.batches.collate import collate
from accredit.credit import shuffled_change
from accredit.records import ValueTargets
from worlds import algorithm, moved, small_world, steps, weights

pytestmark = pytest.mark.whole_run

AT_ONCE = {"warmup_steps": 0, "learning_rate": 1e-2}
WITH_CRITIC = ("ppo", "sao", "pact")


def chosen(name, world, critic=(), **keys):
    return algorithm(name, world=world, critic={**AT_ONCE, **dict(critic)}, **keys)


@dataclass(frozen=True)
class CriticFirst:
    """The same work as `pact` with plain targets, in the other order."""

    pact: PACT
    clip_bounds: None = None
    initial_memory: None = None

    def draw(self, state, world):
        return self.pact.draw(state, world)

    def learn(self, state, world, drawn):
        critic, batch = self.pact.critic, collate(drawn.groups)
        values = critic.values(batch, batch.rewards)
        credit = self.pact.credit(batch, batch.rewards, values)
        ones = torch.ones_like(batch.sampling_logprobs)
        wanted = ValueTargets(batch.rewards[:, None] * ones, ones, batch.trainable)
        fit_critic(critic, state, world, batch, wanted)
        objective = self.pact.objective
        policy = update_warm_policy(
            objective, critic, state, world, drawn, batch, credit
        )
        publish(world)
        record = step_record(drawn, batch, batch.rewards, values, credit, policy)
        return finished(state, world, drawn, record)


def weights_after(trunk, critic_first):
    world = small_world()
    plain = chosen("pact", world, {"trunk": trunk}, target="plain", num_minibatches=2)
    if critic_first:
        plain = CriticFirst(plain)
    steps(plain, world, 3)
    return weights(world)


def largest_gap(trunk):
    before, after = (weights_after(trunk, first) for first in (False, True))
    return max(float((before[n] - after[n]).abs().max()) for n in before)


def test_order_alone_changes_nothing_with_separate_weights_and_plain_targets():
    assert largest_gap("own") == 0.0


def test_order_matters_on_a_shared_trunk():
    assert largest_gap("shared") > 1e-3


@pytest.mark.parametrize("trunk", ["own", "shared", "lora"])
@pytest.mark.parametrize("name", WITH_CRITIC)
def test_the_critic_learns_alone_while_it_warms_up(name, trunk):
    world = small_world()
    before = weights(world)
    keys = {"warmup_steps": 2, "trunk": trunk, "freeze_attention": False}
    warming = chosen(name, world, keys)
    state, records = steps(warming, world, 2)
    assert not moved(world, before)
    assert [record.policy for record in records] == [None, None]
    assert all(record.critic.gradient_norms[0] > 0 for record in records)
    assert state.counters["critic_only_steps"] == 2
    assert state.counters["updates_skipped"] == 0
    _, (record,) = steps(warming, world, 1, state)
    assert record.policy is not None
    assert moved(world, before)


@pytest.mark.parametrize("name", WITH_CRITIC)
def test_the_critic_comes_to_know_what_rollouts_are_worth(name):
    """A frozen policy on a constant reward of .9: V goes there from .5."""
    world = small_world(lambda text: 0.9)
    known = chosen(name, world, {"warmup_steps": 40, "learning_rate": 3e-2})
    _, records = steps(known, world, 40)
    first, last = records[0], records[-1]
    kept = last.batch.trainable
    assert first.values[:, :-1][first.batch.trainable].mean() == pytest.approx(0.5)
    assert last.values[:, :-1][kept].mean() == pytest.approx(0.9, abs=0.03)
    assert last.critic.losses[0] < first.critic.losses[0]


@pytest.mark.parametrize("name", WITH_CRITIC)
def test_advantages_are_outcome_minus_value_at_lambda_one(name):
    keys = {"length_adaptive_alpha": 1e9} if name == "sao" else {}
    world = small_world()
    _, records = steps(chosen(name, world, **keys), world, 2)
    batch, kept = records[1].batch, records[1].batch.trainable
    expected = batch.rewards[:, None] - records[1].values[:, :-1]
    torch.testing.assert_close(
        records[1].credit.advantages[kept], expected[kept], atol=1e-5, rtol=1e-5
    )
    assert records[1].credit.advantages[kept].abs().max() > 0.01


def test_truncated_rollouts_are_paid_or_bootstrapped_as_the_recipe_says():
    """Nothing ends a rollout here, so that all of them are truncated."""
    for name in WITH_CRITIC:
        records = {}
        for rule in ("outcome", "bootstrap"):
            world = small_world()
            _, (records[rule],) = steps(chosen(name, world, truncation=rule), world, 1)
        paid, bootstrapped = records["outcome"], records["bootstrap"]
        assert bool(paid.batch.truncated.all())
        kept = paid.batch.trainable
        assert paid.credit.advantages[kept].abs().max() > 0.1
        # V is .5 everywhere, and so is what stands in for the reward.
        assert bootstrapped.credit.advantages[kept].abs().max() < 1e-6


@pytest.mark.parametrize("target", ["pact", "shuffled"])
def test_the_policy_moves_before_the_ratios_are_taken(target):
    world = small_world()
    _, (record,) = steps(chosen("pact", world, target=target), world, 1)
    kept = record.batch.trainable
    assert record.change is not None
    assert record.change.ratios[kept].sub(1).abs().max() > 1e-3
    torch.testing.assert_close(
        record.change.new_logprobs[kept], world.learner.logprobs(record.batch)[kept]
    )
    torch.testing.assert_close(record.change.old_logprobs, record.policy.old_logprobs)


def test_targets_are_the_ratio_of_their_own_token_times_the_outcome():
    world = small_world()
    _, (record,) = steps(chosen("pact", world), world, 1)
    kept = record.batch.trainable
    expected = record.change.ratios * record.batch.rewards[:, None]
    torch.testing.assert_close(
        record.credit.value_targets[:, :-1][kept], expected[kept]
    )
    assert record.credit.value_targets[:, :-1][kept].max() > 0


def test_a_policy_that_did_not_move_costs_no_pass_and_has_ratio_one():
    world = small_world()
    _, (record,) = steps(chosen("pact", world, {"warmup_steps": 1}), world, 1)
    kept = record.batch.trainable
    assert bool((record.change.ratios[kept] == 1).all())
    critic_alone = critic_cost(
        chosen("pact", world).critic, record.batch, record.critic
    )
    assert record.cost.train_flops == pytest.approx(critic_alone.train_flops)


def test_when_every_token_is_rejected_the_critic_is_skipped_and_counted():
    world = small_world()
    pact = chosen("pact", world, accept_low=1.0, accept_high=1.0)
    state, (record,) = steps(pact, world, 1)
    assert record.critic.num_skipped == 1
    assert record.counts["critic_updates_skipped"] == 1
    assert record.counts["critic_tokens_rejected"] == int(record.batch.trainable.sum())
    assert record.policy is not None
    steps(pact, world, 1, state)


def test_mask_only_rejects_what_pact_rejects_and_teaches_the_outcome():
    worlds = [small_world(rate=5e-2) for _ in range(2)]
    masked, corrected = (
        steps(
            chosen("pact", world, target=target, accept_low=0.9, accept_high=1.1),
            world,
            1,
        )[1][0]
        for world, target in zip(worlds, ("mask_only", "pact"), strict=True)
    )
    assert bool((masked.change.accepted == corrected.change.accepted).all())
    kept = masked.batch.trainable & masked.change.accepted
    assert 0 < int(kept.sum()) < int(masked.batch.trainable.sum())
    outcomes = masked.batch.rewards[:, None].expand_as(kept)
    torch.testing.assert_close(
        masked.credit.value_targets[:, :-1][kept], outcomes[kept]
    )


def test_shuffling_deals_the_same_ratios_to_other_tokens():
    world = small_world()
    _, (record,) = steps(chosen("pact", world), world, 1)
    batch, kept = record.batch, record.batch.trainable
    dealt = shuffled_change(batch, record.change, seed=1)
    before, after = record.change.ratios[kept], dealt.ratios[kept]
    torch.testing.assert_close(before.sort().values, after.sort().values)
    assert (before - after).abs().max() > 1e-3
    again = shuffled_change(batch, record.change, seed=1)
    assert bool((again.new_logprobs == dealt.new_logprobs).all())


def test_acceptance_is_closed_at_both_ends():
    world = small_world()
    _, (record,) = steps(chosen("pact", world), world, 1)
    unmoved = policy_change(world, record.batch, None, Acceptance(1.0, 1.0))
    assert bool((unmoved.accepted == record.batch.trainable).all())


def test_ppo_teaches_the_returns_of_its_own_lambda():
    world = small_world()
    short = chosen("ppo", world, lambda_critic=0.0, truncation="outcome")
    _, records = steps(short, world, 2)
    record = records[1]
    wanted = plain_value_targets(record.batch, record.credit)
    last = record.batch.token_mask.sum(1) - 1
    rows = torch.arange(len(last))
    torch.testing.assert_close(wanted.targets[rows, last], record.batch.rewards)
    # lambda = 0: every earlier target is the next value.
    torch.testing.assert_close(
        wanted.targets[rows, last - 1], record.values[rows, last]
    )
