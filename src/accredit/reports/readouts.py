"""What a drawn figure says where somebody points at it: numbers beside the picture.

A figure is drawn once, and the page's script only looks up the nearest point; every
number is already text here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from accredit.reports.summary import decimal, si

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_POINTS = 300
"""Places along a figure that can be pointed at; more are closer than a pixel or two."""
POINTS_AN_INCH = 72
"""Units of an SVG that matplotlib wrote."""
FLOPS, TOKENS = "decode FLOPs", "tokens generated"
"""Names of axes that count in prefixes."""


@dataclass(frozen=True)
class Reading:
    """One line, or one layer, of a figure."""

    name: str
    colour: str
    values: np.ndarray
    heights: np.ndarray | None = None
    """Where it is drawn, if not at its values."""

    @property
    def drawn(self) -> np.ndarray:
        """Heights of its points."""
        return self.values if self.heights is None else self.heights


_FIGURES: "WeakKeyDictionary[Figure, tuple[str, np.ndarray, Sequence[Reading]]]"
_FIGURES = WeakKeyDictionary()


def make_readable(
    figure: "Figure", x_name: str, x: np.ndarray, readings: Sequence[Reading]
) -> None:
    """Notes what a figure can say; the limits of its axes may still change."""
    # Nothing kept here may hold the figure, or it would never be freed.
    _FIGURES[figure] = (x_name, x, tuple(readings))


def readout(figure: "Figure") -> dict[str, Any] | None:
    """Places in the figure's own units and the text for each; None where none was said.

    `at` are the horizontal places, within the axes from `left` to `right`; `heads` and
    the lines' `texts` what to say there; `heights` where a line is, null at its gaps.
    """
    x_name, x, readings = _FIGURES.get(figure, ("", np.zeros(0), ()))
    if not len(x):
        return None
    axes = figure.axes[0]
    places = np.unique(np.linspace(0, len(x) - 1, min(len(x), MOST_POINTS)).astype(int))
    width, height = figure.get_size_inches() * POINTS_AN_INCH
    box = figure.bbox

    def placed(heights: np.ndarray) -> tuple[list[float | None], list[float | None]]:
        at = axes.transData.transform(np.column_stack([x[places], heights]))
        across, up = at[:, 0] / box.width * width, at[:, 1] / box.height * height
        return [_tenth(a) for a in across], [_tenth(height - a) for a in up]

    lower, upper = (np.full(len(places), limit) for limit in axes.get_ylim())
    at, top = placed(upper)
    sides = np.array([[limit, axes.get_ylim()[0]] for limit in axes.get_xlim()])
    left, right = axes.transData.transform(sides)[:, 0] / box.width * width
    return {
        "at": at,
        "left": _tenth(left),
        "right": _tenth(right),
        "top": top[0],
        "bottom": placed(lower)[1][0],
        "heads": [_head(x_name, value) for value in x[places]],
        "lines": [
            {
                "name": reading.name,
                "colour": reading.colour,
                "heights": placed(reading.drawn[places])[1],
                "texts": [_number(value) for value in reading.values[places]],
            }
            for reading in readings
        ],
    }


def _tenth(place: float) -> float | None:
    return round(float(place), 1) if math.isfinite(place) else None


def _head(name: str, value: float) -> str:
    if name == FLOPS:
        return si(float(value), "FLOP")
    if name == TOKENS:
        return f"{si(float(value))} tokens"
    return f"{name} {value:.0f}" if name == "step" else f"{name} {_number(value)}"


def _number(value: float) -> str:
    if math.isfinite(value) and 0.0 < abs(value) < 0.001:
        return f"{value:.1e}".replace("-", "−")
    if math.isfinite(value) and abs(value) >= 10_000:
        return si(float(value))
    return decimal(float(value))
