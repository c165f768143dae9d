"""Credit, targets, losses, ledger and draws of the critic algorithms, by hand."""

import math
from dataclasses import replace

import pytest
import torch

from accredit.algorithms.alignment import alignment
from accredit.functional import value_targets
from accredit.recipe.config import recipe_from
from worlds import algorithm, small_world, steps

pytestmark = pytest.mark.whole_run

WITH_CRITIC = ("ppo", "sao", "pact")
AT_ONCE = {"warmup_steps": 0, "learning_rate": 3e-2}
ONE_PASS = {"num_epochs": 1, "freeze_attention": False}
CLIPS = {"clip_low": 0.1, "clip_high": 0.3}
RANGE = {"ratio_low": 0.7, "ratio_high": 6.0}
DIS = {"actor_loss": "double_sided_importance"}


def chosen(name, world=None, critic=(), **keys):
    return algorithm(name, world=world, critic={**AT_ONCE, **dict(critic)}, **keys)


def second_record(name, world=None, **keys):
    """Of a step whose critic no longer says one thing of everything."""
    world = world or small_world()
    _, (_, record) = steps(chosen(name, world, **keys), world, 2)
    assert record.values[:, :-1][record.batch.trainable].std() > 1e-3
    return record


def generalized(record, lambda_: float, gamma: float = 1.0):
    """A_t of every sampled token, backwards through each row."""
    found = torch.zeros(record.batch.token_ids.shape)
    for row in range(record.batch.num_rollouts):
        places = record.batch.sampled[row].nonzero()[:, 0].tolist()
        following, after = 0.0, 0.0
        for place in reversed(places):
            before = float(record.values[row, place])
            is_last = place == places[-1]
            reward = float(record.batch.rewards[row]) if is_last else 0.0
            delta = reward + gamma * after - before
            following = delta + gamma * lambda_ * following
            found[row, place], after = following, before
    return found


def dealt(record):
    """Advantages and value targets, where there are any."""
    kept = record.batch.trainable
    return record.credit.advantages[kept], record.credit.value_targets[:, :-1][kept]


def test_ppo_deals_and_teaches_by_two_lambdas():
    keys = {"lambda_policy": 0.5, "lambda_critic": 0.8, "gamma": 0.9}
    record = second_record("ppo", truncation="outcome", **keys)
    kept, values = record.batch.trainable, record.values[:, :-1]
    advantages, targets = dealt(record)
    torch.testing.assert_close(advantages, generalized(record, 0.5, 0.9)[kept])
    taught = generalized(record, 0.8, 0.9) + values
    torch.testing.assert_close(targets, taught[kept])


def test_ppo_takes_a_longer_rollouts_lambda_for_larger():
    """Six tokens and alpha .5: 1 - 1 / 3, whatever lambda_policy says."""
    keys = {"length_adaptive_alpha": 0.5, "truncation": "outcome"}
    record = second_record("ppo", **keys)
    kept = record.batch.trainable
    torch.testing.assert_close(dealt(record)[0], generalized(record, 2 / 3)[kept])


def test_sao_deals_by_length_and_teaches_the_outcome():
    """Six tokens and alpha .5: 1 - 1 / 3; the critic's own lambda is 1."""
    record = second_record("sao", truncation="outcome", length_adaptive_alpha=0.5)
    kept = record.batch.trainable
    advantages, targets = dealt(record)
    torch.testing.assert_close(advantages, generalized(record, 2 / 3)[kept])
    outcomes = record.batch.rewards[:, None].expand(kept.shape)
    torch.testing.assert_close(targets, outcomes[kept])


