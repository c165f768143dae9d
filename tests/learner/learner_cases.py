"""Ragged batches and the objective that most learner tests use."""

import torch

from accredit.functional.aggregation import token_mean
from accredit.functional.policy_losses import clipped_surrogate
from accredit.learner.learner import Learner
from accredit.protocols import Objective
from accredit.types import Batch

VOCAB = 24
GRPO = Objective(clipped_surrogate, token_mean)


def ragged_batch(seed: int = 0, num_groups: int = 4, group_size: int = 3) -> Batch:
    """Prompts of 1..4 tokens, 1..9 more with holes of observation, a few unverified."""
    draws = torch.Generator().manual_seed(seed)
    rows, width = num_groups * group_size, 13
    prompts = torch.randint(1, 5, (rows, 1), generator=draws)
    lengths = prompts + torch.randint(1, width - 3, (rows, 1), generator=draws)
    columns = torch.arange(width)[None]
    token_mask = columns < lengths
    observed = torch.rand((rows, width), generator=draws) < 0.15
    sampled = token_mask & (columns >= prompts) & ~observed
    verified = torch.rand(rows, generator=draws) < 0.85
    token_ids = torch.randint(0, VOCAB, (rows, width), generator=draws)
    noise = -0.5 - torch.rand((rows, width), generator=draws)
    return Batch(
        token_ids=torch.where(token_mask, token_ids, 0),
        token_mask=token_mask,
        sampled=sampled,
        sampling_logprobs=torch.where(sampled, noise, 0.0),
        rewards=torch.zeros(rows),
        verified=verified & sampled.any(1),
        truncated=torch.zeros(rows, dtype=torch.bool),
        group_index=torch.arange(num_groups).repeat_interleave(group_size),
    )


def ragged_advantages(batch: Batch, seed: int = 0) -> torch.Tensor:
    draws = torch.Generator().manual_seed(seed + 1000)
    noise = torch.randn(batch.token_ids.shape, generator=draws)
    return torch.where(batch.trainable, noise, 0.0)


def weights_of(learner: Learner) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in learner.model.named_parameters()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)
