"""Which rows are run through the model together. Lengths in, row numbers out.

A micro-batch is a memory knob: nothing here may change a gradient, so every row is in
exactly one micro-batch and no row is cut.
"""

from collections.abc import Sequence

from jaxtyping import Int
from torch import Tensor

LEAST_PADDING = 128
"""Padding that is never worth a pass of its own: on a CPU core a pass costs as much as
50 to 100 tokens (models of 0.1M to 0.6M parameters)."""
PADDING_SHARE = 16
"""Of `max_tokens`, padding beyond one part in so many is worth another pass."""


def micro_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Rows bucketed by length into micro-batches of at most `max_tokens` padded tokens.

    A micro-batch is padded to its own longest row, so rows of like length go together:
    longest first, which meets an out-of-memory error at once, and ties in their given
    order, which makes the result a function of the lengths alone. A micro-batch also
    ends where its padding would cost more than another pass.

    Args:
        lengths: Tokens of each row, >= 1.
        max_tokens: Budget of rows x longest row. A row above it goes alone: it cannot
            be run any other way.

    Returns:
        Row numbers of each micro-batch; every row exactly once; none is empty.

    Raises:
        ValueError: `max_tokens` or a length is not positive.
    """
    if max_tokens < 1:
        raise ValueError(f"micro_batch_tokens must be >= 1, got {max_tokens}")
    if lengths and min(lengths) < 1:
        row = min(range(len(lengths)), key=lengths.__getitem__)
        raise ValueError(f"every row needs a token, got {lengths[row]} in row {row}")
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    most_padding = max(LEAST_PADDING, max_tokens // PADDING_SHARE)
    batches: list[list[int]] = []
    longest = padding = 0
    for row in order:
        padding += longest - lengths[row]
        if (
            batches
            and (len(batches[-1]) + 1) * longest <= max_tokens
            and padding <= most_padding
        ):
            batches[-1].append(row)
        else:
            batches.append([row])
            longest, padding = lengths[row], 0
    return batches


def row_parts(
    lengths: Int[Tensor, " row"], max_tokens: int
) -> list[tuple[Tensor, int]]:
    """Row numbers and width of each micro-batch; rows of length 0 are left out."""
    used = lengths.nonzero().squeeze(-1).cpu()
    sizes = lengths.cpu()[used].tolist()
    return [
        (used[chosen], sizes[chosen[0]]) for chosen in micro_batches(sizes, max_tokens)
    ]
