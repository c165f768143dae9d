"""What came of what a critic said, and its values put right by that.

An outcome is a value that was said of an attempt, with the reward that the attempt
earned: of a prefix the mean of its judged continuations, where all of them ran to
their end by their route; of a border that an audited rollout went beyond its own
reward. Values are kept as they were said, before anything was put right.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import torch
from torch import Tensor

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
        found.append((value, float(rewards.mean()), float(len(rewards))))
    for row in judged.nonzero()[:, 0].tolist():
        if not visit.routes[int(batch.group_index[row])].is_stopped:
            reward = float(batch.rewards[row])
            found += [(v, reward, 1.0) for v in known_values(said.borders[row])]
    return tuple(found)


def known_values(values: Tensor) -> list[float]:
    """Those that are no NaN."""
    return values[~values.isnan()].tolist()
