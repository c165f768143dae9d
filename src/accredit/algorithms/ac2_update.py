"""Step 10 of AC2: policy and critic on the same weights, in a chosen order.

    A-C-A   actor minibatch 1, critic, the other actor minibatches
    A-C     all actor minibatches, critic
    C-A     critic, all actor minibatches

Each has an optimizer of its own. A joint loss is one step of the actor's optimizer on
the sum of both gradients, in its first minibatch.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from accredit.algorithms.ac2_visit import Visit
from accredit.algorithms.replay_configs import AC2Config
from accredit.algorithms.replay_memory import CriticMemory
from accredit.critics.prefix_configs import PromptedConfig
from accredit.protocols import Objective, PrefixCritic
from accredit.randomness import generator, keyed_seed
from accredit.records import Cost, CriticUpdate, PolicyUpdate, State
from accredit.replay import LessonBuffer, StoredLesson
from accredit.types import Attempt, Batch, Prompt, ValuedAttempt
from accredit.world import World

Teach = Callable[[], tuple[list[StoredLesson], Cost]]
"""What this step adds to the critic's buffer; called when the critic is to learn."""


@dataclass(eq=False)
class CriticTurn:
    """The critic's part of an update: what it adds to its buffer, and its step."""

    config: AC2Config
    critic: PrefixCritic
    memory: CriticMemory
    teach: Teach
    state: State
    world: World
    lessons: LessonBuffer = field(init=False)
    update: CriticUpdate | None = None
    cost: Cost = field(default_factory=Cost)
    is_done: bool = False

    def __post_init__(self) -> None:
        self.lessons = self.memory.lessons

    def take(self) -> None:
        """Adds this step's lessons, draws from the buffer and learns from them.

        The draw is without order, so that consecutive parts of it are random too.
        """
        drawn = self._drawn()
        size = -(-len(drawn) // self.config.critic_steps)
        with self.world.clock.measure("critic"):
            found = [
                self.critic.update(drawn[first : first + size], self.rate)
                for first in range(0, len(drawn), max(size, 1))
            ]
        taken = [update for update in found if update is not None]
        self.update = merged(taken) if taken else None
        if self.update is not None:
            self.world.learner.moved_by_others(self.update.num_policy_steps)

    @property
    def rate(self) -> float:
        """Learning rate of the critic's steps."""
        return self.memory.learning_rate

    def store(self) -> None:
        """Adds this step's lessons and learns nothing."""
        self._drawn()

    def add_gradient(self) -> None:
        """The same without a step: the policy's optimizer takes it."""
        drawn = self._drawn()
        if drawn:
            with self.world.clock.measure("critic"):
                self.update = self.critic.add_gradient(drawn)

    def _drawn(self) -> list[ValuedAttempt]:
        assert not self.is_done, "the critic has one turn a step"
        self.is_done = True
        added, spent = self.teach()
        self.cost = self.cost + spent
        self.lessons = self.lessons.added(added)
        draw = generator(self.world.seed, "critic lessons", self.state.step)
        prompts = {p.problem.id: p for p in self.world.problems.prompts}
        return [
            valued(lesson, prompts, self.memory, self.config)
            for lesson in self.lessons.drawn(self.config.records_per_step, draw)
            if lesson.problem_id in prompts
        ]


def merged(updates: Sequence[CriticUpdate]) -> CriticUpdate:
    """Several steps as one update; their displacements add up to a bound of its own."""
    moves = [u.displacement for u in updates if u.displacement is not None]
    return CriticUpdate(
        losses=tuple(loss for u in updates for loss in u.losses),
        gradient_norms=tuple(norm for u in updates for norm in u.gradient_norms),
        learning_rate=updates[-1].learning_rate,
        num_skipped=sum(u.num_skipped for u in updates),
        train_flops=math.fsum(u.train_flops for u in updates),
        displacement=math.fsum(moves) if moves else None,
        num_left_out=sum(u.num_left_out for u in updates),
        num_nonfinite=sum(u.num_nonfinite for u in updates),
        num_policy_steps=sum(u.num_policy_steps for u in updates),
    )


def valued(
    lesson: StoredLesson,
    prompts: Mapping[str, Prompt],
    memory: CriticMemory,
    config: AC2Config,
) -> ValuedAttempt:
    """A record of the buffer as it is taught now, with the reference it has by now."""
    return ValuedAttempt(
        Attempt(
            prompts[lesson.problem_id],
            lesson.token_ids,
            reference_of(lesson.problem_id, lesson.reference_ids, memory, config),
        ),
        lesson.target,
    )


def reference_of(
    problem_id: str,
    source: tuple[int, ...] | None,
    memory: CriticMemory,
    config: AC2Config,
) -> tuple[int, ...] | None:
    """The passing completion that the critic is shown: the source's own, the bank's.

    None of a failed rollout is ever shown.
    """
    options = config.critic
    if not isinstance(options, PromptedConfig) or options.reference == "none":
        return None
    banked = memory.bank.reference(problem_id)
    shows_source = options.reference == "source" and source is not None
    return source if shows_source else banked


def updated(
    config: AC2Config,
    turn: CriticTurn,
    batch: Batch,
    advantages: Float[Tensor, "rollout token"],
    objective: Objective,
) -> PolicyUpdate | None:
    """The policy's update with the critic's turn in its place.

    A step in which nobody can be learned from is the critic's alone.
    """
    world, state = turn.world, turn.state
    if not bool(batch.trainable.any()):
        turn.take()
        return None
    if config.order == "critic_actor" and not config.joint_loss:
        turn.take()
    seed = keyed_seed(world.seed, "minibatches", state.step)
    with world.clock.measure("update"):
        update = world.learner.begin(
            batch, advantages, objective, seed, measures_displacement=True
        )
        due = 0 if config.order == "actor_critic_actor" else update.num_steps - 1
        for index in range(update.num_steps):
            has_gradient = update.backward(index)
            if config.joint_loss and has_gradient and not turn.is_done:
                turn.add_gradient()
            update.descend()
            if index == due and not turn.is_done and not config.joint_loss:
                turn.take()
        policy = update.result()
    if not turn.is_done:
        turn.store()
    return policy


def lessons_of(visit: Visit, targets: Float[Tensor, " group"]) -> list[StoredLesson]:
    """A record of each group with a target: its prefix, and the source it is from."""
    return [
        StoredLesson.of(
            route.slot.prompt.problem.id, route.slot.written, target, route.slot.source
        )
        for route, target in zip(visit.routes, targets.tolist(), strict=True)
        if target == target
    ]
