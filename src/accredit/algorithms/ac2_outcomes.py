"""What came of what a critic said, and its values put right by that.

An outcome is a value that was said of an attempt, with the reward that the attempt
earned: of a prefix the mean of its judged continuations, of the borders that a rollout
went beyond its own reward, all of them together once; who was to be stopped goes
beyond none. Of groups that were to run to their end only: who ended early of those
that were not is a lucky or an unlucky one. Audited groups stand for all that were
ready, by 1 / (probability of their audit). Values are kept as they were said, before
anything was put right.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import torch

from accredit.algorithms.ac2_gate import known_numbers
from accredit.algorithms.ac2_visit import Values, Visit
from accredit.algorithms.replay_memory import Outcome
from accredit.functional.recalibration import log_odds_ratio, recalibrated


def put_right(said: Values, steps: Sequence[Sequence[Outcome]]) -> Values:
    """All values moved by the one log-odds ratio that the outcomes of steps show."""
    shift = shift_of(steps)
    return replace(
        said,
        prefixes=recalibrated(said.prefixes, shift),
        endpoints=recalibrated(said.endpoints, shift),
        borders=recalibrated(said.borders, shift),
        shift=shift,
        said=said,
    )


def shift_of(steps: Sequence[Sequence[Outcome]]) -> float:
    """The log-odds ratio of what came to what was said; 0 before anything came."""
    known = list(chain.from_iterable(steps))
    if not known:
        return 0.0
    values, outcomes, weights = torch.tensor(known, dtype=torch.float64).unbind(1)
    return log_odds_ratio(values, outcomes, weights)


def outcomes_of(visit: Visit, values: Values) -> tuple[Outcome, ...]:
    """What this step's rewards tell of what the critic said in it."""
    said = values.said or values
    batch = visit.batch
    judged = batch.verified
    found: list[Outcome] = []
    for group, route in enumerate(visit.routes):
        members = judged & (batch.group_index == group)
        value = float(said.prefixes[group])
        if route.is_stopped or math.isnan(value) or not bool(members.any()):
            continue
        rewards = batch.rewards[members]
        weight = len(rewards) / route.inclusion
        found.append((in_unit(value), in_unit(float(rewards.mean())), weight))
    for row in judged.nonzero()[:, 0].tolist():
        route = visit.routes[int(batch.group_index[row])]
        passed = known_numbers(said.borders[row].tolist())
        reward = in_unit(float(batch.rewards[row]))
        weight = 1 / (route.inclusion * max(1, len(passed)))
        found += [(in_unit(value), reward, weight) for value in passed]
    return tuple(found)


def in_unit(x: float) -> float:
    """The number within [0, 1]: a linear head may say more, a reward round to more."""
    return min(1.0, max(0.0, x))
