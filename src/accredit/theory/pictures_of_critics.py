"""Pictures of critic errors, noise, value targets and what follows for training."""

import math
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from accredit.credit import ValueTargetRule
from accredit.functional.value_targets import (
    doubly_robust_targets,
    pact_targets,
    plain_targets,
    vtrace_targets,
    windowed_targets,
)
from accredit.reports.plots import INK, MUTED, SERIES
from accredit.theory.consequences import (
    first_order_terms,
    order_gap,
    starting_parameters,
)
from accredit.theory.critic_errors import critic_errors
from accredit.theory.drawing import LINE, canvas, label, name_axes
from accredit.theory.gradients import (
    dealt_advantages,
    exact_gradient,
    expected_gradient,
)
from accredit.theory.lab import generator
from accredit.theory.magnitudes import SIZES, changes
from accredit.theory.trees import random_tree
from accredit.theory.value_targets import (
    FIRST_ORDER,
    FULL_PRODUCT,
    UNCLIPPED_VTRACE,
    Change,
)
from accredit.theory.variances import vote

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PLUM, GOLD, SKY, GREY = SERIES
NUM_TREES = 10
NUM_COINS = 31
LABEL_GAP = 0.062
"""Between names at the ends of lines, as a share of the axes' height."""
CHANGES = (0.03, 0.06, 0.12, 0.27, 0.5, 1.0, 2.0, 4.1)
RULES: dict[str, tuple[ValueTargetRule, str]] = {
    "plain": (plain_targets, GREY),
    "pact": (pact_targets, BLUE),
    "doubly_robust": (doubly_robust_targets, SKY),
    "windowed, 1": (partial(windowed_targets, window=1), GOLD),
    "windowed, all": (FIRST_ORDER, ORANGE),
    "vtrace, cap 1": (partial(vtrace_targets, trace_cap=1.0), PLUM),
    "vtrace": (UNCLIPPED_VTRACE, PLUM),
    "full_product": (FULL_PRODUCT, GREEN),
}


def critic_error_bias(seed: int) -> "Figure":
    """GAE: the bias that a wrong critic brings, and the noise that lambda brings."""
    lambdas = torch.linspace(0.0, 1.0, 13).tolist()
    sizes = (0.05, 0.1, 0.2)
    draws = [generator(seed, "picture of bias", index) for index in range(NUM_TREES)]
    trees = [random_tree(draw, observed=0.0, stop=False) for draw in draws]
    unit = [critic_errors(t, d, 1.0) for t, d in zip(trees, draws, strict=True)]
    figure, (left, right) = canvas(10.6, 4.0, (1.0, 1.0))
    for size, colour in zip(sizes, (SKY, BLUE, PLUM), strict=True):
        curve = [_bias(trees, unit, size, lambda_) for lambda_ in lambdas]
        left.plot(lambdas, curve, color=colour)
        label(left, -0.02, curve[0], f"error {size:g}", colour, ha="right")
    left.set_xlim(-0.22, 1.02)
    left.set_ylim(bottom=0.0)
    left.set_xticks([0, 0.25, 0.5, 0.75, 1.0])
    name_axes(left, "bias of the gradient, as a share of it", "λ", "")
    noise = [_noise(trees, lambda_) for lambda_ in lambdas]
    right.plot(lambdas, noise, color=ORANGE)
    right.set_ylim(bottom=0.0)
    right.set_xticks([0, 0.25, 0.5, 0.75, 1.0])
    name_axes(right, "second moment of the advantage, exact critic", "λ", "")
    return figure


def _bias(trees: list, unit: list[Tensor], size: float, lambda_: float) -> float:
    """Norm of the bias over norm of the gradient, averaged over trees."""
    shares = []
    for tree, errors in zip(trees, unit, strict=True):
        wrong = tree.values() + size * errors
        found = expected_gradient(tree, dealt_advantages(tree, wrong, lambda_))
        exact = exact_gradient(tree)
        shares.append(float((found - exact).norm() / exact.norm()))
    return sum(shares) / len(shares)


def _noise(trees: list, lambda_: float) -> float:
    """E[A^2], averaged over tokens and trees."""
    moments = [
        float(t.mean(dealt_advantages(t, t.values(), lambda_).square().mean(1)))
        for t in trees
    ]
    return sum(moments) / len(moments)


def noise(seed: int) -> "Figure":
    """Noise per token by estimator; a chunk's credit against the critic's error."""
    coins = vote(NUM_COINS)
    energies = (coins.chances * coins.sizes.square()).sum(1)
    to_go = energies.flip(0).cumsum(0).flip(0)
    places = torch.arange(1, NUM_COINS + 1)
    figure, (left, right) = canvas(10.6, 4.0, (1.0, 1.0))
    group = torch.full_like(energies, 8 / 7 * 0.25)
    for y, name, colour in (
        (group, "RLOO, groups of 8", ORANGE),
        (to_go, "λ = 1", BLUE),
        (energies, "λ = 0", GREEN),
    ):
        left.plot(places, y, color=colour)
        label(left, 2, float(y[1]) * (1.35 if name != "λ = 1" else 0.72), name, colour)
    left.set_yscale("log")
    left.set_ylim(0.004, 0.55)
    left.set_yticks([0.005, 0.01, 0.05, 0.1, 0.5], [".005", ".01", ".05", ".1", ".5"])
    left.minorticks_off()
    name_axes(left, "second moment of the advantage, exact critic", "token", "")
    lengths = torch.arange(1, NUM_COINS)
    signal = energies.cumsum(0)[:-1].sqrt()
    right.plot(lengths, signal, color=BLUE)
    label(right, 17, float(signal[16]) + 0.03, "credit of the chunk", BLUE, ha="right")
    for size, colour in ((0.1, PLUM), (0.05, GREY)):
        both_ends = 2**0.5 * size
        right.axhline(both_ends, color=colour, linewidth=1.4, ls=LINE)
        words = f"critic wrong by {size:g} at both ends"
        label(right, 30, both_ends + 0.012, words, colour, ha="right")
    right.set_ylim(0.0, 0.5)
    name_axes(right, "size of a chunk's credit, and of its error", "tokens in it", "")
    return figure


