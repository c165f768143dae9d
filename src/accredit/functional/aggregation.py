"""How tokens are averaged: a weight per token, so that the objective is a plain sum.

    objective = sum_{i,t} w_it L_it

The weights are made once, from the whole batch of an optimizer step, and the division
by a count happens here and nowhere else: however the rows are then split into
micro-batches or over ranks, their sum is the same. A row without sampled tokens, masked
or filler, is counted nowhere, and an empty batch has weights 0, never 0 / 0.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def token_mean(
    sampled: Bool[Tensor, "rollout token"],
    group_index: Int[Tensor, " rollout"],
    *,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "rollout token"]:
    """Mean over all sampled tokens of the batch (DAPO).

        w_it = 1 / N,    N = number of sampled tokens

    Yu et al. 2025, arXiv:2503.14476. Long rollouts weigh more.
    """
    return _shares(sampled, sampled.sum(), dtype)


def sequence_mean_token_mean(
    sampled: Bool[Tensor, "rollout token"],
    group_index: Int[Tensor, " rollout"],
    *,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "rollout token"]:
    """Mean over rollouts of the mean over their tokens (GRPO as published, GSPO).

        w_it = 1 / (M n_i),    n_i = sampled tokens of rollout i, M = rollouts with any

    Shao et al. 2024, arXiv:2402.03300. A token of a long rollout weighs less.
    """
    lengths = sampled.sum(1, keepdim=True)
    return _shares(sampled, _num_rows(sampled) * lengths, dtype)


def sequence_mean_token_sum(
    sampled: Bool[Tensor, "rollout token"],
    group_index: Int[Tensor, " rollout"],
    *,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "rollout token"]:
    """Mean over rollouts of the sum over their tokens: the policy gradient itself.

    w_it = 1 / M,    M = rollouts with a sampled token
    """
    return _shares(sampled, _num_rows(sampled), dtype)


def fixed_length_token_sum(
    sampled: Bool[Tensor, "rollout token"],
    group_index: Int[Tensor, " rollout"],
    *,
    max_length: int,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "rollout token"]:
    """Mean over rollouts of the sum over tokens divided by a constant (Dr. GRPO).

        w_it = 1 / (M max_length),    M = rollouts with a sampled token

    Liu et al. 2025, arXiv:2503.20783. A token weighs the same in every batch.

    Args:
        sampled: True where the policy chose the token.
        group_index: Not read.
        max_length: Token budget of a completion, whether used or not.
        dtype: Of the weights.

    Raises:
        ValueError: `max_length` is below 1.
    """
    if max_length < 1:
        raise ValueError(
            f"max_length must be at least 1, got {max_length}; "
            "give the token budget of a completion"
        )
    return _shares(sampled, _num_rows(sampled) * max_length, dtype)


def group_mean_token_mean(
    sampled: Bool[Tensor, "rollout token"],
    group_index: Int[Tensor, " rollout"],
    *,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "rollout token"]:
    """Mean over groups of the mean over all tokens of the group.

        w_it = 1 / (K n_g),    n_g = sampled tokens of i's group, K = groups with any

    Every prompt weighs the same, however long its rollouts are.
    """
    if not sampled.numel():
        return sampled.to(dtype)
    num_groups = int(group_index.max()) + 1
    lengths = sampled.sum(1)
    totals = lengths.new_zeros(num_groups).index_add(0, group_index, lengths)
    num_filled = (totals > 0).sum()
    return _shares(sampled, (num_filled * totals[group_index])[:, None], dtype)


AGGREGATIONS: Mapping[str, Callable[..., Tensor]] = MappingProxyType(
    {
        "token_mean": token_mean,
        "sequence_mean_token_mean": sequence_mean_token_mean,
        "sequence_mean_token_sum": sequence_mean_token_sum,
        "fixed_length_token_sum": fixed_length_token_sum,
        "group_mean_token_mean": group_mean_token_mean,
    }
)
"""By name; `fixed_length_token_sum` still needs its `max_length`."""


def _num_rows(sampled: Tensor) -> Tensor:
    return sampled.any(1).sum()


def _shares(sampled: Tensor, counts: Tensor, dtype: torch.dtype) -> Tensor:
    """1 / count where sampled, 0 elsewhere."""
    return sampled.to(dtype) / counts.clamp(min=1).to(dtype)
