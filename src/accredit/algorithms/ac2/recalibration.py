"""What came of what a critic said, and its values moved by that.

An outcome is a value that was said of a prefix, with the reward that came of it: of a
replayed prefix the mean of its judged continuations; of the boundaries that a rollout
went beyond its own reward, all of them together once; who was to be stopped goes beyond
none. Of groups that were to run to their end only, because who ended early of the
others is a lucky or an unlucky one. Audited groups stand for all that were ready, by
1 / (probability of their audit). Values are kept as they were said, before anything was
moved.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import torch

from accredit.algorithms.ac2.endpoints import StepRollouts, Values
from accredit.algorithms.ac2.memory import AC2Memory, Outcome
from accredit.functional.recalibration import log_odds_ratio, recalibrated


@dataclass(frozen=True)
class OddsRecalibration:
    """All values moved by the one log-odds ratio between what came and what was said.

    v' / (1 - v') = rho v / (1 - v), rho of the outcomes of the last steps.
    """

    num_steps: int

    def moved(self, said: Values, memory: AC2Memory) -> Values:
        """The values by what came in the steps before this one."""
        shift = shift_of(memory.outcomes[-self.num_steps :])
        return replace(
            said,
            prefixes=recalibrated(said.prefixes, shift),
            endpoints=recalibrated(said.endpoints, shift),
            boundaries=recalibrated(said.boundaries, shift),
            shift=shift,
            said=said,
        )

    def outcomes(
        self, memory: AC2Memory, step: StepRollouts, values: Values
    ) -> tuple[tuple[Outcome, ...], ...]:
        """Those to be remembered, with this step's."""
        found = (*memory.outcomes, outcomes_of(step, values))
        return found[-self.num_steps :]


@dataclass(frozen=True)
class NoRecalibration:
    """Values are taken as they were said."""

    def moved(self, said: Values, memory: AC2Memory) -> Values:
        """Not at all."""
        return said

    def outcomes(
        self, memory: AC2Memory, step: StepRollouts, values: Values
    ) -> tuple[tuple[Outcome, ...], ...]:
        """None is remembered."""
        return ()


def shift_of(steps: Sequence[Sequence[Outcome]]) -> float:
    """The log-odds ratio of what came to what was said; 0 before anything came."""
    found = list(chain.from_iterable(steps))
    if not found:
        return 0.0
    values, outcomes, weights = torch.tensor(found, dtype=torch.float64).unbind(1)
    return log_odds_ratio(values, outcomes, weights)


def outcomes_of(step: StepRollouts, values: Values) -> tuple[Outcome, ...]:
    """What this step's rewards tell of what the critic said in it."""
    said = values.said or values
    batch = step.batch
    judged = batch.verified
    found: list[Outcome] = []
    for group, route in enumerate(step.routes):
        members = judged & (batch.group_index == group)
        value = float(said.prefixes[group])
        if route.is_stopped or math.isnan(value) or not bool(members.any()):
            continue
        rewards = batch.rewards[members]
        weight = len(rewards) / route.inclusion
        found.append((in_unit(value), in_unit(float(rewards.mean())), weight))
    for row in judged.nonzero()[:, 0].tolist():
        passed = finite(said.boundaries[row].tolist())
        reward = in_unit(float(batch.rewards[row]))
        weight = 1 / (step.route_of(row).inclusion * max(1, len(passed)))
        found += [(in_unit(value), reward, weight) for value in passed]
    return tuple(found)


def finite(numbers: list[float]) -> tuple[float, ...]:
    """Those that are no NaN."""
    return tuple(number for number in numbers if number == number)


def in_unit(x: float) -> float:
    """The number within [0, 1]: a linear head may say more, a reward round to more."""
    return min(1.0, max(0.0, x))