@pytest.mark.parametrize("rule", ["bootstrap", "outcome"])
@pytest.mark.parametrize("name", WITH_CRITIC)
def test_only_a_truncated_rollout_is_bootstrapped(name, rule):
    """R is .9; some of the rollouts write an a and stop, the others are cut."""
    world = small_world(lambda text: 0.9, stop_token_ids=(0,))
    record = second_record(name, world, group_size=8, truncation=rule)
    batch, kept, values = record.batch, record.batch.trainable, record.values
    assert 0 < int(batch.truncated.sum()) < batch.num_rollouts
    rows, ends = torch.arange(batch.num_rollouts), batch.token_mask.sum(1)
    cut = batch.truncated & (rule == "bootstrap")
    worth = torch.where(cut, values[rows, ends], 0.9)
    assert (worth - 0.9).abs().max() > 0.1 or rule == "outcome"
    torch.testing.assert_close(record.shaped_rewards, worth)
    assert torch.equal(record.outcome_known, ~cut)
    ratios, where = torch.ones(kept.shape), kept
    if name == "pact":
        ratios, where = record.change.ratios, kept & record.change.accepted
    targets = record.credit.value_targets[:, :-1]
    torch.testing.assert_close(targets[where], (ratios * worth[:, None])[where])
    advantages = record.credit.advantages[kept]
    surprises = worth[:, None] - values[:, :-1]
    if name == "sao":
        # lambda < 1: only the last token's is the whole surprise.
        advantages = record.credit.advantages[rows, ends - 1]
        torch.testing.assert_close(advantages, surprises[rows, ends - 1])
    else:
        torch.testing.assert_close(advantages, surprises[kept])


@pytest.mark.parametrize(
    ("target", "rule"),
    [
        ({"target": "plain"}, value_targets.plain_targets),
        ({"target": "mask_only"}, value_targets.plain_targets),
        ({"target": "pact"}, value_targets.pact_targets),
        ({"target": "shuffled"}, value_targets.pact_targets),
        ({"target": "weighted"}, value_targets.weighted_targets),
        ({"target": "doubly_robust"}, value_targets.doubly_robust_targets),
        (
            {"target": "windowed", "window": 2},
            lambda *x: value_targets.windowed_targets(*x, window=2),
        ),
        (
            {"target": "vtrace", "trace_cap": 1.25},
            lambda *x: value_targets.vtrace_targets(*x, trace_cap=1.25),
        ),
        (
            {"target": "full_product", "product_cap": 1.5},
            lambda *x: value_targets.full_product_targets(*x, product_cap=1.5),
        ),
    ],
)
def test_a_target_is_the_rule_of_its_name_and_knobs(target, rule):
    draws = torch.Generator().manual_seed(0)
    ratios = torch.rand(3, 5, generator=draws) + 0.7
    values = torch.rand(3, 6, generator=draws)
    given = (ratios, torch.tensor([1.0, 0.0, 0.6]), values, torch.ones(3, 5) > 0)
    plain = target["target"] == "plain"
    keys = target if plain else target | {"accept_low": 0.6, "accept_high": 1.4}
    align = chosen("pact", **keys).align
    found, expected = align.rule(*given), rule(*given)
    torch.testing.assert_close(found.targets, expected.targets)
    torch.testing.assert_close(found.weights, expected.weights)
    low, high = align.acceptance.low, align.acceptance.high
    assert (low, high) == ((0.0, math.inf) if plain else (0.6, 1.4))


def test_the_shuffled_control_teaches_the_same_ratios_at_other_tokens():
    world = small_world(lambda text: 0.9)
    shuffled = chosen("pact", world, target="shuffled")
    align, seeds = shuffled.align, []

    def noted(batch, change, seed):
        seeds.append(seed)
        return align.disturb(batch, change, seed)

    shuffled = replace(shuffled, align=replace(align, disturb=noted))
    _, records = steps(shuffled, world, 2)
    assert len(set(seeds)) == 2
    for record in records:
        expected = 0.9 * record.change.ratios[record.batch.trainable]
        _, targets = dealt(record)
        torch.testing.assert_close(targets.sort().values, expected.sort().values)
        assert (targets - expected).abs().max() > 1e-3


