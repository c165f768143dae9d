"""How far a critic can be trusted: its values beside what came, with intervals.

Two views. A *group* is one prompt: the mean value of its rollouts against their mean
reward, by the share of them that a critic valued (the others are valued by rewards
alone) and by whether the critic was shown a reference. A *prefix* is one sampled token:
V of what stood before it against the outcome of its rollout, by where it stands in it.
Groups are what is resampled, because the prefixes of one are not independent.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from accredit.functional.calibration import (
    bias,
    constant_error,
    correlation,
    explained_variance,
    mean_absolute_error,
)
from accredit.reports.statistics import resamples

NUM_RESAMPLES = 2000
NUM_DECILES = 10
NUM_BINS = 10
FEWEST_GROUPS = 5
"""Below this a bootstrap over groups knows too few to give an interval."""

Numbers = Float[np.ndarray, " _"]
Interval = tuple[float, float]
Figures = Mapping[str, float | int | None]


@dataclass(frozen=True, eq=False)
class ValuedGroups:
    """One entry a group, all in reward units but the last two."""

    mean_rewards: Float[Tensor, " group"]
    mean_values: Float[Tensor, " group"]
    shares: Float[Tensor, " group"]
    """f: share of the group's rollouts that a critic valued, in [0, 1]."""
    references: Bool[Tensor, " group"]
    """True where the critic was shown a reference."""

    @property
    def sections(self) -> dict[str, Bool[Tensor, " group"]]:
        """Which groups belong to each part of the answer, by its name."""
        shares = self.shares
        return {
            "all": torch.ones_like(self.references),
            "f=0": shares == 0.0,
            "0<f<1": (shares > 0.0) & (shares < 1.0),
            "f=1": shares == 1.0,
            "with_reference": self.references,
            "without_reference": ~self.references,
        }


@dataclass(frozen=True, eq=False)
class ValuedPrefixes:
    """One entry a sampled token of a verified rollout."""

    values: Float[Tensor, " prefix"]
    """V of what stood before the token."""
    outcomes: Float[Tensor, " prefix"]
    """Of the token's rollout."""
    deciles: Int[Tensor, " prefix"]
    """Tenth of its rollout's sampled tokens that the token lies in, 0 to 9."""
    groups: Int[Tensor, " prefix"]
    """Which group the rollout belongs to, counted from 0."""


@dataclass(frozen=True)
class Row:
    """Figures of some groups or prefixes, and the intervals of those that have one."""

    figures: Figures
    intervals: Mapping[str, Interval]


def group_figures(groups: ValuedGroups) -> dict[str, dict[str, float | int | None]]:
    """What `accredit calibrate --json` prints; None is what does not exist."""
    return {
        name: _figures(groups.mean_values[kept], groups.mean_rewards[kept])
        for name, kept in groups.sections.items()
    }


def group_rows(groups: ValuedGroups, seed: int) -> dict[str, Row]:
    """The same with 95% intervals from a bootstrap over groups."""
    return {name: _row(groups, kept, seed) for name, kept in groups.sections.items()}


def valued_row(groups: ValuedGroups, seed: int) -> Row | None:
    """Of the groups that a critic valued, f > 0; None where it valued none."""
    kept = groups.shares > 0.0
    return _row(groups, kept, seed) if bool(kept.any()) else None


def prefix_rows(prefixes: ValuedPrefixes, seed: int) -> dict[str, Row]:
    """Figures of all prefixes and of each tenth of the rollouts, with intervals."""
    everywhere = torch.zeros_like(prefixes.deciles)
    pooled = _error_intervals(_sums(prefixes, everywhere, 1), seed)
    by_decile = _error_intervals(_sums(prefixes, prefixes.deciles, NUM_DECILES), seed)
    rows = {"all": Row(_prefix_figures(prefixes, everywhere == 0), pooled[0])}
    for decile in range(NUM_DECILES):
        found = _prefix_figures(prefixes, prefixes.deciles == decile)
        rows[f"{decile * 10}..{decile * 10 + 10}%"] = Row(found, by_decile[decile])
    return rows


@dataclass(frozen=True)
class ReliabilityPoint:
    """What came where about the same value was said."""

    count: int
    value: float
    outcome: float
    interval: Interval | None
    """Of the outcome; None where fewer than `FEWEST_GROUPS` groups are in the bin."""


def reliability(
    values: Float[Tensor, " pair"],
    outcomes: Float[Tensor, " pair"],
    groups: Int[Tensor, " pair"],
    seed: int,
) -> list[ReliabilityPoint]:
    """Mean outcome by value, in ten bins from the lowest value to the highest.

    Empty ones are left out.
    """
    if not len(values):
        return []
    low = float(values.min())
    width = (float(values.max()) - low) / NUM_BINS or 1.0
    places = ((values - low) / width).long().clamp(0, NUM_BINS - 1)
    prefixes = ValuedPrefixes(values, outcomes, places, groups)
    sums = _sums(prefixes, places, NUM_BINS)
    means = _resampled(sums, seed, _mean_outcomes)
    points = []
    for place in range(NUM_BINS):
        count, value, outcome = sums[:, place, :3].sum(0)
        if count:
            enough = int((sums[:, place, 0] > 0).sum()) >= FEWEST_GROUPS
            interval = _quantiles(means[:, place]) if enough else None
            points.append(
                ReliabilityPoint(int(count), value / count, outcome / count, interval)
            )
    return points


def _row(groups: ValuedGroups, kept: Bool[Tensor, " group"], seed: int) -> Row:
    values, rewards = groups.mean_values[kept], groups.mean_rewards[kept]
    intervals = _intervals(values.numpy(), rewards.numpy(), seed)
    return Row(_figures(values, rewards), intervals)


