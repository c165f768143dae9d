"""Small real worlds in memory: random policy, engine, learner, and a fake verifier.

Everything but the verifier is what a run has; no file, no tokenizer, no process.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from accredit.algorithms.build import Parts, build_algorithm
from accredit.algorithms.opd import PolicyAsTeacher, ShownTeacher, Teacher
from accredit.critics.build import build_critic
from accredit.critics.configs import ValueHeadConfig
from accredit.critics.value_head.critic import ValueHeadCritic
from accredit.engines.local.engine import TransformersEngine
from accredit.environments.single_turn import SingleTurn
from accredit.functional.flops import ModelShape
from accredit.learner.learner import Learner
from accredit.learner.options import LearnerOptions
from accredit.learner.schedules import Schedule
from accredit.learner.teacher import Teacher as FrozenTeacher
from accredit.loops.synchronous import advance, first_state
from accredit.protocols import Objective
from accredit.recipe.config import RunConfig, recipe_from, union_members
from accredit.records import PolicyUpdate, Record, State
from accredit.tasks.source import ShuffledPrompts
from accredit.types import (
    Batch,
    Group,
    Message,
    Prefix,
    Problem,
    Prompt,
    Rollout,
    Sampling,
    StopReason,
    Verdict,
)
from accredit.world import Algorithm, Clock, TimedEngine, World
from letter_critics import letter_critic
from tiny_models import decoder_settings, seeded

LETTERS = "abcdefgh"
BUDGET = 6
"""Tokens of a completion where a test does not say."""

ALGORITHMS = [
    member.model_fields["name"].default
    for member in union_members(RunConfig.model_fields["algorithm"])
]

REPLAYED = ("prefix_grpo", "ac2", "ac2_plus")
"""Those that go on from stored rollouts, and refill the store in each step."""

Reward = Callable[[str], float | None]


class LetterVerifier:
    """Scores texts with `reward`, in this process; counts what it was asked."""

    def __init__(self, reward: Reward) -> None:
        self.reward = reward
        self.num_asked = 0

    def verify(self, items: Sequence[tuple[Problem, str, Rollout]]) -> list[Verdict]:
        self.num_asked += len(items)
        rewards = [self.reward(text) for _, text, _ in items]
        return [Verdict(r, "" if r is not None else "no verdict") for r in rewards]

    def close(self) -> None:
        pass


def share_of_a(text: str) -> float:
    """Dense, and different between siblings: any algorithm can climb it."""
    return text.count("a") / max(len(text), 1)


def small_policy(seed: int = 0) -> PreTrainedModel:
    """One layer over eight letters; weights small enough to explore."""
    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    settings = decoder_settings(len(LETTERS)) | small | heads | ends
    config = Qwen3Config(**settings | {"initializer_range": 0.1})
    return seeded(Qwen3ForCausalLM, config, seed)


def prompts(count: int = 6) -> list[Prompt]:
    """Problems of one to three letters."""
    return [
        Prompt(
            Problem(f"p{n}", (Message("user", str(n)),)),
            tuple((n + k) % len(LETTERS) for k in range(1 + n % 3)),
        )
        for n in range(count)
    ]


def small_world(
    reward: Reward = share_of_a,
    *,
    seed: int = 0,
    rate: float = 2e-2,
    max_new_tokens: int = BUDGET,
    stop_token_ids: Sequence[int] = (),
    num_prompts: int = 6,
    reference: Callable[[], PreTrainedModel] = small_policy,
    **options: Any,
) -> World:
    """A world whose policy is `small_policy(seed)` and whose learner has `options`."""
    clock = Clock()
    learner_options = LearnerOptions(schedule=Schedule(peak=rate), **options)
    learner = Learner(small_policy(seed), learner_options, reference)
    engine = TimedEngine(TransformersEngine(learner.model, stop_token_ids), clock)

    def decode(completions: Sequence[Sequence[int]]) -> list[str]:
        return ["".join(LETTERS[i] for i in ids) for ids in completions]

    verifier = LetterVerifier(reward)
    return World(
        problems=ShuffledPrompts(prompts(num_prompts), seed),
        environment=SingleTurn(engine, verifier, decode, max_new_tokens, seed),
        engine=engine,
        learner=learner,
        sampling=Sampling(),
        shape=ModelShape.from_config(learner.model.config),
        seed=seed,
        clock=clock,
    )


REPLAY: dict[str, Any] = {"num_refill": 3, "replay_capacity": 8}
ASKED: dict[str, Any] = {
    "critic_capacity": 24,
    "records_per_step": 12,
    "grid_size": 6,
    "critic": {"kind": "prompted", "learning_rate": 1e-3},
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "ppo": {"critic": {"warmup_steps": 0, "learning_rate": 1e-2}},
    "sao": {"critic": {"warmup_steps": 0, "learning_rate": 1e-2}},
    "pact": {"critic": {"warmup_steps": 0, "learning_rate": 1e-2}},
    "opd": {"teacher": "TEACHER"},
    "vine": {"num_continuations": 4, "chunk_length": 2},
    "prefix_grpo": REPLAY,
    "ac2": REPLAY | ASKED,
    "ac2_plus": REPLAY | ASKED,
}
"""What a test gets that does not say: sizes and rates for a model of one layer."""


def algorithm(
    name: str, max_new_tokens: int = BUDGET, world: World | None = None, **keys: Any
) -> Algorithm:
    """An algorithm as a recipe names it; three prompts and four siblings by default.

    Keys of the critic are dotted (`critic.trunk`) or a mapping. A critic's backbone is
    `small_policy`, or that of the world's learner; prefixes are asked in letters.
    """
    section = {"name": name, "prompts_per_step": 3, "group_size": 4}
    section |= copy.deepcopy(DEFAULTS.get(name, {}))
    for key, value in keys.items():
        outer, _, inner = key.partition(".")
        if inner:
            section.setdefault(outer, {})[inner] = value
        elif isinstance(value, dict):
            section[outer] = {**section.get(outer, {}), **value}
        else:
            section[outer] = value
    if section.get("critic", {}).get("kind") == "exact":
        untaught = ("critic_capacity", "records_per_step")
        section = {k: v for k, v in section.items() if k not in untaught}
        section["critic"] = {"kind": "exact"}
    recipe = {
        "algorithm": section,
        "sampling": {"max_new_tokens": max_new_tokens},
    }
    config = recipe_from(recipe, "test")
    learner = world.learner if world is not None else None
    critic = None if config.critic is None else small_critic(config.critic, learner)
    teacher = small_teacher(config.algorithm, learner) if name == "opd" else None
    asked = None
    if config.algorithm.asks_prefixes:
        model = small_policy() if learner is None else learner.model
        asked = letter_critic(config.algorithm, max_new_tokens, model, critic)
        critic = None
    parts = Parts(max_new_tokens, critic, asked, teacher)
    return build_algorithm(config.algorithm, parts)


def small_critic(config: ValueHeadConfig, learner: Any = None) -> ValueHeadCritic:
    """A critic on the learner's model, or on a fresh `small_policy`."""
    model = small_policy() if learner is None else learner.model
    return build_critic(config, policy_model=model, policy_tokenizer=None, show=spelled)


