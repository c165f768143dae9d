"""Credit, objective and gradient of every algorithm on one batch, by hand.

Two prompts with two rollouts each, rewards [1, 0] and [1, 1], completions of 1, 2 and
2, 3 tokens. Old log-probs are -1; the current policy's ratios to them are

    1.5 | 0.5, 8        1.1, 1.1 | 1.1, 1.1, 1.1

so that every kind of clipping has a token. a = .5 / (sqrt(.5) + 1e-6) is the
normalised advantage of a reward of 1 among [1, 0].
"""

import math

import pytest
import torch

from accredit.algorithms.reinforce_pp import ReinforcePP
from accredit.credit import batch_whitened_credit
from accredit.critics.group import ZeroBaseline
from accredit.types import Batch
from worlds import algorithm, small_world

MAX_NEW_TOKENS = 6
A = 0.5 / (math.sqrt(0.5) + 1e-6)
# Returns of the 8 tokens: 1, 0 0, 1 1, 1 1 1. Mean .75, variance (6 * .25^2 +
# 2 * .75^2) / 7 = 1.5 / 7. A token of reward 1 is worth .25 / sqrt(1.5 / 7), one of
# reward 0 three times as much the other way.
P = 0.25 * math.sqrt(7 / 1.5)
LOG_8, LOG_HALF, LOG_1_5 = math.log(8), math.log(0.5), math.log(1.5)

SAMPLED = torch.tensor([[0, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 1, 1, 1]]) > 0
RATIOS = torch.tensor(
    [[1, 1.5, 1, 1], [1, 0.5, 8, 1], [1, 1.1, 1.1, 1], [1, 1.1, 1.1, 1.1]]
)
OLD_LOGPROBS = torch.where(SAMPLED, -1.0, 0.0)

EXPECTED = {
    # Advantages of the four rollouts; the objective; its gradient by log-prob.
    "grpo": (
        [A, -A, 0, 0],
        # -1.2 a / 4 (clipped) + (.8 a + 8 a) / 2 / 4 (the first one clipped)
        -0.3 * A + 1.1 * A,
        # Of row 1's second token: 8 a / 2 / 4.
        [[0], [0, A], [0, 0], [0, 0, 0]],
    ),
    "dr_grpo": (
        [0.5, -0.5, 0, 0],
        # The same losses of +-.5, summed, over 4 rollouts of budget 6.
        (-1.2 + 8.8) * 0.5 / 24,
        [[0], [0, 8 * 0.5 / 24], [0, 0], [0, 0, 0]],
    ),
    "dapo": (
        [A, -A, 0, 0],
        # Clipped at 1.28; mean over 8 tokens.
        (-1.28 + 8.8) * A / 8,
        [[0], [0, A], [0, 0], [0, 0, 0]],
    ),
    "rloo": (
        [1, -1, 0, 0],
        # Unclipped, sums over tokens: (-1.5 + .5 + 8) / 4.
        7 / 4,
        [[-1.5 / 4], [0.5 / 4, 8 / 4], [0, 0], [0, 0, 0]],
    ),
    "reinforce_pp": (
        [P, -3 * P, P, P],
        # (-1.2 - 5 * 1.1) p + (.8 + 8) 3 p, over 8 tokens
        (-6.7 + 26.4) * P / 8,
        [[0], [0, 3 * P], [-1.1 * P / 8] * 2, [-1.1 * P / 8] * 3],
    ),
    "gspo": (
        [A, -A, 0, 0],
        # Sequence ratios 1.5 and sqrt(.5 * 8) = 2: -1.0004 a / 4 + 2 a / 4.
        (-1.0004 + 2) * A / 4,
        # 2 a / 2 / 4 for both tokens of row 1.
        [[0], [A / 4, A / 4], [0, 0], [0, 0, 0]],
    ),
    "cispo": (
        [A, -A, 0, 0],
        # Weights 1.28 | .5, 1.28 on -A log pi, mean over 8 tokens.
        A * (-1.28 * (LOG_1_5 - 1) + 0.5 * (LOG_HALF - 1) + 1.28 * (LOG_8 - 1)) / 8,
        [[-1.28 * A / 8], [0.5 * A / 8, 1.28 * A / 8], [0, 0], [0, 0, 0]],
    ),
}
names = pytest.mark.parametrize("name", EXPECTED)


