"""Tokens from logits, by inverse CDF, with the log-probs of what was drawn from.

One uniform number a token, from the request's own generator, decides each draw: given
equal logits, a sample depends neither on its neighbours nor on the size of the batch.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from accredit.randomness import generator
from accredit.types import Sampling

BLOCK = 64
"""Uniforms drawn ahead for each request."""


class Uniforms:
    """The next uniform number of each row, from one generator a request."""

    def __init__(self, keys: Sequence[int], device: torch.device) -> None:
        self._generators: list[np.random.Generator] = [generator(key) for key in keys]
        self._device = device
        self._block = torch.empty(0)
        self._used = BLOCK

    def draw(self) -> Float[Tensor, "row 1"]:
        """In [0, 1), float64."""
        if self._used == BLOCK:
            numbers = np.stack([source.random(BLOCK) for source in self._generators])
            self._block = torch.from_numpy(numbers).to(self._device)
            self._used = 0
        self._used += 1
        return self._block[:, self._used - 1 : self._used]

    def select(self, indices: Int[Tensor, " new_row"]) -> None:
        """Rows become the named ones, each with what is left of its numbers."""
        self._generators = [self._generators[row] for row in indices.tolist()]
        if self._used < BLOCK:
            self._block = self._block[indices]


def support_logits(
    logits: Float[Tensor, "row vocab"], sampling: Sampling
) -> Float[Tensor, "row vocab"]:
    """Float32 logits at the temperature, -inf outside top-k and then top-p.

    Tokens equal to the k-th stay. Top-p keeps the fewest most likely tokens that hold
    at least that mass, one at the least. Greedy sampling keeps the whole vocabulary at
    temperature 1.
    """
    logits = logits.float()
    if sampling.temperature == 0:
        return logits
    if sampling.temperature != 1:
        logits = logits / sampling.temperature
    if 0 < sampling.top_k < logits.shape[-1]:
        least = logits.topk(sampling.top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if sampling.top_p < 1:
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
        mass = ordered.softmax(dim=-1, dtype=torch.float64)
        unlikely = mass.cumsum(dim=-1) - mass >= sampling.top_p
        unlikely[:, 0] = False
        dropped = torch.zeros_like(unlikely).scatter(1, order, unlikely)
        logits = logits.masked_fill(dropped, -torch.inf)
    return logits


def inverse_cdf(
    probabilities: Float[Tensor, "row vocab"], uniforms: Float[Tensor, "row 1"]
) -> Int[Tensor, "row 1"]:
    """The first token whose cumulative probability exceeds the uniform number.

    Its own probability is never 0: a float64 below 1 times the total rounds to less
    than the total, so that the search ends where the probabilities do. A row with NaN
    gets some valid index.
    """
    cumulative = probabilities.cumsum(dim=-1, dtype=torch.float64)
    threshold = uniforms * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, threshold, right=True)
    return tokens.clamp_(max=probabilities.shape[-1] - 1)


def sampled_tokens(
    logits: Float[Tensor, "row vocab"],
    uniforms: Float[Tensor, "row 1"],
    sampling: Sampling,
) -> tuple[Int[Tensor, " row"], Float[Tensor, " row"]]:
    """One token a row and its log-prob in nats, NaN where the logits are broken."""
    logprobs = support_logits(logits, sampling).log_softmax(dim=-1)
    if sampling.temperature == 0:
        tokens = logprobs.argmax(dim=-1, keepdim=True)
    else:
        tokens = inverse_cdf(logprobs.exp(), uniforms)
    return tokens.squeeze(1), logprobs.gather(1, tokens).squeeze(1)
