"""PPO: proximal policy optimization with a learned critic.

    V      = critic of every prefix, no gradient
    A_t    = sum_k (gamma lambda)^k delta_{t+k},  delta_t = r_t + gamma V_{t+1} - V_t
    L_t    = -min(rho_t A_t, clip(rho_t, 1 - low, 1 + high) A_t)
    critic: V_t -> A_t(lambda_critic) + V_t,  error clipped around the old V

Schulman et al. 2017, arXiv:1707.06347; advantages from arXiv:1506.02438; critic-only
first steps, lambda apart for policy and critic, and a policy lambda that grows with the
rollout's length from VAPO, arXiv:2503.01491 and arXiv:2504.05118.

Differs from the papers:
- lambda is 1 for both by default, which the 2026 studies of critics prefer; the first
  paper's .95 is a key;
- advantages are not whitened;
- steps are sampled tokens: observations neither discount nor decay;
- a rollout that ran out of tokens is paid what its verifier gave it, or bootstrapped,
  as `truncation` says; it is never left out.
"""

from functools import partial

from accredit.algorithms.actor_critic import OUTCOME_RULES, ActorCritic
from accredit.algorithms.critic_configs import PPOConfig
from accredit.algorithms.parts import drawn_from, objective
from accredit.credit import decoupled_credit
from accredit.functional.advantages import length_adaptive_lambda
from accredit.functional.aggregation import token_mean
from accredit.functional.policy_losses import clipped_surrogate
from accredit.protocols import TrainableCritic


def ppo(config: PPOConfig, critic: TrainableCritic) -> ActorCritic:
    """A learned critic, GAE, two clips."""
    alpha = config.length_adaptive_alpha
    credit = partial(
        decoupled_credit,
        gamma=config.gamma,
        lambda_policy=(
            config.lambda_policy
            if alpha is None
            else partial(length_adaptive_lambda, alpha=alpha)
        ),
        lambda_critic=config.lambda_critic,
    )
    loss = partial(
        clipped_surrogate,
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        dual_clip=config.dual_clip,
    )
    return ActorCritic(
        draw_groups=drawn_from(config),
        critic=critic,
        credit=credit,
        objective=objective(config, loss, token_mean),
        clip_bounds=(config.clip_low, config.clip_high),
        outcomes=OUTCOME_RULES[config.truncation],
    )
