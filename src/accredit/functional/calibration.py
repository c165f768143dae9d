"""How far predictions are from outcomes: errors, bias, correlation, reliability.

A pair is one prediction v and what it predicted, r: a value and an outcome, or the
means of a group. Everything is taken in float64 on the CPU. None means that the
quantity does not exist, as the correlation with a constant or the mean of nothing; it
is not 0. NaN among the pairs gives NaN, and is refused where predictions are sorted
into bins.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor


class Reliability(NamedTuple):
    """What was predicted and what came, for pairs of nearly equal prediction."""

    counts: Int[Tensor, " bin"]
    mean_predictions: Float[Tensor, " bin"]
    """NaN where the bin is empty."""
    mean_outcomes: Float[Tensor, " bin"]
    """NaN where the bin is empty."""


def mean_absolute_error(
    predictions: Float[Tensor, " pair"], outcomes: Float[Tensor, " pair"]
) -> float | None:
    """Mean distance of prediction and outcome (MAE).

        mean_i |v_i - r_i|,    None without pairs

    Args:
        predictions: Reward units.
        outcomes: What came, in the same units.
    """
    return _mean((_exact(predictions) - _exact(outcomes)).abs())


def bias(
    predictions: Float[Tensor, " pair"], outcomes: Float[Tensor, " pair"]
) -> float | None:
    """Mean of prediction minus outcome: positive where too much was promised.

        mean_i (v_i - r_i),    None without pairs

    Args:
        predictions: Reward units.
        outcomes: What came, in the same units.
    """
    return _mean(_exact(predictions) - _exact(outcomes))


def brier_score(
    predictions: Float[Tensor, " pair"], outcomes: Float[Tensor, " pair"]
) -> float | None:
    """Mean squared error of the prediction (Brier score, for outcomes in {0, 1}).

        mean_i (v_i - r_i)^2,    None without pairs

    Args:
        predictions: Reward units.
        outcomes: What came, in the same units.
    """
    return _mean((_exact(predictions) - _exact(outcomes)).square())


def constant_error(outcomes: Float[Tensor, " pair"]) -> float | None:
    """Mean absolute error of the predictor that says the mean outcome of everything.

        mean_i |r_i - mean r|,    None without pairs

    What a critic must beat: its own error says little without it.

    Args:
        outcomes: What came, reward units.
    """
    exact = _exact(outcomes)
    return _mean((exact - exact.mean()).abs())


def correlation(
    predictions: Float[Tensor, " pair"], outcomes: Float[Tensor, " pair"]
) -> float | None:
    """Linear correlation of prediction and outcome (Pearson).

        cov(v, r) / sqrt(var(v) var(r)),    None where either is constant

    In [-1, 1]; blind to a shift and to a positive scale.

    Args:
        predictions: Any units.
        outcomes: Any units.
    """
    if _is_constant(predictions) or _is_constant(outcomes):
        return None
    pairs = torch.stack([_exact(predictions), _exact(outcomes)])
    centred = pairs - pairs.mean(1, keepdim=True)
    unit = centred / centred.square().sum(1, keepdim=True).sqrt()
    return float((unit[0] * unit[1]).sum())


def rank_correlation(
    predictions: Float[Tensor, " pair"], outcomes: Float[Tensor, " pair"]
) -> float | None:
    """Correlation of the ranks (Spearman); equal numbers share their mean rank.

        correlation(rank(v), rank(r)),    None where either is constant

    1 wherever the one is an increasing function of the other.

    Args:
        predictions: Any units.
        outcomes: Any units.
    """
    return correlation(_ranks(predictions), _ranks(outcomes))


def explained_variance(
    predictions: Float[Tensor, " pair"], outcomes: Float[Tensor, " pair"]
) -> float | None:
    """Share of the outcomes' variance that is gone once the prediction is subtracted.

        1 - var(r - v) / var(r),    None where the outcomes are constant

    1 for a perfect critic up to a constant shift, 0 for a constant one, negative for
    one that is worse than nothing. Blind to bias.

    Args:
        predictions: Reward units.
        outcomes: What came, in the same units.
    """
    if _is_constant(outcomes):
        return None
    exact = _exact(outcomes)
    left = (exact - _exact(predictions)).var(correction=0)
    return float(1.0 - left / exact.var(correction=0))


def separation(
    predictions: Float[Tensor, " pair"],
    outcomes: Float[Tensor, " pair"],
    threshold: float = 0.5,
) -> float | None:
    """Mean prediction of successes minus that of failures.

        mean(v | r > threshold) - mean(v | r <= threshold)

    None where either side is empty. 0 for a critic that cannot tell them apart.

    Args:
        predictions: Reward units.
        outcomes: What came, in the same units.
        threshold: Above it an outcome is a success.
    """
    came = _exact(outcomes)
    told = torch.where(came.isnan(), came, _exact(predictions))
    successful = ~(came <= threshold)
    above, below = _mean(told[successful]), _mean(told[~successful])
    return None if above is None or below is None else above - below


def reliability_bins(
    predictions: Float[Tensor, " pair"],
    outcomes: Float[Tensor, " pair"],
    num_bins: int = 10,
    low: float = 0.0,
    high: float = 1.0,
) -> Reliability:
    """Pairs by their prediction, in bins of equal width: the reliability diagram.

        b_i = floor((v_i - low) / (high - low) * n),    held within 0 .. n - 1

    A prediction outside [low, high] belongs to the bin at that end; a border belongs to
    the bin above it, `high` to the last.

    Args:
        predictions: Reward units.
        outcomes: What came, in the same units.
        num_bins: n.
        low: Where the first bin begins.
        high: Where the last bin ends.

    Raises:
        ValueError: No bin is asked for, the range is upside down, or a prediction is
            NaN.
    """
    if num_bins < 1 or not low < high:
        raise ValueError(
            "reliability needs num_bins >= 1 and low < high, got "
            f"{num_bins} bins in [{low}, {high}]; [0, 1] is usual"
        )
    exact = _exact(predictions)
    if bool(exact.isnan().any()):
        missing = int(exact.isnan().nonzero()[0])
        raise ValueError(
            f"predictions must be numbers, got nan at {missing}; leave the pair out"
        )
    places = ((exact - low) / (high - low) * num_bins).clamp(0, num_bins - 1).long()
    counts = torch.bincount(places, minlength=num_bins)
    nothing = torch.zeros(num_bins, dtype=torch.float64)
    return Reliability(
        counts,
        nothing.index_add(0, places, exact) / counts,
        nothing.index_add(0, places, _exact(outcomes)) / counts,
    )


def expected_calibration_error(
    predictions: Float[Tensor, " pair"],
    outcomes: Float[Tensor, " pair"],
    num_bins: int = 10,
    low: float = 0.0,
    high: float = 1.0,
) -> float | None:
    """Mean distance of mean prediction and mean outcome over the pairs' bins (ECE).

        sum_b n_b |mean v in b - mean r in b| / sum_b n_b,    None without pairs

    0 for calibrated predictions, whether or not they tell outcomes apart. One bin gives
    the size of the bias.

    Args:
        predictions: Reward units.
        outcomes: What came, in the same units.
        num_bins: As for `reliability_bins`.
        low: Where the first bin begins.
        high: Where the last bin ends.

    Raises:
        ValueError: As for `reliability_bins`.
    """
    bins = reliability_bins(predictions, outcomes, num_bins, low, high)
    gaps = (bins.mean_predictions - bins.mean_outcomes).abs()
    return _mean(gaps.repeat_interleave(bins.counts))


def _exact(x: Tensor) -> Tensor:
    return x.detach().cpu().double()


def _mean(x: Tensor) -> float | None:
    return float(x.mean()) if len(x) else None


def _is_constant(x: Tensor) -> bool:
    return len(x) < 2 or bool(x.min() == x.max())


def _ranks(x: Tensor) -> Tensor:
    """Places in ascending order, from .5; equal numbers get the mean of theirs."""
    exact = _exact(x)
    ascending = exact.sort().values
    first = torch.searchsorted(ascending, exact)
    after = torch.searchsorted(ascending, exact, right=True)
    return torch.where(exact.isnan(), exact, (first + after) / 2.0)
