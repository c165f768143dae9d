"""REINFORCE++: no group and no critic, advantages whitened over the batch.

    r_t   = -beta (log pi - log ref) + R 1[t is the last token]
    A_t   = whitened over the batch( sum_{k >= t} r_k )
    L_t   = -min(rho_t A_t, clip(rho_t, 1 - low, 1 + high) A_t)

Hu 2025, arXiv:2501.03262.

Differs from the paper: whitening pools the trainable tokens of the whole batch, n - 1,
and is left out where they do not vary.
"""

from functools import partial

from accredit.algorithms.configs import ReinforcePPConfig
from accredit.algorithms.outcome_step import (
    Algorithm,
    Shaped,
    recorded,
    update_policy,
)
from accredit.algorithms.parts import drawn_from, kl_charge, objective
from accredit.collate import collate
from accredit.credit import batch_whitened_credit
from accredit.critics.group import ZeroBaseline
from accredit.functional.aggregation import token_mean
from accredit.functional.policy_losses import clipped_surrogate
from accredit.records import Record, State
from accredit.world import World


def reinforce_pp(config: ReinforcePPConfig) -> Algorithm:
    """Nobody as critic, the batch as unit, KL in the reward."""
    loss = partial(
        clipped_surrogate, clip_low=config.clip_low, clip_high=config.clip_high
    )
    return Algorithm(
        draw=drawn_from(config),
        critic=ZeroBaseline(),
        credit=batch_whitened_credit,
        objective=objective(config, loss, token_mean),
        clip_bounds=(config.clip_low, config.clip_high),
        step=partial(reinforce_pp_step, kl_coefficient=config.kl_coefficient),
    )


def reinforce_pp_step(
    algorithm: Algorithm, state: State, world: World, *, kl_coefficient: float
) -> tuple[State, Record]:
    """The outcome step, with each token charged its own KL before credit is dealt."""
    with world.clock.measure("step"):
        drawn = algorithm.draw(state, world)
        batch = collate(drawn.groups)
        values = algorithm.critic.values(batch, batch.rewards)
        charge, cost = kl_charge(batch, world, kl_coefficient)
        credit = batch_whitened_credit(
            batch, batch.rewards, values, token_rewards=-charge
        )
        policy = update_policy(algorithm, state, world, drawn, batch, credit.advantages)
        world.engine.load(world.learner.model, world.learner.version)
    shaped = Shaped(batch.rewards - charge.sum(1), cost)
    return recorded(state, world, drawn, batch, shaped, values, credit, policy)
