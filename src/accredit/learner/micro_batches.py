"""Which rows are run through the model together. Lengths in, row numbers out.

A micro-batch is a memory knob: nothing here may change a gradient, so every row is in
exactly one micro-batch and no row is cut.
"""

from collections.abc import Sequence


def micro_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Rows bucketed by length into micro-batches of at most `max_tokens` padded tokens.

    A micro-batch is padded to its own longest row, so rows of like length go together:
    longest first, which meets an out-of-memory error at once, and ties in their given
    order, which makes the result a function of the lengths alone.

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
    batches: list[list[int]] = []
    start = 0
    while start < len(order):
        size = max(1, max_tokens // lengths[order[start]])
        batches.append(order[start : start + size])
        start += size
    return batches
