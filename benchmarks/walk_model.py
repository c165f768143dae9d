"""The packaged model on `walk`, and what is known exactly about what it writes.

The model imitates the beliefs of `tasks/walk.py`, under which V of every prefix follows
by dynamic programming; the problems here mix easy and hard ones, so that V spreads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from accredit.batches.collate import collate
from accredit.critics.build import build_critic
from accredit.critics.configs import ValueHeadConfig
from accredit.critics.value_head.critic import ValueHeadCritic
from accredit.engines.local.engine import TransformersEngine
from accredit.environments.single_turn import SingleTurn
from accredit.learner.learner import Learner
from accredit.learner.options import LearnerOptions
from accredit.learner.schedules import Schedule
from accredit.models.loading import PACKAGED, Pretrained, load_model
from accredit.randomness import generator
from accredit.records import ValueTargets
from accredit.tasks import walk
from accredit.tasks.rendering import decoder, render_all
from accredit.types import Batch, Message, Prefix, Problem, Prompt, Sampling


@dataclass(frozen=True)
class WalkWorld:
    """A policy at work: model, engine, environment, and the exact values."""

    loaded: Pretrained
    num_moves: int
    seed: int

    @cached_property
    def environment(self) -> SingleTurn:
        """Samples from the model as it is at the time."""
        stops = self.loaded.stop_token_ids
        return SingleTurn(
            TransformersEngine(self.loaded.model, stops),
            walk.WalkVerifier(num_moves=self.num_moves),
            decoder(self.loaded.tokenizer, stops),
            max_new_tokens=walk.TOKENS_PER_MOVE * self.num_moves,
            seed=self.seed,
        )

    @cached_property
    def belief_values(self) -> np.ndarray:
        """Exact V by goal, moves left and cell, under the beliefs."""
        return walk.success_values(walk.belief_policy(), self.num_moves)

    def rolled_out(
        self, prompts: Sequence[Prompt], group_size: int, key: tuple[int | str, ...]
    ) -> Batch:
        """Verified rollouts as a batch."""
        groups = self.environment.roll_out(prompts, group_size, Sampling(), key)
        return collate(groups)

    def texts(self, batch: Batch) -> list[str]:
        """What each rollout wrote."""
        ids = [
            row[sampled].tolist()
            for row, sampled in zip(batch.token_ids, batch.sampled, strict=True)
        ]
        decode = decoder(self.loaded.tokenizer, self.loaded.stop_token_ids)
        return decode(ids)

    def exact_credits(self, batch: Batch) -> Tensor:
        """Exact credit of every sampled token under the beliefs; a stop token has 0."""
        credits = torch.zeros(batch.token_ids.shape)
        for row, text in enumerate(self.texts(batch)):
            told = batch.prompts[row].problem.metadata
            found = walk.walk_credits(
                self.belief_values, told["start"], told["goal"], text
            )
            places = batch.sampled[row].nonzero()[: len(found), 0]
            credits[row, places] = torch.from_numpy(found).float()
        return credits

    def exact_values(self, batch: Batch) -> Tensor:
        """Exact V of the prefix before every token, under the beliefs."""
        starts = torch.tensor([p.problem.metadata["success"] for p in batch.prompts])
        credits = self.exact_credits(batch)
        return starts[:, None] + credits.cumsum(1) - credits

    def mean_rewards(
        self, prefixes: Sequence[Prefix], count: int, key: tuple[int | str, ...]
    ) -> Tensor:
        """Monte Carlo V of each prefix under the policy as it is."""
        groups = self.environment.continue_from(prefixes, count, Sampling(), key)
        rewards = [[verdict.reward for verdict in g.verdicts] for g in groups]
        return torch.tensor(rewards, dtype=torch.float64).mean(1)


def packaged_world(num_moves: int, seed: int) -> WalkWorld:
    """The packaged model with weights of its own."""
    return WalkWorld(load_model(PACKAGED, torch.float32, "cpu"), num_moves, seed)


def mixed_prompts(
    world: WalkWorld, low: float = 0.1, high: float = 0.9
) -> tuple[Prompt, ...]:
    """Every problem whose start success lies in the range, in an order of the seed."""
    starts = walk.successes(world.belief_values)
    problems = [
        Problem(
            id=f"walk-{text}",
            messages=(Message("user", text),),
            answer=text[4:],
            metadata={"start": text[1:3], "goal": text[4:], "success": success},
        )
        for text, success in sorted(starts.items())
        if low <= success <= high
    ]
    prompts = render_all(problems, world.loaded.tokenizer, 64).prompts
    order = generator(world.seed, "order", world.num_moves).permutation(len(prompts))
    return tuple(prompts[i] for i in order)


def learner_of(world: WalkWorld, rate: float) -> Learner:
    """A learner that moves the world's own model."""
    options = LearnerOptions(schedule=Schedule(peak=rate))
    return Learner(world.loaded.model, options)


def critic_of(world: WalkWorld, **keys: object) -> ValueHeadCritic:
    """A value head on a copy of the world's model as it is."""
    return build_critic(
        ValueHeadConfig(**keys),
        policy_model=world.loaded.model,
        policy_tokenizer=world.loaded.tokenizer,
    )


def outcome_targets(batch: Batch) -> ValueTargets:
    """The reward of the rollout at every prefix before a sampled token."""
    targets = torch.where(batch.trainable, batch.rewards[:, None], 0.0)
    return ValueTargets(targets, torch.ones_like(targets), batch.trainable)


def prefixes_at(
    batch: Batch, count: int, draw: np.random.Generator
) -> tuple[list[Prefix], Tensor]:
    """Prefixes drawn evenly from all that a token was sampled after; their (row, t)."""
    places = batch.trainable.nonzero()
    chosen = places[draw.choice(len(places), count, replace=False)]
    prefixes = []
    for row, t in chosen.tolist():
        prompt = batch.prompts[row]
        written = batch.token_ids[row, len(prompt.token_ids) : t].tolist()
        prefixes.append(Prefix(prompt, tuple(written)))
    return prefixes, chosen
