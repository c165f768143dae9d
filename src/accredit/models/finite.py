"""Nothing that is not finite is trained on or saved: one definition for all owners.

A NaN in a weight spreads to every log-prob and to every later step, so that a run which
goes on with it saves noise and prunes what was good.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm


def not_finite(tensors: Iterable[tuple[str, Tensor]]) -> str | None:
    """The name of the first tensor with a NaN or an infinity; None where none has."""
    for name, tensor in tensors:
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            return name
    return None


def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Whether no entry is NaN or infinite; one pass where that is so."""
    if bool(get_total_norm(tensors).isfinite()):
        return True
    # A square may overflow where the entry does not.
    return not_finite(("", tensor) for tensor in tensors) is None


def require_savable(owner: str, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Nothing, where all may be written to a checkpoint.

    Raises:
        RuntimeError: one is not finite; `owner` says whose it is.
    """
    name = not_finite(tensors)
    if name is not None:
        raise RuntimeError(
            f"what is saved of {owner} must be finite, got NaN or infinity in {name}; "
            "nothing was written: resume from the checkpoint before, with a lower "
            "learning rate"
        )


def require_loadable(place: str, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Nothing, where all may be gone on with.

    Raises:
        ValueError: one is not finite; `place` says where it was read.
    """
    name = not_finite(tensors)
    if name is not None:
        raise ValueError(
            f"the tensors of {place} must be finite, got NaN or infinity in {name}; "
            "name a checkpoint from before it diverged"
        )


@torch.no_grad()
def weights_fault(owner: str, weights: Sequence[Tensor], rate: float) -> str | None:
    """What to say of the weights that a step left; None where they are finite."""
    if all_finite([weight.detach() for weight in weights]):
        return None
    return (
        f"the weights of {owner} must be finite after a step, got NaN or infinity in "
        f"them at learning rate {rate:g}; nothing of it is saved: lower the learning "
        "rate, or see whether epsilon and weight_decay suit float32, and resume from "
        "the checkpoint before"
    )
