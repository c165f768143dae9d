"""What a step of AC2 rolls out and asks.

    routes   a slot whose problem is ready stops after a chunk, unless it is audited
    groups   continuations of each slot, refilled rollouts beside them
    values   the critic on each prefix, on each stopped end, on each would-be end

Numbers of steps are those of section 3 of our page on Wen et al. 2026,
arXiv:2609.39247. Nothing here takes a gradient step.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from accredit.algorithms.control import audit_count
from accredit.algorithms.replay_configs import AC2Config
from accredit.algorithms.replay_memory import CriticMemory, ReplayMemory
from accredit.algorithms.replayed import (
    Refilled,
    Slot,
    Source,
    cut_slot,
    drawn_sources,
    is_chunk,
    num_replayed,
    refilled,
    within_unit,
)
from accredit.collate import collate
from accredit.protocols import PrefixCritic
from accredit.randomness import generator
from accredit.records import State
from accredit.types import Attempt, Batch, Group, Opening, Rollout
from accredit.world import World


@dataclass(frozen=True)
class Route:
    """Where a group begins and how far it runs."""

    slot: Slot
    border: int
    """New tokens after which it is stopped, or would be."""
    num_chunks: int = 1
    """Chunks up to there."""
    is_ready: bool = False
    """Whether the critic is trusted with its problem."""
    is_audited: bool = False
    """Whether it runs to its end although it is ready."""
    is_stopped: bool = False
    """Whether it is stopped at the border."""
    is_alone: bool = False
    """Whether it is one of several prefixes of a slot, with a continuation each."""
    inclusion: float = 1.0
    """Probability that it ran to its end, given who was ready."""
    group_size: int = 1


@dataclass(frozen=True, eq=False)
class Visit:
    """What a step rolled out."""

    routes: tuple[Route, ...]
    """One a group."""
    groups: tuple[Group, ...]
    batch: Batch
    """Of the groups; verified where a rollout was judged."""
    refill: Refilled
    num_drawn: int
    """Problems taken from the source, for the refill and for slots."""

    @property
    def rollouts(self) -> list[Rollout]:
        """Of all groups, in the order of the batch."""
        return [rollout for group in self.groups for rollout in group.rollouts]

    @property
    def asked(self) -> Bool[Tensor, " rollout"]:
        """True where a rollout was stopped, and the critic is to value its end."""
        return torch.tensor([is_chunk(rollout) for rollout in self.rollouts])

    def over_groups(self, x: Float[Tensor, " group"]) -> Float[Tensor, " rollout"]:
        """A quantity of each group for each of its members."""
        return x[self.batch.group_index]


@dataclass(frozen=True, eq=False)
class Values:
    """What the critic said in a step, NaN where it was not asked or not valid."""

    prefixes: Float[Tensor, " group"]
    endpoints: Float[Tensor, " rollout"]
    borders: Float[Tensor, "rollout border"]
    """Of rollouts that ran on, at the first, second, ... border."""
    reached: Bool[Tensor, "rollout border"]
    """True where such a border was passed without an answer: asked about."""
    flops: float
    num_questions: int
    num_invalid: int
    left_out: Bool[Tensor, " group"]
    """True where the question about a prefix did not fit the critic's context."""
    num_left_out: int
    shift: float = 0.0
    """Log-odds by which the critic's values were moved to these."""
    said: "Values | None" = None
    """As the critic said them, where they were moved."""


ChunkRule = Callable[[str], int]
"""Problem id -> chunks after which it is stopped."""
AuditRule = Callable[[str], float]
"""Problem id -> its share of audits."""


def rolled_out(
    config: AC2Config,
    replay: ReplayMemory,
    critic: CriticMemory,
    state: State,
    world: World,
    *,
    grid: int,
    chunk: int,
    num_chunks_of: ChunkRule,
    audit_share_of: AuditRule,
) -> Visit:
    """Steps 1 to 4: draw, cut, route, continue."""
    refill = refilled(config, state, world)
    refill = replace(refill, groups=within_unit(refill.groups))
    start = state.num_drawn + refill.num_drawn
    sources, num_fresh = drawn_sources(config, replay.replay, state, world, start)
    is_ready = [critic.gate.ready(source.prompt.problem.id) for source in sources]
    chances = audit_chances(config, sources, is_ready, audit_share_of)
    audited = audited_slots(chances, generator(world.seed, "audits", state.step))
    routes: list[Route] = []
    for number, source in enumerate(sources):
        draw = generator(world.seed, "cuts", state.step, number)
        num_chunks = num_chunks_of(source.prompt.problem.id)
        alone = config.grouping == "prefixes" and is_ready[number]
        for _ in range(config.group_size if alone else 1):
            routes.append(
                Route(
                    slot=cut_slot(config, source, grid, draw),
                    border=chunk * num_chunks,
                    num_chunks=num_chunks,
                    is_ready=is_ready[number],
                    is_audited=number in audited,
                    is_stopped=is_ready[number]
                    and number not in audited
                    and config.ready_lambda == 0.0,
                    is_alone=alone,
                    inclusion=chances.get(number, 1.0),
                    group_size=1 if alone else config.group_size,
                )
            )
    groups = within_unit(continued(routes, state, world))
    return Visit(
        routes=tuple(routes),
        groups=groups,
        batch=collate(groups),
        refill=refill,
        num_drawn=refill.num_drawn + num_fresh,
    )


