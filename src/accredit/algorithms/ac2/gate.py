"""What a step of AC2 tells the gate of each problem that it was at."""

import torch

from accredit.algorithms.ac2.endpoints import Endpoints, StepRollouts, Values
from accredit.algorithms.ac2.memory import AC2Memory
from accredit.algorithms.ac2.recalibration import finite
from accredit.algorithms.replay_configs import AC2Config, GateConfig
from accredit.critics.readiness import Gate, ProblemErrors


def gate_of(config: GateConfig) -> Gate:
    """The gate that a section describes."""
    return Gate(**config.model_dump(exclude={"error_against"}))


def problem_errors(
    config: AC2Config,
    step: StepRollouts,
    values: Values,
    ends: Endpoints,
    memory: AC2Memory,
) -> list[ProblemErrors]:
    """Of each problem the errors of its groups, in the order of the batch.

    The bank is that of before this step's additions.
    """
    against_rewards = config.gate.error_against == "rewards"
    counted = ends.reward_errors if against_rewards else ends.errors
    problems = [route.problem_id for route in step.routes]
    spoke = nonzero_said(step, values, config.grid_size)
    found: list[ProblemErrors] = []
    for problem in dict.fromkeys(problems):
        groups = [g for g, name in enumerate(problems) if name == problem]
        audited = [g for g in groups if step.routes[g].is_audited]
        found.append(
            ProblemErrors(
                problem,
                errors=finite(counted[groups].tolist()),
                nonzero=any(spoke[g] for g in groups),
                banked=problem in memory.bank,
                audited_errors=finite(ends.reward_errors[audited].tolist()),
            )
        )
    return found


def nonzero_said(step: StepRollouts, values: Values, grid_size: int) -> list[bool]:
    """Of each group, whether the critic said more than 0 of it, read on the grid.

    A mean over the grid, or a head, never says 0 itself; what was recalibrated was not
    said.
    """
    values = values.said or values
    group_index = step.batch.group_index
    least = 0.5 / (grid_size - 1)
    rows = (values.endpoints.nan_to_num(0.0) > least) | (
        values.boundaries.nan_to_num(0.0) > least
    ).any(1)
    spoke = values.prefixes.nan_to_num(0.0) > least
    return [bool(spoke[g] or rows[group_index == g].any()) for g in range(len(spoke))]


def spreads_after(
    memory: AC2Memory, step: StepRollouts, values: Values
) -> dict[str, tuple[int, float]]:
    """Variances among siblings of V one chunk on, added to those of each problem.

    Of stopped rollouts a longer chunk's is shared among its chunks, because credit
    adds up.
    """
    after = dict(memory.spreads)
    first = values.boundaries[:, 0]
    ends = torch.where(values.endpoints.isnan(), first, values.endpoints)
    for group, route in enumerate(step.routes):
        found = ends[(step.batch.group_index == group) & ~ends.isnan()]
        if len(found) < 2:
            continue
        count, total = after.get(route.problem_id, (0, 0.0))
        variance = float(found.var()) / route.num_chunks
        after[route.problem_id] = (count + 1, total + variance)
    return after
