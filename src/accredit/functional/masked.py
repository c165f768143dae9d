"""Sums, means and variances over the kept entries of a tensor: the only definitions.

Whatever a masked-out slot holds, NaN and inf included, reaches neither a result nor a
gradient. Masks are True = keep. Nothing here knows what the entries mean.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

LOG_RATIO_BOUND = 20.0
"""Largest log-ratio that is exponentiated, in nats."""


def masked_sum(
    x: Float[Tensor, "*shape"], mask: Bool[Tensor, "*shape"], dim: int | None = None
) -> Float[Tensor, "..."]:
    """Sum of the kept entries.

        sum_i m_i x_i,    0 where nothing is kept

    Args:
        x: Summands; a slot that is not kept may hold anything.
        mask: True = keep.
        dim: The dimension summed over; None sums everything.
    """
    return torch.where(mask, x, 0.0).sum(dim)


def masked_mean(
    x: Float[Tensor, "*shape"], mask: Bool[Tensor, "*shape"], dim: int | None = None
) -> Float[Tensor, "..."]:
    """Mean of the kept entries.

        sum_i m_i x_i / sum_i m_i,    0 where nothing is kept

    Args:
        x: Entries; a slot that is not kept may hold anything.
        mask: True = keep.
        dim: The dimension averaged over; None averages everything.
    """
    return masked_sum(x, mask, dim) / mask.sum(dim).clamp(min=1)


def masked_variance(
    x: Float[Tensor, "*shape"], mask: Bool[Tensor, "*shape"], dim: int | None = None
) -> Float[Tensor, "..."]:
    """Unbiased variance (n - 1) of the kept entries.

        sum_i m_i (x_i - mean)^2 / (n - 1),    n = sum_i m_i, 0 where n < 2

    Centred, never E[x^2] - E[x]^2, and taken relative to the smallest kept entry: equal
    entries have a variance of exactly 0 in every precision.

    Args:
        x: Entries; a slot that is not kept may hold anything.
        mask: True = keep.
        dim: The dimension the variance is taken over; None takes everything.
    """
    if dim is None:
        return masked_variance(x.flatten(), mask.flatten(), 0)
    deviations = torch.where(mask, _centred(x, mask, dim), 0.0)
    return deviations.square().sum(dim) / (mask.sum(dim) - 1).clamp(min=1)


def whitened(
    x: Float[Tensor, "*shape"], mask: Bool[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """Kept entries shifted to mean 0 and scaled to unbiased variance 1.

        (x_i - mean) / deviation,    deviation with n - 1

    No epsilon: equal entries become exactly 0, and fewer than two kept entries have no
    deviation and stay as they are.

    Args:
        x: Entries; a slot that is not kept may hold anything.
        mask: True = keep.

    Returns:
        Pure numbers, exactly 0 where not kept; how much is not kept changes no bit.
    """
    kept = x[mask]
    if len(kept) < 2:
        return torch.where(mask, x, 0.0)
    everything = torch.ones_like(kept, dtype=torch.bool)
    variance = masked_variance(kept, everything)
    deviation = torch.where(variance > 0, variance, 1.0).sqrt()
    scaled = _centred(kept, everything, 0) / deviation
    return torch.zeros_like(x).masked_scatter(mask, scaled)


def masked_log_ratios(
    logprobs: Float[Tensor, "rollout token"],
    other_logprobs: Float[Tensor, "rollout token"],
    sampled: Bool[Tensor, "rollout token"],
) -> Float[Tensor, "rollout token"]:
    """Difference of two log-probs where sampled, exactly 0 elsewhere.

        log_ratio_t = logprob_t - other_logprob_t

    Masking the difference *before* it is exponentiated keeps an overflow behind the
    mask out of the loss and out of the gradient; masking the exponential does not.
    """
    return torch.where(sampled, logprobs - other_logprobs, 0.0)


def bounded_ratios(log_ratios: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Ratios of log-ratios, bounded before they are exponentiated.

        ratio = exp(min(log_ratio, 20))

    One token whose ratio overflows would make the loss of its whole step infinite, and
    the step be left out. Up to e^20, 485 million, a ratio is what it is. Beyond the
    bound it is a constant, without gradient.
    """
    return log_ratios.clamp(max=LOG_RATIO_BOUND).exp()


def _centred(x: Tensor, mask: Tensor, dim: int) -> Tensor:
    """Kept entries minus their mean; junk-free but meaningless where not kept."""
    if x.shape[dim] == 0:
        return x
    kept = torch.where(mask, x, torch.inf)
    # Offsets from a member are exactly 0 in an equal set, where x - mean may not be.
    origin = torch.where(mask, kept.amin(dim, keepdim=True), 0.0).detach()
    offsets = torch.where(mask, x, 0.0) - origin
    return offsets - masked_mean(offsets, mask, dim).unsqueeze(dim)
