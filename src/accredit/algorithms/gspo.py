"""GSPO: group sequence policy optimization.

    s_i   = (prod_t rho_it)^(1 / T_i)
    A_i   = (R_i - mean_j R_j) / deviation_j R_j
    L_i   = -min(s_i A_i, clip(s_i, 1 - low, 1 + high) A_i)
    J     = mean over rollouts

Zheng et al. 2025, arXiv:2507.18071. The ratio is the geometric mean, so that its range
does not depend on the length; clip 3e-4 and 4e-4 are the paper's.

Differs from the paper: the loss is spread over the tokens of a rollout with the mean
over them, which is the same gradient.
"""

from functools import partial

from accredit.algorithms.configs import GSPOConfig
from accredit.algorithms.parts import drawn_from, objective
from accredit.algorithms.step import OutcomeAlgorithm
from accredit.credit import normalized_outcome_credit
from accredit.critics.group import GroupMean
from accredit.functional.aggregation import sequence_mean_token_mean
from accredit.functional.policy_losses import sequence_clipped_surrogate


def gspo(config: GSPOConfig) -> OutcomeAlgorithm:
    """GRPO with one ratio a sequence."""
    loss = partial(
        sequence_clipped_surrogate,
        clip_low=config.clip_low,
        clip_high=config.clip_high,
    )
    return OutcomeAlgorithm(
        draw_groups=drawn_from(config),
        critic=GroupMean(),
        credit=normalized_outcome_credit,
        objective=objective(config, loss, sequence_mean_token_mean),
    )
