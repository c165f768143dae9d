"""Ragged batches, targets and critics that most tests of critics use."""

from typing import Any

import torch
from transformers import PreTrainedModel

from accredit.critics.build import build_critic
from accredit.critics.configs import ValueHeadConfig
from accredit.critics.value_head.critic import ValueHeadCritic
from accredit.records import ValueTargets
from accredit.types import Batch, Message, Problem, Prompt
from tiny_models import character_tokenizer

VOCAB = 24
TOKENIZER = character_tokenizer(VOCAB)


def rollouts(seed: int = 0, num_groups: int = 4, group_size: int = 3) -> Batch:
    """Prompts of 1..4 tokens, 1..9 more with holes of observation, a few unverified."""
    draws = torch.Generator().manual_seed(seed)
    rows, width = num_groups * group_size, 13
    prompts = torch.randint(1, 5, (num_groups, 1), generator=draws)
    prompts = prompts.repeat_interleave(group_size, 0)
    lengths = prompts + torch.randint(1, width - 3, (rows, 1), generator=draws)
    columns = torch.arange(width)[None]
    token_mask = columns < lengths
    observed = torch.rand((rows, width), generator=draws) < 0.15
    sampled = token_mask & (columns >= prompts) & ~observed
    token_ids = torch.randint(0, VOCAB, (rows, width), generator=draws)
    token_ids = torch.where(token_mask, token_ids, 0)
    rewards = (torch.rand(rows, generator=draws) < 0.5).float()
    asked = tuple(
        Prompt(
            Problem(f"p{row // group_size}", (Message("user", "?"),)),
            tuple(token_ids[row, : int(prompts[row])].tolist()),
        )
        for row in range(rows)
    )
    return Batch(
        token_ids=token_ids,
        token_mask=token_mask,
        sampled=sampled,
        sampling_logprobs=torch.zeros(rows, width),
        rewards=rewards,
        verified=(torch.rand(rows, generator=draws) < 0.85) & sampled.any(1),
        truncated=torch.zeros(rows, dtype=torch.bool),
        group_index=torch.arange(num_groups).repeat_interleave(group_size),
        prompts=asked,
    )


def outcomes(batch: Batch) -> ValueTargets:
    """The reward at every trainable token, all of one weight."""
    targets = batch.rewards[:, None].expand(batch.token_ids.shape).clone()
    return ValueTargets(targets, torch.ones_like(targets), batch.trainable)


def noisy(batch: Batch, seed: int = 0) -> ValueTargets:
    """Targets between -1 and 2 and weights between 0 and 2, another one each token."""
    draws = torch.Generator().manual_seed(seed)
    targets = 3 * torch.rand(batch.token_ids.shape, generator=draws) - 1
    weights = 2 * torch.rand(batch.token_ids.shape, generator=draws)
    return ValueTargets(targets, weights, batch.trainable)


def critic_of(
    policy: PreTrainedModel,
    show: Any = None,
    micro_batch_tokens: int = 4096,
    **keys: Any,
) -> ValueHeadCritic:
    """A critic on `policy` with the keys of a recipe, at a rate that moves it."""
    return build_critic(
        ValueHeadConfig.model_validate({"learning_rate": 1e-2} | keys),
        policy_model=policy,
        policy_tokenizer=TOKENIZER,
        show=show,
        micro_batch_tokens=micro_batch_tokens,
    )


def opinionated(critic: ValueHeadCritic, seed: int = 0) -> ValueHeadCritic:
    """The same critic with a head that says something of everything."""
    draws = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in critic.model.head.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=draws)
    return critic


def weights_of(critic: ValueHeadCritic) -> dict[str, torch.Tensor]:
    return {n: p.detach().clone() for n, p in critic.model.named_parameters()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


def taught(critic: ValueHeadCritic, count: int, seed: int = 0) -> ValueHeadCritic:
    """The critic after so many updates on batches of their own."""
    for number in range(count):
        batch = rollouts(seed + number)
        critic.update(batch, outcomes(batch), number, warming_up=False)
    return critic
