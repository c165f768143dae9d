"""Dr. GRPO: GRPO without its two biases.

    A_i   = R_i - mean_j R_j
    J     = (1 / M) sum_i (1 / L_max) sum_t L_it        L_max = the budget of tokens

Liu et al. 2025, arXiv:2503.20783. Neither the deviation (which favours problems that
are nearly always or nearly never solved) nor the length of a rollout (which favours
long wrong ones) divides.

Differs from the paper: the constant L_max is the recipe's `max_new_tokens`. The group
mean contains the rollout itself, so that the expected gradient is (G - 1) / G times the
true one; `rloo` has the other baseline.
"""

from functools import partial

from accredit.algorithms.configs import DrGRPOConfig
from accredit.algorithms.parts import clipped_objective, drawn_from
from accredit.algorithms.step import OutcomeAlgorithm
from accredit.credit import outcome_credit
from accredit.critics.group import GroupMean
from accredit.functional.aggregation import fixed_length_token_sum


def dr_grpo(config: DrGRPOConfig, max_new_tokens: int) -> OutcomeAlgorithm:
    """Siblings as critic, clipped surrogate over a fixed length."""
    aggregation = partial(fixed_length_token_sum, max_length=max_new_tokens)
    return OutcomeAlgorithm(
        draw_groups=drawn_from(config),
        critic=GroupMean(),
        credit=outcome_credit,
        objective=clipped_objective(config, aggregation),
        clip_bounds=(config.clip_low, config.clip_high),
    )
