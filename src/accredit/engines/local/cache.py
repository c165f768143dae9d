"""Left-padded rows and their keys and values, which rows may enter and leave.

All rows write their next token into the same column, so that one slice assignment a
layer stores a step. Attention reads the columns written so far and no others. Knows
transformers' cache protocol; knows no sampling.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
)

BLOCK = 64
"""Columns by which a cache grows at least."""


class GrowingLayer(CacheLayerMixin):
    """Keys and values of one layer in buffers that grow by blocks.

    A sliding window is left to the attention mask: the layer keeps every column, so
    that rows of different lengths need no window of their own.
    """

    is_sliding = False
    keys: Any
    values: Any
    """Both are tensors from the first update on."""

    def __init__(self) -> None:
        super().__init__()
        self.length = 0
        """Columns written so far."""

    def lazy_initialization(
        self, key_states: Float[Tensor, "..."], value_states: Float[Tensor, "..."]
    ) -> None:
        """Empty buffers of the states' shapes, types and device."""
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys = key_states[:, :, :0]
        self.values = value_states[:, :, :0]
        self.is_initialized = True

    def reserve(self, length: int) -> None:
        """Makes room for `length` columns; what is written stays."""
        if length > self.keys.shape[2]:
            # An eighth more keeps the copies of a long generation linear.
            capacity = length + max(BLOCK, length // 8)
            self.keys = widened(self.keys[:, :, : self.length], capacity)
            self.values = widened(self.values[:, :, : self.length], capacity)

    def update(
        self,
        key_states: Float[Tensor, "row head new_column key_width"],
        value_states: Float[Tensor, "row head new_column value_width"],
        *args: Any,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor]:
        """Writes the next columns and returns all that are written, as views."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[2]
        self.reserve(end)
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Columns attended to by the next queries, and the first one's index."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Columns written so far."""
        return self.length

    def get_max_length(self) -> int:
        """No bound."""
        return -1


def widened(
    states: Float[Tensor, "row head column width"], capacity: int
) -> Float[Tensor, "row head capacity width"]:
    """The states at the start of a buffer with room for `capacity` columns."""
    rows, heads, length, width = states.shape
    buffer = states.new_empty(rows, heads, capacity, width)
    buffer[:, :, :length] = states
    return buffer


def growing_cache(config: Any) -> Cache:
    """The cache a model of this config needs, its attention layers growing in place.

    Layers of other kinds (recurrent, convolutional) stay as transformers makes them.
    """
    cache = DynamicCache(config=config)
    if not cache.layers:
        cache.layer_class_to_replicate = GrowingLayer
    plain = (DynamicLayer, DynamicSlidingWindowLayer)
    cache.layers = [
        GrowingLayer() if type(layer) in plain else layer for layer in cache.layers
    ]
    return cache


@dataclass(eq=False)
class Rows:
    """What a decoder carries from one token to the next."""

    cache: Cache
    mask: Bool[Tensor, "row column"]
    """True at real columns, False at left padding; one column a token written."""
    padded: bool
    """False promises that `mask` is True everywhere."""
    positions: Int[Tensor, " row"]
    """Position of the token that comes next, counted without padding."""

    @property
    def length(self) -> int:
        """Columns written so far."""
        return self.mask.shape[1]

    def advance(self) -> None:
        """One more real column for every row."""
        self.mask = torch.nn.functional.pad(self.mask, (0, 1), value=True)
        self.positions = self.positions + 1

    def select(self, indices: Int[Tensor, " new_row"]) -> None:
        """Rows become the named ones, for siblings to share and the finished to go."""
        # Of the cache's two selections, the one that recurrent layers have as well.
        cache: Any = self.cache
        cache.reorder_cache(indices)
        self.mask = self.mask[indices]
        self.positions = self.positions[indices]


def left_padded(
    prompts: Sequence[tuple[int, ...]], device: torch.device
) -> tuple[Int[Tensor, "row column"], Bool[Tensor, "row column"]]:
    """Token ids aligned at their ends, and where they are real.

    The id at padding is 0; nothing attends to it.
    """
    width = max(len(prompt) for prompt in prompts)
    token_ids = torch.tensor(
        [[0] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    )
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    mask = torch.arange(width)[None] >= width - lengths[:, None]
    return token_ids.to(device), mask.to(device)