def small_teacher(config: Any, learner: Any = None) -> Teacher:
    """`lover_of_a`, or the learner's own policy, shown the template if there is one."""
    teacher: Teacher = FrozenTeacher(lover_of_a())
    if config.teacher == "self":
        teacher = PolicyAsTeacher(learner, ModelShape.from_config(learner.model.config))
    if not config.template:
        return teacher
    return ShownTeacher(teacher, partial(spelled, config.template))


def spelled(template: str, prompt: Prompt) -> tuple[int, ...]:
    """A template as letters, {prompt} being the prompt's own."""
    written = "".join(LETTERS[i] for i in prompt.token_ids)
    text = template.replace("{prompt}", written)
    return tuple(LETTERS.index(letter) for letter in text)


@cache
def lover_of_a() -> PreTrainedModel:
    """A policy that has learned to write little but the letter a."""
    world = small_world(seed=1, rate=5e-2)
    steps(algorithm("grpo"), world, 25)
    return copy.deepcopy(world.learner.model)


def steps(
    chosen: Algorithm, world: World, count: int, state: State | None = None
) -> tuple[State, list[Record]]:
    """State and records after so many steps."""
    state, records = state or first_state(chosen), []
    for _ in range(count):
        state, record = advance(chosen, state, world)
        records.append(record)
    return state, records


def mean_reward(records: Sequence[Record]) -> float:
    """As verified, over all rollouts of the steps."""
    rewards = [r for record in records for r in record.batch.rewards.tolist()]
    return sum(rewards) / len(rewards)


def weights(world: World) -> dict[str, Any]:
    """A copy of the policy's parameters."""
    return {n: p.detach().clone() for n, p in world.learner.model.named_parameters()}


