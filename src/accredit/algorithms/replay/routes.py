"""Where continuations begin and how far they run: lines 1 to 4 of AC2's box.

    1  draw      refill: fresh problems, one full rollout each, stored for later steps;
                 slots: distinct stored problems, permuted and cycled, one rollout each
    2  cut       a prefix of that rollout, uniform on a grid within its first part
    3  route     how far the continuations of a prefix run
    4  continue  a group of continuations of each prefix

While nothing is stored, slots are fresh problems with an empty prefix. Wen et al. 2026,
arXiv:2609.39247.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from accredit.algorithms.replay.control import audit_count
from accredit.algorithms.replay_configs import ReplayConfig
from accredit.batches.replay import (
    RolloutBuffer,
    StoredRollout,
    drawn_cut,
    drawn_rollouts,
)
from accredit.randomness import generator
from accredit.records import Drawn, State
from accredit.types import Group, Prefix, Prompt, Rollout, StopReason, Verdict
from accredit.world import World

REWARD_ROUNDING = 1e-6


class Source(NamedTuple):
    """A problem of a slot, and the stored rollout that it goes on from."""

    prompt: Prompt
    rollout: StoredRollout | None = None
    """None where nothing is stored: the slot begins at the prompt."""


@dataclass(frozen=True)
class Route:
    """Where a group of continuations begins, and how far it runs."""

    prompt: Prompt
    written: tuple[int, ...] = ()
    """The replayed prefix: conditioning only, nobody learns from it."""
    source: tuple[int, ...] | None = None
    """The whole completion that it was cut from, where that passed."""
    group_size: int = 1
    boundary: int = 0
    """New tokens after which it is stopped, or would be; 0 where no critic could."""
    num_chunks: int = 1
    """Chunks up to there."""
    is_ready: bool = False
    """Whether the critic is trusted with its problem."""
    is_audited: bool = False
    """Whether it runs to its end although it is ready."""
    is_stopped: bool = False
    """Whether it is stopped at the boundary."""
    is_single: bool = False
    """Whether it is one of several prefixes of a slot, with a continuation each."""
    inclusion: float = 1.0
    """Probability that it ran to its end, given who was ready."""

    @property
    def problem_id(self) -> str:
        """Of its prompt."""
        return self.prompt.problem.id


@dataclass(frozen=True)
class Refill:
    """Fresh rollouts that are stored for later steps, one a problem."""

    groups: tuple[Group, ...] = ()
    num_drawn: int = 0
    """Problems taken from the source."""


@dataclass(frozen=True)
class RoutedDraw(Drawn):
    """Groups with their routes, and the refill beside them."""

    routes: tuple[Route, ...] = ()
    """One a group."""
    refill: Refill = Refill()

    @property
    def rollouts(self) -> list[Rollout]:
        """Of all groups, in the order of the batch."""
        return [rollout for group in self.groups for rollout in group.rollouts]


def draw_refill(config: ReplayConfig, state: State, world: World) -> Refill:
    """One full rollout of each of the next problems, where a refill is due."""
    if state.num_draws % config.refill_every != 0:
        return Refill()
    count = config.fresh_per_step * config.refill_every
    prompts = list(world.problems.draw(state.num_drawn, count))
    key = ("refill", state.num_draws)
    groups = world.environment.roll_out(prompts, 1, world.sampling, key)
    return Refill(tuple(groups), len(prompts))


def draw_problems(
    config: ReplayConfig, buffer: RolloutBuffer, state: State, world: World, start: int
) -> tuple[list[Source], int]:
    """The problems of a step's slots, and how many of them are taken fresh.

    `start` is where the source of problems goes on. What is stored of problems that the
    data no longer hold is passed over.
    """
    prompts = {prompt.problem.id: prompt for prompt in world.problems.prompts}
    stored = tuple(item for item in buffer.items if item.problem_id in prompts)
    count = config.prompts_per_step
    if not stored:
        fresh = world.problems.draw(start, count)
        return [Source(prompt) for prompt in fresh], count
    draw = generator(world.seed, "replayed problems", state.num_draws)
    chosen = drawn_rollouts(RolloutBuffer(buffer.capacity, stored), count, draw)
    return [Source(prompts[item.problem_id], item) for item in chosen], 0


def cut_route(
    config: ReplayConfig, source: Source, grid: int, draw: np.random.Generator
) -> Route:
    """A route that begins at a prefix of the source's rollout and runs to its end.

    The prefix is empty where nothing is stored.
    """
    rollout = source.rollout
    if rollout is None:
        return Route(source.prompt, group_size=config.group_size)
    cut = drawn_cut(rollout.num_tokens, grid, config.largest_cut_share, draw)
    token_ids = rollout.token_ids
    return Route(
        source.prompt,
        token_ids[:cut],
        token_ids if passes(rollout.reward, config.pass_mark) else None,
        config.group_size,
    )


def continue_routes(
    routes: Sequence[Route], state: State, world: World
) -> tuple[Group, ...]:
    """The continuations of each route; one call for each group size."""
    found: dict[int, Group] = {}
    for size in sorted({route.group_size for route in routes}):
        numbers = [n for n, route in enumerate(routes) if route.group_size == size]
        prefixes = [
            Prefix(
                routes[n].prompt,
                routes[n].written,
                routes[n].boundary if routes[n].is_stopped else None,
            )
            for n in numbers
        ]
        key = ("train", state.num_draws)
        groups = world.environment.continue_from(prefixes, size, world.sampling, key)
        found.update(zip(numbers, groups, strict=True))
    return tuple(found[n] for n in range(len(routes)))


def audit_chances(shares: Mapping[int, float]) -> dict[int, float]:
    """Probability of each ready slot to be audited, from the share each asks for.

    They add up to ceil(n share): of the n ready slots a quarter, rounded up, at a share
    of a quarter for all. None where nobody asks for audits.
    """
    total = math.fsum(shares.values())
    if total == 0:
        return {}
    count = audit_count(len(shares), total / len(shares))
    return {n: min(1.0, count * share / total) for n, share in shares.items()}


def audited_slots(chances: Mapping[int, float], draw: np.random.Generator) -> set[int]:
    """Slots drawn systematically in a random order.

    Each is in by exactly its chance, and their number is the sum of all chances.
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


