"""What a value head reads: the backbone of a causal LM, and whose weights it has.

    own       a copy, or another directory's: nobody else reads or trains it
    shared    the policy's own module: the critic's steps move the policy's trunk
    lora      adapters on the policy's live weights; see `lora`

Each knows how to be written beside a head and read again.
"""

import copy
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from accredit.models.forward import without_dropout
from accredit.models.loading import load_backbone, quiet_transformers
from accredit.models.positions import row_limit
from accredit.models.probe import findings, lengths_to_try


@runtime_checkable
class Trunk(Protocol):
    """A backbone, and what of it belongs to the critic."""

    @property
    def name(self) -> str:
        """As in the recipe."""
        ...

    @property
    def module(self) -> PreTrainedModel:
        """Ids in, last hidden states out."""
        ...

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...

    def policy_weights(self) -> str:
        """Digest of what it reads of the policy's; nothing where it reads none."""
        ...


@dataclass(frozen=True, eq=False)
class OwnTrunk:
    """Saved as a plain Hugging Face directory of a backbone, with the tokenizer."""

    module: PreTrainedModel
    tokenizer: Any
    name: str = "own"

    def save(self, folder: Path) -> None:
        """Writes config, weights and tokenizer."""
        with quiet_transformers():
            self.module.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)

    def load(self, folder: Path) -> None:
        """Takes the weights of a folder that `save` wrote."""
        saved = load_backbone(folder, "cpu").model
        take_weights(self.module, saved.state_dict(), folder)

    def policy_weights(self) -> str:
        """None of them."""
        return ""


@dataclass(frozen=True, eq=False)
class SharedTrunk:
    """The policy's: the learner saves and loads it."""

    module: PreTrainedModel
    name: str = "shared"

    def save(self, folder: Path) -> None:
        """Writes nothing: it lies beside, as the policy."""

    def load(self, folder: Path) -> None:
        """Reads nothing: the policy's learner does."""

    def policy_weights(self) -> str:
        """Of the whole module."""
        return digest(self.module.named_parameters())


def digest(weights: Iterable[tuple[str, Tensor]]) -> str:
    """SHA-256 of names, shapes and bytes: equal for equal weights on any device."""
    found = hashlib.sha256()
    for name, tensor in sorted(weights, key=lambda item: item[0]):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        plain = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
        found.update(plain.numpy().data)
    return found.hexdigest()


def hidden_states(
    backbone: PreTrainedModel, token_ids: Int[Tensor, "rollout position"]
) -> Float[Tensor, "rollout position hidden"]:
    """The last hidden states, final norm included; bfloat16 where CUDA runs it.

    Raises:
        ValueError: the rows are longer than the backbone has positions.
    """
    limit = row_limit(backbone.config)
    if limit is not None and token_ids.shape[1] > limit:
        raise ValueError(
            f"what a critic reads must fit its {limit} positions, got "
            f"{token_ids.shape[1]} tokens; take a backbone with more of them, or show "
            "less in algorithm.critic.template"
        )
    kind = token_ids.device.type
    with torch.autocast(kind, dtype=torch.bfloat16, enabled=kind == "cuda"):
        return backbone(input_ids=token_ids, use_cache=False).last_hidden_state


def copied(model: PreTrainedModel) -> PreTrainedModel:
    """The backbone of a causal LM with weights of its own, in float32."""
    backbone = without_dropout(copy.deepcopy(backbone_of(model)).float())
    backbone.requires_grad_(True)
    return backbone


def backbone_of(model: PreTrainedModel) -> PreTrainedModel:
    """The backbone of a causal LM, itself.

    Raises:
        ValueError: the model does not keep its backbone apart from its output head.
    """
    backbone: Any = model.base_model
    if backbone is model:
        raise ValueError(
            "a value head needs a model whose backbone is apart from its output head, "
            f"got {type(model).__name__}; train another architecture"
        )
    return backbone


def freeze_attention(backbone: PreTrainedModel) -> None:
    """Leaves attention as it is: its parameters want no gradient any more.

    Raises:
        ValueError: no parameter is named like attention.
    """
    frozen = [p for name, p in backbone.named_parameters() if is_attention(name)]
    if not frozen:
        raise ValueError(
            "algorithm.critic.freeze_attention needs parameters named like attention, "
            f"got none in {type(backbone).__name__}; leave it out"
        )
    for parameter in frozen:
        parameter.requires_grad_(False)


def is_attention(name: str) -> bool:
    """Whether a parameter lies inside attention, by the modules on the way to it.

    The norm that many models call `post_attention_layernorm` does not.
    """
    *modules, _ = name.split(".")
    return any("attn" in part or part.endswith("attention") for part in modules)


def require_steady(backbone: PreTrainedModel) -> None:
    """Proves what right padding and training mode must not change; see `learner.probe`.

    Raises:
        ValueError: they change a hidden state.
    """

    def reading(token_ids: Tensor) -> Tensor:
        return backbone(input_ids=token_ids, use_cache=False).last_hidden_state

    if not all(findings(backbone, reading, lengths_to_try(backbone.config))):
        raise ValueError(
            "a critic's backbone must be causal and without noise, so that "
            "padding and training mode change no value, got "
            f"{type(backbone).__name__}, which they change; take another one"
        )


def take_weights(
    module: torch.nn.Module, saved: dict[str, Tensor], folder: Path
) -> None:
    """Copies saved weights into a module that must have all of them and no more.

    Raises:
        ValueError: names or shapes differ.
    """
    expected = module.state_dict()
    strangers = sorted(expected.keys() ^ saved.keys())
    if strangers:
        raise ValueError(
            f"{folder} must hold the weights of this critic, got names that differ: "
            f"{', '.join(strangers[:3])} ({len(strangers)} in all); name a critic of "
            "the same backbone"
        )
    for name, tensor in saved.items():
        if tensor.shape != expected[name].shape:
            raise ValueError(
                f"{folder} holds a critic checkpoint of another shape: {name} must be "
                f"{tuple(expected[name].shape)}, got {tuple(tensor.shape)}; name a "
                "critic of the same backbone"
            )
    module.load_state_dict(saved)
