"""CISPO: clipped importance-sampling weights.

    A_i   = (R_i - mean_j R_j) / deviation_j R_j
    L_it  = -stop_gradient(clip(rho_it, 1 - low, 1 + high)) A_i log pi_it
    J     = mean over all tokens of the batch

MiniMax 2025, arXiv:2506.13585. No token loses its gradient: the weight is clipped, not
the update. As there, no lower bound by default.

Differs from the paper: clip_high is not stated there and is DAPO's .28 here.
"""

from functools import partial

from accredit.algorithms.configs import CISPOConfig
from accredit.algorithms.parts import drawn_from, objective
from accredit.algorithms.step import OutcomeAlgorithm
from accredit.credit import normalized_outcome_credit
from accredit.critics.group import GroupMean
from accredit.functional.aggregation import token_mean
from accredit.functional.policy_losses import clipped_importance


def cispo(config: CISPOConfig) -> OutcomeAlgorithm:
    """GRPO with weights that are clipped instead of updates."""
    loss = partial(
        clipped_importance, clip_low=config.clip_low, clip_high=config.clip_high
    )
    return OutcomeAlgorithm(
        draw_groups=drawn_from(config),
        critic=GroupMean(),
        credit=normalized_outcome_credit,
        objective=objective(config, loss, token_mean),
        clip_bounds=(config.clip_low, config.clip_high),
    )
