"""REINFORCE++: no group and no critic, advantages whitened over the batch.

    r_t   = -beta (log pi - log ref) + R 1[t is the last token]
    A_t   = whitened over the batch( sum_{k >= t} r_k )
    L_t   = -min(rho_t A_t, clip(rho_t, 1 - low, 1 + high) A_t)

Hu 2025, arXiv:2501.03262.

Differs from the paper: whitening pools the trainable tokens of the whole batch, n - 1,
and is left out where they do not vary.
"""

from dataclasses import dataclass
from functools import partial

from accredit.algorithms.configs import ReinforcePPConfig
from accredit.algorithms.parts import drawn_from, kl_charge, objective
from accredit.algorithms.step import (
    ClipBounds,
    Draw,
    finished,
    publish,
    step_record,
    update_policy,
)
from accredit.batches.collate import collate
from accredit.credit import batch_whitened_credit
from accredit.critics.group import ZeroBaseline
from accredit.functional.aggregation import token_mean
from accredit.functional.policy_losses import clipped_surrogate
from accredit.protocols import Objective
from accredit.records import Drawn, Record, State
from accredit.world import World


@dataclass(frozen=True)
class ReinforcePP:
    """Nobody as critic, the batch as unit, KL in the reward."""

    draw_groups: Draw
    objective: Objective
    kl_coefficient: float
    clip_bounds: ClipBounds = None
    initial_memory: None = None

    def draw(self, state: State, world: World) -> Drawn:
        """Groups of the next problems."""
        return self.draw_groups(state, world)

    def learn(self, state: State, world: World, drawn: Drawn) -> tuple[State, Record]:
        """Charge each token its own KL, credit, update."""
        with world.clock.measure("step"):
            batch = collate(drawn.groups)
            values = ZeroBaseline().values(batch, batch.rewards)
            charge, spent = kl_charge(batch, world, self.kl_coefficient)
            credit = batch_whitened_credit(
                batch, batch.rewards, values, token_rewards=-charge
            )
            policy = update_policy(
                self.objective, state, world, drawn, batch, credit.advantages
            )
            publish(world)
        rewards = batch.rewards - charge.sum(1)
        record = step_record(drawn, batch, rewards, values, credit, policy)
        return finished(state, world, drawn, record, spent=spent)


def reinforce_pp(config: ReinforcePPConfig) -> ReinforcePP:
    """Nobody as critic, the batch as unit, KL in the reward."""
    loss = partial(
        clipped_surrogate, clip_low=config.clip_low, clip_high=config.clip_high
    )
    return ReinforcePP(
        draw_groups=drawn_from(config),
        objective=objective(config, loss, token_mean),
        kl_coefficient=config.kl_coefficient,
        clip_bounds=(config.clip_low, config.clip_high),
    )