def moved(world: World, before: dict[str, Any]) -> bool:
    """Whether any parameter differs from the copy."""
    return any(
        not bool((p.detach() == before[name]).all())
        for name, p in world.learner.model.named_parameters()
    )


def answered(
    prompt: Prompt, answers: Sequence[tuple[Sequence[int], float | None]]
) -> Group:
    """A group as an environment returns it: tokens and reward of each sibling."""
    return Group(
        prompt,
        tuple(
            finished(prompt, token_ids, sample)
            for sample, (token_ids, _) in enumerate(answers)
        ),
        tuple(Verdict(r, "" if r is not None else "broken") for _, r in answers),
    )


def finished(prompt: Prompt, token_ids: Sequence[int], sample: int = 0) -> Rollout:
    """A rollout that stopped, sampled with log-prob -2 a token."""
    sampled = torch.zeros(len(prompt.token_ids) + len(token_ids), dtype=torch.bool)
    sampled[len(prompt.token_ids) :] = True
    return Rollout(
        prompt,
        torch.tensor([*prompt.token_ids, *token_ids]),
        sampled,
        torch.where(sampled, -2.0, 0.0),
        StopReason.STOP,
        sample,
    )


@dataclass
class ScriptedEnvironment:
    """Answers each call with the next list of groups; remembers how it was asked.

    Where the script has ended, continuations are worth .5.
    """

    script: list[list[Group]]
    keys: list[tuple[int | str, ...]] = field(default_factory=list)
    asked: list[list[str]] = field(default_factory=list)

    def roll_out(
        self,
        prompts: Sequence[Prompt],
        group_size: int,
        sampling: Sampling,
        key: tuple[int | str, ...],
    ) -> list[Group]:
        self.keys.append(key)
        self.asked.append([prompt.problem.id for prompt in prompts])
        return self.script[len(self.keys) - 1]

    def continue_from(
        self,
        prefixes: Sequence[Prefix],
        group_size: int,
        sampling: Sampling,
        key: tuple[int | str, ...],
    ) -> list[Group]:
        if len(self.keys) < len(self.script):
            prompts = [prefix.prompt for prefix in prefixes]
            return self.roll_out(prompts, group_size, sampling, key)
        half = [((1,), 0.5)] * group_size
        return [answered(prefix.prompt, half) for prefix in prefixes]

    def has_answer(self, prompt: Prompt, written: Sequence[int]) -> bool:
        return False


@dataclass
class KnownLearner:
    """A learner that is told its log-probs and keeps the advantages it is given."""

    known: Tensor
    reference: Tensor
    version: int = 0
    num_consecutive_skips: int = 0
    num_updates: int = 0
    model: Any = None
    advantages: list[Tensor] = field(default_factory=list)
    entropy: float = 0.0
    """Of every sampled token."""

    def logprobs(self, batch: Batch) -> Tensor:
        return self.known

    def reference_logprobs(self, batch: Batch) -> Tensor:
        return self.reference

    def entropies(self, batch: Batch) -> Tensor:
        return torch.where(batch.sampled, self.entropy, 0.0)

    def begin(
        self,
        batch: Batch,
        advantages: Tensor,
        objective: Objective,
        seed: int,
        *,
        measures_displacement: bool = False,
    ) -> "UnmovedSteps":
        """Moves nothing."""
        self.advantages.append(advantages)
        count = objective.num_minibatches * objective.num_epochs
        return UnmovedSteps(torch.zeros_like(advantages), count, measures_displacement)

    def moved_by_others(self, num_steps: int) -> None:
        self.version += num_steps

    def save(self, folder: Path) -> None:
        raise NotImplementedError

    def load(self, folder: Path) -> None:
        raise NotImplementedError


@dataclass
class UnmovedSteps:
    """An update that takes its steps and moves nothing."""

    nothing: Tensor
    num_steps: int
    measures_displacement: bool

    def backward(self, index: int) -> bool:
        return True

    def descend(self) -> None:
        """No step."""

    def step(self, index: int) -> None:
        self.backward(index)
        self.descend()

    def run(self) -> PolicyUpdate:
        return self.result()

    def result(self) -> PolicyUpdate:
        zeros = (0.0,) * self.num_steps
        return PolicyUpdate(
            self.nothing,
            self.nothing,
            self.nothing,
            None,
            losses=zeros,
            gradient_norms=zeros,
            learning_rate=1.0,
            num_skipped=0,
            num_forward_tokens=0,
            num_backward_tokens=0,
            displacements=zeros if self.measures_displacement else (),
        )