def _figures(
    values: Float[Tensor, " group"], rewards: Float[Tensor, " group"]
) -> dict[str, float | int | None]:
    return {
        "groups": len(values),
        "mae": mean_absolute_error(values, rewards),
        "bias": bias(values, rewards),
        "correlation": correlation(values, rewards),
        "constant_mae": constant_error(rewards) if len(rewards) else None,
    }


def _prefix_figures(prefixes: ValuedPrefixes, kept: Bool[Tensor, " prefix"]) -> Figures:
    values, outcomes = prefixes.values[kept], prefixes.outcomes[kept]
    return {
        "prefixes": len(values),
        "mae": mean_absolute_error(values, outcomes),
        "bias": bias(values, outcomes),
        "explained_variance": explained_variance(values, outcomes),
        "correlation": correlation(values, outcomes),
    }


def _intervals(values: Numbers, rewards: Numbers, seed: int) -> dict[str, Interval]:
    """Of the figures of groups, and of `excess`: MAE less the constant's, paired.

    Empty where the groups are too few.
    """
    if len(values) < FEWEST_GROUPS:
        return {}
    excess = np.abs(values - rewards) - np.abs(rewards - rewards.mean())
    drawn: dict[str, list[np.ndarray]] = {}
    for index in resamples(len(values), seed, NUM_RESAMPLES):
        errors = (values - rewards)[index]
        v, r = values[index], rewards[index]
        centred_v, centred_r = (x - x.mean(1, keepdims=True) for x in (v, r))
        spread = np.sqrt((centred_v**2).sum(1) * (centred_r**2).sum(1))
        products = (centred_v * centred_r).sum(1)
        for name, found in (
            ("mae", np.abs(errors).mean(1)),
            ("bias", errors.mean(1)),
            ("correlation", _ratio(products, spread)),
            ("constant_mae", np.abs(centred_r).mean(1)),
            ("excess", excess[index].mean(1)),
        ):
            drawn.setdefault(name, []).append(found)
    found = {name: _quantiles(np.concatenate(parts)) for name, parts in drawn.items()}
    return {name: interval for name, interval in found.items() if interval}


def _sums(
    prefixes: ValuedPrefixes, places: Int[Tensor, " prefix"], num_places: int
) -> Float[np.ndarray, "group place 7"]:
    """Per group and place: count, v, r, |v - r|, and v, r, v r squared and crossed."""
    v, r = prefixes.values.double(), prefixes.outcomes.double()
    columns = torch.stack(
        [torch.ones_like(v), v, r, (v - r).abs(), v * v, r * r, v * r], dim=1
    )
    num_groups = int(prefixes.groups.max()) + 1 if len(v) else 0
    index = prefixes.groups * num_places + places
    totals = columns.new_zeros(num_groups * num_places, columns.shape[1])
    totals.index_add_(0, index, columns)
    return totals.view(num_groups, num_places, -1).numpy()


def _resampled(
    sums: Float[np.ndarray, "group place 7"],
    seed: int,
    statistic: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """A statistic of the summed columns, for every bootstrap sample of groups."""
    num_groups = len(sums)
    flat = sums.reshape(num_groups, -1)
    found = []
    for index in resamples(num_groups, seed, NUM_RESAMPLES):
        counts = np.zeros((len(index), num_groups))
        np.add.at(counts, (np.arange(len(index))[:, None], index), 1.0)
        found.append(statistic((counts @ flat).reshape(len(index), *sums.shape[1:])))
    return np.concatenate(found)


def _mean_outcomes(sums: np.ndarray) -> np.ndarray:
    return _ratio(sums[..., 2], sums[..., 0])


def _errors(sums: np.ndarray) -> np.ndarray:
    """MAE, bias, explained variance and correlation on a last axis; NaN: undefined."""
    count, v, r, distance, vv, rr, vr = np.moveaxis(sums, -1, 0)
    mean_v, mean_r = _ratio(v, count), _ratio(r, count)
    var_v, var_r = _ratio(vv, count) - mean_v**2, _ratio(rr, count) - mean_r**2
    covariance = _ratio(vr, count) - mean_v * mean_r
    var_v, var_r = (np.where(x > 1e-12, x, 0.0) for x in (var_v, var_r))
    return np.stack(
        [
            _ratio(distance, count),
            mean_v - mean_r,
            1.0 - _ratio(var_v + var_r - 2.0 * covariance, var_r),
            _ratio(covariance, np.sqrt(var_v * var_r)),
        ],
        axis=-1,
    )


def _error_intervals(
    sums: Float[np.ndarray, "group place 7"], seed: int
) -> list[dict[str, Interval]]:
    """For every place, the intervals of its figures; empty with too few groups."""
    names = ("mae", "bias", "explained_variance", "correlation")
    enough = (sums[..., 0] > 0).sum(0) >= FEWEST_GROUPS
    if not enough.any():
        return [{} for _ in enough]
    drawn = _resampled(sums, seed, _errors)
    rows: list[dict[str, Interval]] = []
    for place in range(sums.shape[1]):
        if not enough[place]:
            rows.append({})
            continue
        found = {n: _quantiles(drawn[:, place, i]) for i, n in enumerate(names)}
        rows.append({name: interval for name, interval in found.items() if interval})
    return rows


def _quantiles(drawn: np.ndarray) -> Interval | None:
    """The middle 95%, of the resamples in which the figure exists; None if in none."""
    known = drawn[np.isfinite(drawn)]
    if not len(known):
        return None
    low, high = np.quantile(known, [0.025, 0.975])
    return float(low), float(high)


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole; NaN where there is nothing to divide by."""
    return np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0.0)
