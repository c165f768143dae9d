"""What the lab's pictures share: canvas, names of axes, labels in the picture."""

from typing import TYPE_CHECKING, Any

from accredit.reports.plots import INK, MUTED, house_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE = (0, (2, 3))
"""Dashes of what is a bound or a reference and no result."""


def canvas(
    width: float, height: float, ratios: tuple[float, ...] = (1.0,)
) -> "tuple[Figure, list[Axes]]":
    """Inches; panels side by side, in proportion to `ratios`."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with house_style():
        engine = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08, wspace=0.06)
        figure = Figure(figsize=(width, height), layout=engine)
        panels = figure.subplots(1, len(ratios), width_ratios=ratios, squeeze=False)
    return figure, list(panels[0])


def name_axes(axes: "Axes", title: str, x: str, y: str) -> None:
    """What is seen, in the title; what the axes are, beside them."""
    axes.set_title(title, loc="left", fontsize=10.5, pad=10)
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def label(
    axes: "Axes",
    x: float | int,
    y: float | int,
    text: str,
    colour: str = MUTED,
    **style: Any,
) -> None:
    """A word in the picture, in data coordinates."""
    defaults: dict[str, Any] = {
        "va": "center",
        "fontsize": 9.5,
        "annotation_clip": False,
    }
    axes.annotate(text, (x, y), color=colour, **(defaults | style))


def legend(axes: "Axes") -> None:
    """Names of scattered points at the upper left, without a frame."""
    axes.legend(
        frameon=False, fontsize=9.5, handletextpad=0.3, loc="upper left", labelcolor=INK
    )
