"""A recipe as living objects: model, engine, learner, task, world, algorithm.

The one place that knows which class stands behind which name.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from accredit.algorithms.build import build_algorithm
from accredit.critics.value_head.critic import ValueHeadCritic
from accredit.engines.local.engine import TransformersEngine
from accredit.environments.single_turn import SingleTurn
from accredit.functional.flops import ModelShape
from accredit.learner.learner import Learner, LearnerOptions
from accredit.learner.schedules import DECAYS, Schedule
from accredit.models.loading import Pretrained, context_tokens, load_model
from accredit.models.optimizer import AdamWOptions
from accredit.models.template_arguments import give_template_arguments
from accredit.protocols import (
    Engine,
    Environment,
    PrefixCritic,
    TrainableCritic,
    Verifier,
)
from accredit.recipe.config import RunConfig
from accredit.recipe.plugins import built, is_plugin
from accredit.runs.sources import build_parts, source_folders
from accredit.tasks.build import Task, build_task
from accredit.tasks.rendering import decoder, render_all
from accredit.tasks.source import ShuffledPrompts
from accredit.types import Prompt, Sampling
from accredit.verification.answered import Turns
from accredit.world import Algorithm, Clock, TimedEngine, TimedVerifier, World

TINY = 20_000_000
"""Parameters under which a second thread only waits for the first."""


@dataclass(frozen=True)
class Assembly:
    """Everything a run needs, built."""

    config: RunConfig
    world: World
    algorithm: Algorithm
    critic: TrainableCritic | PrefixCritic | None
    """The algorithm's, where it has parameters: to be saved with the policy."""
    folders: Mapping[str, str]
    """Of critic and teacher, where the recipe names one."""
    task: Task
    evaluation_prompts: tuple[Prompt, ...]
    dropped: dict[str, str]
    """Why each problem that is not asked was left out."""
    num_unknown: int
    """Prompts that hold text for which the tokenizer has no token."""
    context_tokens: int | None
    """Longest sequence that the model was made for; None where it does not say."""
    tokenizer: Any
    """Of the policy; a checkpoint is a model directory with it."""
    decode: Callable[[Sequence[int]], str]
    """Token ids as text, special tokens kept."""
    read: Callable[[Sequence[Sequence[int]]], list[str]]
    """Completions as the text that is verified."""
    from_python: frozenset[str] = frozenset()
    """Parts that came as arguments, not from the recipe: `algorithm`, `task`."""

    @property
    def plan(self) -> str:
        """What a run does, in one line for the screen."""
        config, algorithm = self.config, self.config.algorithm
        return (
            f"plan: {algorithm.name}, {config.steps} steps of "
            f"{algorithm.prompts_per_step} prompts x {algorithm.group_size} rollouts, "
            f"learning rate {config.learner.learning_rate:g}; {len(self.task.train)} "
            f"problems to train on, {len(self.evaluation_prompts)} to evaluate on"
        )

    def close(self) -> None:
        """Lets go of what runs beside this process."""
        self.task.verifier.close()


def assemble(
    config: RunConfig,
    folders: Mapping[str, str] | None = None,
    *,
    algorithm: Algorithm | None = None,
    task: Task | None = None,
) -> Assembly:
    """Builds a run from its recipe.

    Args:
        config: The recipe.
        folders: The critic and teacher of a run that goes on; None looks for them anew.
        algorithm: Takes the place of the recipe's.
        task: Takes the place of the recipe's; closed with the run.

    Raises:
        ValueError: the model, the data or their combination cannot work.
    """
    given = {"algorithm": algorithm, "task": task}
    names = frozenset(name for name, part in given.items() if part is not None)
    if folders is None:
        folders = source_folders(config)
    task = task or task_of(config)
    try:
        built = assembled(config, task, folders)
    except BaseException:
        task.verifier.close()
        raise
    return replace(built, algorithm=algorithm or built.algorithm, from_python=names)


def assembled(config: RunConfig, task: Task, folders: Mapping[str, str]) -> Assembly:
    """The run around a task that is built already."""
    device = chosen_device(config.model.device)
    loaded = loaded_policy(config, device)
    sampling = config.sampling
    render = partial(
        render_all,
        tokenizer=loaded.tokenizer,
        max_prompt_tokens=longest_prompt(config, loaded.model.config),
        chat=sampling.chat,
        system=sampling.system,
    )
    train = render(task.train)
    held_out = render(task.evaluation[: config.evaluation.max_problems])
    clock = Clock()
    learner = build_learner(config, loaded.model, partial(reload, config, device))
    learner.watch = clock.updated
    sampler = build_sampler(config, learner.model, loaded.stop_token_ids, clock)
    engine = TimedEngine(sampler, clock)
    turns = Turns(decoder(loaded.tokenizer, loaded.stop_token_ids, config.task.reads))
    world = World(
        problems=ShuffledPrompts(train.prompts, config.seed),
        environment=environment_of(config, task, engine, turns, loaded, clock),
        engine=engine,
        learner=learner,
        sampling=Sampling(sampling.temperature, sampling.top_p, sampling.top_k),
        shape=ModelShape.from_config(loaded.model.config),
        seed=config.seed,
        clock=clock,
    )
    parts = build_parts(config, loaded, learner, sampler, train.prompts, folders)
    set_critic_schedule(parts.critic, config)
    return Assembly(
        config=config,
        world=world,
        algorithm=build_algorithm(config.algorithm, parts),
        critic=parts.prefix_critic or parts.critic,
        folders=folders,
        task=task,
        evaluation_prompts=held_out.prompts,
        dropped={**train.dropped, **held_out.dropped},
        num_unknown=train.num_unknown + held_out.num_unknown,
        context_tokens=context_tokens(loaded.model.config),
        tokenizer=loaded.tokenizer,
        decode=partial(loaded.tokenizer.decode, skip_special_tokens=False),
        read=turns.decode,
    )


