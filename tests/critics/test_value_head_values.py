"""What a value head says: of which prefix, in which units, and always the same."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from critic_cases import critic_of, opinionated, outcomes, rollouts
from transformers import AutoModelForCausalLM, PreTrainedModel

from accredit.types import Batch
from tiny_models import tiny_gpt2

Policy = Callable[..., PreTrainedModel]
OUTPUTS = ["sigmoid", "linear", "categorical"]


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_fresh_head_says_one_thing_of_everything(policy: Policy, output: str):
    batch = rollouts()
    middle = critic_of(policy(), output=output, reward_low=-1.0, reward_high=5.0)
    rewards = 6 * batch.rewards - 1
    values = middle.values(batch, rewards)
    torch.testing.assert_close(
        values[:, 1:][batch.token_mask],
        torch.full((int(batch.token_mask.sum()),), 2.0),
    )
    chosen = critic_of(policy(), output=output, initial_value=0.13)
    values = chosen.values(batch, batch.rewards)
    torch.testing.assert_close(
        values[:, 1:][batch.token_mask],
        torch.full((int(batch.token_mask.sum()),), 0.13),
    )


def test_b104_a_fresh_head_is_finite_and_small(policy: Policy, monkeypatch):
    """Case B104: never whatever lay in the memory it was given."""

    def uninitialised(linear: torch.nn.Linear) -> None:
        with torch.no_grad():
            linear.weight.fill_(math.nan)
            linear.bias.fill_(math.nan)

    monkeypatch.setattr(torch.nn.Linear, "reset_parameters", uninitialised)
    head = critic_of(policy(), output="categorical", initial_value=0.3).model.head
    assert not head.weight.any()
    assert bool(torch.isfinite(head.bias).all())
    assert 0 < head.bias.abs().max() < 10
    assert head.weight.dtype == head.bias.dtype == torch.float32


@pytest.mark.parametrize("name", ["qwen3", "llama", "gpt2"])
@pytest.mark.parametrize("output", OUTPUTS)
def test_the_value_at_t_is_read_where_the_logits_predict_token_t(
    policy: Policy, output: str, name: str
):
    """By an unpadded loop: V of `token_ids[:t]` from the hidden state of its last."""
    batch = rollouts(1)
    critic = opinionated(
        critic_of(policy(name), output=output, micro_batch_tokens=40, reward_high=3.0)
    )
    values = critic.values(batch, batch.rewards)
    assert values.shape == (batch.num_rollouts, batch.token_ids.shape[1] + 1)
    head, plain = critic.model.head, policy(name).eval().base_model
    for row in range(batch.num_rollouts):
        length = int(batch.token_mask[row].sum())
        ids = batch.token_ids[row, :length]
        with torch.no_grad():
            outputs = head(plain(input_ids=ids[None]).last_hidden_state[0])
        expected = {
            "sigmoid": outputs[:, 0].sigmoid(),
            "linear": outputs[:, 0],
            "categorical": outputs.softmax(-1)
            @ ((torch.arange(outputs.shape[1]) + 0.5) / outputs.shape[1]),
        }[output]
        found = values[row, 1 : length + 1]
        torch.testing.assert_close(found, 3 * expected, atol=1e-5, rtol=1e-4)
        assert values[row, 0] == 0 and not values[row, length + 1 :].any()
    assert values[:, 1:][batch.token_mask].std() > 0.02


def test_a_value_reads_its_prefix_and_nothing_after_it(policy: Policy):
    batch = rollouts(2)
    critic = opinionated(critic_of(policy()))
    before = critic.values(batch, batch.rewards)
    changed = batch.token_ids.clone()
    changed[:, 4] = (changed[:, 4] + 1) % 20
    after = critic.values(replace(batch, token_ids=changed), batch.rewards)
    assert torch.equal(before[:, :5], after[:, :5])
    longer = batch.token_mask[:, 4]
    assert bool((before[longer, 5] != after[longer, 5]).all())


@pytest.mark.parametrize("trunk", ["own", "shared", "lora"])
def test_b105_the_same_input_has_the_same_value(policy: Policy, trunk: str):
    """Case B105: a model with dropout .1, whatever mode others left it in."""
    batch = rollouts(3)
    critic = opinionated(critic_of(policy("gpt2"), trunk=trunk))
    first = critic.values(batch, batch.rewards)
    critic.model.train()
    assert torch.equal(first, critic.values(batch, batch.rewards))
    critic.model.train()
    assert torch.allclose(
        critic.model(batch.token_ids)[..., 0].sigmoid()[:, 1:][batch.token_mask],
        first[:, 1:][batch.token_mask],
        atol=1e-6,
    )


def test_values_carry_no_gradient_and_do_not_see_the_budget(policy: Policy):
    batch = rollouts(4)
    at_once = opinionated(critic_of(policy()))
    apart = opinionated(critic_of(policy(), micro_batch_tokens=1))
    values = at_once.values(batch, batch.rewards)
    assert not values.requires_grad
    torch.testing.assert_close(
        values, apart.values(batch, batch.rewards), atol=1e-6, rtol=1e-5
    )
    assert all(p.grad is None for p in at_once.model.parameters())


def test_padding_may_hold_anything(policy: Policy):
    batch = rollouts(5)
    critic = opinionated(critic_of(policy()))
    dirty = replace(
        batch, token_ids=torch.where(batch.token_mask, batch.token_ids, -100)
    )
    assert torch.equal(
        critic.values(batch, batch.rewards), critic.values(dirty, batch.rewards)
    )


def test_b012_the_value_is_read_at_the_last_real_token(policy: Policy):
    """Two prompts of three tokens differ, however far they are padded."""
    critic = opinionated(critic_of(policy()))
    said = []
    for width in (5, 9):
        token_ids = torch.zeros(2, width, dtype=torch.int64)
        token_ids[:, :3] = torch.tensor([[1, 2, 3], [1, 2, 4]])
        mask = torch.arange(width).expand(2, -1) < 3
        nothing = torch.zeros(2)
        batch = Batch(
            token_ids, mask, mask & False, torch.zeros(2, width), nothing,
            nothing > 0, nothing > 0, torch.arange(2),
        )  # fmt: skip
        said.append(critic.values(batch, nothing)[:, 3])
    assert float((said[0][0] - said[0][1]).abs()) > 1e-3
    torch.testing.assert_close(said[0], said[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("output", ["sigmoid", "categorical"])
@pytest.mark.parametrize("reward", [-0.5, 2.0, math.inf])
def test_rewards_outside_the_range_of_a_bounded_output_are_refused(
    policy: Policy, output: str, reward: float
):
    batch = rollouts()
    rewards = batch.rewards.clone()
    rewards[int(batch.verified.nonzero()[0])] = reward
    critic = critic_of(policy(), output=output)
    message = (
        rf"rewards must lie in \[0.0, 1.0\] for a critic with output = '{output}', got "
        rf"{reward}; set algorithm.critic.reward_low and algorithm.critic.reward_high"
    )
    with pytest.raises(ValueError, match=message):
        critic.values(batch, rewards)


def test_rewards_that_nobody_verified_are_not_asked_for_their_range(policy: Policy):
    batch = rollouts()
    rewards = torch.where(batch.verified, batch.rewards, math.nan)
    assert not batch.verified.all()
    values = critic_of(policy()).values(batch, rewards)
    assert bool(torch.isfinite(values).all())
    wide = critic_of(policy(), reward_low=-3.0, reward_high=3.0)
    wide.values(batch, 6 * batch.rewards - 3)


def test_a_linear_critic_takes_any_reward(policy: Policy):
    batch = rollouts()
    critic = critic_of(policy(), output="linear")
    values = critic.values(batch, 100 * batch.rewards - 50)
    assert bool((values[:, 1:][batch.token_mask] == 0.5).all())


def test_what_a_pass_costs_is_counted_without_the_vocabulary(policy: Policy):
    """Two layers of hidden 32, heads 4 x 8, two of them for keys, feed-forward 64."""
    batch = rollouts()
    critic = critic_of(policy())
    lengths = batch.token_mask.sum(1).tolist()
    layer = 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64
    fixed, context = 2 * (2 * layer + 32), 4 * 2 * 4 * 8
    expected = sum(fixed * n + context * n * (n + 1) // 2 for n in lengths)
    assert critic.values_flops(batch) == pytest.approx(expected)
    update = critic.update(batch, outcomes(batch), 0, warming_up=False)
    assert 0 < update.train_flops < 3 * expected
    short = critic_of(policy(), max_prefixes=1)
    less = short.update(batch, outcomes(batch), 0, warming_up=False)
    assert 0 < less.train_flops < update.train_flops


def test_rows_longer_than_the_backbone_are_refused(tmp_path):
    short = AutoModelForCausalLM.from_pretrained(
        tiny_gpt2(tmp_path, vocab_size=24, n_positions=8)
    )
    batch = rollouts()
    with pytest.raises(ValueError, match=r"must fit its 8 positions, got 11 tokens"):
        critic_of(short).values(batch, batch.rewards)
