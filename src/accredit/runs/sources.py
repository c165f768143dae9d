"""Models that a recipe names beside the policy: a critic with weights, a teacher.

Both read the policy's own token ids, so both must have its vocabulary. What they are
shown is tried on every problem before anything is sampled.

A run that is named as one of them stands for its newest checkpoint, once: which folder
that was, and which weights lay there, is written into `sources.json` of the run that
begins, and a resumed run has the same or is refused.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from accredit.algorithms.build import Parts
from accredit.algorithms.opd import PolicyAsTeacher, ShownTeacher, Teacher
from accredit.critics.build import POLICY, Show, build_critic, critic_folder
from accredit.critics.configs import ValueHeadConfig
from accredit.critics.value_head.critic import ValueHeadCritic
from accredit.functional.flops import ModelShape
from accredit.learner.learner import Learner
from accredit.learner.teacher import Teacher as FrozenTeacher
from accredit.learner.teacher import teacher_folder
from accredit.models.loading import (
    PACKAGED,
    Pretrained,
    context_tokens,
    load_model,
    model_folder,
    require_same_vocabulary,
)
from accredit.protocols import Engine, PrefixCritic, TrainableCritic
from accredit.recipe.config import RunConfig
from accredit.recipe.plugins import built, is_plugin
from accredit.runs.prefix_critics import prefix_critic_of
from accredit.storage.checkpoint import fingerprint
from accredit.storage.files import require_plain, write_whole
from accredit.storage.folders import CRITIC_FOLDER
from accredit.tasks.rendering import shown_prompt_ids
from accredit.types import Prompt

POLICY_AS_TEACHER = "self"

CRITIC, TEACHER = "algorithm.critic.path", "algorithm.teacher"
"""The keys that name the folder of such a model."""
SOURCES_FILE = "sources.json"
SCHEMA = 1

RequireRoom = Callable[[str, str, str, int | None], None]
"""Called with (key of the template, key of the model, template, its context)."""


def source_folders(config: RunConfig) -> dict[str, str]:
    """The folders of the models that a recipe names, by key, as of this moment.

    Raises:
        ValueError: one is no folder, or a run without what is needed of it.
    """
    folders = {}
    if config.critic is not None and config.critic.path != POLICY:
        folders[CRITIC] = critic_folder(config.critic.path)
    teacher = named_teacher(config)
    if teacher is not None:
        require_teacher(teacher)
        folders[TEACHER] = teacher_folder(teacher)
    return folders


def named_teacher(config: RunConfig) -> str | None:
    """The teacher's folder in the recipe; None without one, or for the policy."""
    options: Any = config.algorithm
    if not options.needs_teacher or options.teacher == POLICY_AS_TEACHER:
        return None
    return options.teacher


def record_sources(run: Path, folders: Mapping[str, str]) -> None:
    """Writes down which models a run begins with; nothing where it names none."""
    if not folders:
        return
    sources = {
        key: {"folder": folder, "weights": weights_of(folder)}
        for key, folder in folders.items()
    }
    content = json.dumps({"schema": SCHEMA, "sources": sources}, indent=1)
    write_whole(run / SOURCES_FILE, content.encode())


def recorded_folders(
    config: RunConfig, run: Path, checkpoint: Path | None
) -> dict[str, str]:
    """The folders of the models of a run that is resumed, as when it began.

    A checkpoint holds the whole critic: where there is one, nothing else is read.

    Raises:
        ValueError: the weights of one are gone or others, or the record is.
    """
    folders = {}
    critic_is_named = config.critic is not None and config.critic.path != POLICY
    if critic_is_named and checkpoint is not None:
        folders[CRITIC] = str(checkpoint / CRITIC_FOLDER)
    elif critic_is_named:
        folders[CRITIC] = recorded_folder(CRITIC, run)
    if named_teacher(config) is not None:
        folders[TEACHER] = recorded_folder(TEACHER, run)
    return folders


