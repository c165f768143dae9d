"""A saved critic alone: to value prefixes without the run that trained it."""

from functools import partial
from pathlib import Path
from typing import Any

import torch

from accredit.critics.build import Show
from accredit.critics.configs import ValueHeadConfig
from accredit.critics.value_head.critic import ValueHeadCritic
from accredit.critics.value_head.lora import LoraTrunk, adapted
from accredit.critics.value_head.saved import (
    Card,
    read_card,
    require_finite,
    saved_critic_folder,
)
from accredit.models.backbone import OwnTrunk, SharedTrunk, Trunk, backbone_of
from accredit.models.forward import without_dropout
from accredit.models.loading import load_backbone, load_model
from accredit.storage.folders import MODEL_FOLDER


def load_critic(
    path: str | Path,
    *,
    policy: str | Path | None = None,
    show: Show | None = None,
    device: str | torch.device = "cpu",
    micro_batch_tokens: int = 4096,
) -> ValueHeadCritic:
    """The critic that a folder, a checkpoint or a run holds, ready for `values`.

    Args:
        path: Of the saved critic, of a checkpoint with one, or of a run.
        policy: Directory of the model that a trunk without weights of its own belongs
            to; None takes the `model` beside the critic, as in a checkpoint.
        show: Makes token ids of the critic's own prompt, if it has one.
        device: Where it runs.
        micro_batch_tokens: Padded tokens run at once.

    Raises:
        ValueError: there is none, it lacks a part, or it needs one of the above.
    """
    if not Path(path).is_dir():
        raise ValueError(
            f"a critic is loaded from a folder, got {path}, where there is none; check "
            "the path, or train that run first"
        )
    folder = saved_critic_folder(Path(path))
    if folder is None:
        raise ValueError(
            f"a saved critic must hold a value head, got {path} without one; name a "
            "run, a checkpoint or the folder of a critic"
        )
    card = read_card(folder)
    if card.template and show is None:
        raise ValueError(
            f"the critic in {folder} has a prompt of its own, got no `show` that makes "
            "token ids of it; give the rendering of its run"
        )
    trunk = saved_trunk(card, folder, policy, device)
    critic = ValueHeadCritic(
        trunk,
        config_of(card),
        micro_batch_tokens=micro_batch_tokens,
        prompt_ids=partial(show, card.template) if show and card.template else None,
    )
    critic.take(folder)
    require_finite(critic.model, folder)
    critic.model.eval()
    return critic


def saved_trunk(
    card: Card, folder: Path, policy: str | Path | None, device: str | torch.device
) -> Trunk:
    """The trunk of a saved critic, on the policy's model where it needs one."""
    if card.trunk == "own":
        loaded = load_backbone(folder, device)
        return OwnTrunk(without_dropout(loaded.model), loaded.tokenizer)
    beside = folder.parent / MODEL_FOLDER
    if policy is None and not beside.is_dir():
        raise ValueError(
            f"the critic in {folder} has trunk = {card.trunk!r} and needs its policy's "
            "model, got none beside it; name the model's directory"
        )
    model: Any = load_model(policy or beside, torch.float32, device).model
    if card.trunk == "shared":
        return SharedTrunk(without_dropout(backbone_of(model)))
    return LoraTrunk(adapted(model, rank=card.lora_rank, alpha=card.lora_alpha, seed=0))


def config_of(card: Card) -> ValueHeadConfig:
    """The keys of a recipe that give a critic of this kind."""
    return ValueHeadConfig.model_validate(
        {
            "trunk": card.trunk,
            "output": card.output,
            "bin_sigma": card.bin_sigma,
            "reward_low": card.reward_low,
            "reward_high": card.reward_high,
            "template": card.template,
            "lora_rank": card.lora_rank,
            "lora_alpha": card.lora_alpha,
        }
        | ({"num_bins": card.num_outputs} if card.output == "categorical" else {})
    )
