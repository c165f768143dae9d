"""Parts of the steps whose critic has parameters.

    policy  <- minimise the objective, unless the critic is warming up
    critic  <- fitted to its targets, with draws of its own

In the first steps of a run the critic learns alone, under a policy that stays as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from accredit.algorithms.step import (
    ClipBounds,
    CreditRule,
    Draw,
    finished,
    publish,
    step_record,
    update_policy,
)
from accredit.batches.collate import collate
from accredit.credit import paid_at_truncation
from accredit.protocols import Objective, TrainableCritic
from accredit.randomness import keyed_seed
from accredit.records import (
    Cost,
    Credit,
    CriticUpdate,
    Drawn,
    PolicyUpdate,
    Record,
    State,
    ValueTargets,
)
from accredit.types import Batch
from accredit.world import World


@dataclass(frozen=True, eq=False)
class Outcomes:
    """A batch whose truncated rollouts are worth something, by a recipe's rule."""

    batch: Batch
    """Truncated where a credit rule is to bootstrap."""
    rewards: Float[Tensor, " rollout"]
    """What each rollout is worth in the end."""
    known: Bool[Tensor, " rollout"]
    """True where that was verified."""


OutcomeRule = Callable[[Batch, Tensor], Outcomes]
"""Called with (batch, values)."""


def critic_values(
    critic: TrainableCritic, world: World, batch: Batch
) -> Float[Tensor, "rollout prefix"]:
    """V of every prefix before anything is learned from the batch."""
    with world.clock.measure("critic"):
        return critic.values(batch, batch.rewards)


def update_warm_policy(
    objective: Objective,
    critic: TrainableCritic,
    state: State,
    world: World,
    drawn: Drawn,
    batch: Batch,
    credit: Credit,
) -> PolicyUpdate | None:
    """The policy's update; None while the critic warms up, or with nothing to learn."""
    if is_warming_up(critic, state):
        return None
    return update_policy(objective, state, world, drawn, batch, credit.advantages)


def is_warming_up(critic: TrainableCritic, state: State) -> bool:
    """Whether this step is one of those in which the critic learns alone."""
    return state.step < critic.num_warmup_steps


def fit_critic(
    critic: TrainableCritic,
    state: State,
    world: World,
    batch: Batch,
    wanted: ValueTargets,
) -> CriticUpdate:
    """The critic's update with draws of its own."""
    seed = keyed_seed(world.seed, "critic", state.step)
    warming_up = is_warming_up(critic, state)
    with world.clock.measure("critic"):
        update = critic.update(batch, wanted, seed, warming_up=warming_up)
    world.learner.moved_by_others(update.num_policy_steps)
    return update


def critic_cost(critic: TrainableCritic, batch: Batch, update: CriticUpdate) -> Cost:
    """Ledger of what the critic said and learned in a step."""
    return Cost(train_flops=critic.values_flops(batch) + update.train_flops)


def critic_counts(
    critic: TrainableCritic, state: State, update: CriticUpdate
) -> dict[str, int]:
    """Counters of a critic that must be reported; a warm-up step skips no policy."""
    counts = {"critic_updates_skipped": update.num_skipped}
    if is_warming_up(critic, state):
        counts |= {"critic_only_steps": 1, "updates_skipped": 0}
    return counts


def plain_value_targets(batch: Batch, credit: Credit) -> ValueTargets:
    """The returns that the credit rule leaves for the critic, all of one weight."""
    assert credit.value_targets is not None
    targets = credit.value_targets[:, :-1]
    return ValueTargets(targets, torch.ones_like(targets), batch.trainable)


def paid(batch: Batch, values: Float[Tensor, "rollout prefix"]) -> Outcomes:
    """Every rollout is worth what its verifier paid, truncated or not."""
    return Outcomes(paid_at_truncation(batch), batch.rewards, batch.verified)


def bootstrapped(batch: Batch, values: Float[Tensor, "rollout prefix"]) -> Outcomes:
    """A truncated rollout is worth the value of its last prefix, until more is known.

    What was verified of it is not read, and nobody's values are measured by it.
    """
    last = values.gather(1, batch.token_mask.sum(1, keepdim=True))[:, 0]
    rewards = torch.where(batch.truncated, last, batch.rewards)
    return Outcomes(batch, rewards, batch.verified & ~batch.truncated)


OUTCOME_RULES: dict[str, OutcomeRule] = {"outcome": paid, "bootstrap": bootstrapped}
"""By the name of a recipe's `truncation`."""


@dataclass(frozen=True)
class ActorCritic:
    """PPO and SAO: the policy first, then the critic, fitted to plain returns."""

    draw_groups: Draw
    critic: TrainableCritic
    credit: CreditRule
    objective: Objective
    outcomes: OutcomeRule
    clip_bounds: ClipBounds = None
    initial_memory: None = None

    def draw(self, state: State, world: World) -> Drawn:
        """Groups of the next problems."""
        return self.draw_groups(state, world)

    def learn(self, state: State, world: World, drawn: Drawn) -> tuple[State, Record]:
        """Value, credit, update the policy, fit the critic."""
        critic = self.critic
        with world.clock.measure("step"):
            batch = collate(drawn.groups)
            values = critic_values(critic, world, batch)
            outcomes = self.outcomes(batch, values)
            credit = self.credit(outcomes.batch, outcomes.rewards, values)
            policy = update_warm_policy(
                self.objective, critic, state, world, drawn, batch, credit
            )
            wanted = plain_value_targets(batch, credit)
            update = fit_critic(critic, state, world, batch, wanted)
            publish(world)
        record = replace(
            step_record(drawn, batch, outcomes.rewards, values, credit, policy),
            critic=update,
            outcome_known=outcomes.known,
            valued_by_critic=True,
            reference_shown=critic.reference_shown,
            counts=critic_counts(critic, state, update),
        )
        spent = critic_cost(critic, batch, update)
        return finished(state, world, drawn, record, spent=spent)
