"""The curves of a run as matplotlib figures.

House style: no frame, few grid lines, labels at the line instead of a legend, units on
both axes, a colour-blind-safe palette (Okabe and Ito 2008). The SVG takes its colours
from the page's CSS variables, so that one figure serves light and dark.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from accredit.reports.readouts import FLOPS, TOKENS, Reading, make_readable
from accredit.reports.summary import CRITIC_ONLY, OVER_ALL, twin

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import RcKeyType

Row = Mapping[str, float | int | None]
Line = tuple[str, str]
"""(metric key, label at the line's end)."""

INK, MUTED, GRID = "#1f2933", "#616e7c", "#e3e7ec"
SERIES = ("#0072b2", "#d55e00", "#008f68", "#b5558f", "#c98a00", "#3f9bd1", "#7b8794")
COLOURS = {INK: "ink", MUTED: "muted", GRID: "grid"} | {
    colour: f"series-{i}" for i, colour in enumerate(SERIES, start=1)
}
"""Colour in the figure -> CSS variable that replaces it in the page."""

AXES = {
    "flops/decode": (FLOPS, 1),
    "tokens/generated": (TOKENS, 1),
    "step": ("step", 0),
}
MOST_STAGES = 6
WIDE, NARROW = (10.6, 4.0), (5.2, 2.9)
"""Inches; across the page and in two columns, with letters of one size."""
MARGIN_LEFT, MARGIN_RIGHT, MARGIN_BELOW, MARGIN_ABOVE = 0.42, 1.3, 0.55, 0.35
"""Inches; the same in every figure, so that axes line up."""
LABEL_HEIGHT = 18.0
"""Pixels that a label at a line's end takes, at the figure's 100 dots an inch."""

STYLE: "dict[RcKeyType, Any]" = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "lines.linewidth": 2.0,
    "lines.solid_capstyle": "round",
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
    "xtick.major.size": 3,
    "svg.fonttype": "none",
    "svg.hashsalt": "accredit",
    "figure.dpi": 100,
}


def learning_curve(
    evaluations: Sequence[Row], along: str, size: tuple[float, float] = WIDE
) -> "Figure | None":
    """Evaluation mean and its 95% band against a cost: a key of `AXES`."""
    rows = [r for r in evaluations if None not in (r.get(along), r.get("eval/mean"))]
    if not rows:
        return None
    label, is_amount = AXES[along]
    x, y = _column(rows, along), _column(rows, "eval/mean")
    low, high = _column(rows, "eval/mean_low"), _column(rows, "eval/mean_high")
    with house_style():
        figure, axes = _canvas(*size)
        axes.fill_between(x, low, high, color=SERIES[0], alpha=0.16, linewidth=0)
        axes.axhline(y[0], color=MUTED, linewidth=1.0, dashes=(2, 3))
        axes.plot(x, y, color=SERIES[0], marker="o", markersize=4.5)
        ends = [(y[0], "start", MUTED), (y[-1], f"{y[-1]:.2f}", SERIES[0])]
        shown = [y, low, high]
        if any(twin(row, "eval/mean") is not None for row in rows):
            whole = _column(rows, f"eval/mean{OVER_ALL}")
            axes.plot(x, whole, color=SERIES[1], linewidth=1.4)
            shown.append(whole[np.isfinite(whole)])
            if np.isfinite(whole[-1]):
                ends.append((whole[-1], f"{whole[-1]:.2f} of all", SERIES[1]))
        axes.set_ylim(*_limits(np.concatenate(shown)))
        label_ends(axes, ends)
        _name_axes(axes, label, "evaluation mean reward")
        if is_amount:
            _use_prefixes(axes, 6 if size == WIDE else 4)
        edges = (("95% from", low), ("to", high))
        make_readable(
            figure,
            label,
            x,
            [
                Reading("mean reward", COLOURS[SERIES[0]], y),
                *(Reading(name, "muted", edge) for name, edge in edges),
            ],
        )
    return figure


