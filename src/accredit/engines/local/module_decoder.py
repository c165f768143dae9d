"""Prefill and decoding steps of any causal LM module of transformers, by its forward.

The module makes its own attention masks from a mask over columns, so that sliding
windows, chunked attention and absolute positions are its own business.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from accredit.engines.local.cache import Rows, growing_cache, left_padded


class ModuleDecoder:
    """Next-token logits by the module's own forward."""

    def __init__(self, model: Any) -> None:
        # An adapter's wrapper hides the arguments of the module it wraps.
        wraps = hasattr(model, "get_base_model")
        module = model.get_base_model() if wraps else model
        self._names = set(inspect.signature(module.forward).parameters)
        if "past_key_values" not in self._names:
            raise ValueError(
                "the model's forward must take past_key_values, got "
                f"{type(module).__name__} without it; "
                "use a causal LM that keeps its cache there"
            )
        self._model = model

    def prefill(
        self, prompts: Sequence[tuple[int, ...]]
    ) -> tuple[Rows, Float[Tensor, "row vocab"]]:
        """Rows whose caches hold the prompts, and the logits of what comes next."""
        token_ids, mask = left_padded(prompts, self._model.device)
        lengths = mask.sum(dim=1)
        padded = len({len(prompt) for prompt in prompts}) > 1
        rows = Rows(growing_cache(self._model.config), mask, padded, lengths)
        positions = (mask.cumsum(dim=1) - 1).clamp_(min=0)
        return rows, self._forward(rows, token_ids, positions)

    def __call__(
        self, rows: Rows, tokens: Int[Tensor, " row"]
    ) -> Float[Tensor, "row vocab"]:
        """Writes `tokens` into the cache and returns what comes after them."""
        positions = rows.positions[:, None]
        rows.advance()
        return self._forward(rows, tokens[:, None], positions)

    def _forward(
        self,
        rows: Rows,
        token_ids: Int[Tensor, "row new_column"],
        positions: Int[Tensor, "row new_column"],
    ) -> Float[Tensor, "row vocab"]:
        inputs = {
            "input_ids": token_ids,
            "attention_mask": rows.mask if rows.padded else None,
            "past_key_values": rows.cache,
            "use_cache": True,
        }
        # Some architectures read positions off the mask and take no position_ids.
        for name, value in (("position_ids", positions), ("logits_to_keep", 1)):
            if name in self._names:
                inputs[name] = value
        return self._model(**inputs).logits[:, -1]


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """No dropout and no gradient inside; each submodule's training flag comes back."""
    trained = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for module in trained:
            module.training = True
