"""Prefix GRPO: group advantages on continuations of replayed prefixes, no critic.

    slots    distinct stored problems, one stored rollout of each, cut on a grid
    groups   g continuations of each prefix, all run to their end
    A_i      = R_i - mean_j R_j                 on the tokens after the prefix
    L_t      = -min(rho_t A_i, clip(rho_t, 1 - low, 1 + high + k) A_i), dual clip
    refill   fresh problems, one rollout each, stored for the next step
    k        +- .02 a step, towards the target entropy

Wen et al. 2026, arXiv:2609.39247: the control that AC2 is to be compared with, which
has everything of it but the critic.

Differs from the paper:
- a completion that could not be judged teaches nothing by default (it is worth 0
  there: `unverified = "zero"`).
"""

from dataclasses import dataclass, replace

import torch

from accredit.algorithms.replay.control import entropy_offset
from accredit.algorithms.replay.memory import ReplayMemory
from accredit.algorithms.replay.routes import (
    RoutedDraw,
    continue_routes,
    cut_route,
    draw_problems,
    draw_refill,
    stored_rollouts,
)
from accredit.algorithms.replay.update import (
    EntropyControl,
    counts_with_refill,
    replay_bounds,
    replay_objective,
    start_entropy,
)
from accredit.algorithms.replay_configs import PrefixGRPOConfig
from accredit.algorithms.step import (
    finished,
    publish,
    step_record,
    update_policy,
)
from accredit.batches.collate import collate
from accredit.batches.replay import RolloutBuffer
from accredit.critics.group import GroupMean, LeaveOneOut
from accredit.functional.endpoints import endpoint_advantages
from accredit.randomness import generator
from accredit.records import Credit, Drawn, Record, State
from accredit.types import Batch
from accredit.world import World, rollout_cost


@dataclass(frozen=True)
class PrefixGRPO:
    """The algorithm with its numbers."""

    config: PrefixGRPOConfig
    grid: int
    """Tokens between possible cuts."""

    @property
    def clip_bounds(self) -> tuple[float, float]:
        """For the report; the entropy control moves the upper one."""
        return self.config.clip_low, self.config.clip_high

    @property
    def initial_memory(self) -> ReplayMemory:
        """An empty store."""
        return ReplayMemory(RolloutBuffer(self.config.store_size))

    def draw(self, state: State, world: World) -> RoutedDraw:
        """Refill, cut, continue."""
        config = self.config
        with world.clock.measure("step"):
            refill = draw_refill(config, state, world)
            start = state.num_drawn + refill.num_drawn
            sources, num_fresh = draw_problems(
                config, state.memory.rollouts, state, world, start
            )
            routes = [
                cut_route(
                    config,
                    source,
                    self.grid,
                    generator(world.seed, "cuts", state.num_draws, number),
                )
                for number, source in enumerate(sources)
            ]
            groups = continue_routes(routes, state, world)
        return RoutedDraw(
            groups,
            num_drawn=refill.num_drawn + num_fresh,
            version=world.engine.version,
            routes=tuple(routes),
            refill=refill,
        )

    def learn(self, state: State, world: World, drawn: Drawn) -> tuple[State, Record]:
        """Compare siblings, update, store the refill."""
        assert isinstance(drawn, RoutedDraw)
        config, memory = self.config, state.memory
        with world.clock.measure("step"):
            judged = collate(drawn.groups)
            batch = self._settled(judged)
            entropy, entropy_cost = start_entropy(config, drawn, world)
            offset = entropy_offset(
                memory.entropy_offset, entropy, config.entropy_target
            )
            credit = self._credit(batch)
            objective = replay_objective(config, offset)
            policy = update_policy(
                objective, state, world, drawn, batch, credit.advantages
            )
            publish(world)
        critic = LeaveOneOut() if config.baseline == "leave_one_out" else GroupMean()
        values = critic.values(batch, batch.rewards)
        bounds = replay_bounds(config, offset)
        record = replace(
            step_record(drawn, batch, batch.rewards, values, credit, policy),
            counts=counts_with_refill(drawn),
            outcome_known=judged.verified,
            clip_bounds=bounds,
            sections=(EntropyControl(bounds[1], entropy),),
        )
        after = ReplayMemory(
            memory.rollouts.added(stored_rollouts(config, drawn.refill.groups)),
            offset,
        )
        spent = rollout_cost(drawn.refill.groups, world.shape) + entropy_cost
        return finished(state, world, drawn, record, spent=spent, memory=after)

    def _settled(self, batch: Batch) -> Batch:
        """The batch with what failed to be judged masked, or worth 0."""
        if self.config.unverified == "masked":
            return batch
        return replace(batch, verified=batch.sampled.any(1))

    def _credit(self, batch: Batch) -> Credit:
        advantages = endpoint_advantages(
            batch.rewards,
            batch.verified,
            batch.group_index,
            baseline=self.config.baseline,
        )
        return Credit(torch.where(batch.trainable, advantages[:, None], 0.0))


def prefix_grpo(config: PrefixGRPOConfig, max_new_tokens: int) -> PrefixGRPO:
    """Replayed prefixes, siblings as critics."""
    return PrefixGRPO(config, config.grid(max_new_tokens))
