"""The step that all algorithms share: who votes, who learns, what is paid."""

from dataclasses import replace

import pytest
import torch

from accredit.functional.flops import forward_flops
from accredit.learner.update import step_rows
from accredit.records import Cost, State
from accredit.reports.metrics.step import step_metrics
from worlds import (
    ALGORITHMS,
    REPLAYED,
    KnownLearner,
    ScriptedEnvironment,
    algorithm,
    answered,
    finished,
    moved,
    prompts,
    share_of_a,
    small_policy,
    small_world,
    steps,
    weights,
)

ONE, TWO = prompts(2)
names = pytest.mark.parametrize("name", ALGORITHMS)
KL_LOSS = ["grpo", "dr_grpo", "dapo"]
KL_CHARGE = ["rloo", "reinforce_pp"]


def scripted(*groups, **options):
    world = small_world(**options)
    return replace(world, environment=ScriptedEnvironment([list(groups)]))


def plain(name, **keys):
    """The algorithm, for groups that a script answers, without a KL term."""
    free = {"kl_coefficient": 0.0} if name == "reinforce_pp" else {}
    return algorithm(name, **{"prompts_per_step": 1} | free | keys)


@pytest.mark.whole_run
@pytest.mark.parametrize("name", [n for n in ALGORITHMS if n not in REPLAYED])
def test_p09_b128_unverified_siblings_neither_vote_nor_learn(name):
    """Cases P09, B128: the step is the one without them, whatever they say."""
    sound = [((1, 2), 1.0), ((3,), 0.0), ((4, 5, 6), 0.0)]
    broken = [sound[0], ((7, 7, 7, 7), None), *sound[1:]]
    with_broken, without = (
        scripted(answered(ONE, broken)),
        scripted(answered(ONE, sound)),
    )
    _, (record,) = steps(plain(name), with_broken, 1)
    _, (expected,) = steps(plain(name), without, 1)
    kept = [0, 2, 3]
    width = expected.credit.advantages.shape[1]
    torch.testing.assert_close(
        record.credit.advantages[kept, :width], expected.credit.advantages
    )
    assert record.credit.advantages[1].abs().max() == 0
    assert record.policy.logprobs[1].abs().max() == 0
    for key, weight in weights(without).items():
        torch.testing.assert_close(weights(with_broken)[key], weight)
    assert record.counts["rewards_invalid"] == 1
    assert step_metrics(record, State(step=1))["reward/invalid_share"] == 0.25


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dr_grpo", [2 / 3, 0, -1 / 3, -1 / 3]),
        ("grpo", [1.154701, 0, -0.57735, -0.57735]),
        ("rloo", [1, 0, -0.5, -0.5]),
    ],
)
def test_p09_numbers_through_the_whole_step(name, expected):
    """Case P09: rewards [1, 1, 0, 0], the second one unverified."""
    rewards = [1.0, None, 0.0, 0.0]
    world = scripted(answered(ONE, [((1,), reward) for reward in rewards]))
    _, (record,) = steps(plain(name), world, 1)
    assert record.credit.advantages[:, -1].tolist() == pytest.approx(expected, abs=1e-5)


@names
def test_a_step_without_any_verdict_is_skipped_and_counted(name):
    world = small_world(lambda text: None)
    before = weights(world)
    state, (record,) = steps(algorithm(name), world, 1)
    assert record.policy is None
    assert not moved(world, before)
    assert record.counts["updates_skipped"] == 1
    assert record.counts["rewards_invalid"] == record.counts["rollouts_drawn"]
    assert state.step == 1


