"""Value losses: what a critic minimises, per prefix. Neither masked out nor averaged.

Values and targets are in reward units; logits become values by a sigmoid, or by the
mean over bins. Each loss is exactly 0 where not wanted, whatever its arguments hold
there. Nothing here knows where a target came from.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import logsigmoid


def squared_error(
    values: Float[Tensor, "rollout token"],
    value_targets: Float[Tensor, "rollout token"],
    where: Bool[Tensor, "rollout token"],
) -> Float[Tensor, "rollout token"]:
    """Half the squared error of each value.

        L_t = (V_t - R_t)^2 / 2,    0 where not wanted

    Args:
        values: Of the critic, with gradient.
        value_targets: What it should have said.
        where: True at the prefixes that are trained on.

    Returns:
        Squared reward units; no gradient reaches what is not wanted.
    """
    errors = torch.where(where, values - value_targets, 0.0)
    return 0.5 * errors.square()


def clipped_squared_error(
    values: Float[Tensor, "rollout token"],
    old_values: Float[Tensor, "rollout token"],
    value_targets: Float[Tensor, "rollout token"],
    where: Bool[Tensor, "rollout token"],
    *,
    clip: float,
) -> Float[Tensor, "rollout token"]:
    """The larger of the squared error and that of a value held near the old one.

        L_t = max((V_t - R_t)^2, (V'_t - R_t)^2) / 2
        V'_t = V_old + clamp(V_t - V_old, -clip, clip)

    As in the reference implementation of PPO (Schulman et al. 2017, arXiv:1707.06347):
    pessimistic, and without gradient once the clipped branch is the larger one.

    Args:
        values: Of the critic, with gradient.
        old_values: Of the critic at the start of the update.
        value_targets: What it should have said.
        where: True at the prefixes that are trained on.
        clip: Largest move from the old value that counts, reward units.

    Returns:
        Squared reward units; no gradient reaches what is not wanted.

    Raises:
        ValueError: `clip` is not positive.
    """
    if not clip > 0:
        raise ValueError(f"clip must be > 0, got {clip}; leave it out to never clip")
    moves = (values - old_values).clamp(-clip, clip)
    errors = torch.where(where, values - value_targets, 0.0)
    held_errors = torch.where(where, old_values + moves - value_targets, 0.0)
    return 0.5 * torch.maximum(errors.square(), held_errors.square())


def binary_cross_entropy(
    logits: Float[Tensor, "rollout token"],
    value_targets: Float[Tensor, "rollout token"],
    where: Bool[Tensor, "rollout token"],
) -> Float[Tensor, "rollout token"]:
    """Cross-entropy of a sigmoid value to a soft target (BCE).

        L_t = softplus(z_t) - Y_t z_t,    dL_t / dz_t = sigmoid(z_t) - Y_t

    The loss of Fu et al. 2026, arXiv:2609.26355. Targets are not clamped: one above 1
    pulls the logit up for ever, and its mean over rollouts is what the value nears. For
    a target m in (0, 1), the loss exceeds its minimum by at least 2 (V - m)^2.

    Args:
        logits: Of the critic, with gradient; its value is their sigmoid.
        value_targets: Any real numbers, of a mean in [0, 1].
        where: True at the prefixes that are trained on.

    Returns:
        Nats; no gradient reaches what is not wanted.
    """
    kept = torch.where(where, logits, 0.0)
    losses = -logsigmoid(-kept) - value_targets * kept
    return torch.where(where, losses, 0.0)


def categorical_cross_entropy(
    logits: Float[Tensor, "rollout token bin"],
    value_targets: Float[Tensor, "rollout token"],
    where: Bool[Tensor, "rollout token"],
    *,
    sigma: float = 0.75,
    low: float = 0.0,
    high: float = 1.0,
) -> Float[Tensor, "rollout token"]:
    """Cross-entropy of a value in bins to a target spread over them (HL-Gauss).

        L_t = -sum_b p_b(Y_t) log_softmax(z_t)_b,    p = smoothed_bins(Y_t)
        dL_t / dz_tb = softmax(z_t)_b - p_b(Y_t)

    Farebrother et al. 2024, arXiv:2403.03950.

    Args:
        logits: Of the critic, with gradient; its value is `bin_mean` of them.
        value_targets: Taken for the nearest end where outside [low, high].
        where: True at the prefixes that are trained on.
        sigma: As for `smoothed_bins`.
        low: Where the first bin begins.
        high: Where the last bin ends.

    Returns:
        Nats; no gradient reaches what is not wanted.

    Raises:
        ValueError: `sigma` is not positive, or the range is upside down.
    """
    wanted = smoothed_bins(value_targets, logits.shape[-1], sigma, low, high)
    kept = torch.where(where[..., None], logits, 0.0)
    losses = -(wanted * kept.log_softmax(-1)).sum(-1)
    return torch.where(where, losses, 0.0)


def smoothed_bins(
    targets: Float[Tensor, "*shape"],
    num_bins: int,
    sigma: float = 0.75,
    low: float = 0.0,
    high: float = 1.0,
) -> Float[Tensor, "*shape bin"]:
    """Probability of each bin under a normal distribution about the target.

        p_b = (Phi_{b+1} - Phi_b) / (Phi_n - Phi_0),    b = 0 .. n - 1
        Phi_b = (1 + erf((e_b - Y) / (sqrt(2) sigma w))) / 2
        e_b = low + b w,    w = (high - low) / n

    Farebrother et al. 2024, arXiv:2403.03950. The normal is cut at both ends of the
    range and normalised, so that a target within about two sigma of an end has a mean
    that lies further inside. As sigma goes to 0, everything goes into the target's bin.
    A target outside [low, high], as ratio times outcome may be, extends the line
    through the two ends, so that the mean keeps pace with it and the sum stays 1; some
    entries are then negative, as 1 - Y is in the soft cross-entropy of a Y above 1.

        p(Y) = p(high) + (Y - high) / (high - low) (p(high) - p(low)),    Y > high

    Args:
        targets: Reward units; no gradient.
        num_bins: Bins of equal width between low and high.
        sigma: Deviation of the normal, in bins.
        low: Where the first bin begins.
        high: Where the last bin ends.

    Returns:
        Sum to 1; probabilities within the range.

    Raises:
        ValueError: `sigma` is not positive, or the range is upside down.
    """
    if not sigma > 0:
        raise ValueError(f"sigma must be > 0 bins, got {sigma}; .75 is the paper's")
    width = _bin_width(num_bins, low, high)
    borders = torch.arange(num_bins + 1, dtype=targets.dtype, device=targets.device)
    held = targets.detach().clamp(low, high)
    inside = _smoothed((held - low) / width, borders, sigma)
    ends = _smoothed(borders[[0, -1]], borders, sigma)
    beyond = (targets.detach() - held) / (high - low)
    return inside + beyond[..., None] * (ends[1] - ends[0])


def _smoothed(
    centers: Float[Tensor, "*shape"], borders: Float[Tensor, " border"], sigma: float
) -> Float[Tensor, "*shape bin"]:
    """Mass of a normal about each center between the borders, all in bins."""
    below = 0.5 * torch.erf((borders - centers[..., None]) / (math.sqrt(2.0) * sigma))
    return below.diff(dim=-1) / (below[..., -1:] - below[..., :1])


def bin_mean(
    logits: Float[Tensor, "*shape bin"], low: float = 0.0, high: float = 1.0
) -> Float[Tensor, "*shape"]:
    """Value of a critic whose outputs are bins: the mean of their centers.

        V = sum_b softmax(z)_b (low + (b + 1/2) w),    w = (high - low) / n

    Equal logits give the middle of the range; V lies strictly inside it.

    Args:
        logits: Of the bins, in the last dimension.
        low: Where the first bin begins.
        high: Where the last bin ends.

    Raises:
        ValueError: The range is upside down.
    """
    num_bins = logits.shape[-1]
    width = _bin_width(num_bins, low, high)
    places = torch.arange(num_bins, dtype=logits.dtype, device=logits.device)
    return logits.softmax(-1) @ (low + (places + 0.5) * width)


def _bin_width(num_bins: int, low: float, high: float) -> float:
    if not low < high:
        raise ValueError(f"bins need low < high, got [{low}, {high}]; [0, 1] is usual")
    return (high - low) / num_bins
