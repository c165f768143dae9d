"""The critic of a run that is asked about single prefixes, by its section."""

import copy
from typing import Any

from accredit.critics.exact import ExactCritic, model_logits
from accredit.critics.prefix_configs import ExactConfig, PromptedConfig
from accredit.critics.prompted.critic import PromptedCritic
from accredit.critics.prompted.questions import Questions, template_named
from accredit.critics.value_head.asked import AskedHead
from accredit.critics.value_head.critic import ValueHeadCritic
from accredit.learner.learner import Learner
from accredit.models.loading import Pretrained, context_tokens
from accredit.protocols import Engine, PrefixCritic
from accredit.recipe.config import RunConfig
from accredit.tasks.configs import WalkConfig
from accredit.tasks.rendering import decoder
from accredit.tasks.walk_values import WalkValues


def prefix_critic_of(
    config: RunConfig,
    loaded: Pretrained,
    learner: Learner,
    engine: Engine,
    head: ValueHeadCritic | None,
) -> PrefixCritic | None:
    """The critic that AC2 asks; None for algorithms without one.

    `engine` samples from the policy for it, untimed, as whoever asks measures that;
    `head` is the value head, where the section has one.

    Raises:
        ValueError: the template and the model, or the task, do not fit.
    """
    options = getattr(config.algorithm, "critic", None)
    if isinstance(options, PromptedConfig):
        return prompted_critic(config, options, loaded, learner, engine)
    if isinstance(options, ExactConfig):
        stops = frozenset(loaded.stop_token_ids)
        return exact_critic(config, learner.model, loaded.tokenizer, stops)
    asks = config.algorithm.asks_prefixes
    return AskedHead(head) if asks and head is not None else None


def prompted_critic_line(config: RunConfig, critic: object = None) -> str | None:
    """What a critic without a head begins as, in one line; None where there is none.

    Where `critic` had to space its stem otherwise for this tokenizer, that is said.
    """
    options = getattr(config.algorithm, "critic", None)
    if isinstance(options, PromptedConfig):
        whose = (
            "the policy itself" if options.weights == "tied" else "a copy of the policy"
        )
        said = f"critic: {whose}, asked by the template {options.template!r}"
        if isinstance(critic, PromptedCritic) and critic.questions.stem_as_written:
            taken = critic.questions.template.stem
            said += (
                f"; its stem is {taken!r} here, as the tokenizer merges "
                f"{critic.questions.stem_as_written!r} with an answer"
            )
        return said
    if isinstance(options, ExactConfig):
        return "critic: exact values of walk, free of charge: a ceiling, not a method"
    return None


def prompted_critic(
    config: RunConfig,
    options: PromptedConfig,
    loaded: Pretrained,
    learner: Learner,
    engine: Engine,
) -> PromptedCritic:
    """The policy's own weights, or a copy of them, asked through the template."""
    section: Any = config.algorithm
    is_tied = options.weights == "tied"
    questions = Questions(
        template_named(options.template),
        loaded.tokenizer,
        stop_token_ids=loaded.stop_token_ids,
        max_new_tokens=config.max_new_tokens,
        grid_size=section.grid_size,
        chat=config.sampling.chat,
        max_context_tokens=context_tokens(loaded.model.config),
    )
    return PromptedCritic(
        learner.model if is_tied else copy.deepcopy(learner.model),
        questions,
        options,
        engine=engine if is_tied else None,
        grid_size=section.grid_size,
        target_rounding=section.target_rounding,
        micro_batch_tokens=config.learner.micro_batch_tokens,
        max_batch_tokens=config.engine.max_batch_tokens,
        max_batch_rows=config.engine.max_batch_rows,
        max_consecutive_skips=config.learner.max_consecutive_skips,
        is_tied=is_tied,
        tokenizer=loaded.tokenizer,
    )


def exact_critic(
    config: RunConfig, model: Any, tokenizer: Any, stop_token_ids: frozenset[int]
) -> ExactCritic:
    """Dynamic programming over what the model shows in each problem of `walk`.

    Raises:
        ValueError: the task is another, or not the whole distribution is sampled.
    """
    task, sampling = config.task, config.sampling
    if not isinstance(task, WalkConfig):
        raise ValueError(
            "algorithm.critic.kind = 'exact' knows the values of task 'walk' only, got "
            f"task {task.name!r}; take 'prompted' or 'value_head'"
        )
    if sampling.top_p < 1 or sampling.top_k > 0:
        raise ValueError(
            "algorithm.critic.kind = 'exact' needs the whole distribution, got "
            f"sampling.top_p = {sampling.top_p} and top_k = {sampling.top_k}; leave "
            "them out"
        )
    return ExactCritic(
        WalkValues(
            logits=model_logits(model),
            encode=lambda text: tokenizer(text, add_special_tokens=False)["input_ids"],
            decode=decoder(tokenizer, stop_token_ids),
            stop_token_ids=stop_token_ids,
            reward=task.reward,
            num_moves=task.num_moves,
            max_new_tokens=config.max_new_tokens,
            temperature=sampling.temperature,
        )
    )