@names
def test_a_step_advances_what_a_run_counts(name):
    world = small_world()
    state, records = steps(algorithm(name), world, 2)
    assert (state.step, state.num_draws, world.learner.num_updates) == (2, 2, 2)
    version = world.learner.version
    assert version == world.engine.version >= 2
    assert state.num_drawn >= 6
    costs = [record.cost for record in records]
    assert state.cost == costs[0] + costs[1]
    for cost in costs:
        assert cost.decode_flops > 0
        assert cost.prefill_flops > 0
        assert cost.train_flops > 0
    assert {"generate", "update", "sync", "step"} <= records[0].times_s.keys()
    assert records[1].groups[0].rollouts[0].policy_versions == (version // 2,) * 2


@pytest.mark.whole_run
@names
def test_b172_draws_follow_the_seed_and_repeat_with_it(name):
    """Case B172."""

    def first_tokens(seed):
        world = replace(small_world(), seed=seed)
        environment = replace(world.environment, seed=seed)
        world = replace(world, environment=environment)
        return steps(algorithm(name), world, 2)[1][1].batch.token_ids.tolist()

    assert first_tokens(1) == first_tokens(1)
    assert first_tokens(1) != first_tokens(2)


@pytest.mark.parametrize("name", KL_LOSS + KL_CHARGE)
def test_the_reference_is_loaded_for_a_kl_term_only(name):
    loads = []

    def reference():
        loads.append(name)
        return small_policy()

    for coefficient, expected in ((0.0, 0), (0.1, 1)):
        world = small_world(reference=reference)
        steps(algorithm(name, kl_coefficient=coefficient), world, 2)
        assert len(loads) == expected


@pytest.mark.parametrize("name", KL_CHARGE)
def test_a_charged_kl_pays_for_its_two_passes(name):
    world, free = small_world(), small_world()
    _, (record,) = steps(algorithm(name, kl_coefficient=0.1), world, 1)
    _, (unpaid,) = steps(algorithm(name, kl_coefficient=0.0), free, 1)
    lengths = record.batch.token_mask.sum(1).tolist()
    passes = 2 * sum(forward_flops(world.shape, length) for length in lengths)
    extra = record.cost.train_flops - unpaid.cost.train_flops
    assert extra == pytest.approx(passes)


def known_world(logprobs, reference, group):
    """A world whose learner has these log-probs behind a prompt of one token."""
    shape = torch.zeros(len(logprobs), 1)
    learner = KnownLearner(
        torch.cat([shape, torch.tensor(logprobs)], 1),
        torch.cat([shape, torch.tensor(reference)], 1),
    )
    return replace(scripted(group), learner=learner)


def test_b044_rloo_charges_the_kl_before_the_baseline():
    """Case B044: scores [1, 0], KL sums [.5, 0], beta .1 give [.95, -.95]."""
    group = answered(ONE, [((1, 2), 1.0), ((3, 4), 0.0)])
    world = known_world([[-1.0, -1.0], [-1, -1]], [[-1.25, -1.25], [-1, -1]], group)
    chosen = plain("rloo", group_size=2, kl_coefficient=0.1)
    _, (record,) = steps(chosen, world, 1)
    (advantages,) = world.learner.advantages
    expected = [[0, 0.95, 0.95], [0, -0.95, -0.95]]
    torch.testing.assert_close(advantages, torch.tensor(expected))
    assert record.shaped_rewards.tolist() == pytest.approx([0.95, 0.0])
    # Case B178: raw [1, 0], shaped [.95, 0], both in the row.
    metrics = step_metrics(record, State(step=1))
    assert metrics["reward/mean"] == pytest.approx(0.5)
    assert metrics["reward/shaped_mean"] == pytest.approx(0.475)


def test_p12_reinforce_pp_charges_each_token_its_own_kl():
    """Case P12: returns [2, 2.05, 2], whitened; the stop token is paid the score."""
    group = answered(ONE, [((1, 2, 3), 2.0)])
    world = known_world([[-1.0, -2, -0.5]], [[-1.5, -1.5, -0.5]], group)
    chosen = plain("reinforce_pp", group_size=1, kl_coefficient=0.1)
    _, (record,) = steps(chosen, world, 1)
    (advantages,) = world.learner.advantages
    # Mean 2.016667, differences -.016667, .033333, -.016667, deviation .028868.
    expected = torch.tensor([[0, -0.57735, 1.154701, -0.57735]])
    torch.testing.assert_close(advantages, expected, rtol=1e-3, atol=1e-3)
    assert record.shaped_rewards.tolist() == pytest.approx([2.0])


def test_b061_three_log_probs_stay_three():
    """Case B061: an engine with other weights shows and does not hide as ratio 1."""
    world = small_world()
    world.engine.load(small_policy(seed=5), 0)
    _, (record,) = steps(algorithm("grpo"), world, 1)
    kept = record.batch.trainable
    behaviour = record.batch.sampling_logprobs[kept]
    old, current = record.policy.old_logprobs[kept], record.policy.logprobs[kept]
    assert (behaviour - old).abs().max() > 0.01
    assert torch.equal(old, current)
    metrics = step_metrics(record, State(step=1))
    assert metrics["mismatch/kl_k3_mean"] > 1e-4
    assert metrics["policy/kl_k3_mean"] == 0


def test_the_engines_correction_weighs_what_the_engine_sampled_with_other_weights():
    """A cap of .01 leaves every token a hundredth of its loss."""
    losses = []
    for correction in ("none", "truncated_importance"):
        world = small_world()
        world.engine.load(small_policy(seed=5), 0)
        keys = {"engine_correction": correction, "engine_correction_cap": 0.01}
        _, (record,) = steps(algorithm("grpo", **keys), world, 1)
        losses.append(record.policy.gradient_norms[0])
    assert losses[1] == pytest.approx(0.01 * losses[0], rel=1e-3)


def test_completions_of_one_token_are_trained_on():
    """Case B166, through the step: EOS first is an answer like any other."""
    world = small_world(share_of_a, max_new_tokens=1)
    before = weights(world)
    _, (record,) = steps(algorithm("grpo", group_size=16), world, 1)
    assert record.batch.sampled.sum(1).tolist() == [1] * 48
    assert moved(world, before)


def test_b170_no_optimizer_step_is_left_with_a_remainder():
    """Case B170: 12 rollouts in 5 minibatches are 3, 3, 2, 2, 2, never 2 x 5 + 2."""
    _, (record,) = steps(algorithm("grpo", num_minibatches=5), small_world(), 1)
    objective = algorithm("grpo", num_minibatches=5).objective
    sizes = [len(rows) for rows in step_rows(record.batch, objective, seed=0)]
    assert sizes == [3, 3, 2, 2, 2]
    assert len(record.policy.losses) == 5


def test_a_step_pays_for_every_sampled_token():
    """Two answers to one prompt of two tokens: 3 tokens and 1."""
    world = scripted(answered(TWO, [((1, 2, 3), 1.0), ((4,), 0.0)]))
    _, (record,) = steps(plain("grpo", group_size=2), world, 1)
    assert record.cost.tokens_generated == 4
    assert record.cost.num_verifications == 2
    assert record.cost + Cost() == record.cost
    assert finished(TWO, (1, 2, 3)).spans == ((2, 3),)
