"""What a step of AC2 leaves for its record: routing, counts and ledger."""

from collections.abc import Sequence

import torch

from accredit.algorithms.ac2_update import CriticTurn
from accredit.algorithms.ac2_visit import Values, Visit
from accredit.algorithms.ac2_worth import Worth
from accredit.algorithms.outcome_step import Drawn, step_counts
from accredit.algorithms.replay_memory import CriticMemory
from accredit.critics.readiness import GateState
from accredit.records import Cost, PolicyUpdate, Routing
from accredit.world import World, rollout_cost, valuation_cost

ADDED_UP = ("rollouts_drawn", "rollouts_judged", "rewards_invalid")
"""Counts of a step that refilled rollouts are in as well."""


def routing_of(
    visit: Visit,
    values: Values,
    worth: Worth,
    known: CriticMemory,
    after: CriticMemory,
    references: Sequence[tuple[int, ...] | None],
    num_problems: int,
) -> Routing:
    """How the groups were run and valued, and whom the critic is trusted with now."""
    flipped, revoked = changes(known.gate, after.gate)
    return Routing(
        ready=torch.tensor([route.is_ready for route in visit.routes]),
        audited=torch.tensor([route.is_audited for route in visit.routes]),
        num_replayed=torch.tensor([len(r.slot.written) for r in visit.routes]),
        reference_shown=torch.tensor([r is not None for r in references]),
        prefix_values=values.prefixes,
        targets=worth.targets,
        asked=visit.asked,
        endpoint_values=values.endpoints,
        border_values=values.borders[:, 0],
        border_reached=values.reached[:, 0],
        inclusion=torch.tensor([route.inclusion for route in visit.routes]),
        refill=visit.refill.groups,
        num_problems=num_problems,
        num_ready=after.gate.num_ready,
        num_flipped=flipped,
        num_revoked=revoked,
        shift=values.shift,
    )


def changes(before: GateState, after: GateState) -> tuple[int, int]:
    """How many problems became ready, and how many ceased to be."""
    known = {id for id in before.tracks if before.ready(id)}
    now = {id for id in after.tracks if after.ready(id)}
    return len(now - known), len(known - now)


def step_tally(
    visit: Visit,
    values: Values,
    turn: CriticTurn,
    policy: PolicyUpdate | None,
    known: CriticMemory,
    after: CriticMemory,
) -> dict[str, int]:
    """What must not stay silent; refilled rollouts count like all others."""
    own = step_counts(Drawn(visit.groups), policy)
    fresh = step_counts(Drawn(visit.refill.groups), None)
    update = turn.update
    return {
        **{key: own[key] + fresh[key] for key in ADDED_UP},
        "critic_answers_invalid": values.num_invalid,
        "questions_left_out": values.num_left_out,
        "lessons_left_out": update.num_left_out if update else 0,
        "critic_updates_skipped": update.num_skipped if update else 1,
        "critic_rate_halved": int(after.learning_rate < known.learning_rate),
    }


def step_cost(visit: Visit, values: Values, turn: CriticTurn, world: World) -> Cost:
    """Ledger of refill, questions and the critic's update."""
    trained = turn.update.train_flops if turn.update else 0.0
    return (
        rollout_cost(visit.refill.groups, world.shape)
        + valuation_cost(values.flops, values.num_questions)
        + Cost(train_flops=trained)
        + turn.cost
    )