@pytest.fixture(scope="module")
def world():
    return small_world()


@pytest.fixture
def batch():
    return Batch(
        token_ids=torch.ones(4, 4, dtype=torch.long),
        token_mask=torch.cat([torch.ones(4, 1) > 0, SAMPLED[:, 1:]], 1),
        sampled=SAMPLED,
        sampling_logprobs=OLD_LOGPROBS,
        rewards=torch.tensor([1.0, 0.0, 1.0, 1.0]),
        verified=torch.ones(4, dtype=torch.bool),
        truncated=torch.zeros(4, dtype=torch.bool),
        group_index=torch.tensor([0, 0, 1, 1]),
    )


def built(name, **keys):
    free_of_kl = {"kl_coefficient": 0.0} if name == "reinforce_pp" else {}
    return algorithm(name, MAX_NEW_TOKENS, **free_of_kl | keys)


def dealt(chosen, batch, world):
    if isinstance(chosen, ReinforcePP):
        values = ZeroBaseline().values(batch, batch.rewards)
        return batch_whitened_credit(batch, batch.rewards, values)
    rewards = chosen.shape_rewards(batch, world).rewards
    return chosen.credit(batch, rewards, chosen.critic.values(batch, rewards))


def spread(numbers):
    """One number a sampled token as a per-token tensor."""
    spread_out = torch.zeros(4, 4)
    spread_out[SAMPLED] = torch.tensor([float(x) for row in numbers for x in row])
    return spread_out


def minimised(chosen, advantages, logprobs, batch):
    """The objective as the learner forms it: losses times weights, summed."""
    losses = chosen.objective.loss(logprobs, OLD_LOGPROBS, advantages, batch.trainable)
    weights = chosen.objective.aggregation(batch.trainable, batch.group_index)
    return (losses * weights).sum()


@names
def test_credit_is_the_boxes(name, batch, world):
    advantages = dealt(built(name), batch, world).advantages
    by_row = [
        [x] * int(n) for x, n in zip(EXPECTED[name][0], (1, 2, 2, 3), strict=True)
    ]
    torch.testing.assert_close(advantages, spread(by_row), rtol=1e-5, atol=1e-6)


@names
def test_objective_and_gradient_are_the_boxes(name, batch, world):
    chosen = built(name)
    logprobs = (OLD_LOGPROBS + RATIOS.log()).requires_grad_()
    value = minimised(chosen, dealt(chosen, batch, world).advantages, logprobs, batch)
    (gradient,) = torch.autograd.grad(value, logprobs)
    _, expected, slopes = EXPECTED[name]
    assert value.item() == pytest.approx(expected, rel=1e-4)
    torch.testing.assert_close(gradient, spread(slopes), rtol=1e-4, atol=1e-6)


def test_b059_dual_clip_bounds_the_ratio_of_a_bad_token(batch, world):
    """Case B059: with dual_clip 3 the ratio of 8 counts as 3 and has no gradient."""
    chosen = built("grpo", dual_clip=3.0)
    logprobs = (OLD_LOGPROBS + RATIOS.log()).requires_grad_()
    value = minimised(chosen, dealt(chosen, batch, world).advantages, logprobs, batch)
    # -1.2 a / 4 + (.8 + 3) a / 8
    assert value.item() == pytest.approx((-0.3 + 0.475) * A, rel=1e-4)
    assert torch.autograd.grad(value, logprobs)[0].abs().max() == 0


@names
def test_credit_does_not_change_when_all_rewards_of_a_group_move(name, batch, world):
    """Any baseline takes a constant away; REINFORCE++ takes one for the whole batch."""
    higher = Batch(**{**vars(batch), "rewards": batch.rewards + 5.0})
    chosen = built(name)
    torch.testing.assert_close(
        dealt(chosen, higher, world).advantages,
        dealt(chosen, batch, world).advantages,
        rtol=1e-4,
        atol=1e-5,
    )