def recorded_folder(key: str, run: Path) -> str:
    """Where a model of the run lay, and still lies.

    Raises:
        ValueError: nothing is recorded, or the weights there are not those.
    """
    file = run / SOURCES_FILE
    require_plain(file)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        source = content["sources"][key]
        folder, weights = str(source["folder"]), str(source["weights"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{file} must say which {key} the run began with, got no such line; "
            "restore the file, or start a new run"
        ) from error
    found = weights_of(folder)
    if found != weights:
        raise ValueError(
            f"{key} must be the weights that the run began with, got "
            f"{'others' if found else 'none'} in {folder}; restore that folder, or "
            "start a new run"
        )
    return folder


def weights_of(folder: str) -> str:
    """SHA-256 of all weight files of a folder; nothing where it has none."""
    path = model_folder(folder) if folder == PACKAGED else Path(folder)
    files = sorted(path.glob("*.safetensors"))
    lines = [f"{file.name} {fingerprint(file)['sha256']}" for file in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest() if lines else ""


def build_parts(
    config: RunConfig,
    loaded: Pretrained,
    learner: Learner,
    engine: Engine,
    prompts: Sequence[Prompt],
    folders: Mapping[str, str],
) -> Parts:
    """Critic and teacher, where the algorithm has one, on the learner's live policy.

    `folders` has those that the recipe names, as `source_folders` found them.

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
        require_room_for,
        show=show,
        prompts=prompts,
        budget=config.max_new_tokens,
        policy_context=context_tokens(loaded.model.config),
    )
    head = critic_of(config, loaded, learner, show, require_room, folders)
    critic: Any = head
    prefix_critic: Any = prefix_critic_of(config, loaded, learner, engine, head)
    own = own_critic(config, loaded, learner)
    if own is not None and config.algorithm.asks_prefixes:
        prefix_critic = own
    elif own is not None:
        critic = own
    return Parts(
        max_new_tokens=config.max_new_tokens,
        critic=critic,
        prefix_critic=prefix_critic,
        teacher=teacher_of(config, loaded, learner, show, require_room, folders),
    )


def own_critic(
    config: RunConfig, loaded: Pretrained, learner: Learner
) -> TrainableCritic | PrefixCritic | None:
    """Somebody's own critic, where the recipe names one.

    Raises:
        RecipeError: it is not of the kind that the algorithm asks.
    """
    section: Any = getattr(config.algorithm, "critic", None)
    if not is_plugin(getattr(section, "kind", None)):
        return None
    wanted = PrefixCritic if config.algorithm.asks_prefixes else TrainableCritic
    return built(section, wanted, learner.model, loaded.tokenizer)


def critic_section(
    config: RunConfig, folders: Mapping[str, str]
) -> ValueHeadConfig | None:
    """The section of the critic, about the folder that its path stands for."""
    if config.critic is None or config.critic.path == POLICY:
        return config.critic
    return config.critic.model_copy(update={"path": folders[CRITIC]})


def critic_of(
    config: RunConfig,
    loaded: Pretrained,
    learner: Learner,
    show: Show,
    require_room: RequireRoom,
    folders: Mapping[str, str],
) -> ValueHeadCritic | None:
    """The critic with parameters, where the algorithm has one."""
    options = critic_section(config, folders)
    if options is None:
        return None
    critic = build_critic(
        options,
        policy_model=learner.model,
        policy_tokenizer=loaded.tokenizer,
        show=show,
        micro_batch_tokens=config.learner.micro_batch_tokens,
        gradient_checkpointing=config.model.gradient_checkpointing,
        max_consecutive_skips=config.learner.max_consecutive_skips,
        seed=config.seed,
    )
    context = context_tokens(critic.trunk.module.config.get_text_config())
    require_room("algorithm.critic.template", CRITIC, options.template, context)
    return critic


def teacher_of(
    config: RunConfig,
    loaded: Pretrained,
    learner: Learner,
    show: Show,
    require_room: RequireRoom,
    folders: Mapping[str, str],
) -> Teacher | None:
    """The teacher, where the algorithm names one: a model, or the live policy."""
    options: Any = config.algorithm
    if not options.needs_teacher:
        return None
    teacher: Teacher
    if options.teacher == POLICY_AS_TEACHER:
        shape = ModelShape.from_config(loaded.model.config)
        teacher, read_by = PolicyAsTeacher(learner, shape), loaded.model
    else:
        found = load_model(folders[TEACHER], torch.float32, learner.model.device)
        require_same_vocabulary(found.tokenizer, loaded.tokenizer, "a teacher")
        read_by = found.model
        teacher = FrozenTeacher(
            found.model,
            micro_batch_tokens=config.learner.micro_batch_tokens,
            temperature=config.sampling.temperature,
        )
    context = context_tokens(read_by.config)
    require_room("algorithm.template", TEACHER, options.template, context)
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
    template_key: str,
    model_key: str,
    template: str,
    context: int | None,
    *,
    show: Show,
    prompts: Sequence[Prompt],
    budget: int,
    policy_context: int | None,
) -> None:
    """Nothing, where all that such a model may be shown fits its context.

    The policy's own context may end a completion before its budget does.

    Raises:
        ValueError: a prompt leaves no room, or a problem has no answer to be shown.
    """
    longest = 0, 0
    for prompt in prompts:
        asked = len(prompt.token_ids)
        shown = len(show(template, prompt)) if template else asked
        room = budget if policy_context is None else policy_context - asked
        longest = max(longest, (shown + min(budget, room), shown))
    needed, shown = longest
    if context is not None and needed > context:
        if template:
            key, advice = template_key, "shorten either"
        else:
            key, advice = model_key, "shorten either, or name a model with more room"
        raise ValueError(
            f"{key} must leave room for a completion in a context of {context} tokens, "
            f"got a prompt of {shown} and sampling.max_new_tokens = {budget}; {advice}"
        )
