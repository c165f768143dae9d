"""What steps have in common, and the step of the algorithms that compare outcomes.

    groups  <- draw problems, roll out, verify
    rewards <- shape what the verifier said
    values  <- critic of every prefix
    credit  <- advantages of every sampled token
    policy  <- minimise the objective; the engine takes the new weights

An algorithm is the choice of these parts. No part knows an algorithm's name.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from accredit.batches.collate import collate
from accredit.protocols import Critic, Objective
from accredit.randomness import keyed_seed
from accredit.records import Cost, Credit, Drawn, PolicyUpdate, Record, State
from accredit.types import Batch, StopReason
from accredit.world import World, rollout_cost, update_cost

ClipBounds = tuple[float, float] | None
"""(clip_low, clip_high) of the token ratio, for the report; None clips none."""


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
class ShapedRewards:
    """The rewards that credit is dealt from, and what finding them cost."""

    rewards: Float[Tensor, " rollout"]
    cost: Cost = field(default_factory=Cost)


RewardShaping = Callable[[Batch, World], ShapedRewards]


def verified_rewards(batch: Batch, world: World) -> ShapedRewards:
    """The verifier's rewards as they are."""
    return ShapedRewards(batch.rewards)


@dataclass(frozen=True)
class OutcomeAlgorithm:
    """Outcomes compared with a baseline: GRPO and its relatives choose these parts."""

    draw_groups: Draw
    critic: Critic
    credit: CreditRule
    objective: Objective
    clip_bounds: ClipBounds = None
    shape_rewards: RewardShaping = verified_rewards
    initial_memory: None = None

    def draw(self, state: State, world: World) -> Drawn:
        """Groups of the next problems."""
        return self.draw_groups(state, world)

    def learn(self, state: State, world: World, drawn: Drawn) -> tuple[State, Record]:
        """Value, credit, update."""
        with world.clock.measure("step"):
            batch = collate(drawn.groups or drawn.rejected)
            shaped = self.shape_rewards(batch, world)
            values = self.critic.values(batch, shaped.rewards)
            credit = self.credit(batch, shaped.rewards, values)
            policy = update_policy(
                self.objective, state, world, drawn, batch, credit.advantages
            )
            publish(world)
        record = step_record(drawn, batch, shaped.rewards, values, credit, policy)
        return finished(state, world, drawn, record, spent=shaped.cost)


def draw_groups(
    state: State, world: World, *, prompts_per_step: int, group_size: int
) -> Drawn:
    """The next problems of the source, each rolled out `group_size` times."""
    with world.clock.measure("step"):
        prompts = list(world.problems.draw(state.num_drawn, prompts_per_step))
        key = ("train", state.num_draws)
        groups = world.environment.roll_out(prompts, group_size, world.sampling, key)
    return Drawn(tuple(groups), num_drawn=len(prompts), version=world.engine.version)


def update_policy(
    objective: Objective,
    state: State,
    world: World,
    drawn: Drawn,
    batch: Batch,
    advantages: Float[Tensor, "rollout token"],
) -> PolicyUpdate | None:
    """The learner's update; None where there is nothing to learn from."""
    if not drawn.groups or not bool(batch.trainable.any()):
        return None
    seed = keyed_seed(world.seed, "minibatches", state.step)
    with world.clock.measure("update"):
        return world.learner.begin(batch, advantages, objective, seed).run()


def publish(world: World) -> None:
    """The engine takes the learner's weights."""
    world.engine.load(world.learner.model, world.learner.version)


def step_record(
    drawn: Drawn,
    batch: Batch,
    rewards: Float[Tensor, " rollout"],
    values: Float[Tensor, "rollout prefix"],
    credit: Credit,
    policy: PolicyUpdate | None,
) -> Record:
    """What every step has to tell; an algorithm replaces what it has besides."""
    groups = drawn.groups or drawn.rejected
    return Record(groups, batch, rewards, values, credit, policy)


def finished(
    state: State,
    world: World,
    drawn: Drawn,
    record: Record,
    *,
    spent: Cost | None = None,
    memory: Any = None,
) -> tuple[State, Record]:
    """The state after the step, and its record with cost, times and counts filled in.

    `spent` is what the step cost besides its rollouts and the policy's update. Counts
    of the record go on top of what is counted of every step, and win over it. `memory`
    takes the place of the state's.
    """
    generated = rollout_cost((*drawn.groups, *drawn.rejected), world.shape)
    cost = (
        generated
        + (spent or Cost())
        + update_cost(record.policy, record.batch, world.shape)
    )
    counts = step_counts(drawn, record.policy) | dict(record.counts)
    counters = dict(state.counters)
    for name, count in counts.items():
        counters[name] = counters.get(name, 0) + count
    after = state.advance(
        cost,
        num_draws=state.num_draws + 1,
        num_drawn=state.num_drawn + drawn.num_drawn,
        counters=counters,
        memory=state.memory if memory is None else memory,
    )
    times_s = world.clock.drain()
    return after, replace(record, cost=cost, times_s=times_s, counts=counts)


def step_counts(drawn: Drawn, policy: PolicyUpdate | None) -> dict[str, int]:
    """Counters that must be reported; rejected groups are counted too."""
    groups = (*drawn.groups, *drawn.rejected)
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    verdicts = [verdict for group in groups for verdict in group.verdicts]
    # What was stopped at a chunk boundary on purpose was not sent to be judged.
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
