"""The value targets that `pact_alignment.py` compares, by the names of its tables."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from accredit.functional import value_targets as rules

ACCEPTED = (0.0, 6.0)
"""Range of the ratio that the critic is corrected for, as in PACT's paper."""
PRODUCT_CAP = 6.0
WHOLE = 10_000
"""A window longer than any rollout."""


def unshuffled(ratios: Tensor, accepted: Tensor, seed: int) -> Tensor:
    """The ratios as they are."""
    return ratios


def shuffled(ratios: Tensor, accepted: Tensor, seed: int) -> Tensor:
    """The same ratios on other steps of the batch."""
    return rules.shuffled_ratios(ratios, accepted, torch.Generator().manual_seed(seed))


@dataclass(frozen=True)
class Target:
    """How a target is made of ratios, outcomes, values and the mask of steps."""

    rule: Callable[..., Any]
    disturb: Callable[[Tensor, Tensor, int], Tensor] = unshuffled
    range: tuple[float, float] = ACCEPTED

    def aligned(
        self,
        ratios: Tensor,
        outcomes: Tensor,
        values: Tensor,
        step_mask: Tensor,
        seed: int = 0,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Targets, weights, and where they count; a rejected ratio corrects nothing."""
        accepted = rules.accepted_ratios(ratios, step_mask, *self.range)
        kept = self.disturb(torch.where(accepted, ratios, 1.0), accepted, seed)
        targets, weights = self.rule(kept, outcomes, values, step_mask)
        return targets, weights, accepted


def targets(window: int) -> dict[str, Target]:
    """All of them, with the window of the default recipe in steps of the setting."""
    return {
        "plain": Target(rules.plain_targets, range=(0.0, float("inf"))),
        "mask only": Target(rules.plain_targets),
        "shuffled": Target(rules.pact_targets, shuffled),
        "pact": Target(rules.pact_targets),
        "weighted": Target(rules.weighted_targets),
        "doubly robust": Target(rules.doubly_robust_targets),
        "windowed": Target(partial(rules.windowed_targets, window=window)),
        "windowed, whole": Target(partial(rules.windowed_targets, window=WHOLE)),
        "v-trace, cap 1": Target(partial(rules.vtrace_targets, trace_cap=1.0)),
        "v-trace, cap 6": Target(partial(rules.vtrace_targets, trace_cap=6.0)),
        "full product": Target(
            partial(rules.full_product_targets, product_cap=PRODUCT_CAP)
        ),
    }
