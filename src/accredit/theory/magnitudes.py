"""How far each target's expectation is from V^new, at three sizes of policy change.

Random trees of length 4, prefixes weighing as the old policy visits them. The size of a
change is its largest |ratio - 1|, which every tree is brought to exactly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Generator, Tensor

from accredit.credit import ValueTargetRule
from accredit.randomness import keyed_seed
from accredit.theory.trees import Tree, random_tree
from accredit.theory.value_targets import (
    FIRST_ORDER,
    Change,
    pact_targets,
    plain_targets,
)

SIZES = (0.06, 0.27, 4.1)
TARGETS: Mapping[str, ValueTargetRule] = {
    "plain": plain_targets,
    "pact": pact_targets,
    "windowed": FIRST_ORDER,
}
"""In the order of their errors, largest first."""
NUM_TREES = 24
LARGEST_SCALE = 12.0


@dataclass(frozen=True)
class Magnitudes:
    """Mean absolute error of each target's expectation, at one size of change."""

    size: float
    errors: dict[str, float]


def magnitudes(seed: int) -> list[Magnitudes]:
    """Errors of `TARGETS` at each of `SIZES`, over `NUM_TREES` trees."""
    totals = [dict.fromkeys(TARGETS, 0.0) for _ in SIZES]
    for tree_index in range(NUM_TREES):
        key = keyed_seed(seed, "magnitudes", tree_index)
        draw = torch.Generator().manual_seed(key >> 1)
        for total, change in zip(totals, changes(draw, SIZES), strict=True):
            truth, inner = change.new.values(), change.old.inner
            reach = torch.where(inner, change.old.reach(), 0.0)
            for name, rule in TARGETS.items():
                missed = (change.expectation(rule) - truth).abs()
                total[name] += float((missed * reach).sum() / reach.sum())
    return [
        Magnitudes(size, {name: x / NUM_TREES for name, x in total.items()})
        for size, total in zip(SIZES, totals, strict=True)
    ]


def changes(draw: Generator, sizes: Sequence[float]) -> list[Change]:
    """One tree and one direction, followed until its largest |ratio - 1| is each size.

    A direction that never gets that far, because no token was rare enough, is drawn
    again.
    """
    while True:
        tree = random_tree(draw, observed=0.0, stop=False)
        direction = torch.randn(tree.logits.shape, generator=draw, dtype=torch.float64)
        if _reached(tree, direction, LARGEST_SCALE) > max(sizes):
            scales = [_scale(tree, direction, size) for size in sizes]
            return [_moved(tree, direction, scale) for scale in scales]


def order_error(found: Sequence[Magnitudes]) -> float:
    """By how much plain > pact > first-order is violated at the worst size, or 0."""
    excess = [0.0]
    for row in found:
        errors = [row.errors[name] for name in TARGETS]
        excess += [below - above for above, below in pairwise(errors)]
    return max(excess)


def _scale(tree: Tree, direction: Tensor, size: float) -> float:
    """Where the largest |ratio - 1| reaches `size`, by bisection."""
    low, high = 0.0, LARGEST_SCALE
    for _ in range(45):
        middle = (low + high) / 2
        short = _reached(tree, direction, middle) < size
        low, high = (middle, high) if short else (low, middle)
    return high


def _reached(tree: Tree, direction: Tensor, scale: float) -> float:
    return float((_moved(tree, direction, scale).ratios - 1.0).abs().amax())


def _moved(tree: Tree, direction: Tensor, scale: float) -> Change:
    return Change(tree, tree.under(tree.logits + scale * direction))