def within_unit(groups: Sequence[Group]) -> tuple[Group, ...]:
    """The groups, a reward outside [0, 1] taken for no reward, and so counted.

    A critic here speaks of credit between 0 and 1: it could not be wrong about more.
    """
    return tuple(
        replace(group, verdicts=tuple(map(unit_verdict, group.verdicts)))
        for group in groups
    )


def unit_verdict(verdict: Verdict) -> Verdict:
    """The verdict, or why its reward cannot be used."""
    reward = verdict.reward
    if reward is None or -REWARD_ROUNDING <= reward <= 1 + REWARD_ROUNDING:
        return verdict
    reason = f"a reward must lie in [0, 1] for a critic that stops rollouts: {reward:g}"
    return Verdict(None, reason, verdict.parts)


def stored_rollouts(
    config: ReplayConfig, groups: Sequence[Group]
) -> list[StoredRollout]:
    """The judged rollouts of a refill that the store admits."""
    found: list[StoredRollout] = []
    for group in groups:
        for rollout, reward in zip(group.rollouts, group.votes, strict=True):
            if reward is None:
                continue
            if config.admission == "all" or passes(reward, config.pass_mark):
                problem = group.prompt.problem.id
                ids = rollout.completion_ids
                found.append(StoredRollout.of(problem, ids, reward))
    return found


def passes(reward: float, mark: float) -> bool:
    """Whether a reward passes, up to rounding."""
    return reward >= mark - REWARD_ROUNDING


def passing_completions(
    groups: Sequence[Group], pass_mark: float
) -> list[tuple[str, list[int]]]:
    """Problem and whole completion of every rollout that was judged to pass."""
    return [
        (group.prompt.problem.id, rollout.completion_ids)
        for group in groups
        for rollout, reward in zip(group.rollouts, group.votes, strict=True)
        if reward is not None and passes(reward, pass_mark)
    ]


def from_the_start(groups: Sequence[Group]) -> list[Group]:
    """The groups whose continuations have an empty prefix."""
    return [group for group in groups if num_replayed(group.rollouts[0]) == 0]


def num_replayed(rollout: Rollout) -> int:
    """Tokens of the completion that were replayed, not sampled."""
    behind = len(rollout.token_ids) - len(rollout.prompt.token_ids)
    return behind - rollout.num_sampled


def is_chunk(rollout: Rollout) -> bool:
    """Whether it was stopped at a chunk boundary and never judged."""
    return rollout.stop_reason is StopReason.CHUNK
