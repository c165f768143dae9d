"""A critic's values put right by the outcomes of the last steps, all by one factor.

A policy that learns is better than its critic remembers, everywhere and at once: what
the critic says is too low, and in the right order. One number moves all of it, the
odds ratio rho between what came and what was said:

    v' / (1 - v') = rho v / (1 - v)

log rho is the mode of a logistic likelihood with a normal prior of mean 0. Our own
[docs/ac2.md]; one ratio for all odds is what a shift of the label's frequency does to a
classifier (Saerens et al. 2002, "Adjusting the outputs of a classifier to new a priori
probabilities").
"""

import torch
from jaxtyping import Float
from torch import Tensor

SMALLEST = 1e-3
"""Values are taken for this far from 0 and 1: what was said to be impossible may not
be, and nothing moves odds of 0. Below it order becomes a tie."""
MAX_NEWTON_STEPS = 50
TOLERANCE = 1e-12


def log_odds_ratio(
    values: Float[Tensor, " pair"],
    outcomes: Float[Tensor, " pair"],
    weights: Float[Tensor, " pair"],
    *,
    prior_weight: float = 1.0,
) -> float:
    """How far the log-odds of all values lie below those of what came.

        argmax_b  sum_i w_i (r_i log v_i' + (1 - r_i) log(1 - v_i')) - k b^2 / 2
        v_i' = sigmoid(logit v_i + b)

    The sum of w_i (r_i - v_i') is k b there. 0 without pairs.

    Args:
        values: What the critic said, in [0, 1].
        outcomes: What came, in [0, 1]: a reward, or the mean of several.
        weights: Of each pair; how many rewards it stands for.
        prior_weight: k > 0; the prior weighs as much as 4 k rewards do where v = 1/2.

    Raises:
        ValueError: a pair is not finite, or k is not above 0.
    """
    if not prior_weight > 0:
        raise ValueError(f"prior_weight must be > 0, got {prior_weight}")
    logits = clamped_logits(values.double())
    outcomes, weights = outcomes.double(), weights.double()
    if not bool(torch.stack([logits, outcomes, weights]).isfinite().all()):
        raise ValueError(
            "values, outcomes and weights must be finite; leave out others"
        )
    shift = 0.0
    for _ in range(MAX_NEWTON_STEPS):
        moved = torch.sigmoid(logits + shift)
        slope = float((weights * (outcomes - moved)).sum()) - prior_weight * shift
        curvature = float((weights * moved * (1 - moved)).sum()) + prior_weight
        # From a sigmoid's flat end a whole Newton step would leap past the root.
        step = max(-1.0, min(1.0, slope / curvature))
        shift += step
        if abs(step) < TOLERANCE:
            break
    return shift


def recalibrated(values: Float[Tensor, "*shape"], shift: float) -> Tensor:
    """The values with their log-odds moved by `shift`; NaN stays NaN.

    v' = sigmoid(logit v + shift); at shift 0 every value is itself, and none moves
    against the shift.
    """
    if shift == 0.0:
        return values
    moved = torch.sigmoid(clamped_logits(values.double()) + shift).to(values.dtype)
    return moved.maximum(values) if shift > 0 else moved.minimum(values)


def clamped_logits(values: Float[Tensor, "*shape"]) -> Tensor:
    """log(v / (1 - v)), of values clamped away from 0 and 1."""
    return torch.logit(values.clamp(SMALLEST, 1 - SMALLEST))
