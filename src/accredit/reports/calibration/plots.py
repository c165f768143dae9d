"""The reliability diagram: what came, by what was said.

On the diagonal a value is what it promises; below it, it promised too much.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from accredit.reports.calibration.measures import (
    ReliabilityPoint,
    Row,
    ValuedGroups,
    ValuedPrefixes,
    prefix_rows,
    reliability,
)
from accredit.reports.calibration.sources import Calibration
from accredit.reports.plots import INK, MUTED, SERIES, house_style, label_ends, save_png
from accredit.reports.readouts import Reading, make_readable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg")
SIDE, GAP, LABELS, BELOW, ABOVE = 3.6, 1.1, 1.7, 0.6, 0.45
"""Inches: of a square panel, between two, right of it, and around it."""
TITLE = 0.35
"""Inches for the name of what was read."""
CORNER = 0.6
"""Of [0, 1]: where everything lies within less, the axes are fitted to it."""
FAINT = 0.3
"""Opacity of a bin with too few groups for an interval."""
KINDS = (
    ("f=0", "rewards alone", MUTED),
    ("0<f<1", "critic in part", SERIES[1]),
    ("f=1", "critic", SERIES[0]),
)
LARGEST_DOT, SMALLEST_DOT = 120.0, 10.0
"""Square points of the fullest bin's dot and of an almost empty one's."""


def save_calibration(calibration: Calibration, path: Path, seed: int) -> None:
    """The figure as a file, of the kind that its name ends in."""
    require_picture(path)
    figure = calibration_figure(calibration, seed)
    if path.suffix.lower() == ".png":
        save_png(figure, path)
        return
    with house_style():
        figure.savefig(path, format="svg", metadata={"Date": None})


def require_picture(path: Path) -> None:
    """Nothing, where a picture can be written under that name.

    Raises:
        ValueError: the name ends in something else, is a folder's, or lies in none.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"--plot must end in .png or .svg, got {path}")
    if not path.parent.is_dir():
        raise ValueError(f"--plot needs a folder that exists, got {path.parent}")
    if path.is_dir():
        raise ValueError(f"--plot must name a file, got the folder {path}")


def calibration_figure(calibration: Calibration, seed: int) -> "Figure":
    """Reliability of the groups, or of prefixes beside their error along the way."""
    if calibration.prefixes is not None:
        return prefix_figure(calibration.prefixes, seed, calibration.name)
    with house_style():
        figure, (axes,) = _panels(1, calibration.name)
        _draw_groups(axes, calibration.groups, seed)
    return figure


def prefix_figure(prefixes: ValuedPrefixes, seed: int, title: str = "") -> "Figure":
    """Reliability of all prefixes, beside their error along the rollouts."""
    with house_style():
        figure, (left, right) = _panels(2, title)
        points = reliability(prefixes.values, prefixes.outcomes, prefixes.groups, seed)
        _draw_diagonal(left, *_reach(points))
        _draw_bins(left, points)
        _name(left, f"value; {_largest(points, 'prefixes')}", "mean outcome")
        _draw_deciles(right, list(prefix_rows(prefixes, seed).values())[1:])
    values, outcomes = np.array([(p.value, p.outcome) for p in points]).reshape(-1, 2).T
    make_readable(
        figure, "value", values, [Reading("mean outcome", "series-1", outcomes)]
    )
    return figure


def _panels(count: int, title: str) -> "tuple[Figure, list[Axes]]":
    from matplotlib.figure import Figure

    width = 0.6 + count * SIDE + (count - 1) * GAP + LABELS
    height = BELOW + SIDE + ABOVE + (TITLE if title else 0.0)
    figure = Figure(figsize=(width, height))
    if title:
        figure.text(0.6 / width, 1.0 - 0.3 / height, title, fontsize=11)
    panels = [
        figure.add_axes(
            (
                (0.6 + i * (SIDE + GAP)) / width,
                BELOW / height,
                SIDE / width,
                SIDE / height,
            )
        )
        for i in range(count)
    ]
    return figure, panels


