"""What a step of AC2 tells the gate of each problem that it visited."""

from collections.abc import Mapping

import torch

from accredit.algorithms import ac2_visit
from accredit.algorithms.ac2_visit import Values
from accredit.algorithms.ac2_worth import Worth
from accredit.algorithms.replay_configs import AC2Config, GateConfig
from accredit.algorithms.replay_memory import CriticMemory
from accredit.critics.readiness import Gate, Visit

Spreads = Mapping[str, tuple[int, float]]


def gate_of(config: GateConfig) -> Gate:
    """The gate that a section describes."""
    return Gate(
        rule=config.rule,
        window=config.window,
        tau_global=config.tau_global,
        tau_local=config.tau_local,
        require_bank=config.require_bank,
        require_nonzero=config.require_nonzero,
        standard_errors=config.standard_errors,
        min_errors=config.min_errors,
        prior_errors=config.prior_errors,
        revocable=config.revocable,
    )


def gate_visits(
    config: AC2Config,
    visit: ac2_visit.Visit,
    values: Values,
    worth: Worth,
    known: CriticMemory,
) -> list[Visit]:
    """One visit of each problem: the errors of its groups, in the order of the batch.

    The bank is that of before this step's additions.
    """
    against_rewards = config.gate.error_against == "rewards"
    counted = worth.reward_errors if against_rewards else worth.errors
    problems = [route.slot.prompt.problem.id for route in visit.routes]
    spoke = said_more_than_nothing(visit, values, config.grid_size)
    visits: list[Visit] = []
    for problem in dict.fromkeys(problems):
        groups = [g for g, name in enumerate(problems) if name == problem]
        audited = [g for g in groups if visit.routes[g].is_audited]
        visits.append(
            Visit(
                problem,
                errors=known_numbers(counted[groups].tolist()),
                nonzero=any(spoke[g] for g in groups),
                banked=problem in known.bank,
                audited_errors=known_numbers(worth.reward_errors[audited].tolist()),
            )
        )
    return visits


def known_numbers(numbers: list[float]) -> tuple[float, ...]:
    """Those that are no NaN."""
    return tuple(number for number in numbers if number == number)


def said_more_than_nothing(
    visit: ac2_visit.Visit, values: Values, grid_size: int
) -> list[bool]:
    """Of each group, whether the critic said more than 0 of it, read on the grid.

    A mean over the grid, or a head, never says 0 itself; what was put right was not
    said.
    """
    values = values.said or values
    group_index = visit.batch.group_index
    least = 0.5 / (grid_size - 1)
    rows = (values.endpoints.nan_to_num(0.0) > least) | (
        values.borders.nan_to_num(0.0) > least
    ).any(1)
    spoke = values.prefixes.nan_to_num(0.0) > least
    return [bool(spoke[g] or rows[group_index == g].any()) for g in range(len(spoke))]


def spreads_after(
    spreads: Spreads, visit: ac2_visit.Visit, values: Values
) -> dict[str, tuple[int, float]]:
    """Variances among siblings of V one chunk on, added to those of each problem.

    Of stopped rollouts a longer chunk's is shared among its chunks, because credit
    adds up.
    """
    after = dict(spreads)
    first = values.borders[:, 0]
    ends = torch.where(values.endpoints.isnan(), first, values.endpoints)
    for group, route in enumerate(visit.routes):
        found = ends[(visit.batch.group_index == group) & ~ends.isnan()]
        if len(found) < 2:
            continue
        count, total = after.get(route.slot.prompt.problem.id, (0, 0.0))
        variance = float(found.var()) / route.num_chunks
        after[route.slot.prompt.problem.id] = (count + 1, total + variance)
    return after
