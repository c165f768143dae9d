"""Figures for any run, long or broken, as SVG that a page can hold."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from accredit.reports.inline_svg import svg
from accredit.reports.plots import (
    AXES,
    curves,
    learning_curve,
    logarithmic_curves,
    running_mean,
    save_png,
    stage_seconds,
    time_split,
)


def test_every_axis_draws_the_learning_curve(finished_run):
    for along in AXES:
        figure = learning_curve(finished_run.evaluations(), along)
        assert figure is not None
        (axes,) = figure.axes
        line = next(x for x in axes.lines if x.get_marker() == "o")
        expected = [row["eval/mean"] for row in finished_run.evaluations()]
        np.testing.assert_allclose(line.get_ydata(), expected)
        assert AXES[along][0] in axes.get_xlabel()


def test_nothing_to_draw_is_none():
    assert learning_curve([], "step") is None
    assert learning_curve([{"step": 1, "eval/mean": None}], "step") is None
    assert curves([], [("reward/mean", "raw")], "reward") is None
    assert curves([{"step": 1}], [("reward/mean", "raw")], "reward") is None
    assert time_split([]) is None


@pytest.mark.parametrize("values", [[0.5], [0.5, None, 0.2], [0.0, 0.0], [1e-9, 1e9]])
def test_short_and_holey_runs_are_drawn(values):
    rows = [{"step": i, "x": value} for i, value in enumerate(values, start=1)]
    figure = curves(rows, [("x", "x"), ("absent", "y")], "x")
    assert figure is not None
    assert "<svg" in svg(figure, "x", "x")


def test_zeros_are_gaps_on_a_logarithmic_axis():
    rows = [{"step": 1, "x": 0.0, "y": 0.0}, {"step": 2, "x": 0.01, "y": 0.0}]
    figure = logarithmic_curves(rows, [("x", "x"), ("y", "y")], "x")
    assert figure is not None
    (line,) = figure.axes[0].lines
    np.testing.assert_equal(line.get_ydata(), [np.nan, 0.01])
    assert "<svg" in svg(figure, "x", "x")
    assert logarithmic_curves(rows, [("y", "y")], "y") is None


@pytest.mark.parametrize(
    ("values", "limits"),
    [([0.03, 0.2], (0.01, 1.0)), ([1.0], (1.0, 10.0)), ([1.3e-13], (1e-13, 1e-12))],
)
def test_a_logarithmic_axis_spans_whole_decades(values, limits):
    rows = [{"step": i, "x": value} for i, value in enumerate(values, start=1)]
    figure = logarithmic_curves(rows, [("x", "x")], "x")
    assert figure is not None
    assert figure.axes[0].get_ylim() == pytest.approx(limits)


def test_only_the_powers_of_ten_have_names_on_a_logarithmic_axis():
    rows = [{"step": i, "x": i * 1e-13} for i in range(1, 6)]
    figure = logarithmic_curves(rows, [("x", "x")], "x")
    assert figure is not None
    figure.draw_without_rendering()
    axis = figure.axes[0].yaxis
    assert {label.get_text() for label in axis.get_ticklabels(minor=True)} <= {""}
    assert any(label.get_text() for label in axis.get_ticklabels())


def test_a_line_of_one_known_step_is_a_dot():
    rows = [{"step": i, "y": 1.0, "x": 0.5 if i == 4 else None} for i in range(1, 9)]
    figure = curves(rows, [("x", "x"), ("y", "y")], "x")
    assert figure is not None
    dot, line = figure.axes[0].lines
    assert (dot.get_marker(), line.get_marker()) == ("o", "None")


def test_all_steps_are_shown_and_those_of_the_critic_alone_shaded():
    rows = [
        {"step": step, "x": 0.5 if step > 8 else None, "count/critic_only_steps": alone}
        for step, alone in [(i, int(i <= 8)) for i in range(1, 11)]
    ]
    for draw in (curves, logarithmic_curves):
        figure = draw(rows, [("x", "x")], "x")
        assert figure is not None
        (axes,) = figure.axes
        low, high = axes.get_xlim()
        assert low < 1 and high > 10
        (shade,) = axes.patches
        assert (shade.get_x(), shade.get_x() + shade.get_width()) == (0.5, 8.5)
        assert axes.lines[0].get_marker() == "o"
    figure = curves([{"step": 1, "x": 0.5}], [("x", "x")], "x")
    assert figure is not None and not figure.axes[0].patches


def test_svg_is_well_formed_self_contained_and_follows_the_page(finished_run):
    figure = learning_curve(finished_run.evaluations(), "flops/decode")
    assert figure is not None
    text = svg(figure, "curve", 'mean "reward" <by> cost')
    root = ElementTree.fromstring(text)
    assert root.get("aria-label") == 'mean "reward" <by> cost'
    assert root.get("width") is None and root.get("viewBox")
    assert "var(--series-1, #0072b2)" in text
    links = set(re.findall(r"https?://[^\"' ]+", text))
    assert links <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


def test_ids_of_two_figures_never_collide(finished_run):
    rows = finished_run.metrics()
    texts = []
    for name in ("a", "b"):
        figure = curves(rows, [("reward/mean", "raw")], "reward")
        assert figure is not None
        texts.append(svg(figure, name, name))
    ids = [set(re.findall(r' id="([^"]+)"', text)) for text in texts]
    assert ids[0] and not ids[0] & ids[1]
    for text, known in zip(texts, ids, strict=True):
        assert set(re.findall(r'(?:href="#|url\(#)([\w.-]+)', text)) <= known


def test_the_same_run_gives_the_same_svg(finished_run):
    def drawn() -> str:
        figure = learning_curve(finished_run.evaluations(), "step")
        assert figure is not None
        return svg(figure, "curve", "curve")

    assert drawn() == drawn()


def test_png_is_a_picture(finished_run, tmp_path):
    figure = time_split(finished_run.metrics())
    assert figure is not None
    save_png(figure, tmp_path / "time.png")
    assert (tmp_path / "time.png").read_bytes().startswith(b"\x89PNG")


def test_stages_and_the_rest_add_up_to_the_step():
    rows = [
        {"step": i, "time/a_s": 1.0, "time/b_s": 3.0, "time/step_s": 5.0}
        for i in range(3)
    ]
    seconds = stage_seconds(rows)
    assert list(seconds) == ["b", "a", "other"]
    np.testing.assert_allclose(sum(seconds.values()), [5.0, 5.0, 5.0])


def test_many_stages_are_folded_into_other():
    stages = {f"time/s{i}_s": float(i) for i in range(1, 10)}
    rows = [{"step": 1, "time/step_s": 45.0} | stages]
    seconds = stage_seconds(rows)
    assert len(seconds) == 7
    assert seconds["other"][0] == pytest.approx(1 + 2 + 3)


def test_running_mean_by_hand():
    # 80 steps: two neighbours on each side
    values = np.arange(80.0)
    values[10] = np.nan
    smooth = running_mean(values)
    assert smooth[0] == pytest.approx((0 + 1 + 2) / 3)
    assert smooth[40] == pytest.approx(40.0)
    # 8, 9, 11, 12 without the undefined 10
    assert smooth[10] == pytest.approx(10.0)
    assert smooth[11] == pytest.approx((9 + 11 + 12 + 13) / 4)
    short = np.arange(10.0)
    assert running_mean(short) is short


def test_settings_of_the_caller_are_left_alone(finished_run):
    import matplotlib

    before = dict(matplotlib.rcParams)
    figure = learning_curve(finished_run.evaluations(), "step")
    assert figure is not None
    svg(figure, "curve", "curve")
    assert dict(matplotlib.rcParams) == before
