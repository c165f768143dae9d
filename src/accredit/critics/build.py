"""A recipe's critic on the policy of its run."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from accredit.critics.configs import ValueHeadConfig
from accredit.critics.value_head.critic import ValueHeadCritic
from accredit.critics.value_head.lora import LoraTrunk, adapted
from accredit.critics.value_head.saved import (
    read_card,
    require_finite,
    require_same,
    saved_critic_folder,
)
from accredit.models.backbone import (
    OwnTrunk,
    SharedTrunk,
    Trunk,
    backbone_of,
    copied,
    digest,
    freeze_attention,
    require_steady,
)
from accredit.models.forward import without_dropout
from accredit.models.loading import (
    PACKAGED,
    load_backbone,
    require_same_vocabulary,
)
from accredit.types import Prompt

Show = Callable[[str, Prompt], Sequence[int]]
"""(template, prompt) -> what a critic is shown in the prompt's place."""
POLICY = "policy"
"""The path that names the policy's own model."""


def build_critic(
    config: ValueHeadConfig,
    *,
    policy_model: PreTrainedModel,
    policy_tokenizer: Any,
    show: Show | None = None,
    micro_batch_tokens: int = 4096,
    gradient_checkpointing: bool = False,
    max_consecutive_skips: int = 10,
    seed: int = 0,
) -> ValueHeadCritic:
    """The critic that a section `[algorithm.critic]` describes.

    Build it on the learner's model, once that stands: a shared trunk is that very
    model, and adapters read its weights where they lie.

    Raises:
        ValueError: the path, the trunk and the policy do not fit together.
    """
    found = None
    if config.path != POLICY:
        require_folder(config.path)
        found = saved_critic_folder(Path(config.path))
        if found is not None:
            require_same("trunk", read_card(found).trunk, config.trunk, found)
        elif config.trunk != "own":
            raise ValueError(
                f"algorithm.critic.path must be 'policy' or a saved critic with trunk "
                f"= {config.trunk!r}, got {config.path}; a model directory goes with "
                "trunk = 'own'"
            )
    trunk = trunk_of(config, found, policy_model, policy_tokenizer, seed)
    if config.freeze_attention:
        freeze_attention(trunk.module)
    if gradient_checkpointing and config.trunk != "shared":
        trunk.module.gradient_checkpointing_enable({"use_reentrant": False})
    if config.template and show is None:
        raise ValueError(
            "a critic with a template needs `show`, which makes token ids of it, got "
            "none; give build_critic the rendering of the run"
        )
    critic = ValueHeadCritic(
        trunk,
        config,
        micro_batch_tokens=micro_batch_tokens,
        max_consecutive_skips=max_consecutive_skips,
        prompt_ids=partial(show, config.template) if show and config.template else None,
    )
    if found is not None:
        critic.take(found)
    return critic


def require_folder(path: str) -> None:
    """Nothing, where a critic may start from `path`, by what lies there.

    Raises:
        ValueError: it is no folder.
    """
    if path != PACKAGED and not (path and Path(path).is_dir()):
        raise ValueError(
            f"algorithm.critic.path must be {POLICY!r} or the directory of a model, a "
            f"saved critic or a run, got {path!r}, which is none; correct the path"
        )


def trunk_of(
    config: ValueHeadConfig,
    found: Path | None,
    policy_model: PreTrainedModel,
    policy_tokenizer: Any,
    seed: int,
) -> Trunk:
    """What the head reads; `found` is the saved critic that it starts from, if any."""
    if config.trunk == "shared":
        return SharedTrunk(without_dropout(backbone_of(policy_model)))
    if config.trunk == "lora":
        return LoraTrunk(
            adapted(
                policy_model,
                rank=config.lora_rank,
                alpha=config.lora_alpha,
                seed=seed,
            )
        )
    if config.path == POLICY:
        return OwnTrunk(copied(policy_model), policy_tokenizer)
    loaded = load_backbone(found or config.path, policy_model.device)
    require_same_vocabulary(loaded.tokenizer, policy_tokenizer, "a critic")
    backbone = without_dropout(loaded.model)
    require_finite(backbone, found or config.path)
    require_steady(backbone)
    return OwnTrunk(backbone, loaded.tokenizer)


def critic_folder(path: str) -> str:
    """The folder that `path` names: its own, or the critic's of a run's newest save.

    Raises:
        ValueError: it is no folder, or a run without a critic.
    """
    require_folder(path)
    return str(saved_critic_folder(Path(path)) or path)


def warnings_of(config: ValueHeadConfig, policy_model: PreTrainedModel) -> list[str]:
    """What a head or adapters lose that begin on another policy than they had."""
    found = None if config.path == POLICY else saved_critic_folder(Path(config.path))
    if found is None or config.trunk == "own":
        return []
    policy = digest(backbone_of(policy_model).named_parameters())
    if read_card(found).policy == policy:
        return []
    return [
        f"the critic of {found} was trained on other weights than the policy's, which "
        f"trunk = {config.trunk!r} reads: its first values mean little; set model.path "
        "to the policy it was saved with, or let it warm up"
    ]


def critic_line(config: ValueHeadConfig) -> str:
    """What a critic begins with, in one line for the screen."""
    found = None if config.path == POLICY else saved_critic_folder(Path(config.path))
    if found is not None:
        return f"critic: weights of {found}, fresh optimizer"
    backbone = "the policy's model" if config.path == POLICY else config.path
    return (
        f"critic: backbone of {backbone}, fresh head that says {config.first_value} of "
        "everything"
    )
