"""Pictures of Theorems 1 to 4."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from accredit.credit import outcome_credit
from accredit.critics.group import GroupMean, LeaveOneOut
from accredit.reports.plots import GRID, INK, MUTED, SERIES
from accredit.theory.axioms import axioms_system, exact_credits
from accredit.theory.drawing import LINE, canvas, label, legend, name_axes
from accredit.theory.gradients import (
    deviation_gradient,
    every_group,
    exact_gradient,
    expected_gradient,
    mean_advantages,
)
from accredit.theory.lab import generator
from accredit.theory.teachers import (
    ideal_teacher,
    success_teacher,
    teacher_advantages,
)
from accredit.theory.trees import Tree, planted, random_tree
from accredit.theory.variances import vote

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PLUM = SERIES[:4]
LENGTHS = (3, 5, 9, 17, 33, 65, 129, 257)


def uniqueness(seed: int) -> "Figure":
    """Theorem 1: a tree with its values and credits; what each axiom takes away."""
    tree = example_tree()
    figure, (left, right) = canvas(10.6, 4.6, (1.75, 1.0))
    _draw_tree(left, tree)
    left.set_title(
        "value in the node, credit on the edge: C = V after − V before",
        loc="left",
        fontsize=10.5,
        pad=10,
    )
    names = ["all three", "no completeness", "no neutrality", "no consistency"]
    free = free_directions(tree)
    right.barh(names, free, color=ORANGE, alpha=0.75, height=0.45)
    right.invert_yaxis()
    for row, count in enumerate(free):
        words = f"{count}" if count else "0: one credit, V after − V before"
        label(right, count + 0.25, row, words, INK if count else GREEN)
    right.set_xlim(0, max(free) * 1.18)
    right.grid(False)
    right.set_xticks([])
    right.spines["bottom"].set_visible(False)
    right.tick_params(length=0, labelcolor=MUTED)
    right.set_title("ways left to move the credit", loc="left", fontsize=10.5, pad=10)
    return figure


def example_tree() -> Tree:
    """Three tokens deep, two tokens a node, the second of one path decisive."""
    parent = [0, *(node for node in range(7) for _ in range(2))]
    token = [0, *([0, 1] * 7)]
    chosen = [0.0, 0.4, 0.9, -0.5, 0.3, -1.2, 0.2]
    logits = torch.zeros(15, 3, dtype=torch.float64)
    logits[:7, 1] = torch.tensor(chosen, dtype=torch.float64)
    worth = torch.tensor([1, 1, 0, 1, 0, 0, 1, 0], dtype=torch.float64)
    ends = list(range(7, 15))
    return planted(parent, token, [1.0] * 15, [0] * 15, logits, ends, worth)


def free_directions(tree: Tree) -> list[int]:
    """Unknowns minus rank: with all axioms, and without each of the three."""
    neutrality, completeness, _ = axioms_system(tree)
    num_nodes = len(tree.parent)
    both = torch.cat([neutrality, completeness])
    ranks = [int(torch.linalg.matrix_rank(x)) for x in (both, neutrality, completeness)]
    per_token = int(tree.step_mask.sum()) - (len(both) - 1)
    return [*(num_nodes - rank for rank in ranks), per_token]


def _draw_tree(axes: "Axes", tree: Tree) -> None:
    """Nodes by depth, edges as thick as they are likely."""
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("value", ["#ffffff", BLUE])
    # Rounded as they are printed, so that the printed credits are their differences.
    values, depths = tree.values().round(decimals=2), tree.depths
    heights = torch.zeros(len(values))
    heights[tree.leaves] = torch.arange(len(tree.leaves), 0, -1).float()
    for node in reversed(range(len(values))):
        children = (tree.parent == node) & (torch.arange(len(values)) > 0)
        if bool(children.any()):
            heights[node] = heights[children].mean()
    likely = tree.edges()
    for node in range(1, len(values)):
        parent = int(tree.parent[node])
        x, y = (float(depths[parent]), float(depths[node])), heights[[parent, node]]
        credit = float(values[node] - values[parent])
        colour = BLUE if credit > 1e-9 else ORANGE if credit < -1e-9 else MUTED
        width = 0.6 + 5.0 * float(likely[node])
        axes.plot(x, y, color=colour, linewidth=width, alpha=0.55, zorder=1)
        place = 0.40 if depths[node] < 3 else 0.52
        label(
            axes,
            x[0] + place,
            float(y[0] + place * (y[1] - y[0])),
            f"{credit:+.2f}".replace("-", "−") if abs(credit) > 1e-9 else "0",
            INK,
            ha="center",
            fontsize=9,
            bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none"},
        )
    for node in range(len(values)):
        leaf = node in tree.leaves
        axes.scatter(
            float(depths[node]),
            float(heights[node]),
            s=330 if leaf else 780,
            marker="s" if leaf else "o",
            facecolor=shades(0.75 * float(values[node])),
            edgecolor=MUTED,
            linewidth=0.8,
            zorder=2,
        )
        text = f"{values[node]:.0f}" if leaf else f"{values[node]:.2f}"
        at = (float(depths[node]), float(heights[node]))
        label(axes, *at, text, INK, ha="center", fontsize=9.5)
    axes.set_xlim(-0.22, 3.2)
    axes.set_ylim(0.35, len(tree.leaves) + 0.65)
    axes.grid(False)
    axes.set_yticks([])
    axes.set_xticks(range(4), ["prompt", "token 1", "token 2", "outcome"])
    axes.tick_params(length=0, labelcolor=MUTED)
    axes.spines["bottom"].set_visible(False)


def teachers(seed: int) -> "Figure":
    """Theorem 2: what a teacher's log-ratio says of the credit, read in three ways."""
    from matplotlib.ticker import MultipleLocator

    rows: dict[str, list[Tensor]] = {"credit": [], "centred": [], "raw": [], "paid": []}
    for index in range(3):
        draw = generator(seed, "picture of teachers", index)
        tree = random_tree(draw, observed=0.0, depth=3)
        tree = tree.paying(0.1 + 0.9 * tree.outcomes)
        raw = 0.5 * teacher_advantages(tree, ideal_teacher(tree, 0.5))
        paid = teacher_advantages(tree, success_teacher(tree))
        told = tree.after(raw)
        centred = told - tree.before(tree.given_prefix(told))
        rows["credit"].append(exact_credits(tree)[tree.step_mask])
        rows["centred"].append(centred[tree.step_mask])
        rows["raw"].append(told[tree.step_mask])
        rows["paid"].append(tree.after(paid)[tree.step_mask])
    x, centred, raw, paid = (torch.cat(parts) for parts in rows.values())
    figure, (left, right) = canvas(10.6, 4.2, (1.0, 1.0))
    for axes in (left, right):
        axes.plot([-0.75, 0.75], [-0.75, 0.75], color=MUTED, linewidth=1.0, ls=LINE)
        axes.axvline(0.0, color=GRID, linewidth=0.8, zorder=0)
        axes.set_xlim(-0.75, 0.75)
        axes.xaxis.set_major_locator(MultipleLocator(0.5))
        axes.yaxis.set_major_locator(MultipleLocator(0.5))
    left.scatter(x, raw, s=16, color=ORANGE, alpha=0.6, lw=0, label="as it is")
    left.scatter(x, centred, s=16, color=BLUE, lw=0, label="centred under the policy")
    legend(left)
    name_axes(
        left,
        "ideal teacher: β log(q/p), centred, is the credit",
        "true credit of the token",
        "what the teacher says",
    )
    right.scatter(x, paid, s=16, color=PLUM, alpha=0.7, lw=0)
    name_axes(
        right,
        "teacher that imitates successes: log(q/p) is another quantity",
        "true credit of the token",
        "",
    )
    return figure