def minimised(built):
    """Loss of tokens with ratios 1.5, .5, 8, .9 and advantages 1, -1, -1, 1."""
    ratios = torch.tensor([[1.5, 0.5, 8.0, 0.9]])
    advantages = torch.tensor([[1.0, -1.0, -1.0, 1.0]])
    old = torch.full((1, 4), -3.0)
    sampled = torch.ones(1, 4) > 0
    losses = built.objective.loss(old + ratios.log(), old, advantages, sampled)
    batch = built.objective.aggregation(torch.ones(2, 4) > 0, torch.arange(2))
    torch.testing.assert_close(batch, torch.full((2, 4), 1 / 8))
    return losses[0].tolist()


@pytest.mark.parametrize(
    ("name", "keys", "third"),
    [
        ("ppo", {}, 8.0),
        ("ppo", {"dual_clip": 3.0}, 3.0),
        ("pact", {"actor_loss": "clipped_surrogate"}, 8.0),
        ("vine", {}, 8.0),
        ("opd", {}, 8.0),
    ],
)
def test_a_clipped_surrogate_is_clipped_as_the_recipe_says(name, keys, third):
    built = algorithm(name, world=small_world(), **CLIPS, **keys)
    assert minimised(built) == pytest.approx([-1.3, 0.9, third, -0.9])
    assert built.clip_bounds == (0.1, 0.3)
    assert not built.objective.old_from_engine


@pytest.mark.parametrize(("name", "keys"), [("sao", {}), ("pact", DIS)])
def test_ratios_outside_the_range_weigh_nothing(name, keys):
    built = algorithm(name, world=small_world(), **RANGE, **keys)
    expected = [-1.5 * (math.log(1.5) - 3), 0.0, 0.0, -0.9 * (math.log(0.9) - 3)]
    assert minimised(built) == pytest.approx(expected)
    assert built.clip_bounds == pytest.approx((0.3, 5.0))
    assert built.objective.old_from_engine == (name == "sao")


def noting(built):
    """The algorithm, and what its critic is told beside the batch at each update."""
    told, update = [], built.critic.update

    def noted(batch, wanted, seed, *, warming_up):
        told.append((seed, warming_up, wanted))
        return update(batch, wanted, seed, warming_up=warming_up)

    built.critic.update = noted
    return built, told


@pytest.mark.parametrize("name", WITH_CRITIC)
def test_a_critics_draws_are_keyed_by_run_and_step(name):
    seeds = []
    for seed in (0, 0, 1):
        world = small_world(seed=seed)
        built, told = noting(chosen(name, world, {"warmup_steps": 1}))
        state, records = steps(built, world, 3)
        assert [warming_up for _, warming_up, _ in told] == [True, False, False]
        assert [record.policy is None for record in records] == [True, False, False]
        assert state.counters["critic_only_steps"] == 1
        assert state.counters["updates_skipped"] == 0
        assert world.engine.version == world.learner.version == 2
        seeds.append([seed for seed, _, _ in told])
    assert seeds[0] == seeds[1]
    assert len({*seeds[0], *seeds[2]}) == 6


@pytest.mark.parametrize("name", WITH_CRITIC)
def test_a_critic_is_taught_what_the_record_says(name):
    world = small_world()
    keys = {"accept_low": 0.97, "accept_high": 1.03} if name == "pact" else {}
    built, told = noting(chosen(name, world, num_epochs=2, **keys))
    _, (record,) = steps(built, world, 1)
    ((_, _, wanted),) = told
    where = record.batch.trainable
    if name == "pact":
        change, kept = record.change, where
        assert torch.equal(change.old_logprobs, record.policy.old_logprobs)
        now = world.learner.logprobs(record.batch)
        torch.testing.assert_close(change.new_logprobs[kept], now[kept])
        low, high = change.ratios < 0.97, change.ratios > 1.03
        assert (low & kept).any() and (high & kept).any()
        where = where & ~low & ~high
        rejected = int(kept.sum()) - int(where.sum())
        assert record.counts["critic_tokens_rejected"] == rejected
    assert bool(where.any())
    assert torch.equal(wanted.where, where)
    targets = record.credit.value_targets[:, :-1]
    assert torch.equal(wanted.targets[where], targets[where])
    assert bool((wanted.weights[where] == 1).all())


