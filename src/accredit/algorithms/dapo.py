"""DAPO: decoupled clip and dynamic sampling policy optimization.

    draw until prompts_per_step groups disagree within themselves, or max_draws rounds
    R_i  <- R_i + soft overlong penalty
    A_i   = (R_i - mean_j R_j) / deviation_j R_j
    J     = mean over all tokens of the batch,    clip_low .2, clip_high .28

Yu et al. 2025, arXiv:2503.14476.

Differs from the paper:
- drawing is bounded: after `max_draws` rounds a step trains on what it has, or skips
  its update if that is nothing; rejected groups are paid for and counted, never used;
- a group is judged by its verified rewards, before the penalty;
- the overlong penalty is off until `overlong_cache` is set (4,096 of 20,480 there), and
  may spare failures, which else learn to fail fast.
"""

from functools import partial

import torch

from accredit.algorithms.configs import DAPOConfig
from accredit.algorithms.parts import clipped_objective
from accredit.algorithms.step import (
    OutcomeAlgorithm,
    RewardShaping,
    ShapedRewards,
    verified_rewards,
)
from accredit.credit import normalized_outcome_credit
from accredit.critics.group import GroupMean
from accredit.functional.aggregation import token_mean
from accredit.functional.shaping import soft_overlong_penalty
from accredit.records import Drawn, State
from accredit.types import Batch, Group
from accredit.world import World


def dapo(config: DAPOConfig, max_new_tokens: int) -> OutcomeAlgorithm:
    """Groups that disagree, long answers discouraged, token mean."""
    return OutcomeAlgorithm(
        draw_groups=partial(draw_informative_groups, config=config),
        critic=GroupMean(),
        credit=normalized_outcome_credit,
        objective=clipped_objective(config, token_mean),
        clip_bounds=(config.clip_low, config.clip_high),
        shape_rewards=_shaping(config, max_new_tokens),
    )


def draw_informative_groups(state: State, world: World, *, config: DAPOConfig) -> Drawn:
    """Groups whose verified rewards are not all equal, in bounded rounds."""
    kept: list[Group] = []
    rejected: list[Group] = []
    num_drawn = 0
    with world.clock.measure("step"):
        for round_ in range(config.max_draws):
            wanted = config.prompts_per_step - len(kept)
            if wanted == 0:
                break
            prompts = list(world.problems.draw(state.num_drawn + num_drawn, wanted))
            num_drawn += len(prompts)
            key = ("train", state.num_draws, round_)
            groups = world.environment.roll_out(
                prompts, config.group_size, world.sampling, key
            )
            for group in groups:
                (kept if is_informative(group) else rejected).append(group)
    return Drawn(tuple(kept), tuple(rejected), num_drawn, world.engine.version)


def is_informative(group: Group) -> bool:
    """Whether the siblings that vote disagree."""
    return len({reward for reward in group.votes if reward is not None}) > 1


def overlong_rewards(
    batch: Batch, world: World, *, max_length: int, config: DAPOConfig
) -> ShapedRewards:
    """Verified rewards plus the soft overlong penalty on sampled tokens."""
    penalty = soft_overlong_penalty(
        batch.sampled.sum(1),
        max_length=max_length,
        cache=config.overlong_cache,
        factor=config.overlong_factor,
    )
    if config.overlong_applies_to == "successes":
        penalty = torch.where(batch.rewards > 0, penalty, 0.0)
    return ShapedRewards(batch.rewards + penalty)


def _shaping(config: DAPOConfig, max_new_tokens: int) -> RewardShaping:
    if config.overlong_cache == 0:
        return verified_rewards
    return partial(overlong_rewards, max_length=max_new_tokens, config=config)
