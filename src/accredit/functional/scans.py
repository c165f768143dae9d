"""Sums along right-padded steps: from a step to the end, or to the end of a window.

A padded step holds exactly 0 in the arguments and in the results, so that it adds no
bit to a real one. Nothing here knows what is summed.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad


def reverse_scan(
    increments: Float[Tensor, "rollout step"], decays: Float[Tensor, "rollout step"]
) -> Float[Tensor, "rollout step"]:
    """Decayed sum of what is still to come.

        x_t = increment_t + decay_t x_{t+1},    x = 0 after the last column

    Args:
        increments: What step t adds; 0 at padding.
        decays: What remains at step t of the sum that follows it; 0 at padding.
    """
    following = increments.new_zeros(len(increments))
    scanned: list[Tensor] = []
    for t in reversed(range(increments.shape[1])):
        following = increments[:, t] + decays[:, t] * following
        scanned.append(following)
    return torch.stack(scanned[::-1], dim=1) if scanned else increments


def window_sums(
    x: Float[Tensor, "rollout step"], width: int
) -> Float[Tensor, "rollout step"]:
    """Sum of each step and those after it, cut at the end.

        s_t = x_t + x_{t+1} + ... + x_{t+width-1},    x = 0 after the last column

    By doubling, in log2(width) additions: no difference of long sums, and how many
    columns of zeros follow changes no bit. A width of 1 gives x.

    Args:
        x: Summands; 0 at padding.
        width: Steps in the window, the first one included; >= 1.
    """
    sums, offset = torch.zeros_like(x), 0
    block, size = x, 1
    while size <= width:
        if width & size:
            sums = sums + _moved_up(block, offset)
            offset += size
        block, size = block + _moved_up(block, size), 2 * size
    return sums


def has_next(step_mask: Bool[Tensor, "rollout step"]) -> Bool[Tensor, "rollout step"]:
    """True where a real step follows."""
    followed = torch.zeros_like(step_mask)
    followed[:, :-1] = step_mask[:, 1:]
    return followed


def require_right_padding(step_mask: Bool[Tensor, "rollout step"]) -> None:
    """Nothing, where real steps come first in every row.

    Raises:
        ValueError: `step_mask` has a gap.
    """
    gaps = (step_mask[:, 1:] & ~step_mask[:, :-1]).any(dim=1)
    if bool(gaps.any()):
        row = int(gaps.nonzero()[0])
        raise ValueError(
            "step_mask must be True first and False after (right padding), got a gap "
            f"in row {row}; pack the sampled tokens with `decisions.chunk_steps` first"
        )


def _moved_up(x: Tensor, places: int) -> Tensor:
    """x_{t+places} at t, 0 where that is past the end."""
    return pad(x[:, places:], (0, min(places, x.shape[1])))
