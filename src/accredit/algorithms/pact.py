"""PACT: policy aligned critic training.

    V        = critic of every prefix, no gradient
    A_t      = R - V_t                                            (lambda = 1)
    policy  <- B minibatches of the actor loss
    rho_t    = new pi / old pi of token t, one more forward pass, no gradient
    Y_t      = rho_t R,    accepted where accept_low <= rho_t <= accept_high
    critic  <- B minibatches of  sum accept BCE(V_t, Y_t) / sum accept

Fu et al. 2026, arXiv:2609.26355. V_t is V of the prefix before token t, in whose place
the logits predict token t: a target and its ratio share their index.

Differs from the paper:
- `target` also offers its controls and closer approximations of V under the new policy;
  docs/pact.md measures them, and `windowed` is the alternative we recommend;
- how the critic starts and warms up is not stated there: it begins as the policy's own
  model with a head of zeros and learns alone for `critic.warmup_steps`;
- on a shared trunk the critic's own step moves the policy once more, after its ratios
  were taken;
- a rollout that ran out of tokens is paid what its verifier gave it, or bootstrapped,
  as `truncation` says; advantages are not whitened.
"""

from dataclasses import dataclass, replace
from functools import partial

import torch

from accredit.algorithms.actor_critic import (
    OUTCOME_RULES,
    OutcomeRule,
    critic_cost,
    critic_counts,
    critic_values,
    fit_critic,
    update_warm_policy,
)
from accredit.algorithms.alignment import (
    Alignment,
    alignment,
    change_cost,
    policy_change,
)
from accredit.algorithms.critic_configs import PACTConfig
from accredit.algorithms.parts import drawn_from, objective
from accredit.algorithms.step import (
    ClipBounds,
    CreditRule,
    Draw,
    finished,
    publish,
    step_record,
)
from accredit.batches.collate import collate
from accredit.credit import aligned_value_targets, outcome_credit
from accredit.functional.aggregation import token_mean
from accredit.functional.policy_losses import (
    clipped_surrogate,
    double_sided_importance,
)
from accredit.protocols import Objective, PolicyLoss, TrainableCritic
from accredit.randomness import keyed_seed
from accredit.records import Drawn, Record, State
from accredit.world import World


@dataclass(frozen=True)
class PACT:
    """The policy first, then the critic, corrected for the policy's move."""

    draw_groups: Draw
    critic: TrainableCritic
    credit: CreditRule
    objective: Objective
    outcomes: OutcomeRule
    align: Alignment
    clip_bounds: ClipBounds = None
    initial_memory: None = None

    def draw(self, state: State, world: World) -> Drawn:
        """Groups of the next problems."""
        return self.draw_groups(state, world)

    def learn(self, state: State, world: World, drawn: Drawn) -> tuple[State, Record]:
        """The box above."""
        critic, align = self.critic, self.align
        with world.clock.measure("step"):
            batch = collate(drawn.groups)
            values = critic_values(critic, world, batch)
            outcomes = self.outcomes(batch, values)
            credit = self.credit(outcomes.batch, outcomes.rewards, values)
            policy = update_warm_policy(
                self.objective, critic, state, world, drawn, batch, credit
            )
            change = policy_change(world, batch, policy, align.acceptance)
            dealt = keyed_seed(world.seed, "shuffled ratios", state.step)
            taught = align.disturb(batch, change, dealt)
            rewards = outcomes.rewards
            wanted = aligned_value_targets(batch, rewards, values, taught, align.rule)
            update = fit_critic(critic, state, world, batch, wanted)
            publish(world)
        rejected = int((batch.trainable & ~change.accepted).sum())
        targets = torch.nn.functional.pad(wanted.targets, (0, 1))
        credit = replace(credit, value_targets=targets)
        record = replace(
            step_record(drawn, batch, rewards, values, credit, policy),
            critic=update,
            change=change,
            outcome_known=outcomes.known,
            valued_by_critic=True,
            reference_shown=critic.reference_shown,
            counts=critic_counts(critic, state, update)
            | {"critic_tokens_rejected": rejected},
        )
        spent = critic_cost(critic, batch, update) + change_cost(world, batch, policy)
        return finished(state, world, drawn, record, spent=spent)


def pact(config: PACTConfig, critic: TrainableCritic) -> PACT:
    """A learned critic that follows the policy's every move."""
    loss, bounds = actor_loss(config)
    return PACT(
        draw_groups=drawn_from(config),
        critic=critic,
        credit=outcome_credit,
        objective=objective(config, loss, token_mean),
        outcomes=OUTCOME_RULES[config.truncation],
        align=alignment(config),
        clip_bounds=bounds,
    )


def actor_loss(config: PACTConfig) -> tuple[PolicyLoss, tuple[float, float]]:
    """The loss behind its name, and how far from 1 a ratio may lie, for the report."""
    if config.actor_loss == "clipped_surrogate":
        bounds = (config.clip_low, config.clip_high)
        loss = partial(clipped_surrogate, clip_low=bounds[0], clip_high=bounds[1])
        return loss, bounds
    loss = partial(
        double_sided_importance,
        accept_low=config.ratio_low,
        accept_high=config.ratio_high,
    )
    return loss, (1.0 - config.ratio_low, config.ratio_high - 1.0)
