"""Who judges a run's tokens besides its verifier: a critic with weights, a teacher.

Both read the policy's own token ids, so both must have its vocabulary. A prompt of
their own is tried on every problem before anything is sampled.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from accredit.algorithms.build import Supplies
from accredit.algorithms.configs import OPDConfig
from accredit.algorithms.opd import PolicyAsTeacher, ShownTeacher, Teacher
from accredit.config import RunConfig
from accredit.critics.build import Show, build_critic
from accredit.critics.value_head import ValueHeadCritic
from accredit.engines.models import (
    PACKAGED,
    Pretrained,
    context_tokens,
    load_model,
    require_same_vocabulary,
)
from accredit.functional.flops import ModelShape
from accredit.learner.learner import Learner
from accredit.learner.teacher import Teacher as FrozenTeacher
from accredit.learner.teacher import teacher_folder
from accredit.tasks.rendering import shown_prompt_ids
from accredit.types import Prompt

POLICY_AS_TEACHER = "self"

RequireRoom = Callable[[str, str, int | None], None]
"""Called with (key of the template, template, context of who reads it)."""


def build_judges(
    config: RunConfig,
    loaded: Pretrained,
    learner: Learner,
    prompts: Sequence[Prompt],
) -> Supplies:
    """Critic and teacher, where the algorithm has one, on the learner's live policy.

    Raises:
        ValueError: one cannot be loaded, has another vocabulary, or has no room for
            its prompt.
    """
    show = partial(
        shown_prompt_ids,
        tokenizer=loaded.tokenizer,
        chat=config.sampling.chat,
        system=config.sampling.system,
    )
    require_room = partial(
        require_room_for, show=show, prompts=prompts, budget=config.max_new_tokens
    )
    return Supplies(
        max_new_tokens=config.max_new_tokens,
        critic=critic_of(config, loaded, learner, show, require_room),
        teacher=teacher_of(config, loaded, learner, show, require_room),
    )


def critic_of(
    config: RunConfig,
    loaded: Pretrained,
    learner: Learner,
    show: Show,
    require_room: RequireRoom,
) -> ValueHeadCritic | None:
    """The critic with parameters, where the algorithm has one."""
    if config.critic is None:
        return None
    critic = build_critic(
        config.critic,
        policy_model=learner.model,
        policy_tokenizer=loaded.tokenizer,
        show=show,
        micro_batch_tokens=config.learner.micro_batch_tokens,
        gradient_checkpointing=config.model.gradient_checkpointing,
        max_consecutive_skips=config.learner.max_consecutive_skips,
        seed=config.seed,
    )
    context = context_tokens(critic.trunk.module.config)
    require_room("algorithm.critic.template", config.critic.template, context)
    return critic


def teacher_of(
    config: RunConfig,
    loaded: Pretrained,
    learner: Learner,
    show: Show,
    require_room: RequireRoom,
) -> Teacher | None:
    """The teacher, where the algorithm names one: a model, or the live policy."""
    options = config.algorithm
    if not isinstance(options, OPDConfig):
        return None
    teacher: Teacher
    if options.teacher == POLICY_AS_TEACHER:
        shape = ModelShape.from_config(loaded.model.config)
        teacher, read_by = PolicyAsTeacher(learner, shape), loaded.model
    else:
        require_teacher(options.teacher)
        folder = teacher_folder(options.teacher)
        found = load_model(folder, torch.float32, learner.model.device)
        require_same_vocabulary(found.tokenizer, loaded.tokenizer, "a teacher")
        read_by = found.model
        teacher = FrozenTeacher(
            found.model,
            micro_batch_tokens=config.learner.micro_batch_tokens,
            temperature=config.sampling.temperature,
        )
    context = context_tokens(read_by.config)
    require_room("algorithm.template", options.template, context)
    if not options.template:
        return teacher
    return ShownTeacher(teacher, partial(show, options.template))


def require_teacher(path: str) -> None:
    """Nothing, where a teacher may lie at `path`.

    Raises:
        ValueError: it is no folder.
    """
    if path != PACKAGED and not (path and Path(path).is_dir()):
        raise ValueError(
            f"algorithm.teacher must be {POLICY_AS_TEACHER!r} or the directory of a "
            f"model or a run, got {path!r}, which is none; train that run first, or "
            "name another teacher"
        )


def require_room_for(
    key: str,
    template: str,
    context: int | None,
    *,
    show: Show,
    prompts: Sequence[Prompt],
    budget: int,
) -> None:
    """Nothing, where every prompt of a judge's own leaves room for a completion.

    Raises:
        ValueError: one does not, or a problem has no answer to be shown.
    """
    if not template:
        return
    longest = max((len(show(template, prompt)) for prompt in prompts), default=0)
    if context is not None and longest + budget > context:
        raise ValueError(
            f"{key} must leave room for a completion in a context of {context} tokens, "
            f"got a prompt of {longest} and sampling.max_new_tokens = {budget}; "
            "shorten either"
        )
