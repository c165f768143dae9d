"""The evenly spaced values between 0 and 1 that a critic can say.

Index k of a grid of size n speaks about k / (n - 1). Nothing here knows who says them.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

TIE_NOISE = 1e-9
"""As near to the middle between two grid values, a value lies on it."""
POINT_NOISE = 1e-6
"""As near to a grid value, a number is that value; float32 is finer by one digit."""


def grid_values(grid_size: int) -> list[float]:
    """All values of the grid, ascending.

        k / (n - 1),    k = 0..n-1

    Raises:
        ValueError: `grid_size` is below 2.
    """
    last = _last_index(grid_size)
    return [k / last for k in range(grid_size)]


def on_grid(x: Float[Tensor, " value"], grid_size: int) -> Float[Tensor, " value"]:
    """The nearest grid value of each entry, ties down.

        ceil((n - 1) clip(x, 0, 1) - 1/2) / (n - 1)

    Ties are found up to rounding: .15 and .35 lie between tenths, though neither is a
    binary number. NaN stays NaN. Carries no gradient.

    Args:
        x: Values; what lies outside [0, 1] is clipped to it.
        grid_size: n, at least 2.

    Raises:
        ValueError: `grid_size` is below 2.
    """
    last = _last_index(grid_size)
    noise = max(TIE_NOISE, 2 * torch.finfo(x.dtype).eps)
    positions = x.detach().clamp(0.0, 1.0) * last
    # Adding 0 makes 0 of -0.
    nearest = (positions - 0.5 - noise * last).ceil() + 0.0
    return nearest / last


def grid_shares(x: float, grid_size: int) -> dict[int, float]:
    """What each neighbouring grid value has of a number: linear interpolation.

        x = sum_k share_k k / (n - 1),    sum_k share_k = 1

    A number on the grid has one neighbour, itself.

    Args:
        x: What lies outside [0, 1] is clipped to it.
        grid_size: n, at least 2.

    Returns:
        Index k -> share_k > 0; one entry or two.

    Raises:
        ValueError: `grid_size` is below 2, or `x` is NaN.
    """
    last = _last_index(grid_size)
    if math.isnan(x):
        raise ValueError("x must be a number to lie on a grid, got nan; leave it out")
    position = min(max(x, 0.0), 1.0) * last
    nearest = round(position)
    if abs(position - nearest) <= POINT_NOISE * last:
        return {nearest: 1.0}
    below = math.floor(position)
    return {below: below + 1 - position, below + 1: position - below}


def _last_index(grid_size: int) -> int:
    if grid_size < 2:
        raise ValueError(
            f"grid_size must be >= 2, got {grid_size}; a grid holds 0 and 1 at least"
        )
    return grid_size - 1
