"""AdamW over a model's parameters, and its state as named tensors.

Saved by parameter name, so that a checkpoint is a safetensors file: no pickle, no
position in a list.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class AdamWOptions:
    """Knobs of AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101)."""

    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    """Of matrices; biases and norms are not decayed."""

    def __post_init__(self) -> None:
        if not all(0.0 <= beta < 1.0 for beta in self.betas):
            raise ValueError(f"betas must be in [0, 1), got {self.betas}")
        if not (self.epsilon > 0 and math.isfinite(self.epsilon)):
            raise ValueError(f"epsilon must be > 0, got {self.epsilon}")
        if not (self.weight_decay >= 0 and math.isfinite(self.weight_decay)):
            raise ValueError(f"weight_decay must be >= 0, got {self.weight_decay}")


def adamw(model: nn.Module, options: AdamWOptions) -> torch.optim.AdamW:
    """The optimizer of every parameter that wants a gradient."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise ValueError(
            "a model that learns needs a parameter that wants a gradient, got none"
        )
    groups = [
        {
            "params": [p for p in parameters if p.ndim >= 2],
            "weight_decay": options.weight_decay,
        },
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        betas=options.betas,
        eps=options.epsilon,
        fused=True,
    )


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, model: nn.Module
) -> dict[str, Tensor]:
    """Every tensor of the optimizer's state, as `slot/parameter name`."""
    return {
        f"{slot}/{name}": tensor
        for name, parameter in model.named_parameters()
        for slot, tensor in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]
) -> None:
    """Puts the optimizer where `optimizer_tensors` found it.

    Raises:
        ValueError: The tensors are of another model.
    """
    parameters = dict(model.named_parameters())
    states: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        slot, _, name = key.partition("/")
        parameter = parameters.get(name)
        if parameter is None or tensor.shape not in ((), parameter.shape):
            raise ValueError(
                f"optimizer state must be of this model's parameters, got {key} of "
                f"shape {tuple(tensor.shape)}; resume with the model of the run"
            )
        device = parameter.device if tensor.ndim or parameter.is_cuda else "cpu"
        states.setdefault(name, {})[slot] = tensor.to(device, copy=True)
    optimizer.state.clear()
    for name, state in states.items():
        optimizer.state[parameters[name]] = state