def curves(
    metrics: Sequence[Row],
    lines: Sequence[Line],
    ylabel: str,
    band: tuple[str, str] | None = None,
    reference: float | None = None,
) -> "Figure | None":
    """Metrics against the step: faint as measured, strong as a running mean.

    Args:
        lines: Drawn in the order of the palette; a key that no row holds is left out.
        band: Keys of a lower and an upper edge around the first line.
        reference: A level to mark, where it separates good from bad.
    """
    columns = {label: _column(metrics, key) for key, label in lines}
    columns = {label: y for label, y in columns.items() if np.isfinite(y).any()}
    if not columns:
        return None
    edges = [_column(metrics, key) for key in band or ()]
    steps = _column(metrics, "step")
    with house_style():
        figure, axes = _canvas(*NARROW)
        if reference is not None:
            axes.axhline(reference, color=MUTED, linewidth=1.0, dashes=(2, 3))
        if edges:
            low, high = edges
            axes.fill_between(steps, low, high, color=SERIES[0], alpha=0.1, linewidth=0)
        ends = _draw(axes, steps, columns)
        _show_steps(axes, metrics)
        axes.set_ylim(*_limits(np.concatenate([*columns.values(), *edges])))
        label_ends(axes, ends)
        _name_axes(axes, "step", ylabel)
        make_readable(figure, "step", steps, _readings(columns))
    return figure


def logarithmic_curves(
    metrics: Sequence[Row], lines: Sequence[Line], ylabel: str
) -> "Figure | None":
    """Like `curves` for what spans decades; a value of 0 has no place and is a gap."""
    from matplotlib.ticker import NullFormatter

    columns = {label: _column(metrics, key) for key, label in lines}
    columns = {label: np.where(y > 0.0, y, np.nan) for label, y in columns.items()}
    columns = {label: y for label, y in columns.items() if np.isfinite(y).any()}
    if not columns:
        return None
    with house_style():
        figure, axes = _canvas(*NARROW)
        steps = _column(metrics, "step")
        ends = _draw(axes, steps, columns)
        _show_steps(axes, metrics)
        axes.set_yscale("log")
        # Names between the powers of ten are too wide for the margin.
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_ylim(*_decades(np.concatenate(list(columns.values()))))
        label_ends(axes, ends)
        # The highest power of ten stands at the very top, beside the axis' name.
        _name_axes(axes, "step", ylabel, above=14)
        make_readable(figure, "step", steps, _readings(columns))
    return figure


def time_split(
    metrics: Sequence[Row], size: tuple[float, float] = WIDE
) -> "Figure | None":
    """Seconds a step by stage, stacked, the largest stage at the bottom."""
    seconds = stage_seconds(metrics)
    if len(metrics) < 2 or not seconds:
        return None
    steps = _column(metrics, "step")
    layers = [running_mean(column) for column in seconds.values()]
    with house_style():
        figure, axes = _canvas(*size)
        axes.stackplot(steps, layers, colors=SERIES, alpha=0.85, linewidth=0)
        axes.set_ylim(0, 1.05 * float(np.max(np.sum(layers, axis=0))))
        tops = np.cumsum([layer[-1] for layer in layers])
        label_ends(
            axes,
            [
                (top - layer[-1] / 2, name, colour)
                for top, layer, name, colour in zip(
                    tops, layers, seconds, SERIES, strict=False
                )
            ],
        )
        _name_axes(axes, "step", "seconds a step")
        tops = np.cumsum(layers, axis=0)
        make_readable(
            figure,
            "step",
            steps,
            [
                Reading(name, COLOURS[colour], column, top)
                for (name, column), colour, top in zip(
                    seconds.items(), SERIES, tops, strict=False
                )
            ],
        )
    return figure


def stage_seconds(metrics: Sequence[Row]) -> dict[str, np.ndarray]:
    """Stage -> seconds of each step, largest in total first, small ones as other."""
    keys = sorted({key for row in metrics for key in row if key.startswith("time/")})
    columns = {
        key.removeprefix("time/").removesuffix("_s"): np.nan_to_num(
            _column(metrics, key)
        )
        for key in keys
        if key != "time/step_s"
    }
    ordered = sorted(columns, key=lambda name: -float(columns[name].sum()))
    stages = {name: columns[name] for name in ordered[:MOST_STAGES]}
    step = np.nan_to_num(_column(metrics, "time/step_s"))
    rest = np.maximum(step - sum(stages.values(), np.zeros(len(step))), 0.0)
    if stages and float(rest.sum()) > 0.005 * float(step.sum()):
        stages["other"] = rest
    return stages


def running_mean(values: np.ndarray) -> np.ndarray:
    """Centred mean over a twentieth of the run; undefined steps do not count."""
    half = len(values) // 40
    if half == 0:
        return values
    known = np.isfinite(values)
    sums = np.cumsum(np.concatenate([[0.0], np.where(known, values, 0.0)]))
    counts = np.cumsum(np.concatenate([[0], known]))
    first = np.maximum(np.arange(len(values)) - half, 0)
    end = np.minimum(np.arange(len(values)) + half + 1, len(values))
    totals, sizes = sums[end] - sums[first], counts[end] - counts[first]
    return np.where(sizes > 0, totals / np.maximum(sizes, 1), np.nan)