def value_targets(seed: int) -> "Figure":
    """Section 5: bias and spread of every target against the size of the change."""
    bias = {name: [0.0] * len(CHANGES) for name in RULES}
    spread = {name: [0.0] * len(CHANGES) for name in RULES}
    for index in range(NUM_TREES):
        draw = generator(seed, "picture of targets", index)
        for place, change in enumerate(changes(draw, CHANGES)):
            for name, (rule, _) in RULES.items():
                missed, deviation = _moments(change, rule)
                bias[name][place] += missed / NUM_TREES
                spread[name][place] += deviation / NUM_TREES
    figure, (left, right) = canvas(10.6, 4.6, (1.0, 1.0))
    seen = {name: y for name, y in bias.items() if max(y) > 1e-12}
    del seen["doubly_robust"]
    for axes, table in ((left, seen), (right, spread)):
        for name, y in table.items():
            dashes = LINE if name == "vtrace" else "-"
            axes.plot(CHANGES, y, color=RULES[name][1], ls=dashes)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(CHANGES, [f"{x:g}" for x in CHANGES])
    ticks = [0.2, 0.3, 0.5, 0.7]
    right.set_yticks(ticks, [f"{x:g}" for x in ticks])
    right.set_ylim(0.16, 0.85)
    left.set_ylim(4e-6, 0.2)
    for axes, table in ((left, seen), (right, spread)):
        axes.minorticks_off()
        _label_ends(axes, {name: y[-1] for name, y in table.items()})
    label(left, 0.27, 2.2e-5, "vtrace, full_product: no error", MUTED)
    name_axes(left, "error of the expectation", "largest |ratio − 1|", "")
    name_axes(right, "deviation of a single target", "largest |ratio − 1|", "")
    return figure


def _label_ends(axes: "Axes", ends: dict[str, float]) -> None:
    """Names right of the lines' ends, pushed apart within the height of the axes."""
    low, high = (math.log(y) for y in axes.get_ylim())
    ordered = sorted(ends, key=lambda name: ends[name])
    lowest = 0.0
    for place, name in enumerate(ordered):
        height = (math.log(ends[name]) - low) / (high - low)
        above = len(ordered) - 1 - place
        height = min(max(height, lowest), 1.0 - LABEL_GAP * above)
        lowest = height + LABEL_GAP
        words = "pact, doubly_robust" if name == "pact" and len(ends) < 6 else name
        colour = RULES[name][1]
        label(axes, 1.02, height, words, colour, xycoords="axes fraction")


def _moments(change: Change, rule: ValueTargetRule) -> tuple[float, float]:
    """Mean error of the expectation and mean deviation, as the old policy visits."""
    old = change.old
    values, inner, reach = old.values(), old.inner, old.reach()
    expected = change.expectation(rule)
    targets, _ = change.targets(rule, values)
    spread = old.given_prefix((targets - old.before(expected)).square()).sqrt()
    share = reach[inner] / reach[inner].sum()
    missed = (expected - change.new.values())[inner].abs()
    return float((share * missed).sum()), float((share * spread[inner]).sum())


def consequences(seed: int) -> "Figure":
    """Section 4: what the order of updates changes; where the first-order terms are."""
    kinds = {
        "separate weights, plain": (False, plain_targets),
        "shared trunk, plain": (True, plain_targets),
        "separate weights, pact": (False, pact_targets),
    }
    gaps = [0.0] * len(kinds)
    terms = torch.zeros(4, dtype=torch.float64)
    for index in range(NUM_TREES):
        draw = generator(seed, "picture of the order", index)
        tree = random_tree(draw, observed=0.0, depth=3)
        for place, (shared, rule) in enumerate(kinds.values()):
            start = starting_parameters(tree, draw, shared=shared)
            gaps[place] += order_gap(tree, start, rule) / NUM_TREES
    for index in range(4 * NUM_TREES):
        draw = generator(seed, "picture of the terms", index)
        (change,) = changes(draw, SIZES[1:2])
        sizes = torch.stack([x[0].abs() for x in first_order_terms(change)])
        terms += sizes / sizes.sum() / (4 * NUM_TREES)
    figure, (left, right) = canvas(10.6, 3.6, (1.1, 1.0))
    left.barh(list(kinds), gaps, color=ORANGE, alpha=0.75, height=0.42)
    left.invert_yaxis()
    for row, gap in enumerate(gaps):
        words = f"{gap:.2g}" if gap else "exactly 0"
        label(left, gap + 0.02 * max(gaps), row, words, MUTED if gap else GREEN)
    left.set_xlim(0, 1.2 * max(gaps))
    left.set_xticks([])
    left.grid(False)
    left.spines["bottom"].set_visible(False)
    left.tick_params(labelcolor=INK)
    left.set_title(
        "weights, actor first against critic first: largest difference",
        loc="left",
        fontsize=10.5,
        pad=10,
    )
    names = ["this token", "1 later", "2 later", "3 later"]
    shares = terms.tolist()
    right.bar(names, shares, color=[BLUE, GREY, GREY, GREY], width=0.55)
    for place, share in enumerate(shares):
        label(right, place, share + 0.018, f"{share:.2f}", ha="center")
    right.set_ylim(0, 0.5)
    right.tick_params(labelcolor=INK)
    name_axes(right, "share of the first-order change of V of the prompt", "", "")
    return figure