def environment_of(
    config: RunConfig,
    task: Task,
    engine: Engine,
    turns: Turns,
    loaded: Pretrained,
    clock: Clock,
) -> Environment:
    """How a rollout happens: the recipe's own environment is given the usual one."""
    usual = SingleTurn(
        engine,
        TimedVerifier(task.seen_by(turns), clock),
        turns.decode,
        max_new_tokens=config.max_new_tokens,
        seed=config.seed,
        max_context_tokens=context_tokens(loaded.model.config),
        answered=task.has_answer,
        read=turns.read,
    )
    if not is_plugin(config.environment.name):
        return usual
    return built(config.environment, Environment, usual)


def task_of(config: RunConfig) -> Task:
    """The task, scored by the recipe's own verifier where it names one."""
    task = build_task(config.task)
    if not is_plugin(config.verifier.name):
        return task
    try:
        verifier = built(config.verifier, Verifier, task)
    finally:
        task.verifier.close()
    return replace(task, verifier=verifier)


def build_learner(
    config: RunConfig, model: Any, reference: Callable[[], Any]
) -> Learner:
    """The learner with the recipe's optimizer and schedule."""
    options = config.learner
    return Learner(
        model,
        LearnerOptions(
            schedule=schedule_of(config),
            optimizer=AdamWOptions(
                betas=(options.beta1, options.beta2),
                epsilon=options.epsilon,
                weight_decay=options.weight_decay,
            ),
            max_gradient_norm=options.max_gradient_norm,
            micro_batch_tokens=options.micro_batch_tokens,
            temperature=config.sampling.temperature,
            gradient_checkpointing=config.model.gradient_checkpointing,
            max_consecutive_skips=options.max_consecutive_skips,
        ),
        reference=reference,
    )


def schedule_of(config: RunConfig) -> Schedule:
    """The learning rate of the policy over the run."""
    options = config.learner
    return Schedule(
        peak=options.learning_rate,
        decay=DECAYS[options.schedule],
        num_warmup_updates=options.warmup_steps,
        num_updates=config.num_policy_updates,
        final_share=options.final_share,
    )


def set_critic_schedule(critic: object, config: RunConfig) -> None:
    """The critic's learning rate over its updates, one a step, where it follows."""
    options = config.critic
    follows = options is not None and options.follows_schedule
    if not follows or not isinstance(critic, ValueHeadCritic):
        return
    critic.schedule = replace(
        schedule_of(config), peak=critic.config.learning_rate, num_updates=config.steps
    )


def loaded_policy(config: RunConfig, device: str) -> Pretrained:
    """The recipe's model, with its threads and its chat template's arguments set."""
    loaded = load_model(config.model.path, torch.float32, device)
    set_threads(config.threads, loaded.model)
    options = config.sampling
    give_template_arguments(loaded.tokenizer, options.template_arguments, options.chat)
    return loaded


def build_sampler(
    config: RunConfig, model: Any, stop_token_ids: Sequence[int], clock: Clock
) -> Engine:
    """The engine on the learner's own weights; it says how far it is."""
    if is_plugin(config.engine.kind):
        return built(config.engine, Engine, model, stop_token_ids)
    return TransformersEngine(
        model,
        stop_token_ids,
        max_batch_tokens=config.engine.max_batch_tokens,
        max_batch_rows=config.engine.max_batch_rows,
        watch=clock.sampled,
    )


def reload(config: RunConfig, device: str) -> Any:
    """The model the run began with, once more."""
    return load_model(config.model.path, torch.float32, device).model


def set_threads(wanted: int | None, model: Any) -> None:
    """The recipe's number of threads, else one for a tiny model.

    Raises:
        ValueError: this machine would not give so many.
    """
    most = max(16, 4 * (os.cpu_count() or 1))
    if wanted is not None and wanted > most:
        raise ValueError(
            f"threads must be at most {most} on this machine, got {wanted}; leave it "
            "out for a number that suits"
        )
    if wanted is None and sum(p.numel() for p in model.parameters()) < TINY:
        wanted = 1
    if wanted is not None:
        torch.set_num_threads(wanted)


def longest_prompt(config: RunConfig, model_config: Any) -> int:
    """The recipe's limit, and room for at least one token in the model's context."""
    context = context_tokens(model_config)
    limit = config.sampling.max_prompt_tokens
    return limit if context is None else min(limit, context - 1)


def chosen_device(name: str) -> str:
    """`auto` is CUDA where there is one.

    Raises:
        ValueError: CUDA is asked for and absent.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("model.device = 'cuda' needs a GPU, got none; use 'auto'")
    return name
