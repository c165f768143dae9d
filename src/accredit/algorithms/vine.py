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

from functools import partial

from accredit.algorithms.configs import VineConfig
from accredit.algorithms.outcome_step import (
    Algorithm,
    Shaped,
    recorded,
    update_policy,
)
from accredit.algorithms.parts import drawn_from, objective
from accredit.collate import collate
from accredit.credit import chunk_credit
from accredit.critics.group import ZeroBaseline
from accredit.critics.monte_carlo import MonteCarlo
from accredit.functional.aggregation import token_mean
from accredit.functional.policy_losses import clipped_surrogate
from accredit.records import Record, State
from accredit.world import World, rollout_cost

CHUNKS_PER_BUDGET = 5
"""Where the recipe gives no chunk length."""


def vine(config: VineConfig, max_new_tokens: int) -> Algorithm:
    """Fresh rollouts as critic, chunks as actions, clipped surrogate."""
    chunk_length = config.chunk_length or -(-max_new_tokens // CHUNKS_PER_BUDGET)
    loss = partial(
        clipped_surrogate, clip_low=config.clip_low, clip_high=config.clip_high
    )
    return Algorithm(
        draw=drawn_from(config),
        # Values that need an environment are the step's affair.
        critic=ZeroBaseline(),
        credit=partial(chunk_credit, chunk_length=chunk_length),
        objective=objective(config, loss, token_mean),
        clip_bounds=(config.clip_low, config.clip_high),
        step=partial(
            vine_step, critic=MonteCarlo(config.num_continuations, chunk_length)
        ),
    )


def vine_step(
    algorithm: Algorithm, state: State, world: World, *, critic: MonteCarlo
) -> tuple[State, Record]:
    """One step: roll out, roll out again from the chosen prefixes, credit, update."""
    with world.clock.measure("step"):
        drawn = algorithm.draw(state, world)
        batch = collate(drawn.groups)
        key = ("vine", state.step)
        told = critic.estimate(batch, world.environment, world.sampling, key)
        credit = algorithm.credit(batch, batch.rewards, told.values)
        policy = update_policy(algorithm, state, world, drawn, batch, credit.advantages)
        world.engine.load(world.learner.model, world.learner.version)
    return recorded(
        state,
        world,
        drawn,
        batch,
        Shaped(batch.rewards, rollout_cost(told.continuations, world.shape)),
        told.values,
        credit,
        policy,
        counts={"continuations_unverified": told.num_unverified},
        valued_by_critic=True,
    )
