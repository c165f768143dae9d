"""Critics without parameters: constant along a rollout, blind to the unverified."""

import pytest
import torch

from accredit.critics.group import GroupMean, LeaveOneOut, ZeroBaseline
from accredit.types import Batch

NAN = float("nan")


def batch_of(verified, group_index, num_tokens=3):
    shape = (len(verified), num_tokens)
    ones = torch.ones(shape, dtype=torch.bool)
    return Batch(
        token_ids=torch.zeros(shape, dtype=torch.int64),
        token_mask=ones,
        sampled=ones,
        sampling_logprobs=torch.zeros(shape),
        rewards=torch.zeros(len(verified)),
        verified=torch.tensor(verified, dtype=torch.bool),
        truncated=torch.zeros(len(verified), dtype=torch.bool),
        group_index=torch.tensor(group_index),
    )


BATCH = batch_of([1, 1, 1, 0, 1, 1], [0, 0, 0, 0, 1, 1])
REWARDS = torch.tensor([1.0, 0, 0.5, NAN, 2, 4])


@pytest.mark.parametrize(
    "critic, expected",
    [
        (GroupMean(), [0.5, 0.5, 0.5, 0.5, 3, 3]),
        (LeaveOneOut(), [0.25, 0.75, 0.5, 0.5, 4, 2]),
        (ZeroBaseline(), [0, 0, 0, 0, 0, 0]),
    ],
)
def test_values_are_the_baseline_at_every_prefix(critic, expected):
    """Case P09's rule: the unverified fourth sibling does not vote, NaN or not."""
    values = critic.values(BATCH, REWARDS)
    assert values.shape == (6, 4)
    assert values.tolist() == [[value] * 4 for value in expected]


@pytest.mark.parametrize("critic", [GroupMean(), LeaveOneOut()])
def test_the_critic_reads_the_shaped_rewards_it_is_given(critic):
    shifted = critic.values(BATCH, REWARDS + 1) - critic.values(BATCH, REWARDS)
    torch.testing.assert_close(shifted, torch.ones(6, 4))


@pytest.mark.parametrize("critic", [GroupMean(), LeaveOneOut()])
def test_a_lone_verified_sibling_is_valued_at_its_own_reward(critic):
    batch = batch_of([0, 1, 0], [0, 0, 0])
    values = critic.values(batch, torch.tensor([NAN, 0.7, NAN]))
    torch.testing.assert_close(values[1], torch.full((4,), 0.7))


@pytest.mark.parametrize("critic", [GroupMean(), LeaveOneOut(), ZeroBaseline()])
def test_values_are_a_tensor_of_their_own(critic):
    values = critic.values(BATCH, REWARDS)
    values[0, 0] = 99
    assert values[0, 1] != 99
