"""What a step of AC2 tells the gate of each problem that it visited."""

from collections.abc import Mapping

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
        min_visits=config.min_visits,
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
    spoke = said_more_than_nothing(visit, values)
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


def said_more_than_nothing(visit: ac2_visit.Visit, values: Values) -> list[bool]:
    """Of each group, whether the critic said anything but 0 of it."""
    group_index = visit.batch.group_index
    rows = (values.endpoints.nan_to_num(0.0) != 0) | (
        values.borders.nan_to_num(0.0) != 0
    ).any(1)
    spoke = values.prefixes.nan_to_num(0.0) != 0
    return [bool(spoke[g] or rows[group_index == g].any()) for g in range(len(spoke))]


def spreads_after(
    spreads: Spreads, visit: ac2_visit.Visit, worth: Worth
) -> dict[str, tuple[int, float]]:
    """Variances of this step's endpoints added to those known of each problem."""
    after = dict(spreads)
    for group, route in enumerate(visit.routes):
        members = (visit.batch.group_index == group) & worth.valid
        if int(members.sum()) < 2:
            continue
        count, total = after.get(route.slot.prompt.problem.id, (0, 0.0))
        variance = float(worth.endpoints[members].var())
        after[route.slot.prompt.problem.id] = (count + 1, total + variance)
    return after
