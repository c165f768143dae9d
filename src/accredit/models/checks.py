"""Whether weights are those of their configuration, can be held, and compute."""

from pathlib import Path
from typing import Any

import torch

from accredit.functional.flops import ModelShape
from accredit.models.files import (
    FLOATS,
    Told,
    free_bytes,
    loading,
    stored_tensors,
)

MALFORMED = "correct its config.json, or copy the directory again"


def require_sane(config: Any, folder: Path) -> None:
    """Nothing, where numbers that only a training would stumble over are possible.

    Raises:
        Told: a dropout is no share, or there is no position for a token.
    """
    for key, value in config.to_dict().items():
        share = "dropout" in key or key.endswith("pdrop")
        if share and isinstance(value, int | float) and not 0.0 <= value <= 1.0:
            raise Told(f"{key} in {folder} must be a share, got {value}; {MALFORMED}")
    longest = getattr(config, "max_position_embeddings", None)
    if longest is not None and longest < 2:
        raise Told(
            f"max_position_embeddings in {folder} must be at least 2, got {longest}; "
            f"{MALFORMED}"
        )


def without_weights(config: Any) -> Any:
    """The causal LM of a configuration, which takes no memory."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def require_size(folder: Path, config: Any, dtype: torch.dtype) -> None:
    """Nothing, where the weights are those of the configuration and can be held.

    Raises:
        ValueError: they are another model's, no floating-point numbers, or too many.
    """
    stored = stored_tensors(folder)
    shape = ModelShape.from_config(config)
    if shape.num_layers > len(stored):
        raise ValueError(
            f"config.json of {folder} must describe the weights, got "
            f"{shape.num_layers} layers and {len(stored)} stored tensors; copy the "
            "directory again"
        )
    with loading("the model", folder, MALFORMED):
        parameters = dict(without_weights(config).named_parameters())
    for name in parameters.keys() & stored.keys():
        if stored[name].dtype not in FLOATS:
            raise ValueError(
                f"weights must be stored as {', '.join(FLOATS)}, got "
                f"{stored[name].dtype} for {name} in {folder}; save the model in one "
                "of these"
            )
    count = sum(parameter.numel() for parameter in parameters.values())
    needed, free = count * dtype.itemsize, free_bytes()
    if needed > free:
        raise ValueError(
            f"the model in {folder} must fit into memory, got {count:.3g} parameters "
            f"({needed / 1e9:.3g} GB) by its config.json, with {free / 1e9:.3g} GB free"
        )
    for name in sorted(parameters.keys() & stored.keys()):
        wanted = tuple(parameters[name].shape)
        if wanted != stored[name].shape:
            raise ValueError(
                f"config.json of {folder} must describe the weights, got the shape "
                f"{wanted} for {name} and {stored[name].shape} stored; copy the "
                "directory again"
            )


def require_running(model: Any, folder: Path) -> None:
    """Nothing, where the weights are finite and two tokens pass through the model.

    Raises:
        Told: a weight is no number, or what comes out is none or of another shape.
    """
    broken = [
        (name, "NaN" if bool(parameter.isnan().any()) else "infinite")
        for name, parameter in model.named_parameters()
        if not bool(parameter.isfinite().all())
    ]
    if broken:
        (name, kind), others = broken[0], len(broken) - 1
        raise Told(
            f"the weights in {folder} must be finite numbers, got {kind} weights in "
            f"{name}{f' and {others} more' if others else ''}; take a model, or a "
            "checkpoint, from before they broke"
        )
    with torch.inference_mode():
        logits = model(
            input_ids=torch.zeros((1, 2), dtype=torch.long, device=model.device),
            use_cache=True,
        ).logits
    rows = model.get_input_embeddings().num_embeddings
    if logits.shape[:2] != (1, 2) or logits.shape[2] > rows:
        raise Told(
            f"the model in {folder} must score its {rows} tokens, got scores of the "
            f"shape {tuple(logits.shape)}; {MALFORMED}"
        )
    if not bool(logits.isfinite().all()):
        raise Told(
            f"the model in {folder} must give finite scores, got NaN or infinite ones "
            f"for its first token; {MALFORMED}"
        )
