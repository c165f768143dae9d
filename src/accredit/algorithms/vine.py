"""VinePPO: the value of a prefix is the mean reward of fresh rollouts from it.

    s_0 < s_1 < ...   prefixes of a rollout, `chunk_length` sampled tokens apart
    V(s_k) = (1 / K) sum_i R(rollout i from s_k),    V = R at the rollout's end
    A_t    = V(s_{k+1}) - V(s_k)          on all tokens t between s_k and s_{k+1}
    L_t    = -min(rho_t A_t, clip(rho_t, 1 - low, 1 + high) A_t)
    J      = mean over all sampled tokens

Kazemnejad et al. 2024, arXiv:2410.01679; K = 9, clip .2 and lambda = 1 as in its
released configuration for MATH.

Differs from the paper:
- chunks of a fixed number of tokens in place of lines of reasoning, so that it fits
  texts without lines; a fifth of the budget by default;
- siblings whose prefixes agree share one estimate, so that equal prefixes have equal
  values, and each is paid for once;
- a continuation that could not be verified does not vote;
- no KL term (.0001 there), advantages are not whitened (they are there), one pass over
  the batch by default (two there).

A rollout that ran out of tokens is paid what its verifier gave it, for that is what the
critic says of its end. Every token and every verification of the fresh rollouts is in
the cost of the step.
"""

from dataclasses import dataclass, replace
from functools import partial

from accredit.algorithms.configs import VineConfig
from accredit.algorithms.parts import drawn_from, objective
from accredit.algorithms.step import (
    ClipBounds,
    CreditRule,
    Draw,
    finished,
    publish,
    step_record,
    update_policy,
)
from accredit.batches.collate import collate
from accredit.credit import chunk_credit
from accredit.critics.monte_carlo import MonteCarlo
from accredit.functional.aggregation import token_mean
from accredit.functional.policy_losses import clipped_surrogate
from accredit.protocols import Objective
from accredit.records import Drawn, Record, State
from accredit.world import World, rollout_cost

CHUNKS_PER_BUDGET = 5
"""Where the recipe gives no chunk length."""


@dataclass(frozen=True)
class VinePPO:
    """Fresh rollouts as critic, chunks as actions."""

    draw_groups: Draw
    critic: MonteCarlo
    credit: CreditRule
    objective: Objective
    clip_bounds: ClipBounds = None
    initial_memory: None = None

    def draw(self, state: State, world: World) -> Drawn:
        """Groups of the next problems."""
        return self.draw_groups(state, world)

    def learn(self, state: State, world: World, drawn: Drawn) -> tuple[State, Record]:
        """Roll out again from the chosen prefixes, credit, update."""
        with world.clock.measure("step"):
            batch = collate(drawn.groups)
            key = ("vine", state.num_draws)
            found = self.critic.estimate(batch, world.environment, world.sampling, key)
            credit = self.credit(batch, batch.rewards, found.values)
            policy = update_policy(
                self.objective, state, world, drawn, batch, credit.advantages
            )
            publish(world)
        record = replace(
            step_record(drawn, batch, batch.rewards, found.values, credit, policy),
            counts={"continuations_unverified": found.num_unverified},
            valued_by_critic=True,
        )
        spent = rollout_cost(found.continuations, world.shape)
        return finished(state, world, drawn, record, spent=spent)


def vine(config: VineConfig, max_new_tokens: int) -> VinePPO:
    """Fresh rollouts as critic, chunks as actions, clipped surrogate."""
    chunk_length = config.chunk_length or -(-max_new_tokens // CHUNKS_PER_BUDGET)
    loss = partial(
        clipped_surrogate, clip_low=config.clip_low, clip_high=config.clip_high
    )
    return VinePPO(
        draw_groups=drawn_from(config),
        critic=MonteCarlo(config.num_continuations, chunk_length),
        credit=partial(chunk_credit, chunk_length=chunk_length),
        objective=objective(config, loss, token_mean),
        clip_bounds=(config.clip_low, config.clip_high),
    )