def _draw_groups(axes: "Axes", groups: ValuedGroups, seed: int) -> None:
    """Every group as a dot by who valued it; in bins, those that a critic valued."""
    sections = groups.sections
    valued = ~sections["f=0"] if bool((~sections["f=0"]).any()) else sections["all"]
    values, rewards = groups.mean_values[valued], groups.mean_rewards[valued]
    points = reliability(values, rewards, torch.arange(len(values)), seed)
    said, came = groups.mean_values.tolist(), groups.mean_rewards.tolist()
    in_bins = _reach(points)
    _draw_diagonal(axes, [*said, *in_bins[0]], [*came, *in_bins[1]])
    height = 0.97
    for name, label, colour in KINDS:
        kept = sections[name]
        if bool(kept.any()):
            axes.scatter(
                groups.mean_values[kept].numpy(),
                groups.mean_rewards[kept].numpy(),
                s=14,
                color=colour,
                alpha=0.45,
                linewidth=0,
            )
            axes.annotate(
                f"{label} ({int(kept.sum())})",
                (1.03, height),
                xycoords="axes fraction",
                color=colour,
                va="center",
            )
            height -= 0.065
    axes.annotate(
        ("bins of f > 0, 95%" if len(values) < len(groups.shares) else "bins, 95%")
        + f"\n{_largest(points, 'groups')}",
        (1.03, height + 0.03),
        xycoords="axes fraction",
        color=INK,
        va="top",
    )
    _draw_bins(axes, points, INK)
    _name(axes, "mean value of the group", "mean reward of the group")


def _reach(points: list[ReliabilityPoint]) -> tuple[list[float], list[float]]:
    """What is drawn of some bins along either axis."""
    outcomes = [point.outcome for point in points]
    ends = [end for point in points for end in point.interval or ()]
    return [point.value for point in points], [*outcomes, *ends]


def _largest(points: list[ReliabilityPoint], unit: str) -> str:
    """What the size of a dot stands for."""
    return f"largest dot: {max((p.count for p in points), default=0):,} {unit}"


def _draw_diagonal(axes: "Axes", values: list[float], outcomes: list[float]) -> None:
    """Where a value is what it promises; the axes span what is drawn."""
    low, high = _span(values)
    axes.set_xlim(low, high)
    axes.set_ylim(*_span([*values, *outcomes]))
    axes.plot([low, high], [low, high], color=MUTED, linewidth=1.0, dashes=(2, 3))
    for text, place in (("hoped too little", "left"), ("hoped too much", "right")):
        at = (0.03, 0.93) if place == "left" else (0.97, 0.09)
        axes.annotate(
            text, at, xycoords="axes fraction", ha=place, color=MUTED, fontsize=8
        )


def _span(drawn: list[float]) -> tuple[float, float]:
    """[0, 1] and more where it is used, or the corner of it where all lies there."""
    low, high = min(drawn, default=0.0), max(drawn, default=1.0)
    if high - low >= CORNER or high == low:
        low, high = min(low, 0.0), max(high, 1.0)
    room = 0.05 * (high - low)
    return low - room, high + room


def _draw_bins(
    axes: "Axes", points: list[ReliabilityPoint], colour: str = SERIES[0]
) -> None:
    """A dot a bin, as large as the bin is full, with the interval of its outcome."""
    fullest = max((point.count for point in points), default=1)
    known = [point for point in points if point.interval is not None]
    axes.plot(
        [point.value for point in known],
        [point.outcome for point in known],
        color=colour,
        linewidth=1.4,
    )
    for point in points:
        size = SMALLEST_DOT + LARGEST_DOT * point.count / fullest
        alpha = FAINT if point.interval is None else 1.0
        at = (point.value, point.outcome)
        axes.scatter(*at, s=size, color=colour, alpha=alpha, linewidth=0, zorder=3)
        if point.interval is not None:
            axes.plot([point.value] * 2, point.interval, color=colour, linewidth=1.2)


def _draw_deciles(axes: "Axes", rows: list[Row]) -> None:
    """Error, bias and explained variance from the first tenth to the last."""
    axes.axhline(0.0, color=MUTED, linewidth=1.0, dashes=(2, 3))
    lines = (
        ("mae", "mean |error|"),
        ("bias", "bias"),
        ("explained_variance", "explained"),
    )
    ends = []
    for colour, (key, label) in zip(SERIES, lines, strict=False):
        places = [i for i, row in enumerate(rows) if row.figures[key] is not None]
        if not places:
            continue
        heights = [float(rows[i].figures[key] or 0.0) for i in places]
        x = [10 * i + 5 for i in places]
        bands = [
            rows[i].intervals.get(key, (h, h))
            for i, h in zip(places, heights, strict=True)
        ]
        low, high = zip(*bands, strict=True)
        axes.fill_between(x, low, high, color=colour, alpha=0.14, linewidth=0)
        axes.plot(x, heights, color=colour, marker="o", markersize=3.5)
        ends.append((heights[-1], label, colour))
    axes.set_xlim(0, 100)
    label_ends(axes, ends)
    _name(
        axes, "percent of the rollout's sampled tokens", "reward units; share explained"
    )


def _name(axes: "Axes", x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_title(y, loc="left", fontsize=10, color=MUTED, pad=8)
