"""Parts of the steps whose critic has parameters.

    policy  <- minimise the objective, unless the critic is warming up
    critic  <- fitted to its targets, with draws of its own

In the first steps of a run the critic learns alone, under a policy that stays as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from accredit.algorithms.outcome_step import (
    Algorithm,
    Drawn,
    update_policy,
)
from accredit.credit import paid_at_truncation
from accredit.protocols import Critic, TrainableCritic
from accredit.randomness import keyed_seed
from accredit.records import (
    Cost,
    Credit,
    CriticUpdate,
    PolicyUpdate,
    State,
    ValueTargets,
)
from accredit.types import Batch
from accredit.world import World


@dataclass(frozen=True, eq=False)
class Settled:
    """A batch whose truncated rollouts are worth something, by a recipe's rule."""

    batch: Batch
    """Truncated where a credit rule is to bootstrap."""
    rewards: Float[Tensor, " rollout"]
    """What each rollout is worth in the end."""
    known: Bool[Tensor, " rollout"]
    """True where that was verified."""


Settlement = Callable[[Batch, Tensor], Settled]
"""Called with (batch, values)."""


def trainable(critic: Critic) -> TrainableCritic:
    """The critic, which the steps of this family fit as well as ask."""
    assert isinstance(critic, TrainableCritic), type(critic)
    return critic


def critic_values(
    critic: Critic, world: World, batch: Batch
) -> Float[Tensor, "rollout prefix"]:
    """V of every prefix before anything is learned from the batch."""
    with world.clock.measure("critic"):
        return critic.values(batch, batch.rewards)


def policy_moved(
    algorithm: Algorithm,
    state: State,
    world: World,
    drawn: Drawn,
    batch: Batch,
    credit: Credit,
    critic: TrainableCritic,
) -> PolicyUpdate | None:
    """The policy's update; None while the critic warms up, or with nothing to learn."""
    if is_warming_up(critic, state):
        return None
    return update_policy(algorithm, state, world, drawn, batch, credit.advantages)


def is_warming_up(critic: TrainableCritic, state: State) -> bool:
    """Whether this step is one of those in which the critic learns alone."""
    return state.step < critic.num_warmup_steps


def critic_fitted(
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


def step_counts_of_critic(
    critic: TrainableCritic, state: State, update: CriticUpdate
) -> dict[str, int]:
    """What must not stay silent about a critic; a warm-up step skips no policy."""
    counts = {"critic_updates_skipped": update.num_skipped}
    if is_warming_up(critic, state):
        counts |= {"critic_only_steps": 1, "updates_skipped": 0}
    return counts


def plain_value_targets(batch: Batch, credit: Credit) -> ValueTargets:
    """The returns that the credit rule leaves for the critic, all of one weight."""
    assert credit.value_targets is not None
    targets = credit.value_targets[:, :-1]
    return ValueTargets(targets, torch.ones_like(targets), batch.trainable)


def paid(batch: Batch, values: Float[Tensor, "rollout prefix"]) -> Settled:
    """Every rollout is worth what its verifier paid, truncated or not."""
    return Settled(paid_at_truncation(batch), batch.rewards, batch.verified)


def bootstrapped(batch: Batch, values: Float[Tensor, "rollout prefix"]) -> Settled:
    """A truncated rollout is worth the value of its last prefix, until more is known.

    What was verified of it is not read, and nobody's values are measured by it.
    """
    last = values.gather(1, batch.token_mask.sum(1, keepdim=True))[:, 0]
    rewards = torch.where(batch.truncated, last, batch.rewards)
    return Settled(batch, rewards, batch.verified & ~batch.truncated)


SETTLEMENTS: dict[str, Settlement] = {"outcome": paid, "bootstrap": bootstrapped}
"""By the name of a recipe's `truncation`."""
