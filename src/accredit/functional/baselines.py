"""Baselines and deviations of groups of sibling rollouts.

Every function takes one number per rollout, a mask that says which of them vote, and
the group each rollout belongs to: groups may be ragged and in any order, and one
implementation serves full and ragged groups alike. Nothing here knows what the numbers
are: rewards, shaped rewards or a critic's endpoint values.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from accredit.functional.masked import masked_mean, masked_variance


def group_mean_baseline(
    rewards: Float[Tensor, " rollout"],
    valid: Bool[Tensor, " rollout"],
    group_index: Int[Tensor, " rollout"],
) -> Float[Tensor, " rollout"]:
    """Mean reward of the whole group (GRPO without the division by the deviation).

        b_i = (1 / n) sum_{j valid} r_j

    Shao et al. 2024, arXiv:2402.03300; Liu et al. 2025, arXiv:2503.20783. Contains r_i,
    so the expected gradient is the true one times (n - 1) / n. In a group of equal
    rewards b_i = r_i exactly, in every precision.

    Args:
        rewards: One number per rollout; one that is not valid may hold anything.
        valid: False where a sibling does not vote, as when it could not be verified.
        group_index: The group of each rollout, counted from 0.

    Returns:
        Reward units, for invalid rollouts too; 0 where nobody in the group votes.
    """
    packed, voting = _packed(rewards, valid, group_index)
    origin = _origin(packed, voting)
    return (origin + masked_mean(packed - origin[:, None], voting, 1))[group_index]


def leave_one_out_baseline(
    rewards: Float[Tensor, " rollout"],
    valid: Bool[Tensor, " rollout"],
    group_index: Int[Tensor, " rollout"],
) -> Float[Tensor, " rollout"]:
    """Mean reward of the other members of each group (RLOO).

        b_i = (1 / (n - 1)) sum_{j valid, j != i} r_j,    b_i = r_i where n = 1

    Ahmadian et al. 2024, arXiv:2402.14740. Unbiased, because b_i ignores rollout i. A
    member whose siblings are all invalid has nobody to be compared with: its baseline
    is its own reward and its advantage 0. A configured group size of one is an error of
    the recipe and is refused there.

    Args:
        rewards: One number per rollout; one that is not valid may hold anything.
        valid: False where a sibling does not vote, as when it could not be verified.
        group_index: The group of each rollout, counted from 0.

    Returns:
        Reward units; for an invalid rollout the mean of the valid ones.
    """
    packed, voting = _packed(rewards, valid, group_index)
    origin = _origin(packed, voting)[:, None]
    offsets = torch.where(voting, packed - origin, 0.0)
    num_others = voting.sum(1, keepdim=True) - voting.to(torch.int64)
    others = (offsets.sum(1, keepdim=True) - offsets) / num_others.clamp(min=1)
    return (origin + others)[group_index, _member_index(group_index)]


def group_deviation(
    rewards: Float[Tensor, " rollout"],
    valid: Bool[Tensor, " rollout"],
    group_index: Int[Tensor, " rollout"],
) -> Float[Tensor, " rollout"]:
    """Unbiased standard deviation (n - 1) of each group's rewards.

        s_i = sqrt(sum_{j valid} (r_j - mean)^2 / (n - 1)),    0 where n < 2

    Shao et al. 2024, arXiv:2402.03300, who do not say n or n - 1. Dividing an advantage
    by it biases the gradient. Exactly 0 where all rewards are equal.

    Args:
        rewards: One number per rollout; one that is not valid may hold anything.
        valid: False where a sibling does not vote.
        group_index: The group of each rollout, counted from 0.

    Returns:
        Reward units, for invalid rollouts too.
    """
    packed, voting = _packed(rewards, valid, group_index)
    return masked_variance(packed, voting, 1).sqrt()[group_index]


def leave_one_out_deviation(
    rewards: Float[Tensor, " rollout"],
    valid: Bool[Tensor, " rollout"],
    group_index: Int[Tensor, " rollout"],
) -> Float[Tensor, " rollout"]:
    """Unbiased standard deviation of the other members of each group.

        s_i = sqrt(sum_{j valid, j != i} (r_j - b_i)^2 / (n - 2)),    0 where n < 3

    The companion of `leave_one_out_baseline`: it ignores rollout i as well. Exactly 0
    where the others are equal.

    Args:
        rewards: One number per rollout; one that is not valid may hold anything.
        valid: False where a sibling does not vote.
        group_index: The group of each rollout, counted from 0.

    Returns:
        Reward units; for an invalid rollout the deviation of the valid ones.
    """
    packed, voting = _packed(rewards, valid, group_index)
    group_size = packed.shape[1]
    not_self = ~torch.eye(group_size, dtype=torch.bool, device=packed.device)
    peers = voting[:, None, :] & not_self
    variance = masked_variance(packed[:, None, :].expand(peers.shape), peers, 2)
    return variance.sqrt()[group_index, _member_index(group_index)]


def scaled_by_deviation(
    advantages: Float[Tensor, "*shape"],
    deviation: Float[Tensor, "*shape"],
    eps: float = 1e-6,
) -> Float[Tensor, "*shape"]:
    """Advantages divided by a deviation, where there is one.

        A / (s + eps)  where s > 0,    A where s = 0

    Where all rewards are equal the deviation is exactly 0 and says nothing about scale:
    a group mean then gives A = 0, which stays 0, and a leave-one-out advantage against
    equal peers stays unscaled instead of being divided by eps.

    Args:
        advantages: Reward units.
        deviation: Reward units, not negative.
        eps: Keeps rewards that differ by rounding only from being blown up to 1.
    """
    has_scale = deviation > 0
    scale = torch.where(has_scale, deviation + eps, 1.0)
    return advantages / scale


def _member_index(group_index: Tensor) -> Tensor:
    """The place of each rollout among its siblings, in order of appearance."""
    order = torch.argsort(group_index, stable=True)
    sizes = torch.bincount(group_index)
    starts = sizes.cumsum(0) - sizes
    places = torch.arange(len(group_index), device=group_index.device)
    member_index = torch.empty_like(group_index)
    member_index[order] = (places - starts[group_index[order]]).to(group_index.dtype)
    return member_index


def _packed(
    rewards: Tensor, valid: Tensor, group_index: Tensor
) -> tuple[Float[Tensor, "prompt group"], Bool[Tensor, "prompt group"]]:
    """Rewards as a matrix of groups, and who votes; anything where nobody does."""
    if not len(rewards) == len(valid) == len(group_index):
        raise ValueError(
            "rewards, valid and group_index must have one entry a rollout, got "
            f"{len(rewards)}, {len(valid)} and {len(group_index)}"
        )
    if len(rewards) == 0:
        return rewards.reshape(0, 0), valid.reshape(0, 0)
    member_index = _member_index(group_index)
    shape = (int(group_index.max()) + 1, int(member_index.max()) + 1)
    packed = rewards.new_zeros(shape)
    packed[group_index, member_index] = rewards
    voting = valid.new_zeros(shape)
    voting[group_index, member_index] = valid
    return packed, voting


def _origin(packed: Tensor, voting: Tensor) -> Tensor:
    """Smallest voting reward of each group: offsets from it are exact where equal."""
    if packed.numel() == 0:
        return packed.new_zeros(len(packed))
    smallest = torch.where(voting, packed, torch.inf).amin(1)
    return torch.where(voting.any(1), smallest, 0.0)
