"""Whose weights a critic reads, trains and leaves alone."""

import sys
from collections.abc import Callable

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
from transformers import PreTrainedModel

from accredit.critics.build import build_critic
from accredit.critics.configs import ValueHeadConfig
from accredit.critics.value_head.lora import adapters
from accredit.models.backbone import require_steady

Policy = Callable[..., PreTrainedModel]


def copy_of(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    return {n: p.detach().clone() for n, p in model.named_parameters()}


def test_an_own_trunk_leaves_the_policy_alone(policy: Policy):
    batch, model = rollouts(), policy()
    before = copy_of(model)
    critic = critic_of(model, num_epochs=3)
    start = weights_of(critic)
    critic.update(batch, noisy(batch), 0, warming_up=False)
    assert same(before, copy_of(model))
    moved = weights_of(critic)
    assert all(not torch.equal(moved[name], start[name]) for name in start)
    storages = {p.data_ptr() for p in model.parameters()}
    assert storages.isdisjoint(p.data_ptr() for p in critic.model.parameters())


def test_a_shared_trunk_is_the_policys_and_is_trained_along(policy: Policy):
    batch, model = rollouts(), policy()
    before = copy_of(model)
    critic = critic_of(model, trunk="shared", num_epochs=2)
    assert critic.model.backbone is model.base_model
    critic.update(batch, noisy(batch), 0, warming_up=False)
    after = copy_of(model)
    assert all(not torch.equal(after[name], before[name]) for name in before)
    assert all(p.grad is None for p in model.parameters())
    assert not model.training


@pytest.mark.parametrize("name", ["qwen3", "gpt2"])
def test_adapters_learn_and_the_policy_stays_as_it_is(policy: Policy, name: str):
    batch, model = rollouts(), policy(name)
    before, wants = copy_of(model), [p.requires_grad for p in model.parameters()]
    modules = [type(module) for module in model.modules()]
    critic = critic_of(model, trunk="lora", num_epochs=3)
    first = critic.values(batch, batch.rewards)
    critic.update(batch, noisy(batch), 0, warming_up=False)
    assert not torch.equal(first, critic.values(batch, batch.rewards))
    assert same(before, copy_of(model))
    assert [p.requires_grad for p in model.parameters()] == wants
    assert [type(module) for module in model.modules()] == modules
    assert all(p.grad is None for p in model.parameters())
    moved = adapters(critic.trunk.module)
    assert len(moved) == 2 * 7 * 2 if name == "qwen3" else len(moved) == 2 * 4 * 2
    assert all(bool(p.any()) for p in moved.values())


def test_adapters_read_the_policys_weights_where_they_lie(policy: Policy):
    """Its updates are seen at once, and nothing but adapters and head takes memory."""
    batch, model = rollouts(), policy()
    critic = opinionated(critic_of(model, trunk="lora"))
    own = {p.data_ptr() for p in model.parameters()}
    shared = [p for p in critic.model.parameters() if p.data_ptr() in own]
    assert len(shared) == len(list(model.parameters()))
    assert not any(p.requires_grad for p in shared)
    before = critic.values(batch, batch.rewards)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    model(input_ids=batch.token_ids).logits.square().mean().backward()
    assert all(p.grad is None for p in critic.model.parameters())
    optimizer.step()
    after = critic.values(batch, batch.rewards)
    expected = critic.model.head(model.base_model(batch.token_ids).last_hidden_state)
    torch.testing.assert_close(
        after[:, 1:][batch.token_mask],
        expected[..., 0].sigmoid()[batch.token_mask],
        atol=1e-5,
        rtol=1e-4,
    )
    assert (before - after).abs().max() > 1e-3


def test_adapters_begin_as_nothing_and_are_drawn_alike(policy: Policy):
    batch, model = rollouts(), policy()
    torch.manual_seed(0)
    first = opinionated(critic_of(model, trunk="lora"))
    state = torch.random.get_rng_state()
    second = opinionated(critic_of(model, trunk="lora"))
    assert torch.equal(state, torch.random.get_rng_state())
    assert same(weights_of(first), weights_of(second))
    own = opinionated(critic_of(model))
    torch.testing.assert_close(
        first.values(batch, batch.rewards),
        own.values(batch, batch.rewards),
        atol=1e-6,
        rtol=1e-5,
    )


def test_without_peft_adapters_are_refused_in_one_line(policy: Policy, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    message = r"trunk = 'lora' needs peft, got none installed; pip install 'accredit\[l"
    with pytest.raises(ValueError, match=message):
        critic_of(policy(), trunk="lora")


@pytest.mark.parametrize("trunk", ["own", "shared", "lora"])
def test_b106_tied_embeddings_stay_tied_and_the_head_is_never_tied(
    policy: Policy, trunk: str
):
    """Case B106: through building, a step, and a head as wide as the vocabulary."""
    batch, model = rollouts(), policy()
    critic = critic_of(model, trunk=trunk, output="categorical", num_bins=24)
    critic.update(batch, outcomes(batch), 0, warming_up=False)
    embedding = model.get_input_embeddings().weight
    assert model.get_output_embeddings().weight is embedding
    assert critic.model.head.weight.shape == embedding.shape
    inside = critic.trunk.module.get_input_embeddings().weight
    assert critic.model.head.weight.data_ptr() not in {
        embedding.data_ptr(),
        inside.data_ptr(),
    }
    assert (inside.data_ptr() == embedding.data_ptr()) == (trunk != "own")


@pytest.mark.parametrize("trunk", ["own", "lora"])
def test_gradient_checkpointing_changes_no_gradient(policy: Policy, trunk: str):
    batch, found = rollouts(), []
    for checkpointing in (False, True):
        critic = build_critic(
            ValueHeadConfig.model_validate({"trunk": trunk, "learning_rate": 1e-2}),
            policy_model=policy(),
            policy_tokenizer=None,
            gradient_checkpointing=checkpointing,
        )
        calls: list[int] = []
        critic.model.backbone.layers[0].mlp.register_forward_pre_hook(
            lambda *_, calls=calls: calls.append(1)
        )
        opinionated(critic).update(batch, noisy(batch), 0, warming_up=False)
        found.append((weights_of(critic), len(calls)))
    assert found[1][1] == 2 * found[0][1]
    for name, weight in found[0][0].items():
        torch.testing.assert_close(found[1][0][name], weight, atol=1e-6, rtol=1e-5)


def test_a_model_without_a_backbone_is_refused(policy: Policy):
    model = policy()
    with pytest.raises(ValueError, match=r"needs a model whose backbone is apart"):
        critic_of(model.base_model)


def test_a_backbone_that_padding_changes_is_refused(policy: Policy, monkeypatch):
    backbone = policy().base_model
    require_steady(backbone)
    honest = backbone.forward

    def peeking(**arguments):
        found = honest(**arguments)
        found.last_hidden_state = found.last_hidden_state.flip(1)
        return found

    monkeypatch.setattr(backbone, "forward", peeking)
    with pytest.raises(ValueError, match=r"must be causal and without noise"):
        require_steady(backbone)
