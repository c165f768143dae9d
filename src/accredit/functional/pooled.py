"""Means and extremes over all entries of a step; None where there is nothing."""

import math
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

Tokens = Float[Tensor, " token"]

LARGEST_LOG_RATIO = 60.0
"""Log-ratios beyond it count as it, so that one broken token leaves finite numbers."""
SMALLEST_SPREAD = 1e-6
"""Deviations below it, relative to the largest magnitude, are rounding."""


def mean(x: Tokens) -> float | None:
    """Of all entries."""
    return float(x.mean()) if len(x) else None


def finite_mean(x: Sequence[float]) -> float | None:
    """Of the entries that are finite: what was skipped is NaN."""
    finite = [entry for entry in x if math.isfinite(entry)]
    return share(math.fsum(finite), len(finite))


def finite_largest(x: Sequence[float]) -> float | None:
    """Of the entries that are finite."""
    return max((entry for entry in x if math.isfinite(entry)), default=None)


def largest(x: Tokens) -> float | None:
    """Of all entries."""
    return float(x.max()) if len(x) else None


def share(part: float | int, whole: float | int) -> float | None:
    """part / whole."""
    return part / whole if whole else None


def varies(x: Tokens) -> bool:
    """Whether the entries differ by more than rounding."""
    if len(x) < 2:
        return False
    scale = max(1.0, float(x.abs().max()))
    return float(x.std(correction=0)) > SMALLEST_SPREAD * scale


def log_ratios(logprobs: Tokens, old_logprobs: Tokens) -> Tokens:
    """logprobs - old_logprobs, held within `LARGEST_LOG_RATIO`."""
    difference = logprobs.double() - old_logprobs.double()
    return difference.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
