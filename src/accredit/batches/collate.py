"""Groups of rollouts as one right-padded batch. Knows no model and no algorithm."""

from collections.abc import Sequence

import torch

from accredit.types import Batch, Group


def collate(groups: Sequence[Group]) -> Batch:
    """Every rollout of `groups`, in order; padding holds token 0 and log-prob 0.

    One without a sampled token is not verified, whatever it was paid: `Group.votes`.

    Raises:
        ValueError: there is no group.
    """
    if not groups:
        raise ValueError("a batch needs at least one group, got none")
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    shape = (len(rollouts), max(len(rollout.token_ids) for rollout in rollouts))
    token_ids = torch.zeros(shape, dtype=torch.long)
    token_mask = torch.zeros(shape, dtype=torch.bool)
    sampled = torch.zeros(shape, dtype=torch.bool)
    sampling_logprobs = torch.zeros(shape, dtype=torch.float32)
    for row, rollout in enumerate(rollouts):
        length = len(rollout.token_ids)
        token_ids[row, :length] = rollout.token_ids
        token_mask[row, :length] = True
        sampled[row, :length] = rollout.sampled
        sampling_logprobs[row, :length] = rollout.sampling_logprobs
    rewards = [reward for group in groups for reward in group.votes]
    group_sizes = torch.tensor([len(group.rollouts) for group in groups])
    return Batch(
        token_ids=token_ids,
        token_mask=token_mask,
        sampled=sampled,
        sampling_logprobs=sampling_logprobs,
        rewards=torch.tensor([0.0 if r is None else r for r in rewards]),
        verified=torch.tensor([reward is not None for reward in rewards]),
        truncated=torch.tensor(
            [not rollout.stop_reason.finished for rollout in rollouts]
        ),
        group_index=torch.arange(len(groups)).repeat_interleave(group_sizes),
        prompts=tuple(rollout.prompt for rollout in rollouts),
    )