def baselines(seed: int) -> "Figure":
    """Theorem 3: expected gradients of three estimators against the exact one."""
    figure, panels = canvas(10.6, 3.9, (1.0, 1.0, 1.0))
    for axes in panels:
        axes.set_ylim(-0.16, 0.16)
        axes.axvline(0.0, color=GRID, linewidth=0.8, zorder=0)
    draws = [generator(seed, "picture of baselines", index) for index in range(4)]
    worlds = [random_tree(draw, depth=2) for draw in draws]
    worlds = [
        tree.paying(torch.rand(len(tree.leaves), generator=draw).double())
        for tree, draw in zip(worlds, draws, strict=True)
    ]
    exact = torch.cat([_entries(tree, exact_gradient(tree)) for tree in worlds])
    estimates = {
        "others' mean (RLOO): exact": (
            [_mean_gradient(tree, LeaveOneOut()) for tree in worlds],
            True,
        ),
        "own group's mean, G = 2: half of it": (
            [_mean_gradient(tree, GroupMean()) for tree in worlds],
            True,
        ),
        "divided by the deviation: elsewhere": (
            [deviation_gradient(tree) for tree in worlds],
            False,
        ),
    }
    reach = 1.15 * float(exact.abs().amax())
    ends = torch.tensor([-reach, reach])
    for axes, (title, (found, exactly)), colour in zip(
        panels, estimates.items(), (BLUE, GREEN, ORANGE), strict=True
    ):
        y = torch.cat([_entries(t, g) for t, g in zip(worlds, found, strict=True)])
        best = float((exact * y).sum() / exact.square().sum())
        axes.plot(ends, best * ends, color=MUTED, linewidth=1.0, ls=LINE)
        axes.scatter(exact, y, s=20, color=colour, alpha=0.8, lw=0)
        name_axes(axes, title, "exact gradient", "")
        said = f"slope {best:.2f}" if exactly else f"best slope {best:.2f}"
        label(axes, 0.04, 0.93, said, MUTED, xycoords="axes fraction")
    panels[0].set_ylabel("expected estimate")
    return figure


