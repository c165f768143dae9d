"""GRPO: group relative policy optimization.

    A_i   = (R_i - mean_j R_j) / deviation_j R_j        over the G siblings of a prompt
    L_it  = -min(rho_it A_i, clip(rho_it, 1 - low, 1 + high) A_i) + beta KL_it
    J     = mean over rollouts of the mean over their tokens

Shao et al. 2024, arXiv:2402.03300.

Differs from the paper:
- the KL term is off by default (beta = .04 there), as in most later work;
- the deviation is unbiased (n - 1), 1e-6 is added to it, and a group of equal rewards
  has advantage exactly 0;
- siblings that could not be verified neither vote nor learn;
- one optimizer step a batch by default, so that the ratio is 1 and never clipped.
"""

from accredit.algorithms.configs import GRPOConfig
from accredit.algorithms.parts import clipped_objective, drawn_from
from accredit.algorithms.step import OutcomeAlgorithm
from accredit.credit import normalized_outcome_credit
from accredit.critics.group import GroupMean
from accredit.functional.aggregation import sequence_mean_token_mean


def grpo(config: GRPOConfig) -> OutcomeAlgorithm:
    """Siblings as critic, deviation as unit, clipped surrogate."""
    return OutcomeAlgorithm(
        draw_groups=drawn_from(config),
        critic=GroupMean(),
        credit=normalized_outcome_credit,
        objective=clipped_objective(config, sequence_mean_token_mean),
        clip_bounds=(config.clip_low, config.clip_high),
    )
