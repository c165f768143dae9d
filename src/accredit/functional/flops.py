"""Floating-point operations of a decoder, counted from its shape.

One multiply-add is two operations. The decode ledger counts generated tokens only; the
full ledger adds prefill and training. Norms, rotations and softmaxes are not counted.
Needs no torch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ModelShape:
    """What a decoder's cost depends on: gated feed-forward, grouped-query attention."""

    num_layers: int
    hidden: int
    feed_forward: int
    """Inner width of the gated feed-forward; of the active experts together."""
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab: int

    def __post_init__(self) -> None:
        for name, size in vars(self).items():
            if size < 1:
                raise ValueError(f"{name} of a model must be at least 1, got {size}")

    @classmethod
    def from_config(cls, config: Any) -> "ModelShape":
        """The shape that a Hugging Face model configuration describes.

        Read by attribute name, so that any object with these attributes will do.
        Missing key-value heads are taken as one per head, a missing head width as
        hidden / heads, a missing inner width as 4 hidden, and experts as those active
        for one token with the shared ones. Every feed-forward is counted as gated,
        three matrices: an older one with two costs a little less than is said.

        Raises:
            ValueError: An attribute that has no stand-in is missing.
        """
        text = getattr(config, "text_config", None) or config
        num_heads = _attribute(text, "num_attention_heads")
        hidden = _attribute(text, "hidden_size")
        return cls(
            num_layers=_attribute(text, "num_hidden_layers"),
            hidden=hidden,
            feed_forward=_feed_forward(text),
            num_heads=num_heads,
            num_kv_heads=getattr(text, "num_key_value_heads", None) or num_heads,
            head_dim=getattr(text, "head_dim", None) or hidden // num_heads,
            vocab=_attribute(text, "vocab_size"),
        )

    @property
    def attention_parameters(self) -> int:
        """Matrix entries of the attention projections of all layers."""
        queries_outputs = 2 * self.hidden * self.num_heads * self.head_dim
        keys_values = 2 * self.hidden * self.num_kv_heads * self.head_dim
        return self.num_layers * (queries_outputs + keys_values)

    @property
    def layer_parameters(self) -> int:
        """Matrix entries of all layers: attention projections and feed-forward."""
        feed_forward = 3 * self.hidden * self.feed_forward
        return self.attention_parameters + self.num_layers * feed_forward

    @property
    def logit_parameters(self) -> int:
        """Matrix entries of the vocabulary projection."""
        return self.hidden * self.vocab


def decode_coefficients(shape: ModelShape) -> tuple[int, int]:
    """FLOPs of decoding one token: fixed, and per token of context (A, B).

        A = 2 (attention projections + gated feed-forward + vocabulary logits)
        B = 4 layers heads head_dim

    AC2, arXiv:2609.39247. Qwen3-4B has A = 8,044,544,000 and B = 589,824.
    """
    fixed = 2 * (shape.layer_parameters + shape.logit_parameters)
    per_context_token = 4 * shape.num_layers * shape.num_heads * shape.head_dim
    return fixed, per_context_token


