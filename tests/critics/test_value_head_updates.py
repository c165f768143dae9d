"""One update of a critic: what is minimised, over what, and what is left out."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from critic_cases import (
    critic_of,
    noisy,
    opinionated,
    outcomes,
    rollouts,
    same,
    weights_of,
)
from transformers import MixtralConfig, MixtralForCausalLM, PreTrainedModel

from accredit.critics.value_head.critic import ValueHeadCritic
from accredit.functional.baselines import group_deviation
from accredit.functional.value_losses import smoothed_bins
from accredit.records import ValueTargets
from accredit.types import Batch
from tiny_models import decoder_settings, seeded

Policy = Callable[..., PreTrainedModel]
OUTPUTS: list[dict] = [
    {"output": "sigmoid"},
    {"output": "linear"},
    {"output": "linear", "value_clip": 0.1},
    {"output": "categorical", "num_bins": 7},
]


def gradients(
    critic: ValueHeadCritic, batch: Batch, wanted: ValueTargets
) -> tuple[dict[str, torch.Tensor], float]:
    """What the optimizer was given at the first step, and the loss."""
    seen: dict[str, torch.Tensor] = {}
    optimizer = critic._descent.optimizer
    step = optimizer.step

    def spy() -> None:
        if not seen:
            named = critic.model.named_parameters()
            seen.update({n: p.grad.clone() for n, p in named if p.grad is not None})
        step()

    optimizer.step = spy
    update = critic.update(batch, wanted, 0, warming_up=False)
    return seen, update.losses[0]


@pytest.mark.parametrize("keys", OUTPUTS)
@pytest.mark.parametrize("trunk", ["own", "shared", "lora"])
def test_1_2_and_4_micro_batches_give_the_same_gradient(
    policy: Policy, keys: dict, trunk: str
):
    """Law 3, with weights of tokens and of prompts in play."""
    batch, found, counts = rollouts(), [], []
    for budget in (10_000, 60, 22):
        critic = critic_of(
            policy(),
            micro_batch_tokens=budget,
            max_gradient_norm=None,
            deviation_floor=0.2,
            trunk=trunk,
            **keys,
        )
        calls = []
        critic.model.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        found.append(gradients(opinionated(critic), batch, noisy(batch)))
        counts.append(len(calls))
    assert counts == [1, 2, 4]
    for seen, loss in found[1:]:
        assert loss == pytest.approx(found[0][1], abs=1e-6)
        assert seen.keys() == found[0][0].keys()
        for name, gradient in seen.items():
            torch.testing.assert_close(gradient, found[0][0][name], atol=1e-6, rtol=0)
    assert max(g.abs().max() for g in found[0][0].values()) > 1e-3


@pytest.mark.parametrize("keys", OUTPUTS)
def test_the_gradient_is_that_of_the_plain_formula(policy: Policy, keys: dict):
    """sum(prompt weight x weight x loss) / N by an unpadded loop over rows."""
    batch = rollouts(1)
    wanted = noisy(batch)
    changes = {"deviation_floor": 0.3, "reward_low": -1.0, "reward_high": 3.0} | keys
    critic = opinionated(critic_of(policy(), max_gradient_norm=None, **changes))
    plain = opinionated(critic_of(policy(), **changes)).model.train()
    seen, loss = gradients(critic, batch, wanted)
    deviation = group_deviation(batch.rewards, batch.verified, batch.group_index)
    total = torch.zeros(())
    for row in range(batch.num_rollouts):
        ids = batch.token_ids[row, : int(batch.token_mask[row].sum())]
        hidden = plain.backbone(input_ids=ids[None]).last_hidden_state[0]
        outputs = plain.head(hidden)
        for t in wanted.where[row].nonzero()[:, 0].tolist():
            z, y = outputs[t - 1], (wanted.targets[row, t] + 1) / 4
            if keys["output"] == "sigmoid":
                one = (1 + z[0].exp()).log() - y * z[0]
            elif keys["output"] == "linear":
                # The only step of an update: the old value is its own, clip or not.
                one = (z[0] - y) ** 2 / 2
            else:
                one = -(smoothed_bins(y, 7) * z.log_softmax(-1)).sum()
            weight = wanted.weights[row, t] / deviation[row].clamp(min=0.3)
            total = total + weight * one
    total = total / int(wanted.where.sum())
    total.backward()
    assert loss == pytest.approx(float(total.detach()), rel=1e-5)
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(seen[name], parameter.grad, atol=2e-6, rtol=1e-4)


def test_the_sigmoid_gradient_is_value_minus_target_wherever_the_target_lies(
    policy: Policy,
):
    """Of the head's bias: the mean of sigmoid(z) - Y, also for Y = 6."""
    batch = rollouts(2)
    wanted = noisy(batch)
    wanted = replace(wanted, targets=6 * wanted.targets, weights=wanted.weights * 0 + 1)
    critic = opinionated(critic_of(policy(), max_gradient_norm=None))
    values = critic.values(batch, batch.rewards)[:, :-1]
    seen, _ = gradients(critic, batch, wanted)
    expected = (values - wanted.targets)[wanted.where].mean()
    assert wanted.targets[wanted.where].max() > 6
    torch.testing.assert_close(seen["head.bias"][0], expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("target", [-2.0, 3.0])
@pytest.mark.parametrize("output", ["sigmoid", "linear"])
def test_targets_outside_the_range_train(policy: Policy, output: str, target: float):
    batch = rollouts()
    critic = critic_of(policy(), output=output)
    wanted = outcomes(batch)
    wanted = replace(wanted, targets=torch.full_like(wanted.targets, target))
    before = critic.values(batch, batch.rewards)[:, :-1]
    for step in range(5):
        update = critic.update(batch, wanted, step, warming_up=False)
        assert update.num_skipped == 0
    after = critic.values(batch, batch.rewards)[:, :-1]
    moves = (after - before)[wanted.where] * math.copysign(1.0, target)
    assert bool((moves > 0.01).all())


@pytest.mark.parametrize("keys", OUTPUTS)
def test_rescaled_rewards_teach_the_same(policy: Policy, keys: dict):
    """Y in [-2, 8] is to its range what (Y + 2) / 10 is to [0, 1]."""
    batch = rollouts()
    wanted = noisy(batch)
    clip = {k: 10 * v if k == "value_clip" else v for k, v in keys.items()}
    unit = opinionated(critic_of(policy(), num_epochs=2, **keys))
    wide = opinionated(
        critic_of(policy(), num_epochs=2, reward_low=-2.0, reward_high=8.0, **clip)
    )
    first = unit.update(batch, wanted, 0, warming_up=False)
    stretched = replace(wanted, targets=10 * wanted.targets - 2)
    second = wide.update(batch, stretched, 0, warming_up=False)
    assert first.losses == pytest.approx(second.losses, rel=1e-4)
    torch.testing.assert_close(
        10 * unit.values(batch, batch.rewards)[:, 1:][batch.token_mask] - 2,
        wide.values(batch, batch.rewards)[:, 1:][batch.token_mask],
        atol=1e-2,
        rtol=1e-2,
    )


def test_what_is_not_wanted_may_hold_anything(policy: Policy):
    batch = rollouts(3)
    wanted = noisy(batch)
    nowhere = ~wanted.where
    dirty = ValueTargets(
        wanted.targets.masked_fill(nowhere, math.nan),
        wanted.weights.masked_fill(nowhere, math.nan),
        wanted.where,
    )
    soiled = replace(
        batch, token_ids=torch.where(batch.token_mask, batch.token_ids, -100)
    )
    clean, other = critic_of(policy()), critic_of(policy())
    first = clean.update(batch, wanted, 0, warming_up=False)
    second = other.update(soiled, dirty, 0, warming_up=False)
    assert first == second
    assert same(weights_of(clean), weights_of(other))
    assert not same(weights_of(clean), weights_of(critic_of(policy())))


def test_nothing_wanted_is_skipped_and_counted(policy: Policy):
    """All tokens rejected: no exception, no step, however often."""
    batch = rollouts()
    nothing = replace(outcomes(batch), where=torch.zeros_like(batch.sampled))
    critic = critic_of(policy(), num_epochs=4, num_minibatches=3)
    before = weights_of(critic)
    for _ in range(3):
        update = critic.update(batch, nothing, 0, warming_up=False)
        assert update.num_skipped == len(update.losses) == 12
        assert all(map(math.isnan, (*update.losses, *update.gradient_norms)))
        assert update.train_flops == 0
    assert same(before, weights_of(critic))


def test_a_step_that_is_not_finite_is_skipped_and_too_many_are_an_error(policy: Policy):
    batch = rollouts()
    wanted = outcomes(batch)
    broken = replace(wanted, targets=torch.full_like(wanted.targets, math.nan))
    critic = critic_of(policy(), num_epochs=4)
    before = weights_of(critic)
    for _ in range(2):
        update = critic.update(batch, broken, 0, warming_up=False)
        assert update.num_skipped == 4
    assert same(before, weights_of(critic))
    assert critic.update(batch, wanted, 0, warming_up=False).num_skipped == 0
    assert not same(before, weights_of(critic))
    with pytest.raises(
        RuntimeError, match=r"of the critic must be finite, got 10 steps in a row"
    ):
        for _ in range(3):
            critic.update(batch, broken, 0, warming_up=False)


def test_steps_are_epochs_times_minibatches_and_warm_up_has_its_own(policy: Policy):
    batch = rollouts()
    critic = critic_of(policy(), num_epochs=2, num_minibatches=3, warmup_epochs=5)
    assert critic.num_warmup_steps == 10
    update = critic.update(batch, noisy(batch), 0, warming_up=False)
    assert len(update.losses) == len(update.gradient_norms) == 6
    assert update.learning_rate == 1e-2
    warm = critic.update(batch, noisy(batch), 0, warming_up=True)
    assert len(warm.losses) == 15
    assert warm.train_flops == pytest.approx(2.5 * update.train_flops, rel=1e-6)


def test_minibatches_divide_by_what_they_hold_and_the_seed_deals_them(policy: Policy):
    batch = rollouts()
    wanted = noisy(batch)
    first, again, other = (critic_of(policy(), num_minibatches=4) for _ in range(3))
    losses = first.update(batch, wanted, 7, warming_up=False).losses
    assert again.update(batch, wanted, 7, warming_up=False).losses == losses
    assert other.update(batch, wanted, 8, warming_up=False).losses != losses
    assert same(weights_of(first), weights_of(again))
    # A loss is a mean: four of them are no smaller than one over everything.
    whole = critic_of(policy()).update(batch, wanted, 7, warming_up=False).losses[0]
    assert 0.5 < sum(losses) / 4 / whole < 2


def test_the_seed_chooses_the_prefixes_too(policy: Policy):
    batch = rollouts()
    wanted = noisy(batch)

    def loss(seed: int) -> float:
        few = critic_of(policy(), max_prefixes=1)
        return few.update(batch, wanted, seed, warming_up=False).losses[0]

    assert loss(3) == loss(3) != loss(4)


def test_a_clipped_value_earns_nothing_once_it_is_away_from_where_it_began(
    policy: Policy,
):
    """Steps towards 1 from .5: beyond .5 + .02 no gradient is left, in every row."""
    batch = rollouts()
    wanted = outcomes(batch)
    wanted = replace(wanted, targets=torch.ones_like(wanted.targets))
    norms, moves = {}, {}
    for clip in (None, 0.02):
        critic = critic_of(
            policy(),
            output="linear",
            value_clip=clip,
            num_epochs=12,
            learning_rate=2e-3,
        )
        norms[clip] = critic.update(batch, wanted, 0, warming_up=False).gradient_norms
        values = critic.values(batch, batch.rewards)[:, :-1]
        moves[clip] = (values - 0.5)[wanted.where]
    assert norms[0.02][0] == norms[None][0] > 0.1
    assert norms[0.02][-1] == 0 < norms[None][-1]
    assert bool((moves[0.02] > 0.02).all())
    assert moves[0.02].mean() < moves[None].mean()


def test_gradients_are_clipped_to_the_norm_and_reported_unclipped(policy: Policy):
    batch = rollouts()
    wanted = replace(noisy(batch), targets=50 * noisy(batch).targets)
    critic = opinionated(critic_of(policy(), output="linear", max_gradient_norm=0.25))
    seen, _ = gradients(critic, batch, wanted)
    norm = torch.stack([g.square().sum() for g in seen.values()]).sum().sqrt()
    assert float(norm) == pytest.approx(0.25, rel=1e-4)
    free = opinionated(critic_of(policy(), output="linear", max_gradient_norm=None))
    assert free.update(batch, wanted, 0, warming_up=False).gradient_norms[0] > 1.0


def test_frozen_attention_stays_and_all_else_moves(policy: Policy):
    batch = rollouts()
    critic = critic_of(policy(), freeze_attention=True, num_epochs=3)
    before = weights_of(critic)
    critic.update(batch, noisy(batch), 0, warming_up=False)
    moved = {n for n, p in weights_of(critic).items() if not torch.equal(p, before[n])}
    still = before.keys() - moved
    assert still == {name for name in before if ".self_attn." in name}
    assert "backbone.layers.0.post_attention_layernorm.weight" in moved
    assert len(still) == 2 * 6


def test_a_backbone_without_attention_by_name_cannot_freeze_it(policy: Policy):
    model = policy()
    for layer in model.model.layers:
        layer.self_attn = torch.nn.Identity()
    with pytest.raises(ValueError, match=r"needs parameters named like attention"):
        critic_of(model, freeze_attention=True)


def test_b107_a_router_adds_no_loss_of_its_own():
    """Case B107: the balance loss of a mixture is its causal LM's, which is not run.

    So it cannot be scaled by a window of accumulation; the gradient is the same
    whether or not the configuration asks for it.
    """
    batch, found = rollouts(), []
    for asked in (False, True):
        config = MixtralConfig(
            **decoder_settings(24),
            num_local_experts=4,
            num_experts_per_tok=2,
            output_router_logits=asked,
            router_aux_loss_coef=100.0,
        )
        mixture = seeded(MixtralForCausalLM, config, 0)
        for budget in (10_000, 22):
            critic = critic_of(
                mixture, micro_batch_tokens=budget, max_gradient_norm=None
            )
            found.append(gradients(opinionated(critic), batch, noisy(batch)))
    assert found[0][0].keys() == found[3][0].keys()
    for seen, loss in found[1:]:
        assert loss == pytest.approx(found[0][1], abs=1e-6)
        for name, gradient in seen.items():
            torch.testing.assert_close(gradient, found[0][0][name], atol=1e-6, rtol=0)


def test_targets_of_another_batch_and_of_an_empty_prefix_are_refused(policy: Policy):
    batch = rollouts()
    critic = critic_of(policy())
    with pytest.raises(ValueError, match=r"value targets must align with token_ids"):
        one = batch.rows(torch.tensor([0]))
        critic.update(one, outcomes(batch), 0, warming_up=False)
    first = batch.token_mask.clone()
    with pytest.raises(ValueError, match=r"the value of an empty prefix cannot"):
        critic.update(batch, replace(outcomes(batch), where=first), 0, warming_up=False)
