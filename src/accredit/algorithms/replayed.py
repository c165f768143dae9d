"""Where continuations begin: prefixes of stored rollouts, and how the store is kept.

    refill   fresh problems, one full rollout each, stored for the next step
    slots    distinct stored problems, permuted and cycled, one rollout of each
    cut      uniform on a grid within the first part of that rollout

While nothing is stored, slots are fresh problems with an empty prefix. Wen et al. 2026,
arXiv:2609.39247.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from accredit.algorithms.replay_configs import ReplayConfig
from accredit.randomness import generator
from accredit.records import State
from accredit.replay import (
    RolloutBuffer,
    StoredRollout,
    drawn_cut,
    drawn_rollouts,
)
from accredit.types import Group, Prompt, Rollout, StopReason, Verdict
from accredit.world import World

REWARD_ROUNDING = 1e-6


@dataclass(frozen=True)
class Source:
    """A problem of a slot, and the stored rollout that it goes on from."""

    prompt: Prompt
    rollout: StoredRollout | None = None
    """None where nothing is stored: the slot begins at the prompt."""


@dataclass(frozen=True)
class Slot:
    """Where a group of continuations begins."""

    prompt: Prompt
    written: tuple[int, ...] = ()
    """The replayed prefix: conditioning only, nobody learns from it."""
    source: tuple[int, ...] | None = None
    """The whole completion that it was cut from, where that passed."""


@dataclass(frozen=True)
class Refilled:
    """What a step's refill brought."""

    groups: tuple[Group, ...] = ()
    """One fresh rollout each."""
    num_drawn: int = 0
    """Problems taken from the source."""


def refilled(config: ReplayConfig, state: State, world: World) -> Refilled:
    """One full rollout of each of the next problems, where a refill is due."""
    if state.step % config.refill_every != 0:
        return Refilled()
    count = config.fresh_per_step * config.refill_every
    prompts = list(world.problems.draw(state.num_drawn, count))
    key = ("refill", state.step)
    groups = world.environment.roll_out(prompts, 1, world.sampling, key)
    return Refilled(tuple(groups), len(prompts))


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


def drawn_sources(
    config: ReplayConfig, buffer: RolloutBuffer, state: State, world: World, start: int
) -> tuple[list[Source], int]:
    """The problems of a step's slots, and how many of them are taken fresh.

    `start` is where the source of problems goes on. What is stored of problems that the
    data no longer hold is passed over.
    """
    prompts = {prompt.problem.id: prompt for prompt in world.problems.prompts}
    known = tuple(item for item in buffer.items if item.problem_id in prompts)
    count = config.prompts_per_step
    if not known:
        fresh = world.problems.draw(start, count)
        return [Source(prompt) for prompt in fresh], count
    draw = generator(world.seed, "replayed problems", state.step)
    chosen = drawn_rollouts(RolloutBuffer(buffer.capacity, known), count, draw)
    return [Source(prompts[item.problem_id], item) for item in chosen], 0


def cut_slot(
    config: ReplayConfig, source: Source, grid: int, draw: np.random.Generator
) -> Slot:
    """A prefix of the source's rollout; the empty one where nothing is stored."""
    rollout = source.rollout
    if rollout is None:
        return Slot(source.prompt)
    cut = drawn_cut(rollout.num_tokens, grid, config.largest_cut_share, draw)
    passed = passes(rollout.reward, config.pass_mark)
    token_ids = rollout.token_ids
    return Slot(source.prompt, token_ids[:cut], token_ids if passed else None)


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
    """Whether it was stopped at a chunk border and never judged."""
    return rollout.stop_reason is StopReason.CHUNK
