"""AdamW over a model's parameters, and its state as named tensors.

Saved by parameter name, so that a checkpoint is a safetensors file: no pickle, no
position in a list.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from accredit.models.finite import require_loadable, require_savable

LEAST_EPSILON = torch.finfo(torch.float32).tiny
"""Below it an epsilon is 0 in float32, and a weight without a gradient 0 / 0."""
MOST_EPSILON = torch.finfo(torch.float32).max
SLOTS = ("exp_avg", "exp_avg_sq", "step")
"""What AdamW keeps of a weight."""
COUNT = "num_tensors"
"""What the file says of itself: a tensor that is missing would begin anew unnoticed."""


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
        if not LEAST_EPSILON <= self.epsilon <= MOST_EPSILON:
            raise ValueError(
                f"epsilon must be in [{LEAST_EPSILON:.3g}, {MOST_EPSILON:.3g}], the "
                f"normal numbers of float32, got {self.epsilon}; 1e-8 is usual"
            )
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


def displacement(
    optimizer: torch.optim.Optimizer, moved: Iterable[nn.Parameter] | None = None
) -> float:
    """L2 distance that AdamW's last step moved the weights, read from its state.

        x = (1 - lr wd) x_old - lr u,    u = m_hat / (sqrt(v_hat) + eps)
        x - x_old = -lr (u + wd x) / (1 - lr wd)

    Needs no copy of the weights: one parameter after the other. Exact up to their
    rounding, which is float32's or better. To be read before weights or learning rates
    change again.

    Args:
        optimizer: Of `adamw`.
        moved: The parameters that had a gradient in that step, as AdamW leaves the
            others where they are, with the state of an older step; None says that all
            had one that have a state.

    Returns:
        0.0 before any step.

    Raises:
        ValueError: It is no AdamW.
    """
    if not isinstance(optimizer, torch.optim.AdamW):
        raise ValueError(
            "displacements are read from the state of an AdamW, got "
            f"{type(optimizer).__name__}; build the optimizer with `adamw`"
        )
    chosen = None if moved is None else {id(parameter) for parameter in moved}
    return math.hypot(
        *(
            _distance(parameter.detach(), optimizer.state[parameter], group)
            for group in optimizer.param_groups
            for parameter in group["params"]
            if optimizer.state.get(parameter)
            and (chosen is None or id(parameter) in chosen)
        )
    )


def _distance(
    x: Tensor, state: Mapping[str, Tensor], group: Mapping[str, Any]
) -> float:
    """L2 distance of one parameter."""
    first, second = group["betas"]
    step = float(state["step"])
    rate, decay = float(group["lr"]), group["weight_decay"]
    root = state["exp_avg_sq"].sqrt().div_(math.sqrt(1 - second**step))
    moves = state["exp_avg"] / root.add_(group["eps"])
    moves.div_(1 - first**step).add_(x, alpha=decay)
    norm = torch.linalg.vector_norm(moves, dtype=torch.float64)
    return rate * float(norm) / (1 - rate * decay)


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, model: nn.Module
) -> dict[str, Tensor]:
    """Every tensor of the optimizer's state, as `slot/parameter name`."""
    return {
        f"{slot}/{name}": tensor
        for name, parameter in model.named_parameters()
        for slot, tensor in optimizer.state.get(parameter, {}).items()
    }


def save_optimizer(
    file: Path, optimizer: torch.optim.Optimizer, model: nn.Module, owner: str
) -> None:
    """Writes the optimizer's state, and how many tensors it has.

    Raises:
        RuntimeError: A moment is not finite; `owner` says whose optimizer it is.
    """
    tensors = optimizer_tensors(optimizer, model)
    require_savable(f"the optimizer of {owner}", tensors.items())
    save_file(tensors, file, metadata={COUNT: str(len(tensors))})


def load_optimizer(
    file: Path, optimizer: torch.optim.Optimizer, model: nn.Module
) -> None:
    """Puts the optimizer where `save_optimizer` found it.

    Raises:
        ValueError: The file is missing, damaged, not finite or of another model.
    """
    if not file.is_file():
        raise ValueError(
            f"a checkpoint must hold {file.name}, got {file.parent} without it; name a "
            "whole one"
        )
    try:
        with safe_open(file, "pt") as opened:
            wanted = (opened.metadata() or {}).get(COUNT)
        tensors = load_file(file)
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(
            f"{file} must hold tensors, got a damaged file ({error}); restore it"
        ) from error
    require_loadable(str(file), tensors.items())
    if wanted != str(len(tensors)):
        raise ValueError(
            f"{file} must hold the {wanted} tensors that were saved, got "
            f"{len(tensors)}; restore it"
        )
    try:
        load_optimizer_tensors(optimizer, model, tensors)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]
) -> None:
    """Puts the optimizer where `optimizer_tensors` found it.

    Raises:
        ValueError: The tensors are of another model, or not all that a weight has.
    """
    parameters = dict(model.named_parameters())
    states: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        slot, _, name = key.partition("/")
        parameter = parameters.get(name)
        if (
            parameter is None
            or slot not in SLOTS
            or not tensor.is_floating_point()
            or tensor.shape != (() if slot == "step" else parameter.shape)
        ):
            raise ValueError(
                f"optimizer state must be of this model's parameters, got {key} of "
                f"shape {tuple(tensor.shape)}; resume with the model of the run"
            )
        device = parameter.device if tensor.ndim or parameter.is_cuda else "cpu"
        states.setdefault(name, {})[slot] = tensor.to(device, copy=True)
    for name, state in states.items():
        if len(state) != len(SLOTS):
            raise ValueError(
                f"optimizer state must hold {', '.join(SLOTS)} of a weight, got "
                f"{', '.join(sorted(state))} of {name}; restore the checkpoint"
            )
    optimizer.state.clear()
    for name, state in states.items():
        optimizer.state[parameters[name]] = state
