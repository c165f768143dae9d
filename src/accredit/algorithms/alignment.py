"""How a critic is corrected for the policy's move: which ratios, and which target.

The targets are `functional.value_targets`; here they get their names in a recipe, and
their controls. Ratios are those of the trainer after its update to the trainer before.
A plain target reads no ratio. The pass is made all the same: the report tells how far
the policy moved under every target, and all of them cost alike.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from accredit.algorithms.critic_configs import PACTConfig
from accredit.credit import ValueTargetRule, shuffled_change
from accredit.functional import value_targets
from accredit.functional.masked import masked_log_ratios
from accredit.functional.value_targets import accepted_ratios
from accredit.records import Cost, PolicyChange, PolicyUpdate
from accredit.types import Batch
from accredit.world import World, forward_cost


@dataclass(frozen=True)
class Acceptance:
    """The ratios whose tokens a critic is corrected for; both ends belong to it."""

    low: float = 0.0
    high: float = torch.inf


Disturbance = Callable[[Batch, PolicyChange, int], PolicyChange]
"""Called with (batch, change, seed): what a control does to the ratios."""


@dataclass(frozen=True)
class Alignment:
    """What a critic is taught after the policy has moved."""

    rule: ValueTargetRule
    acceptance: Acceptance
    disturb: Disturbance


def alignment(config: PACTConfig) -> Alignment:
    """The target behind a recipe's name, with its knobs."""
    rules: dict[str, ValueTargetRule] = {
        "plain": value_targets.plain_targets,
        "mask_only": value_targets.plain_targets,
        "pact": value_targets.pact_targets,
        "shuffled": value_targets.pact_targets,
        "weighted": value_targets.weighted_targets,
        "doubly_robust": value_targets.doubly_robust_targets,
        "windowed": partial(value_targets.windowed_targets, window=config.window),
        "vtrace": partial(value_targets.vtrace_targets, trace_cap=config.trace_cap),
        "full_product": partial(
            value_targets.full_product_targets, product_cap=config.product_cap
        ),
    }
    acceptance = Acceptance(config.accept_low, config.accept_high)
    return Alignment(
        rule=rules[config.target],
        # A plain target reads no ratio, so there is none to be rejected for.
        acceptance=Acceptance() if config.target == "plain" else acceptance,
        disturb=shuffled_change if config.target == "shuffled" else undisturbed,
    )


def policy_change(
    world: World, batch: Batch, policy: PolicyUpdate | None, acceptance: Acceptance
) -> PolicyChange:
    """Ratios of the trainable tokens after the update to before it, both the trainer's.

    A policy that was not updated did not change: no pass is spent.
    """
    unmoved = torch.zeros_like(batch.sampling_logprobs)
    old = unmoved if policy is None else policy.old_logprobs
    new = unmoved
    if policy is not None:
        with world.clock.measure("align"):
            scored = world.learner.logprobs(batch)
        new = torch.where(batch.trainable, scored, 0.0)
    log_ratios = masked_log_ratios(new, old, batch.trainable)
    accepted = accepted_ratios(
        log_ratios.exp(), batch.trainable, acceptance.low, acceptance.high
    )
    return PolicyChange(old, new, accepted)


def change_cost(world: World, batch: Batch, policy: PolicyUpdate | None) -> Cost:
    """Ledger of the pass behind `policy_change`."""
    return Cost() if policy is None else forward_cost(batch, world.shape, 1)


def undisturbed(batch: Batch, change: PolicyChange, seed: int) -> PolicyChange:
    """The change as it is."""
    return change