@pytest.mark.parametrize("name", [*WITH_CRITIC, "vine", "opd"])
def test_what_every_recipe_can_set_arrives(name):
    keys = {"num_minibatches": 2, "num_epochs": 3, "entropy_coefficient": 0.01}
    built = algorithm(name, world=small_world(), **keys).objective
    assert (built.num_minibatches, built.num_epochs) == (2, 3)
    assert built.entropy_coefficient == 0.01


def forward(length: int, num_outputs: int) -> int:
    """One layer of hidden 16, two heads of 8, one for keys, feed-forward 32."""
    entries = 2 * 16 * 16 + 2 * 16 * 8 + 3 * 16 * 32 + 16 * num_outputs
    return 2 * entries * length + 4 * 16 * length * (length + 1) // 2


@pytest.mark.parametrize("name", WITH_CRITIC)
@pytest.mark.parametrize("warmup_steps", [0, 1])
def test_every_pass_is_in_the_ledger(name, warmup_steps):
    """Eight letters, or one value; the last token of a rollout predicts nothing."""
    world = small_world()
    built = chosen(name, world, {"warmup_steps": warmup_steps, **ONE_PASS})
    _, (record,) = steps(built, world, 1)
    lengths = record.batch.token_mask.sum(1).tolist()
    valued = sum(forward(n, 1) for n in lengths)
    fitted = 3 * sum(forward(n - 1, 1) for n in lengths)
    updated = 3 * sum(forward(n, 8) for n in lengths)
    aligned = updated / 3 if name == "pact" else 0
    moved = 0 if warmup_steps else updated + aligned
    assert record.cost.train_flops == pytest.approx(valued + fitted + moved)
    assert record.cost.tokens_generated == 12 * 6


@pytest.mark.parametrize("name", WITH_CRITIC)
def test_valuing_and_fitting_are_the_critics_time(name):
    world = small_world()
    built = chosen(name, world)
    values, update = built.critic.values, built.critic.update

    def valued(*given):
        with world.clock.measure("valued"):
            return values(*given)

    def fitted(*given, **keys):
        with world.clock.measure("fitted"):
            return update(*given, **keys)

    built.critic.values, built.critic.update = valued, fitted
    _, (record,) = steps(built, world, 1)
    spent = record.times_s
    assert 0 < spent["valued"] + spent["fitted"] <= spent["critic"] < spent["step"]


@pytest.mark.parametrize("name", WITH_CRITIC)
def test_nothing_verified_moves_nothing_and_is_counted(name):
    world = small_world(lambda text: None)
    state, (record,) = steps(chosen(name, world, ONE_PASS), world, 1)
    assert record.policy is None
    assert record.critic.num_skipped == 1
    assert state.counters["critic_updates_skipped"] == 1
    assert state.counters["updates_skipped"] == 1


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        # Ratios 2, 3 and 4 of an outcome of 1, values of 0.
        ({"target": "full_product", "product_cap": 5.0}, [5.0, 5.0, 4.0]),
        ({"target": "full_product", "product_cap": 30.0}, [24.0, 12.0, 4.0]),
        # R + sum of (ratio - 1) R over the window.
        ({"target": "windowed", "window": 1}, [4.0, 6.0, 4.0]),
        ({"target": "windowed", "window": 0}, [2.0, 3.0, 4.0]),
        # Every ratio at most the cap.
        ({"target": "vtrace", "trace_cap": 2.0}, [8.0, 4.0, 2.0]),
        ({"target": "vtrace", "trace_cap": 3.0}, [18.0, 9.0, 3.0]),
    ],
)
def test_the_knobs_of_a_target_reach_its_rule(keys, expected):
    config = recipe_from({"algorithm": {"name": "pact", **keys}}, "test").algorithm
    found = alignment(config).rule(
        torch.tensor([[2.0, 3.0, 4.0]]),
        torch.ones(1),
        torch.zeros(1, 4),
        torch.ones(1, 3, dtype=torch.bool),
    )
    torch.testing.assert_close(found.targets, torch.tensor([expected]))