def save_png(figure: "Figure", path: Path) -> None:
    """The figure as a picture on white, 200 dots an inch."""
    with house_style():
        figure.savefig(path, format="png", dpi=200, facecolor="white")


@contextmanager
def house_style() -> Iterator[None]:
    """Matplotlib settings of all figures, undone afterwards."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        yield


def _canvas(width: float, height: float) -> "tuple[Figure, Axes]":
    """Inches; no pyplot, which would keep every figure alive."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    axes = figure.add_axes(
        (
            MARGIN_LEFT / width,
            MARGIN_BELOW / height,
            1.0 - (MARGIN_LEFT + MARGIN_RIGHT) / width,
            1.0 - (MARGIN_BELOW + MARGIN_ABOVE) / height,
        )
    )
    return figure, axes


def _draw(
    axes: "Axes", x: np.ndarray, columns: Mapping[str, np.ndarray]
) -> list[tuple[float, str, str]]:
    """One line a column; returns where each ends, its label and its colour."""
    ends = []
    for colour, (label, y) in zip(SERIES, columns.items(), strict=False):
        smooth = running_mean(y)
        marker = "o" if np.isfinite(y).sum() < 3 else None
        if smooth is not y:
            axes.plot(x, y, color=colour, linewidth=0.8, alpha=0.35)
        axes.plot(x, smooth, color=colour, marker=marker)
        ends.append((float(smooth[np.isfinite(smooth)][-1]), label, colour))
    return ends


def _readings(columns: Mapping[str, np.ndarray]) -> list[Reading]:
    """As measured, not as smoothed."""
    return [
        Reading(label, COLOURS[colour], y)
        for colour, (label, y) in zip(SERIES, columns.items(), strict=False)
    ]


def _show_steps(axes: "Axes", metrics: Sequence[Row]) -> None:
    """All steps of the run, those in which the critic learned alone shaded."""
    steps = _column(metrics, "step")
    room = 0.03 * max(float(steps.max() - steps.min()), 1.0)
    axes.set_xlim(float(steps.min()) - room, float(steps.max()) + room)
    alone = steps[[bool(row.get(CRITIC_ONLY)) for row in metrics]]
    if len(alone):
        left, right = float(alone.min()), float(alone.max()) + 0.5
        axes.axvspan(left - 0.5, right, color=GRID, alpha=0.5, linewidth=0, zorder=0)


def label_ends(axes: "Axes", ends: Sequence[tuple[float, str, str]]) -> None:
    """Labels right of the axes at the height of the line's end, pushed apart."""
    gap = LABEL_HEIGHT / axes.get_window_extent().height
    to_axes = axes.transScale + axes.transLimits
    heights = [
        (float(to_axes.transform((0.0, y))[1]), text, colour)
        for y, text, colour in ends
    ]
    heights.sort()
    lowest = -0.02
    for i, (height, text, colour) in enumerate(heights):
        above = len(heights) - 1 - i
        height = min(max(height, lowest), 1.02 - gap * above)
        lowest = height + gap
        axes.annotate(
            text,
            (1.015, height),
            xycoords="axes fraction",
            color=colour,
            va="center",
            annotation_clip=False,
        )


def _name_axes(axes: "Axes", x: str, y: str, above: int = 8) -> None:
    axes.set_xlabel(x)
    axes.set_title(y, loc="left", fontsize=10, color=MUTED, pad=above)
    if x == "step":
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))


def _use_prefixes(axes: "Axes", num_ticks: int) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=num_ticks))
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))


def _limits(values: np.ndarray) -> tuple[float, float]:
    """[0, 1] for shares and rewards inside it, so that heights compare between runs."""
    known = values[np.isfinite(values)]
    if not len(known):
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    if low >= 0.0 and 0.25 <= high <= 1.0:
        return -0.02, 1.02
    low = min(low, 0.0) if low < 0.7 * high else low
    room = 0.06 * (high - low) or 0.1 * abs(high) or 0.1
    return low - (room if low < 0 else min(room, low)), high + room


def _decades(values: np.ndarray) -> tuple[float, float]:
    """Whole powers of ten around positive values, one decade at least."""
    exponents = np.log10(values[np.isfinite(values)])
    low, high = np.floor(exponents.min()), np.ceil(exponents.max())
    return 10.0**low, 10.0 ** max(high, low + 1.0)


def _column(rows: Sequence[Row], key: str) -> np.ndarray:
    cells = [row.get(key) for row in rows]
    return np.array([np.nan if cell is None else cell for cell in cells], dtype=float)