def _mean_gradient(tree: Tree, critic: LeaveOneOut | GroupMean) -> Tensor:
    dealt = mean_advantages(tree, every_group(tree, 2), critic, outcome_credit)
    return expected_gradient(tree, dealt)


def _entries(tree: Tree, gradient: Tensor) -> Tensor:
    return gradient[tree.inner][tree.logits[tree.inner] > -torch.inf]


def sparsity(seed: int) -> "Figure":
    """Theorem 4: how many tokens can matter, and how much a typical one does."""
    votes = [vote(length) for length in LENGTHS]
    figure, (left, right) = canvas(10.6, 4.0, (1.0, 1.0))
    for eps, colour in {0.05: PLUM, 0.1: BLUE, 0.2: GREEN}.items():
        counts = [v.count_above(eps) for v in votes]
        bound = 0.25 / eps**2
        left.axhline(bound, color=colour, linewidth=1.0, ls=LINE)
        left.plot(LENGTHS, counts, color=colour, marker="o", markersize=4)
        label(left, LENGTHS[-1] * 1.2, counts[-1], f"|C| > {eps:g}", colour)
        label(left, 300, bound * 1.25, f"at most {bound:.3g}", colour, ha="right")
    left.set_xscale("log", base=2)
    left.set_yscale("log")
    left.set_xlim(2.6, 300)
    left.set_ylim(0.15, 190)
    left.set_yticks([1, 10, 100], ["1", "10", "100"])
    name_axes(left, "tokens that matter in a trajectory", "length T", "")
    typical = [v.typical for v in votes]
    bounds = [0.5 / length**0.5 for length in LENGTHS]
    right.plot(LENGTHS, bounds, color=MUTED, linewidth=1.0, ls=LINE)
    right.plot(LENGTHS, typical, color=BLUE, marker="o", markersize=4)
    label(right, LENGTHS[3], bounds[3] * 1.35, "√(Var R / T)", MUTED)
    label(right, LENGTHS[3], typical[3] / 1.45, "mean |C|", BLUE, ha="right")
    right.set_xscale("log", base=2)
    right.set_yscale("log")
    right.set_yticks([0.02, 0.05, 0.1, 0.2], [".02", ".05", ".1", ".2"])
    name_axes(right, "credit of a typical token", "length T", "")
    for axes in (left, right):
        axes.set_xticks(LENGTHS, [str(length) for length in LENGTHS])
        axes.minorticks_off()
    return figure
