"""What AC2 and Prefix GRPO share of an update: objective and entropy control."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from accredit.algorithms.parts import objective
from accredit.algorithms.replay.routes import RoutedDraw, from_the_start
from accredit.algorithms.replay_configs import ReplayConfig
from accredit.algorithms.step import step_counts
from accredit.batches.collate import collate
from accredit.functional.aggregation import AGGREGATIONS
from accredit.functional.flops import ModelShape
from accredit.functional.masked import masked_mean
from accredit.functional.policy_losses import clipped_surrogate
from accredit.protocols import Objective
from accredit.records import Cost, Drawn, Record, State
from accredit.types import Group
from accredit.world import World, forward_cost

REFILL_COUNTS = ("rollouts_drawn", "rollouts_judged", "rewards_invalid")
"""Counts of a step that refilled rollouts are in as well."""


def replay_bounds(config: ReplayConfig, offset: float) -> tuple[float, float]:
    """(clip_low, clip_high), the latter moved by the entropy control's offset."""
    moved = offset if config.entropy_control else 0.0
    return config.clip_low, max(0.0, config.clip_high + moved)


def replay_objective(config: ReplayConfig, offset: float) -> Objective:
    """The clipped surrogate between those bounds."""
    clip_low, clip_high = replay_bounds(config, offset)
    loss = partial(
        clipped_surrogate,
        clip_low=clip_low,
        clip_high=clip_high,
        dual_clip=config.dual_clip,
    )
    aggregation = AGGREGATIONS[config.aggregation]
    return replace(objective(config, loss, aggregation), shuffled=False)


@dataclass(frozen=True)
class EntropyControl:
    """What moved the clip in a step, and how far: a section of its record."""

    clip_high: float
    start_entropy: float | None
    """Mean entropy of a token of completions with an empty prefix, nats; None where
    there was none, or nobody asked."""
    further_groups: tuple[Group, ...] = ()

    def metrics(
        self, record: Record, state: State, shape: ModelShape | None
    ) -> dict[str, float | None]:
        """Both numbers."""
        return {
            "policy/clip_high": self.clip_high,
            "ac2/start_entropy": self.start_entropy,
        }

    def columns(self, group: int, row: int) -> dict[str, Any]:
        """Nothing is told of single rollouts."""
        return {}


def start_entropy(
    config: ReplayConfig, drawn: RoutedDraw, world: World
) -> tuple[float | None, Cost]:
    """Mean token entropy, nats, of completions with an empty prefix, and its cost.

    Before the update, at the sampling temperature. None where nobody asks or began at
    the prompt.
    """
    fresh = [*from_the_start(drawn.groups), *drawn.refill.groups]
    if not config.entropy_control or not fresh:
        return None, Cost()
    batch = collate(fresh)
    if not bool(batch.sampled.any()):
        return None, Cost()
    with world.clock.measure("entropy"):
        entropies = world.learner.entropies(batch)
    return (
        float(masked_mean(entropies, batch.sampled)),
        forward_cost(batch, world.shape, 1),
    )


def counts_with_refill(drawn: RoutedDraw) -> dict[str, int]:
    """Those counts of a step that refilled rollouts add to."""
    own = step_counts(drawn, None)
    fresh = step_counts(Drawn(drawn.refill.groups), None)
    return {name: own[name] + fresh[name] for name in REFILL_COUNTS}
