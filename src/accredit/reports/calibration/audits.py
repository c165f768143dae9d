"""Group values against group rewards, where a critic may end rollouts early.

Only an audited group of a ready problem has both: it ran to its end, and the critic was
asked where its rollouts would have been stopped.

    v_i = critic(boundary) where the rollout passed it without an answer, else reward
    f   = share of a group's rollouts that passed it
"""

from collections.abc import Sequence

import torch

from accredit.reports.calibration.measures import ValuedGroups
from accredit.reports.calibration.rows import Row, entry, flag, kept_rows
from accredit.storage.run_directory import RunDirectory

GATED = "audited"
"""A key of every row of a run whose critic may end rollouts early, and of no other."""


def is_routed(run: RunDirectory, step: int) -> bool:
    """Whether a critic may end the rollouts of a kept step."""
    first = next(iter(run.rollouts(step)), None)
    return first is not None and GATED in first


def audited_groups(
    run: RunDirectory, steps: Sequence[int], name: str
) -> tuple[ValuedGroups, int]:
    """The audited groups of some kept steps, and how many rollouts they hold.

    A rollout that was not judged, or of which the critic gave no valid value where it
    was asked, has nothing to be compared and is left out.

    Raises:
        ValueError: there is none, or a row lacks what is read.
    """
    members: dict[tuple[int, int], list[tuple[float, float, float, float]]] = {}
    for step in steps:
        for row, where in kept_rows(run, step):
            if not (flag(row, "ready", where) and flag(row, "audited", where)):
                continue
            pair = _pair(row, where)
            if pair is not None:
                group = (step, int(entry(row, "group", where)))
                members.setdefault(group, []).append(pair)
    if not members:
        raise ValueError(
            "the calibration of a critic that may end rollouts needs an audited group "
            f"of a problem it is trusted with, got none in {name}; read more steps "
            "with --last, and see readiness/share and algorithm.audit_share"
        )
    means = torch.tensor(
        [
            [sum(column) / len(pairs) for column in zip(*pairs, strict=True)]
            for pairs in members.values()
        ],
        dtype=torch.float64,
    )
    rewards, values, shares, references = means.unbind(1)
    groups = ValuedGroups(rewards, values, shares, references > 0.0)
    return groups, sum(len(pairs) for pairs in members.values())


def _pair(row: Row, where: str) -> tuple[float, float, float, float] | None:
    """(reward, v, whether the critic gave v, whether it saw a reference)."""
    if row.get("reward") is None:
        return None
    reward = entry(row, "reward", where)
    reference = float(flag(row, "reference_shown", where))
    if not flag(row, "boundary_reached", where):
        return reward, reward, 0.0, reference
    if row.get("boundary_value") is None:
        return None
    return reward, entry(row, "boundary_value", where), 1.0, reference
