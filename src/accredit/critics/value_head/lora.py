"""Adapters on the policy's live weights, so that a critic costs megabytes.

The trunk is a second tree of modules over the very storage of the policy's weights,
without gradient, and the adapters (Hu et al. 2021, arXiv:2106.09685) are put into that
tree only: the policy has none, keeps its own gradients, and its updates are seen by the
critic at once. Needs the extra `lora`.
"""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import PreTrainedModel

from accredit.critics.value_head.saved import tensors_of
from accredit.models.backbone import backbone_of, digest
from accredit.models.forward import without_dropout
from accredit.models.loading import quiet_transformers

ADAPTER_FILE = "adapter.safetensors"
ADAPTED = "base_layer"
"""What peft calls the linear map that an adapter stands beside."""


@dataclass(frozen=True, eq=False)
class LoraTrunk:
    """Saved as its adapters alone; what they adapt is the policy."""

    module: PreTrainedModel
    name: str = "lora"

    def save(self, folder: Path) -> None:
        """Writes the adapters."""
        tensors = {name: p.detach() for name, p in adapters(self.module).items()}
        save_file(tensors, folder / ADAPTER_FILE)

    def load(self, folder: Path) -> None:
        """Takes the adapters of a folder that `save` wrote.

        Raises:
            ValueError: it holds none, damaged ones, or those of another shape.
        """
        file = folder / ADAPTER_FILE
        if not file.is_file():
            raise ValueError(
                f"a saved critic with adapters must hold {ADAPTER_FILE}, got {folder} "
                "without it; name the folder that a run with trunk = 'lora' wrote"
            )
        saved, own = tensors_of(file), adapters(self.module)
        found = {name: tuple(tensor.shape) for name, tensor in saved.items()}
        expected = {name: tuple(p.shape) for name, p in own.items()}
        if found != expected:
            name = sorted(found.items() ^ expected.items())[0][0]
            raise ValueError(
                f"{folder} holds a critic checkpoint of another shape: {name} must be "
                f"{expected.get(name)}, got {found.get(name)}; name a critic of the "
                "same policy and algorithm.critic.lora_rank"
            )
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(saved[name])

    def policy_weights(self) -> str:
        """Of what is adapted, under the names it has in the policy."""
        return digest(
            (name.replace(f".{ADAPTED}.", "."), parameter)
            for name, parameter in self.module.named_parameters()
            if not parameter.requires_grad
        )


def adapted(
    model: PreTrainedModel, *, rank: int, alpha: float, seed: int
) -> PreTrainedModel:
    """The policy's backbone with adapters on every linear map, the policy untouched.

    The adapters begin as the identity: one factor is drawn by `seed`, the other is 0.

    Raises:
        ValueError: the extra `lora` is not installed.
    """
    try:
        with quiet_transformers():
            import peft as imported
    except ImportError as error:
        raise ValueError(
            "algorithm.critic.trunk = 'lora' needs peft, got none installed; "
            "pip install 'accredit[lora]'"
        ) from error
    # Its annotations want a whole alpha and give back any module.
    peft: Any = imported
    config = peft.LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=0.0, target_modules="all-linear"
    )
    with quiet_transformers(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return peft.inject_adapter_in_model(config, twin(backbone_of(model)))


def twin(backbone: PreTrainedModel) -> PreTrainedModel:
    """A second tree of modules over the same storage, without gradient."""
    memo: dict[int, Any] = {
        id(p): nn.Parameter(p.detach(), requires_grad=False)
        for p in backbone.parameters()
    }
    return without_dropout(copy.deepcopy(backbone, memo))


def adapters(backbone: PreTrainedModel) -> dict[str, nn.Parameter]:
    """What was put in: all that wants a gradient, by name."""
    return {n: p for n, p in backbone.named_parameters() if p.requires_grad}