def audit_chances(
    config: AC2Config,
    sources: Sequence[Source],
    is_ready: Sequence[bool],
    share_of: AuditRule,
) -> dict[int, float]:
    """Probability of each ready slot to be audited; nothing where there are no audits.

    They add up to ceil(n share): of the n ready slots a quarter, rounded up, at a share
    of a quarter for all.
    """
    ready = [number for number, trusted in enumerate(is_ready) if trusted]
    if config.grouping == "prefixes" or config.ready_lambda > 0 or not ready:
        return {}
    shares = {n: share_of(sources[n].prompt.problem.id) for n in ready}
    total = math.fsum(shares.values())
    if total == 0:
        return {}
    count = audit_count(len(ready), total / len(ready))
    return {n: min(1.0, count * share / total) for n, share in shares.items()}


def audited_slots(chances: Mapping[int, float], draw: np.random.Generator) -> set[int]:
    """Step 3: slots drawn systematically in a random order, so that each is in by
    exactly its chance and their number by the sum of all.
    """
    numbers = [list(chances)[n] for n in draw.permutation(len(chances))]
    marks = np.cumsum([chances[number] for number in numbers])
    # Rounded, or a sum of .9999999 could lose its last slot.
    ends = np.floor(np.round(marks, 9) + draw.random()).astype(int).tolist()
    begins = [0, *ends[:-1]] if ends else []
    return {
        number
        for number, begin, end in zip(numbers, begins, ends, strict=True)
        if end > begin
    }


def continued(routes: Sequence[Route], state: State, world: World) -> list[Group]:
    """Step 4: the continuations of each route; one call for each group size."""
    found: dict[int, Group] = {}
    for size in sorted({route.group_size for route in routes}):
        numbers = [n for n, route in enumerate(routes) if route.group_size == size]
        openings = [
            Opening(
                routes[n].slot.prompt,
                routes[n].slot.written,
                routes[n].border if routes[n].is_stopped else None,
            )
            for n in numbers
        ]
        key = ("train", state.step)
        groups = world.environment.continue_from(openings, size, world.sampling, key)
        found.update(zip(numbers, groups, strict=True))
    return [found[n] for n in range(len(routes))]


def asked_values(
    visit: Visit,
    critic: PrefixCritic,
    world: World,
    *,
    references: Sequence[tuple[int, ...] | None],
    num_borders: Sequence[int],
) -> Values:
    """The critic's values before anything is learned, all asked together.

    `references`, and `num_borders`, how many borders of rollouts that ran on are asked
    about, are those of each group.
    """
    groups = visit.batch.group_index.tolist()
    prefixes = [
        Attempt(route.slot.prompt, route.slot.written, reference)
        for route, reference in zip(visit.routes, references, strict=True)
    ]
    ends: list[int] = []
    passed: list[tuple[int, int]] = []
    attempts: list[Attempt] = []
    for row, rollout in enumerate(visit.rollouts):
        if is_chunk(rollout):
            written, reference = rollout.completion_ids, references[groups[row]]
            ends.append(row)
            attempts.append(Attempt(rollout.prompt, tuple(written), reference))
    for row, rollout in enumerate(visit.rollouts):
        route, most = visit.routes[groups[row]], num_borders[groups[row]]
        for border, written in enumerate(passed_borders(rollout, route, most, world)):
            passed.append((row, border))
            attempts.append(Attempt(rollout.prompt, written, references[groups[row]]))
    with world.clock.measure("critic"):
        said = critic.values([*prefixes, *attempts])
    known = torch.tensor([torch.nan if v is None else v for v in said.values])
    left_out = said.left_out or (False,) * len(known)
    num_rollouts, first = len(groups), len(prefixes)
    endpoints = torch.full((num_rollouts,), torch.nan)
    endpoints[ends] = known[first : first + len(ends)]
    num_columns = max([1, *(border + 1 for _, border in passed)])
    borders = torch.full((num_rollouts, num_columns), torch.nan)
    reached = torch.zeros(borders.shape, dtype=torch.bool)
    for (row, border), value in zip(passed, known[first + len(ends) :], strict=True):
        borders[row, border], reached[row, border] = value, True
    return Values(
        prefixes=known[:first],
        endpoints=endpoints,
        borders=borders,
        reached=reached,
        flops=said.flops,
        num_questions=len(known),
        num_invalid=int(known.isnan().sum()) - sum(left_out),
        left_out=torch.tensor(left_out[:first]),
        num_left_out=sum(left_out),
    )


def passed_borders(
    rollout: Rollout, route: Route, most: int, world: World
) -> list[tuple[int, ...]]:
    """What a rollout that ran on had written where it would have been stopped.

    Only borders that it went beyond without an answer: what ends there is judged.
    """
    if is_chunk(rollout) or most == 0:
        return []
    written, start = rollout.completion_ids, num_replayed(rollout)
    found: list[tuple[int, ...]] = []
    for end in range(start + route.border, len(written), route.border)[:most]:
        if world.environment.has_answer(rollout.prompt, written[:end]):
            break
        found.append(tuple(written[:end]))
    return found
