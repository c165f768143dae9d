"""Tokens <-> steps: which positions are decisions, and the prefixes between them.

A *step* is one sampled token, or a chunk of consecutive sampled tokens. Packing the
sampled tokens of a row leaves prompt, observations and padding out, so that credit
flows from one turn to the one before it without a branch. The value of a step is the
value of the prefix before its first token; the value after the last one is that of the
whole sequence, trailing observation included. There is one `prefix` more than there are
tokens, one `step_prefix` more than there are steps. Knows no reward and no algorithm.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Steps:
    """The steps of a batch, right-padded, and where they lie in `token_ids`."""

    step_mask: Bool[Tensor, "rollout step"]
    """True at real steps."""
    starts: Int[Tensor, "rollout step"]
    """Index of the first token of each step; 0 at padding."""
    step_index: Int[Tensor, "rollout token"]
    """The step that each sampled token belongs to; 0 where not sampled."""
    sampled: Bool[Tensor, "rollout token"]
    """True where the policy chose the token, which is where steps are."""
    lengths: Int[Tensor, " rollout"]
    """Real tokens of each row: where its last prefix ends."""

    def prefix_values(
        self, values: Float[Tensor, "rollout prefix"]
    ) -> Float[Tensor, "rollout step_prefix"]:
        """V before each step and, after the last one, V of the whole sequence.

        0 past that. A value that stands before no step is not read.
        """
        step_mask, starts = self.step_mask, self.starts
        num_steps = step_mask.sum(1, keepdim=True)
        columns = torch.arange(step_mask.shape[1] + 1, device=values.device)
        before = torch.cat([starts, torch.zeros_like(num_steps)], dim=1)
        index = torch.where(columns == num_steps, self.lengths[:, None], before)
        return torch.where(columns <= num_steps, values.gather(1, index), 0.0)

    def sums(self, x: Float[Tensor, "rollout token"]) -> Float[Tensor, "rollout step"]:
        """Sum of a per-token quantity over the sampled tokens of each step."""
        kept = torch.where(self.sampled, x, 0.0)
        totals = x.new_zeros(self.step_mask.shape)
        if not totals.numel():
            return totals
        return totals.scatter_add(1, self.step_index, kept)

    def spread(
        self, x: Float[Tensor, "rollout step"]
    ) -> Float[Tensor, "rollout token"]:
        """A per-step quantity on every sampled token of the step, 0 elsewhere."""
        if not x.numel():
            return x.new_zeros(self.sampled.shape)
        return torch.where(self.sampled, x.gather(1, self.step_index), 0.0)

    def at_starts(
        self, x: Float[Tensor, "rollout step"]
    ) -> Float[Tensor, "rollout prefix"]:
        """A per-step quantity at the prefix that the step starts from, 0 elsewhere."""
        num_rollouts, num_tokens = self.sampled.shape
        kept = torch.where(self.step_mask, x, 0.0)
        placed = x.new_zeros(num_rollouts, num_tokens + 1)
        return placed.scatter_add(1, self.starts, kept)


def chunk_steps(
    sampled: Bool[Tensor, "rollout token"],
    token_mask: Bool[Tensor, "rollout token"],
    chunk_length: int,
) -> Steps:
    """Every `chunk_length` consecutive sampled tokens of a row as one step.

    The last chunk of a row may be shorter; a chunk that meets an observation goes on
    after it.

    Raises:
        ValueError: `chunk_length` is below 1.
    """
    if chunk_length < 1:
        raise ValueError(
            f"chunk_length must be at least 1, got {chunk_length}; 1 is token by token"
        )
    places = sampled.cumsum(1) - 1
    num_steps = -(-sampled.sum(1) // chunk_length)
    step_index = torch.where(sampled, places // chunk_length, 0)
    most = int(num_steps.max()) if len(num_steps) else 0
    step_mask = torch.arange(most, device=sampled.device) < num_steps[:, None]
    opening = sampled & (places % chunk_length == 0)
    rows, columns = opening.nonzero(as_tuple=True)
    starts = torch.zeros_like(step_mask, dtype=torch.int64)
    starts[rows, step_index[rows, columns]] = columns
    return Steps(step_mask, starts, step_index, sampled, token_mask.sum(1))


def token_steps(
    sampled: Bool[Tensor, "rollout token"], token_mask: Bool[Tensor, "rollout token"]
) -> Steps:
    """Every sampled token as one step."""
    return chunk_steps(sampled, token_mask, 1)
