"""What a step of AC2 leaves for its record: routing, counters and ledger."""

from collections.abc import Sequence

import torch

from accredit.algorithms.ac2.endpoints import Endpoints, StepRollouts, Values
from accredit.algorithms.ac2.memory import AC2Memory
from accredit.algorithms.ac2.metrics import Routing
from accredit.algorithms.replay.routes import RoutedDraw
from accredit.algorithms.replay.update import counts_with_refill
from accredit.critics.readiness import GateState
from accredit.records import Cost, CriticUpdate
from accredit.world import World, rollout_cost, valuation_cost


def routing_of(
    drawn: RoutedDraw,
    step: StepRollouts,
    values: Values,
    ends: Endpoints,
    gates: tuple[GateState, GateState],
    references: Sequence[tuple[int, ...] | None],
    num_problems: int,
) -> Routing:
    """How the groups were run and valued, and whom the critic is trusted with now.

    `gates` are those before and after the step.
    """
    routes = step.routes
    flipped, revoked = changes(*gates)
    return Routing(
        ready=torch.tensor([route.is_ready for route in routes]),
        audited=torch.tensor([route.is_audited for route in routes]),
        num_replayed=torch.tensor([len(route.written) for route in routes]),
        reference_shown=torch.tensor([r is not None for r in references]),
        prefix_values=values.prefixes,
        targets=ends.targets,
        asked=step.asked,
        endpoint_values=values.endpoints,
        boundary_values=values.boundaries[:, 0],
        boundary_reached=values.reached[:, 0],
        inclusion=torch.tensor([route.inclusion for route in routes]),
        refill=drawn.refill.groups,
        num_problems=num_problems,
        num_ready=gates[1].num_ready,
        num_flipped=flipped,
        num_revoked=revoked,
        shift=values.shift,
    )


def changes(before: GateState, after: GateState) -> tuple[int, int]:
    """How many problems became ready, and how many ceased to be."""
    then = {id for id in before.tracks if before.ready(id)}
    now = {id for id in after.tracks if after.ready(id)}
    return len(now - then), len(then - now)


def counters(
    drawn: RoutedDraw,
    values: Values,
    update: CriticUpdate | None,
    before: AC2Memory,
    after: AC2Memory,
) -> dict[str, int]:
    """Counters that must be reported; refilled rollouts count like all others."""
    return {
        **counts_with_refill(drawn),
        "critic_answers_invalid": values.num_invalid,
        "questions_left_out": values.num_left_out,
        "examples_left_out": update.num_left_out if update else 0,
        "critic_updates_skipped": update.num_skipped if update else 1,
        "critic_rate_halved": int(after.learning_rate < before.learning_rate),
    }


def step_cost(
    drawn: RoutedDraw, values: Values, update: CriticUpdate | None, world: World
) -> Cost:
    """Ledger of refill, questions and the critic's update."""
    return (
        rollout_cost(drawn.refill.groups, world.shape)
        + valuation_cost(values.flops, values.num_questions)
        + Cost(train_flops=update.train_flops if update else 0.0)
    )
