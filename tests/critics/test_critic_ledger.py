"""What a critic's passes cost, by hand from lengths and shape.

Two layers of hidden 32, four heads of 8, two of them for keys, feed-forward 64.
"""

import pytest
import torch
from critic_cases import TOKENIZER, critic_of, noisy, outcomes, rollouts

from accredit.critics.build import build_critic
from accredit.critics.configs import ValueHeadConfig

ATTENTION = 2 * (2 * 32 * 32 + 2 * 32 * 16)
FEED_FORWARD = 2 * 3 * 32 * 64
HEAD = 32


def forward(length: int, num_outputs: int = 1) -> int:
    """One multiply-add is two; the n-th token attends to n, queries and values."""
    entries = ATTENTION + FEED_FORWARD + HEAD * num_outputs
    return 2 * entries * length + 4 * 2 * 32 * length * (length + 1) // 2


def read(batch) -> list[int]:
    """Tokens before the last one that is trained on."""
    places = batch.trainable * torch.arange(batch.token_ids.shape[1])
    return places.amax(1).tolist()


def built(policy, checkpointing: bool = False, **keys):
    """The critic, and a count of the forward passes that its first layer sees."""
    if checkpointing and keys.get("trunk") == "shared":
        # As the policy's learner does.
        policy.gradient_checkpointing_enable({"use_reentrant": False})
    critic = build_critic(
        ValueHeadConfig.model_validate({"learning_rate": 1e-2} | keys),
        policy_model=policy,
        policy_tokenizer=TOKENIZER,
        gradient_checkpointing=checkpointing,
    )
    calls: list[int] = []
    layer = critic.model.backbone.layers[0].mlp
    layer.register_forward_pre_hook(lambda *_: calls.append(1))
    return critic, calls


@pytest.mark.parametrize("num_outputs", [1, 7])
def test_values_are_one_pass_over_everything(policy, num_outputs: int):
    batch = rollouts()
    bins = {"output": "categorical", "num_bins": 7} if num_outputs == 7 else {}
    lengths = batch.token_mask.sum(1).tolist()
    assert critic_of(policy(), **bins).values_flops(batch) == pytest.approx(
        sum(forward(n, num_outputs) for n in lengths)
    )


@pytest.mark.parametrize("trunk", ["own", "shared", "lora"])
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("warming_up", [False, True])
def test_an_update_is_what_it_passed_and_what_it_trains(
    policy, trunk: str, checkpointing: bool, warming_up: bool
):
    """A backward pass is two products a trained matrix and one a frozen one."""
    batch = rollouts()
    critic, calls = built(policy(), checkpointing, trunk=trunk)
    update = critic.update(batch, outcomes(batch), 0, warming_up=warming_up)
    once = sum(forward(n) for n in read(batch))
    num_tokens = sum(read(batch))
    head_only = trunk == "shared" and warming_up
    num_forwards = 2 if checkpointing and not head_only else 1
    assert len(calls) == num_forwards
    backward = 2 * once
    if trunk == "lora":
        backward -= 2 * (ATTENTION + FEED_FORWARD) * num_tokens
    if head_only:
        backward = 2 * HEAD * num_tokens
    assert update.train_flops == pytest.approx(num_forwards * once + backward)


def test_frozen_attention_has_no_gradient_of_its_own(policy):
    batch = rollouts()
    critic, _ = built(policy(), freeze_attention=True)
    update = critic.update(batch, outcomes(batch), 0, warming_up=False)
    saved = 2 * ATTENTION * sum(read(batch))
    expected = 3 * sum(forward(n) for n in read(batch)) - saved
    assert update.train_flops == pytest.approx(expected)


def test_steps_add_up_and_old_values_are_a_pass_of_their_own(policy):
    """Two epochs, and the clip's values before them, the last prefix included."""
    batch = rollouts()
    clipped = {"output": "linear", "value_clip": 0.1}
    twice, _ = built(policy(), num_epochs=2)
    compared, calls = built(policy(), num_epochs=2, **clipped)
    alone, _ = built(policy(), **clipped)
    once = sum(forward(n) for n in read(batch))
    rows = sum(n > 0 for n in read(batch))

    def cost(critic):
        return critic.update(batch, noisy(batch), 0, warming_up=False).train_flops

    assert cost(twice) == pytest.approx(6 * once)
    assert cost(alone) == pytest.approx(3 * once)
    num_tokens = sum(read(batch))
    assert cost(compared) == pytest.approx(
        once / num_tokens * (6 * num_tokens + num_tokens + rows)
    )
    assert len(calls) == 3
