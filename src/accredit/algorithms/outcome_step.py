"""The step that every outcome algorithm shares.

    groups  <- draw problems, roll out, verify
    rewards <- shape what the verifier said
    values  <- critic of every prefix
    credit  <- advantages of every sampled token
    policy  <- minimise the objective; the engine takes the new weights

An algorithm is the choice of these parts. No part knows an algorithm's name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Bool, Float
from torch import Tensor

from accredit.collate import collate
from accredit.protocols import Critic, Objective
from accredit.randomness import keyed_seed
from accredit.records import (
    Cost,
    Credit,
    CriticUpdate,
    PolicyChange,
    PolicyUpdate,
    Record,
    Routing,
    State,
)
from accredit.types import Batch, Group, StopReason
from accredit.world import World, rollout_cost, update_cost


@dataclass(frozen=True)
class Drawn:
    """What one step's rolling out brought."""

    groups: tuple[Group, ...]
    """To be trained on."""
    rejected: tuple[Group, ...] = ()
    """Rolled out, paid for, and left out."""
    num_drawn: int = 0
    """Problems taken from the source."""


@runtime_checkable
class Draw(Protocol):
    """Where a step's groups come from."""

    def __call__(self, state: State, world: World) -> Drawn: ...


@runtime_checkable
class CreditRule(Protocol):
    """How credit is dealt; see `accredit.credit`."""

    def __call__(
        self,
        batch: Batch,
        rewards: Float[Tensor, " rollout"],
        values: Float[Tensor, "rollout prefix"],
    ) -> Credit: ...


@dataclass(frozen=True, eq=False)
class Shaped:
    """The rewards that credit is dealt from, and what finding them cost."""

    rewards: Float[Tensor, " rollout"]
    cost: Cost = field(default_factory=Cost)


RewardShaping = Callable[[Batch, World], Shaped]


def verified_rewards(batch: Batch, world: World) -> Shaped:
    """The verifier's rewards as they are."""
    return Shaped(batch.rewards)


@dataclass(frozen=True)
class Algorithm:
    """Three choices and an order; see the files beside this one."""

    draw: Draw
    critic: Critic
    credit: CreditRule
    objective: Objective
    clip_bounds: tuple[float, float] | None = None
    """(clip_low, clip_high) of the token ratio, for the report; None clips none."""
    shape_rewards: RewardShaping = verified_rewards
    step: Callable[["Algorithm", State, World], tuple[State, Record]] = field(
        default_factory=lambda: outcome_step
    )

    def advance(self, state: State, world: World) -> tuple[State, Record]:
        """One step."""
        return self.step(self, state, world)


def outcome_step(
    algorithm: Algorithm, state: State, world: World
) -> tuple[State, Record]:
    """One step: roll out, value, credit, update."""
    with world.clock.measure("step"):
        drawn = algorithm.draw(state, world)
        batch = collate(drawn.groups or drawn.rejected)
        shaped = algorithm.shape_rewards(batch, world)
        values = algorithm.critic.values(batch, shaped.rewards)
        credit = algorithm.credit(batch, shaped.rewards, values)
        policy = update_policy(algorithm, state, world, drawn, batch, credit.advantages)
        world.engine.load(world.learner.model, world.learner.version)
    return recorded(state, world, drawn, batch, shaped, values, credit, policy)


def draw_groups(
    state: State, world: World, *, prompts_per_step: int, group_size: int
) -> Drawn:
    """The next problems of the source, each rolled out `group_size` times."""
    prompts = list(world.problems.draw(state.num_drawn, prompts_per_step))
    key = ("train", state.step)
    groups = world.environment.roll_out(prompts, group_size, world.sampling, key)
    return Drawn(tuple(groups), num_drawn=len(prompts))


def update_policy(
    algorithm: Algorithm,
    state: State,
    world: World,
    drawn: Drawn,
    batch: Batch,
    advantages: Float[Tensor, "rollout token"],
) -> PolicyUpdate | None:
    """The learner's update; None where there is nothing to learn from."""
    if not drawn.groups or not bool(batch.trainable.any()):
        return None
    with world.clock.measure("update"):
        seed = keyed_seed(world.seed, "minibatches", state.step)
        return world.learner.begin(batch, advantages, algorithm.objective, seed).run()


def recorded(
    state: State,
    world: World,
    drawn: Drawn,
    batch: Batch,
    shaped: Shaped,
    values: Float[Tensor, "rollout prefix"],
    credit: Credit,
    policy: PolicyUpdate | None,
    *,
    critic: CriticUpdate | None = None,
    change: PolicyChange | None = None,
    outcome_known: Bool[Tensor, " rollout"] | None = None,
    valued_by_critic: bool = False,
    reference_shown: bool = False,
    counts: Mapping[str, int] | None = None,
    routing: Routing | None = None,
    clip_bounds: tuple[float, float] | None = None,
    start_entropy: float | None = None,
    memory: Mapping[str, Any] | None = None,
) -> tuple[State, Record]:
    """The state after the step, and what it saw and did.

    `counts` go on top of what is counted of every step, and win over it. `memory` takes
    the place of the state's.
    """
    generated = rollout_cost((*drawn.groups, *drawn.rejected), world.shape)
    cost = generated + shaped.cost + update_cost(policy, batch, world.shape)
    told = step_counts(drawn, policy) | dict(counts or {})
    counters = dict(state.counters)
    for name, count in told.items():
        counters[name] = counters.get(name, 0) + count
    record = Record(
        groups=drawn.groups or drawn.rejected,
        batch=batch,
        shaped_rewards=shaped.rewards,
        values=values,
        credit=credit,
        policy=policy,
        cost=cost,
        times_s=world.clock.drain(),
        counts=told,
        critic=critic,
        change=change,
        outcome_known=outcome_known,
        valued_by_critic=valued_by_critic,
        reference_shown=reference_shown,
        routing=routing,
        clip_bounds=clip_bounds,
        start_entropy=start_entropy,
    )
    after = state.advance(
        cost,
        num_drawn=state.num_drawn + drawn.num_drawn,
        counters=counters,
        memory=state.memory if memory is None else memory,
    )
    return after, record


def step_counts(drawn: Drawn, policy: PolicyUpdate | None) -> dict[str, int]:
    """What must not stay silent; rejected groups are counted too."""
    groups = (*drawn.groups, *drawn.rejected)
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    verdicts = [verdict for group in groups for verdict in group.verdicts]
    # What was stopped at a chunk border on purpose was not sent to be judged.
    judged = [
        verdict.reward
        for rollout, verdict in zip(rollouts, verdicts, strict=True)
        if rollout.stop_reason is not StopReason.CHUNK
    ]
    return {
        "groups_rejected": len(drawn.rejected),
        "rollouts_drawn": len(rollouts),
        "rollouts_judged": len(judged),
        "rewards_invalid": judged.count(None),
        "updates_skipped": policy.num_skipped if policy else 1,
    }
