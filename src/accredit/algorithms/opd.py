"""OPD: on-policy distillation, each sampled token judged by a teacher.

    A_t = log q(token t) - log p(token t)      q the teacher, p the policy before the
                                               update, both given the policy's prefix
    L_t = -min(rho_t A_t, clip(rho_t, 1 - low, 1 + high) A_t)
    J   = mean over all sampled tokens

PACT, arXiv:2609.26355, Theorem 2. In expectation the first step descends KL(p || q) of
every visited prefix, whose own distribution is held fixed: a token answers for itself
and not for where it leads (discount 0). For the ideal teacher q ~ p exp(Q / beta) this
is 1 / beta times the policy gradient: a teacher is an implicit critic.

Differs from the paper, which gives the theorem and no recipe:
- the log-probs of both are taken at the sampling temperature, in float32;
- the policy's are the trainer's, not the engine's: one more forward pass, in the cost
  with the teacher's;
- with `teacher = "self"` the teacher is the policy's live weights behind a prompt that
  shows a reference, so that it moves along;
- rewards are not learned from; they are verified for the report, and a rollout without
  a verdict is left out here as everywhere.

Credit is in nats, not in reward units. Not a success-conditioned teacher's rule: to
read values from log q / p it must be centred under p (Theorem 2).
"""

from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from accredit.algorithms.configs import OPDConfig
from accredit.algorithms.parts import drawn_from, objective
from accredit.algorithms.step import (
    ClipBounds,
    Draw,
    finished,
    publish,
    step_record,
    update_policy,
)
from accredit.batches.collate import collate
from accredit.batches.views import ShownPrompt, shown
from accredit.critics.group import ZeroBaseline
from accredit.functional.aggregation import token_mean
from accredit.functional.flops import ModelShape
from accredit.functional.policy_losses import clipped_surrogate
from accredit.protocols import Learner, Objective
from accredit.records import Cost, Credit, Drawn, Record, State
from accredit.types import Batch
from accredit.world import World, forward_cost


@runtime_checkable
class Teacher(Protocol):
    """Who knows a better next token, and what asking costs."""

    def logprobs(self, batch: Batch) -> Float[Tensor, "rollout token"]:
        """Of every sampled token, nats, without gradient; 0 elsewhere."""
        ...

    def logprobs_flops(self, batch: Batch) -> float: ...


@dataclass(frozen=True)
class PolicyAsTeacher:
    """The policy's weights as they are when they are asked."""

    learner: Learner
    shape: ModelShape

    def logprobs(self, batch: Batch) -> Float[Tensor, "rollout token"]:
        """The learner's current ones."""
        return self.learner.logprobs(batch)

    def logprobs_flops(self, batch: Batch) -> float:
        """Of one pass up to the last sampled tokens."""
        return forward_cost(batch, self.shape, num_passes=1).train_flops


@dataclass(frozen=True)
class ShownTeacher:
    """A teacher that reads the rollouts behind a prompt of its own."""

    inner: Teacher
    prompt_ids: ShownPrompt

    def logprobs(self, batch: Batch) -> Float[Tensor, "rollout token"]:
        """The inner teacher's, each at the policy's own token."""
        view = shown(batch, self.prompt_ids)
        return view.back(self.inner.logprobs(view.batch))

    def logprobs_flops(self, batch: Batch) -> float:
        """Of what is read, its own prompt included."""
        return self.inner.logprobs_flops(shown(batch, self.prompt_ids).batch)


@dataclass(frozen=True)
class OPD:
    """A teacher in place of critic and credit rule."""

    draw_groups: Draw
    teacher: Teacher
    objective: Objective
    clip_bounds: ClipBounds = None
    initial_memory: None = None

    def draw(self, state: State, world: World) -> Drawn:
        """Groups of the next problems."""
        return self.draw_groups(state, world)

    def learn(self, state: State, world: World, drawn: Drawn) -> tuple[State, Record]:
        """Ask the teacher about every token, update."""
        with world.clock.measure("step"):
            batch = collate(drawn.groups)
            # Of the rewards, which are not learned from.
            values = ZeroBaseline().values(batch, batch.rewards)
            with world.clock.measure("teacher"):
                logprobs = world.learner.logprobs(batch)
                taught = self.teacher.logprobs(batch)
            credit = distilled_credit(batch, logprobs, taught)
            policy = update_policy(
                self.objective, state, world, drawn, batch, credit.advantages
            )
            publish(world)
        record = step_record(drawn, batch, batch.rewards, values, credit, policy)
        asked = Cost(train_flops=self.teacher.logprobs_flops(batch))
        spent = forward_cost(batch, world.shape, num_passes=1) + asked
        return finished(state, world, drawn, record, spent=spent)


def opd(config: OPDConfig, teacher: Teacher) -> OPD:
    """A teacher in place of critic and credit rule."""
    loss = partial(
        clipped_surrogate, clip_low=config.clip_low, clip_high=config.clip_high
    )
    return OPD(
        draw_groups=drawn_from(config),
        teacher=teacher,
        objective=objective(config, loss, token_mean),
        clip_bounds=(config.clip_low, config.clip_high),
    )


def distilled_credit(
    batch: Batch,
    logprobs: Float[Tensor, "rollout token"],
    teacher_logprobs: Float[Tensor, "rollout token"],
) -> Credit:
    """How much likelier the teacher finds each sampled token than the policy does.

    A_t = log q(token t) - log p(token t), nats; exactly 0 where not trainable.
    """
    advantages = torch.where(batch.trainable, teacher_logprobs - logprobs, 0.0)
    return Credit(advantages.detach(), unit="nats")
