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
from jaxtyping import Float
from torch import Tensor

from accredit.algorithms.outcome_step import Drawn, Shaped, recorded, step_counts
from accredit.algorithms.replay_configs import PrefixGRPOConfig
from accredit.algorithms.replay_memory import ReplayMemory
from accredit.algorithms.replay_parts import (
    remembered,
    replay_bounds,
    replay_objective,
    start_entropy,
)
from accredit.algorithms.replayed import cut_slot, drawn_sources, refilled
from accredit.collate import collate
from accredit.critics.group import GroupMean, LeaveOneOut
from accredit.functional.endpoints import endpoint_advantages
from accredit.randomness import generator, keyed_seed
from accredit.records import Credit, PolicyUpdate, Record, State
from accredit.types import Batch, Group, Opening
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

    def advance(self, state: State, world: World) -> tuple[State, Record]:
        """One step: refill, cut, continue, update."""
        config = self.config
        memory = ReplayMemory.of(state.memory, config)
        with world.clock.measure("step"):
            refill = refilled(config, state, world)
            start = state.num_drawn + refill.num_drawn
            sources, num_fresh = drawn_sources(
                config, memory.replay, state, world, start
            )
            openings: list[Opening] = []
            for number, source in enumerate(sources):
                draw = generator(world.seed, "cuts", state.step, number)
                slot = cut_slot(config, source, self.grid, draw)
                openings.append(Opening(slot.prompt, slot.written))
            groups = tuple(self._continued(openings, state, world))
            judged = collate(groups)
            batch = self._settled(judged)
            entropy, entropy_cost = start_entropy(config, groups, refill, world)
            credit = self._credit(batch)
            policy = self._updated(batch, credit.advantages, memory, state, world)
            world.engine.load(world.learner.model, world.learner.version)
        critic = LeaveOneOut() if config.baseline == "leave_one_out" else GroupMean()
        fresh = step_counts(Drawn(refill.groups), None)
        own = step_counts(Drawn(groups), policy)
        return recorded(
            state,
            world,
            Drawn(groups, num_drawn=refill.num_drawn + num_fresh),
            batch,
            Shaped(
                batch.rewards, rollout_cost(refill.groups, world.shape) + entropy_cost
            ),
            critic.values(batch, batch.rewards),
            credit,
            policy,
            counts={
                name: own[name] + fresh[name]
                for name in ("rollouts_drawn", "rollouts_judged", "rewards_invalid")
            },
            outcome_known=judged.verified,
            clip_bounds=replay_bounds(config, memory.entropy_offset),
            start_entropy=entropy,
            memory=remembered(config, memory, refill, entropy).to_json(),
        )

    def _continued(
        self, openings: list[Opening], state: State, world: World
    ) -> list[Group]:
        return world.environment.continue_from(
            openings, self.config.group_size, world.sampling, ("train", state.step)
        )

    def _settled(self, batch: Batch) -> Batch:
        """The batch with what failed to be judged masked, or worth 0."""
        if self.config.unverified == "masked":
            return batch
        return replace(batch, verified=torch.ones_like(batch.verified))

    def _credit(self, batch: Batch) -> Credit:
        advantages = endpoint_advantages(
            batch.rewards,
            batch.verified,
            batch.group_index,
            baseline=self.config.baseline,
        )
        return Credit(torch.where(batch.trainable, advantages[:, None], 0.0))

    def _updated(
        self,
        batch: Batch,
        advantages: Float[Tensor, "rollout token"],
        memory: ReplayMemory,
        state: State,
        world: World,
    ) -> PolicyUpdate | None:
        if not bool(batch.trainable.any()):
            return None
        seed = keyed_seed(world.seed, "minibatches", state.step)
        objective = replay_objective(self.config, memory.entropy_offset)
        with world.clock.measure("update"):
            return world.learner.begin(batch, advantages, objective, seed).run()


def prefix_grpo(config: PrefixGRPOConfig, max_new_tokens: int) -> PrefixGRPO:
    """Replayed prefixes, siblings as critics."""
    return PrefixGRPO(config, config.grid(max_new_tokens))
