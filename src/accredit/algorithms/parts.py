"""Parts that several algorithms choose: objectives and shaped rewards."""

from dataclasses import replace
from functools import partial
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from accredit.algorithms.base_configs import OutcomeConfig
from accredit.algorithms.configs import ClippedConfig
from accredit.algorithms.step import Draw, draw_groups
from accredit.functional import corrections, divergences
from accredit.functional.policy_losses import clipped_surrogate
from accredit.protocols import (
    Aggregation,
    Correction,
    Objective,
    PolicyLoss,
)
from accredit.records import Cost
from accredit.types import Batch
from accredit.world import World, forward_cost


@runtime_checkable
class Grouped(Protocol):
    """A section that says how much is rolled out at each step."""

    prompts_per_step: int
    group_size: int


def drawn_from(config: Grouped) -> Draw:
    """The next problems of the source, as many and as often as the recipe says."""
    return partial(
        draw_groups,
        prompts_per_step=config.prompts_per_step,
        group_size=config.group_size,
    )


def objective(
    config: OutcomeConfig, loss: PolicyLoss, aggregation: Aggregation
) -> Objective:
    """The loss with what every recipe can add to it."""
    return Objective(
        loss=loss,
        aggregation=aggregation,
        correction=engine_correction(config),
        entropy_coefficient=config.entropy_coefficient,
        num_minibatches=config.num_minibatches,
        num_epochs=config.num_epochs,
    )


def clipped_objective(config: ClippedConfig, aggregation: Aggregation) -> Objective:
    """The clipped surrogate, with a KL loss where one is asked for."""
    loss = partial(
        clipped_surrogate,
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        dual_clip=config.dual_clip,
    )
    wants_kl = config.kl_coefficient > 0
    return replace(
        objective(config, loss, aggregation),
        kl_estimator=getattr(divergences, config.kl_estimator) if wants_kl else None,
        kl_coefficient=config.kl_coefficient,
    )


def engine_correction(config: OutcomeConfig) -> Correction | None:
    """The weight for the gap between engine and trainer, by its name."""
    if config.engine_correction == "none":
        return None
    correction = getattr(corrections, config.engine_correction)
    return partial(correction, cap=config.engine_correction_cap)


def kl_charge(
    batch: Batch, world: World, coefficient: float
) -> tuple[Float[Tensor, "rollout token"], Cost]:
    """What each sampled token pays for leaving the start model: beta k1, >= or < 0.

    Taken from the trainer's own log-probs before the update, without gradient: a pass
    of the policy and one of the reference, which the cost counts. At 0 neither is run.
    """
    if coefficient == 0:
        return torch.zeros_like(batch.sampling_logprobs), Cost()
    logprobs = world.learner.logprobs(batch)
    charge = coefficient * divergences.kl_k1(
        logprobs, world.learner.reference_logprobs(batch)
    )
    cost = forward_cost(batch, world.shape, num_passes=2)
    return torch.where(batch.sampled, charge, 0.0).detach(), cost
