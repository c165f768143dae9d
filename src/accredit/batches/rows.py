"""Rows of a batch: how far each is run, which of them a step takes."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from accredit.randomness import generator


def kept(x: Tensor, where: Bool[Tensor, "rollout token"]) -> Tensor:
    """float32 where True, exactly 0 elsewhere, NaN or not."""
    return torch.where(where, x.detach().float(), 0.0)


def row_lengths(wanted: Bool[Tensor, "rollout token"]) -> Int[Tensor, " rollout"]:
    """Tokens up to the last wanted one of each row: what has to be run; 0 if none."""
    positions = torch.arange(1, wanted.shape[1] + 1, device=wanted.device)
    return (wanted * positions).amax(1)


def minibatch_rows(
    num_rows: int,
    num_minibatches: int,
    num_epochs: int,
    seed: int,
    *,
    shuffled: bool = True,
) -> list[Tensor]:
    """`step_rows` of any number of rows."""
    if num_minibatches < 1 or num_epochs < 1:
        raise ValueError(
            "num_minibatches and num_epochs must be >= 1, got "
            f"{num_minibatches} and {num_epochs}"
        )
    if num_minibatches == 1:
        return [torch.arange(num_rows)] * num_epochs
    steps: list[Tensor] = []
    for epoch in range(num_epochs):
        order = torch.arange(num_rows)
        if shuffled:
            draws = generator(seed, "minibatches", epoch)
            order = torch.from_numpy(draws.permutation(num_rows))
        steps += [rows.sort().values for rows in order.tensor_split(num_minibatches)]
    return steps
