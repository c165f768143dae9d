"""SAO: single-rollout asynchronous optimization.

    V      = critic of every prefix, no gradient; one rollout a prompt
    A_t    = GAE over sampled tokens, lambda = 1 - 1 / (alpha L) for a rollout of L
    r_t    = pi / engine,    no frozen old policy
    L_t    = -stop_gradient(r_t A_t) log pi   where low < r_t < high,  0 elsewhere
             mean over all sampled tokens, rejected ones included
    critic: V_t -> R, twice an update, its attention frozen

arXiv:2607.07508. Ratios to the engine are the paper's double-sided importance sampling.

Differs from the paper:
- alpha = 1.5, range (0.7, 6) and the frozen attention are its setting for math; the
  critic's outcome is bounded and trained by cross-entropy;
- steps are taken one after the other: rollouts are never older than one update;
- a rollout that ran out of tokens is paid what its verifier gave it, or bootstrapped,
  as `truncation` says.
"""

from functools import partial

from accredit.algorithms.actor_critic import OUTCOME_RULES, ActorCritic
from accredit.algorithms.critic_configs import SAOConfig
from accredit.algorithms.parts import drawn_from
from accredit.credit import decoupled_credit
from accredit.functional.advantages import length_adaptive_lambda
from accredit.functional.aggregation import token_mean
from accredit.functional.policy_losses import double_sided_importance
from accredit.protocols import Objective, TrainableCritic


def sao(config: SAOConfig, critic: TrainableCritic) -> ActorCritic:
    """A learned critic, a lambda near 1, ratios to the engine within a range."""
    credit = partial(
        decoupled_credit,
        gamma=1.0,
        lambda_policy=partial(
            length_adaptive_lambda, alpha=config.length_adaptive_alpha
        ),
        lambda_critic=1.0,
    )
    loss = partial(
        double_sided_importance,
        accept_low=config.ratio_low,
        accept_high=config.ratio_high,
    )
    return ActorCritic(
        draw_groups=drawn_from(config),
        critic=critic,
        credit=credit,
        objective=Objective(
            loss=loss,
            aggregation=token_mean,
            entropy_coefficient=config.entropy_coefficient,
            num_minibatches=config.num_minibatches,
            num_epochs=config.num_epochs,
            old_from_engine=True,
        ),
        clip_bounds=(1.0 - config.ratio_low, config.ratio_high - 1.0),
        outcomes=OUTCOME_RULES[config.truncation],
    )
