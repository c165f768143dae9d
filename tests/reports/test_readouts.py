"""Charts say their numbers: where a point lies in the picture, and what it is."""

import gc
import json
import re
import weakref
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import torch

from accredit.reports.calibration.measures import ValuedPrefixes
from accredit.reports.calibration.plots import prefix_figure
from accredit.reports.inline_svg import svg
from accredit.reports.plots import NARROW, WIDE, curves, learning_curve, time_split
from accredit.reports.readouts import MOST_POINTS, readout

ROWS = [{"step": i, "x": value} for i, value in enumerate([0.5, None, 0.25], start=1)]


def said(figure) -> dict:
    found = readout(figure)
    assert found is not None
    return found


def test_a_point_is_named_and_placed_as_it_is_drawn():
    figure = curves(ROWS, [("x", "raw"), ("absent", "y")], "x")
    told = said(figure)
    assert told["heads"] == ["step 1", "step 2", "step 3"]
    (line,) = told["lines"]
    assert (line["name"], line["colour"]) == ("raw", "series-1")
    assert line["texts"] == ["0.500", "–", "0.250"]
    assert line["heights"][1] is None
    # [-.02, 1.02] is drawn from 2.9 - .35 to .55 inches, at 72 points an inch
    span = 72 * (2.9 - 0.9)
    expected = 72 * 0.35 + span * (1.02 - 0.5) / 1.04
    assert line["heights"][0] == pytest.approx(expected, abs=0.1)
    assert told["top"] == pytest.approx(72 * 0.35, abs=0.1)
    assert told["bottom"] == pytest.approx(72 * (0.35 + 2.0), abs=0.1)
    # steps 1 to 3 with 3% of the span on either side
    width = 72 * (5.2 - 0.42 - 1.3)
    assert told["left"] == pytest.approx(72 * 0.42, abs=0.1)
    assert told["right"] == pytest.approx(72 * 0.42 + width, abs=0.1)
    assert told["at"][0] == pytest.approx(72 * 0.42 + width * 0.06 / 2.12, abs=0.1)


def test_the_svg_carries_its_words_escaped():
    figure = curves(ROWS, [("x", '"><script>')], "x")
    text = svg(figure, "x", "x")
    root = ElementTree.fromstring(text)
    told = json.loads(root.attrib["data-readout"])
    assert told["lines"][0]["name"] == '"><script>'
    assert root.attrib["tabindex"] == "0"
    head = text.partition(">")[0]
    assert "&quot;&gt;&lt;script" in head and '"><script>' not in head


@pytest.mark.parametrize("size", [WIDE, NARROW])
@pytest.mark.parametrize(
    ("along", "head"),
    [
        ("step", "step 3"),
        ("tokens/generated", "1.20 k tokens"),
        ("flops/decode", "2.50 GFLOP"),
    ],
)
def test_costs_are_said_with_their_unit(size, along, head):
    costs = {"step": 3, "tokens/generated": 1200, "flops/decode": 2.5e9}
    row = costs | {"eval/mean": 0.5, "eval/mean_low": 0.4, "eval/mean_high": 0.75}
    told = said(learning_curve([row], along, size))
    assert told["heads"] == [head]
    lines = {line["name"]: line["texts"] for line in told["lines"]}
    assert lines == {"mean reward": ["0.500"], "95% from": ["0.400"], "to": ["0.750"]}


def test_layers_say_their_own_seconds_at_their_top():
    rows = [
        {"step": i, "time/a_s": 1.0, "time/b_s": 3.0, "time/step_s": 4.0}
        for i in (1, 2)
    ]
    told = said(time_split(rows))
    texts = {line["name"]: line["texts"][0] for line in told["lines"]}
    assert texts == {"b": "3.000", "a": "1.000"}
    lower, upper = (line["heights"][0] for line in told["lines"])
    assert upper < lower
    assert (told["bottom"] - upper) / (told["bottom"] - lower) == pytest.approx(
        4 / 3, abs=0.002
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-5, "1.0e−05"),
        (0.0, "0.000"),
        (-0.25, "−0.250"),
        (2e6, "2 M"),
        (12.0, "12.000"),
    ],
)
def test_numbers_of_any_size_are_readable(value, text):
    figure = curves([{"step": 1, "x": value}], [("x", "x")], "x")
    assert said(figure)["lines"][0]["texts"] == [text]


def test_a_reliability_diagram_says_its_bins():
    values = torch.tensor([0.1, 0.1, 0.9, 0.9])
    outcomes = torch.tensor([0.0, 0.5, 1.0, 1.0])
    groups = torch.arange(4)
    told = said(prefix_figure(ValuedPrefixes(values, outcomes, groups, groups), 0))
    assert told["heads"] == ["value 0.100", "value 0.900"]
    assert told["lines"][0]["texts"] == ["0.250", "1.000"]
    # of two panels the left one
    assert told["left"] < told["at"][0] < told["at"][1] < told["right"] < 72 * 4.5


def test_a_long_run_is_thinned_and_keeps_its_ends():
    rows = [{"step": i, "x": float(i)} for i in range(1, 5001)]
    told = said(curves(rows, [("x", "x")], "x"))
    assert len(told["at"]) == MOST_POINTS
    assert (told["heads"][0], told["heads"][-1]) == ("step 1", "step 5000")
    assert np.all(np.diff(told["at"]) >= 0)


def test_a_figure_is_freed_though_it_was_noted():
    figure = curves(ROWS, [("x", "x")], "x")
    gone = weakref.ref(figure)
    assert readout(figure) is not None
    del figure
    gc.collect()
    assert gone() is None


def test_other_figures_say_nothing():
    from matplotlib.figure import Figure

    figure = Figure()
    figure.add_axes((0.1, 0.1, 0.8, 0.8))
    assert readout(figure) is None
    assert not re.search("data-readout|tabindex", svg(figure, "x", "x"))
