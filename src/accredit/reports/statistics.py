"""Evaluation statistics: mean@k, pass@k, best@k, and how far each can be trusted.

Knows numbers per problem; knows no rollout, no model and no file. Problems are the unit
of resampling, because samples of one problem are not independent of each other.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from accredit.randomness import generator

Values = Float[np.ndarray, " problem"]
Statistic = Callable[[Float[np.ndarray, "resample problem"]], np.ndarray]

BLOCK = 1_000_000
"""Most drawn indices alive at once, so that memory does not grow with problems."""


@dataclass(frozen=True)
class Estimate:
    """A number and its confidence interval."""

    value: float
    low: float | None = None
    """None where the data allow no interval: a single problem."""
    high: float | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"an estimate must be finite, got {self.value}")
        if (self.low is None) != (self.high is None):
            raise ValueError(f"an interval has two ends, got {self.low}, {self.high}")

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.3f}"
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def pass_at_k(num_samples: int, num_passed: int, k: int) -> float:
    """Probability that at least one of k samples passes, unbiased (pass@k).

        pass@k = 1 - C(n - c, k) / C(n, k)      n samples, c of which passed

    Chen et al. 2021, arXiv:2107.03374. k = 1 gives c / n; k = n gives 1 if any passed.
    `1 - (1 - c / n) ** k` would be biased downwards, and is not this.

    Raises:
        ValueError: not 1 <= k <= n, or not 0 <= c <= n.
    """
    if not 1 <= k <= num_samples:
        raise ValueError(
            f"pass@k needs 1 <= k <= num_samples, got k = {k} with {num_samples} "
            "samples; lower k or draw more samples"
        )
    if not 0 <= num_passed <= num_samples:
        raise ValueError(f"num_passed must be in [0, {num_samples}], got {num_passed}")
    return 1.0 - math.comb(num_samples - num_passed, k) / math.comb(num_samples, k)


def best_at_k(rewards: Sequence[float], k: int) -> float:
    """Expected largest of k rewards drawn without replacement (best@k).

        best@k = sum_{i=1..n} x_(i) C(i - 1, k - 1) / C(n, k)      x ascending

    x_(i) is the largest of a draw exactly when the other k - 1 come from the i - 1
    below it. k = 1 gives the mean, k = n the maximum; of 0/1 rewards it is pass@k.

    Raises:
        ValueError: not 1 <= k <= number of rewards.
    """
    n = len(rewards)
    if not 1 <= k <= n:
        raise ValueError(
            f"best@k needs 1 <= k <= number of rewards, got k = {k} with {n}; "
            "lower k or draw more samples"
        )
    weights = (math.comb(i, k - 1) / math.comb(n, k) for i in range(n))
    return math.fsum(x * w for x, w in zip(sorted(rewards), weights, strict=True))


def interquartile_mean(values: Values) -> float:
    """Mean of the middle half: the lowest and the highest quarter are left out.

    Where n / 4 is not whole, the two values at the borders count in part, so that the
    weight is exactly n / 2. Agarwal et al. 2021, arXiv:2108.13264, use it over seeds.
    """
    return float(interquartile_means(_checked(values)[None, :])[0])


def interquartile_means(rows: Float[np.ndarray, "resample problem"]) -> np.ndarray:
    """`interquartile_mean` of every row, as a statistic for `bootstrap`."""
    n = rows.shape[1]
    edges = np.arange(n)
    weights = np.minimum(edges + 1, 0.75 * n) - np.maximum(edges, 0.25 * n)
    return np.sort(rows, axis=1) @ np.clip(weights, 0.0, 1.0) / (0.5 * n)


def row_means(rows: Float[np.ndarray, "resample problem"]) -> np.ndarray:
    """The mean of every row: the default statistic of `bootstrap`."""
    return rows.mean(axis=1)


def bootstrap(
    values: Values,
    seed: int,
    statistic: Statistic = row_means,
    num_resamples: int = 4000,
    level: float = 0.95,
) -> Estimate:
    """The statistic of all problems, with its percentile bootstrap interval.

    Whole problems are drawn with replacement (clusters), so the width speaks about
    other problems of this kind, not about other samples of these problems.

    Args:
        values: One number a problem: its mean, its pass@k, a difference of two models.
        seed: Equal seeds give equal intervals.
        level: Coverage, in (0, 1).

    Raises:
        ValueError: no value, a value that is not finite, or a level outside (0, 1).
    """
    values = _checked(values)
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be in (0, 1), got {level}")
    point = float(statistic(values[None, :])[0])
    n = len(values)
    if n == 1:
        return Estimate(point)
    draws = np.concatenate(
        [statistic(values[drawn]) for drawn in resamples(n, seed, num_resamples)]
    )
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(draws, [tail, 1.0 - tail])
    return Estimate(point, float(low), float(high))


def resamples(n: int, seed: int, num_resamples: int) -> Iterator[np.ndarray]:
    """Indices of `num_resamples` bootstrap samples, one a row, some rows at a time."""
    rng = generator(seed, "bootstrap", n)
    block = max(1, BLOCK // n)
    for start in range(0, num_resamples, block):
        yield rng.integers(0, n, (min(block, num_resamples - start), n))


def paired_difference(
    first: Values, second: Float[np.ndarray, " _"], seed: int, level: float = 0.95
) -> Estimate:
    """Mean of second - first over the same problems, with its bootstrap interval.

    Pairing removes the spread between problems, which both share. An interval without 0
    says the two differ.

    Raises:
        ValueError: the two do not hold the same number of problems.
    """
    if len(first) != len(second):
        raise ValueError(
            "a paired difference needs the same problems in both, got "
            f"{len(first)} and {len(second)}"
        )
    return bootstrap(second - first, seed, level=level)


def wilson(num_successes: int, num_trials: int, level: float = 0.95) -> Estimate:
    """A share of independent trials with Wilson's score interval.

        (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

    Wilson 1927. Unlike p -+ z sqrt(p (1 - p) / n) it claims no certainty at 0 or 1.

    Raises:
        ValueError: no trials, or not 0 <= successes <= trials.
    """
    if num_trials < 1 or not 0 <= num_successes <= num_trials:
        raise ValueError(
            "a share needs 0 <= successes <= trials and a trial, got "
            f"{num_successes} of {num_trials}"
        )
    from scipy.special import ndtri

    z = float(ndtri(0.5 + level / 2.0))
    n, p = num_trials, num_successes / num_trials
    centre = p + z * z / (2 * n)
    reach = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low = 0.0 if num_successes == 0 else (centre - reach) / scale
    high = 1.0 if num_successes == num_trials else (centre + reach) / scale
    return Estimate(p, low, high)


def _checked(values: Values) -> Values:
    if not len(values):
        raise ValueError("statistics need at least one problem, got none")
    if not np.isfinite(values).all():
        index = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(
            f"values must be finite, got {values[index]} at problem {index}; leave out "
            "what was not verified and count it"
        )
    return values
