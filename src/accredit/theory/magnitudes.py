"""How far each target's expectation is from V^new, at three sizes of policy change.

Random trees of length 4, prefixes weighing as the old policy visits them. The size of a
change is its largest |ratio - 1|, which every tree is brought to exactly.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Generator

from accredit.randomness import keyed_seed
from accredit.theory.trees import random_tree
from accredit.theory.value_targets import (
    FIRST_ORDER,
    Change,
    Rule,
    pact_targets,
    plain_targets,
)

SIZES = (0.06, 0.27, 4.1)
TARGETS: dict[str, Rule] = {
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


def magnitudes(
    seed: int, sizes: tuple[float, ...] = SIZES, rules: dict[str, Rule] = TARGETS
) -> list[Magnitudes]:
    """Errors of the targets at each size, over `NUM_TREES` trees."""
    totals = [dict.fromkeys(rules, 0.0) for _ in sizes]
    for tree_index in range(NUM_TREES):
        draw = torch.Generator().manual_seed(
            keyed_seed(seed, "magnitudes", tree_index) >> 1
        )
        for total, change in zip(totals, changes(draw, sizes), strict=True):
            truth, inner = change.new.values(), change.old.inner
            reach = change.old.reach()
            for name, rule in rules.items():
                missed = (change.expectation(rule) - truth).abs()
                total[name] += float((missed * reach)[inner].sum() / reach[inner].sum())
    return [
        Magnitudes(size, {name: x / NUM_TREES for name, x in total.items()})
        for size, total in zip(sizes, totals, strict=True)
    ]


def changes(draw: Generator, sizes: tuple[float, ...]) -> list[Change]:
    """One tree and one direction, followed until its largest |ratio - 1| is each size.

    A direction that never gets that far, because no token was rare enough, is drawn
    again.
    """
    while True:
        tree = random_tree(draw, observed=0.0, stop=False)
        direction = torch.randn(tree.logits.shape, generator=draw, dtype=torch.float64)

        def moved(scale: float, tree=tree, direction=direction) -> Change:
            return Change(tree, tree.under(tree.logits + scale * direction))

        if _largest(moved(LARGEST_SCALE)) > max(sizes):
            return [moved(_scale(moved, size)) for size in sizes]


def order_error(found: list[Magnitudes]) -> float:
    """By how much plain > pact > first-order is violated at the worst size, or 0."""
    excess = [0.0]
    for row in found:
        errors = list(row.errors.values())
        excess += [below - above for above, below in pairwise(errors)]
    return max(excess)


def _scale(moved, size: float) -> float:
    """Where the largest |ratio - 1| first reaches `size`, by bisection."""
    low, high = 0.0, LARGEST_SCALE
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (middle, high) if _largest(moved(middle)) < size else (low, middle)
    return high


def _largest(change: Change) -> float:
    return float((change.ratios - 1.0).abs().amax())