def decode_flops(shape: ModelShape, num_prefix: int, num_new: int) -> int:
    """FLOPs of generating tokens after a prefix (the decode ledger).

        m = max(n - 1, 0)
        F = A m + B (m p + m (m + 1) / 2)

    AC2, arXiv:2609.39247. The first new token is the prefill's, so that one token costs
    nothing here.

    Args:
        shape: Of the model.
        num_prefix: p, tokens of prompt and prefix.
        num_new: n, tokens generated.

    Raises:
        ValueError: A count is negative.
    """
    _require_counts(num_prefix=num_prefix, num_new=num_new)
    fixed, per_context_token = decode_coefficients(shape)
    m = max(num_new - 1, 0)
    return fixed * m + per_context_token * (m * num_prefix + m * (m + 1) // 2)


def prefill_flops(shape: ModelShape, num_tokens: int, num_cached: int = 0) -> int:
    """FLOPs of reading a prefix and of the logits after its last token.

        F = (A - logits) (p - c) + logits + B sum_{j=c+1..p} j,    0 where p = c

    Args:
        shape: Of the model.
        num_tokens: p, tokens of prompt and prefix.
        num_cached: c, leading tokens whose keys and values are at hand.

    Raises:
        ValueError: A count is negative, or more tokens are cached than there are.
    """
    _require_counts(num_tokens=num_tokens, num_cached=num_cached)
    if num_cached > num_tokens:
        raise ValueError(
            f"num_cached must not exceed num_tokens, got {num_cached} of {num_tokens}"
        )
    if num_tokens == num_cached:
        return 0
    _, per_context_token = decode_coefficients(shape)
    layers = 2 * shape.layer_parameters * (num_tokens - num_cached)
    context = num_tokens * (num_tokens + 1) - num_cached * (num_cached + 1)
    return layers + 2 * shape.logit_parameters + per_context_token * context // 2


def forward_flops(shape: ModelShape, length: int) -> int:
    """FLOPs of one forward pass over a sequence, logits at every position.

        F = A L + B L (L + 1) / 2

    Raises:
        ValueError: `length` is negative.
    """
    _require_counts(length=length)
    fixed, per_context_token = decode_coefficients(shape)
    return fixed * length + per_context_token * length * (length + 1) // 2


def training_flops(
    shape: ModelShape,
    lengths: Sequence[int],
    num_forward_tokens: int,
    num_backward_tokens: int,
    num_frozen: int = 0,
) -> float:
    """FLOPs of a training step from the tokens it sent forward and backward.

        F = f (num_forward_tokens + 2 num_backward_tokens)
            - 2 num_frozen num_backward_tokens
        f = sum_i forward(L_i) / sum_i L_i

    The backward pass of a matrix multiplies twice, for the gradient of its input and
    for that of its entries; frozen entries have only the first. Exact where every
    sequence is passed equally often. A token that is trained on counts in both numbers;
    one recomputed under gradient checkpointing twice in the first.

    Args:
        shape: Of the model.
        lengths: Tokens of each sequence in the batch.
        num_forward_tokens: Through the model, with or without gradient.
        num_backward_tokens: Through the backward pass, at twice the forward's price.
        num_frozen: Matrix entries without a gradient that the backward pass crosses.

    Raises:
        ValueError: A count is negative, or more is frozen than there is.
    """
    _require_counts(
        num_forward_tokens=num_forward_tokens,
        num_backward_tokens=num_backward_tokens,
        num_frozen=num_frozen,
    )
    num_entries = shape.layer_parameters + shape.logit_parameters
    if num_frozen > num_entries:
        raise ValueError(
            f"num_frozen must not exceed the {num_entries} matrix entries, got "
            f"{num_frozen}"
        )
    total = sum(lengths)
    if total == 0:
        return 0.0
    per_token = sum(forward_flops(shape, length) for length in lengths) / total
    passed = per_token * (num_forward_tokens + 2 * num_backward_tokens)
    return passed - 2 * num_frozen * num_backward_tokens


def gpu_hours(
    decode_flops: float,
    other_flops: float,
    *,
    peak_flops_per_s: float = 989e12,
    decode_utilisation: float = 0.1,
    other_utilisation: float = 0.4,
) -> float:
    """Hours on one GPU that so many FLOPs take: an estimate, not a measurement.

        hours = (decode / u_decode + other / u_other) / peak / 3600

    The defaults are assumptions: peak is the dense bfloat16 rate of an H100 (SXM) by
    its data sheet; decoding reads all weights and the cache for every token, so that
    memory bounds it and little of the peak is reached; prefill and training are bound
    by the matrix units. What waits (verifiers, copies of weights) is not counted.

    Args:
        decode_flops: Of generated tokens, `decode_flops`.
        other_flops: Of prefill and training.
        peak_flops_per_s: Of one GPU.
        decode_utilisation: Share of the peak that decoding reaches, in (0, 1].
        other_utilisation: Share of the peak that the rest reaches, in (0, 1].

    Raises:
        ValueError: A count is negative or not finite, or a rate not positive.
    """
    counts = {"decode_flops": decode_flops, "other_flops": other_flops}
    for name, count in counts.items():
        if not 0 <= count < math.inf:
            raise ValueError(f"{name} must be finite and >= 0, got {count}")
    if not 0 < peak_flops_per_s < math.inf:
        raise ValueError(
            f"peak_flops_per_s must be finite and > 0, got {peak_flops_per_s}"
        )
    shares = {
        "decode_utilisation": decode_utilisation,
        "other_utilisation": other_utilisation,
    }
    for name, share in shares.items():
        if not 0 < share <= 1:
            raise ValueError(f"{name} must be in (0, 1], got {share}")
    at_peak = decode_flops / decode_utilisation + other_flops / other_utilisation
    return at_peak / peak_flops_per_s / 3600


def _feed_forward(config: Any) -> int:
    num_active = getattr(config, "num_experts_per_tok", None)
    if num_active:
        expert = _first(config, "moe_intermediate_size", "intermediate_size")
        num_shared = getattr(config, "n_shared_experts", None) or 0
        shared = getattr(config, "shared_expert_intermediate_size", None) or 0
        return (num_active + num_shared) * expert + shared
    return _first(config, "intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner")


def _first(config: Any, *names: str) -> int:
    """The first of the widths that the configuration states; else 4 hidden."""
    stated = (getattr(config, name, None) for name in names)
    return next(filter(None, stated), 4 * _attribute(config, "hidden_size"))


def _attribute(config: Any, name: str) -> int:
    found = getattr(config, name, None)
    if found is None:
        raise ValueError(
            f"a model configuration must have {name!r} to count its FLOPs, got a "
            f"{type(config).__name__} without it; build a `ModelShape` by hand"
        )
    return found


def _require_counts(**counts: int) -> None:
    for name, count in counts.items():
        if count < 0:
            raise ValueError(f"{name} must be >= 0, got {count}")
