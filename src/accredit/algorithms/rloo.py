"""RLOO: REINFORCE with the leave-one-out baseline.

    R_i  <- R_i - beta sum_t (log pi - log ref)
    A_i   = R_i - (1 / (G - 1)) sum_{j != i} R_j
    J     = mean over rollouts of the sum over their tokens of -rho_it A_i

Ahmadian et al. 2024, arXiv:2402.14740. Unbiased, because the baseline of a rollout does
not contain it.

Differs from the paper: actions are tokens, not whole sequences, which is the same
gradient; with more than one optimizer step a batch the ratio corrects for the policy's
change, unclipped; the KL is charged before the baseline, so that siblings share it.
"""

import math
from functools import partial

from accredit.algorithms.configs import RLOOConfig
from accredit.algorithms.parts import drawn_from, kl_charge, objective
from accredit.algorithms.step import OutcomeAlgorithm, ShapedRewards
from accredit.credit import outcome_credit
from accredit.critics.group import LeaveOneOut
from accredit.functional.aggregation import sequence_mean_token_sum
from accredit.functional.policy_losses import clipped_surrogate
from accredit.types import Batch
from accredit.world import World


def rloo(config: RLOOConfig) -> OutcomeAlgorithm:
    """The other siblings as critic, the policy gradient itself."""
    unclipped = partial(clipped_surrogate, clip_low=1.0, clip_high=math.inf)
    return OutcomeAlgorithm(
        draw_groups=drawn_from(config),
        critic=LeaveOneOut(),
        credit=outcome_credit,
        objective=objective(config, unclipped, sequence_mean_token_sum),
        shape_rewards=partial(charged_rewards, coefficient=config.kl_coefficient),
    )


def charged_rewards(batch: Batch, world: World, *, coefficient: float) -> ShapedRewards:
    """Verified rewards minus the KL of the whole rollout."""
    charge, cost = kl_charge(batch, world, coefficient)
    return ShapedRewards(batch.rewards - charge.sum(1), cost)
