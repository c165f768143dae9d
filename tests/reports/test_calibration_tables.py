"""What a reader of a calibration sees: a verdict, tables, a diagram."""

import json
from pathlib import Path

import numpy as np
import pytest
from calibration_cases import (
    PACT,
    printed,
    rollout_row,
    run_with,
    table,
    unwrapped,
)
from synthetic_run import write_synthetic_run

from accredit.reports.calibration.measures import group_figures
from accredit.reports.calibration.plots import calibration_figure, save_calibration
from accredit.reports.calibration.sources import read_source


def test_the_tables_fit_eighty_columns_and_hold_the_figures(tmp_path):
    lines = [f"{i / 40},{0.5 + i / 90},{(i % 3) / 2},{i % 2}" for i in range(40)]
    text = printed(table(tmp_path, *lines))
    assert max(map(len, text.splitlines())) <= 80
    for name in ("all", "f = 0", "0 < f < 1", "f = 1", "reference", "no reference"):
        assert f"\n{name} " in text
    assert "hopes too much, by 0." in unwrapped(text)
    assert ".." in text and "constant" in text


def test_a_runs_tables_follow_the_rollout(tmp_path):
    run = write_synthetic_run(tmp_path / "run", num_steps=4, algorithm=PACT)
    text = printed(run.path)
    assert max(map(len, text.splitlines())) <= 80
    assert "value at the prompt; all f = 1, no reference" in text
    assert "value throughout" in text
    assert "90..100%" in text


def test_an_unbiased_and_a_single_group_are_told_as_they_are(tmp_path):
    even = [f"{i % 2},{0.5 + (i % 2 - 0.5) * 0.6},1,0" for i in range(20)]
    assert "no clear bias" in unwrapped(printed(table(tmp_path, *even)))
    alone = unwrapped(printed(table(tmp_path, "1,0.5,1,0")))
    assert "one group leaves its bias open" in alone
    assert "no better or worse, as far as one group tells, than a constant" in alone
    assert " – " in alone
    low = [f"{i % 2},0,1,0" for i in range(20)]
    assert "hopes too little, by 0.500" in unwrapped(printed(table(tmp_path, *low)))


def test_groups_that_rewards_valued_are_left_out_of_the_sentence(tmp_path):
    """Half are f = 0 and exact: the error is that of the other half, .4."""
    exact = [f"{i % 2},{i % 2},0,0" for i in range(20)]
    valued = [f"{i % 2},{0.4 + 0.2 * (i % 2)},1,0" for i in range(20)]
    said = unwrapped(printed(table(tmp_path, *exact, *valued)))
    assert said.startswith(
        "Off by 0.400 on average over the 20 groups with f > 0, better than a "
        "constant, which is off by 0.500; no clear bias. Read: 40 groups of the table"
    )
    alone = unwrapped(printed(table(tmp_path, *exact, "0,0.4,1,0")))
    assert alone.startswith("Off by 0.400 on average over the 1 groups with f > 0, no ")


def test_a_constant_is_beaten_only_where_chance_is_ruled_out(tmp_path):
    """.45 against .5: of 8 groups of mixed luck it is open, of 800 it is not."""

    def lines(num: int) -> list[str]:
        lucky = (0.05, 0.05, 0.85, 0.85)
        errors = [lucky[(i // 2) % 4] for i in range(num)]
        return [f"{i % 2},{abs(i % 2 - e)},1,0" for i, e in enumerate(errors)]

    few, many, worse = (
        unwrapped(printed(table(tmp_path, *rows)))
        for rows in (
            lines(8),
            lines(800),
            [f"{i % 2},{1 - i % 2},1,0" for i in [*range(20)]],
        )
    )
    said = "Off by 0.450 on average, "
    assert few.startswith(said + "no better or worse, as far as 8 groups tell, than a")
    assert many.startswith(said + "better than a constant, which is off by 0.500; ")
    assert worse.startswith("Off by 1.000 on average, worse than a constant, which")


def single_rollouts(folder: Path, foresight: float, share: float = 1.0) -> Path:
    """Forty rollouts, each a group of its own; one in ten is a success."""
    rows = []
    for i in range(40):
        won = float(i % 10 == 0)
        value = share * (0.1 + foresight * (won - 0.1))
        rows.append(
            rollout_row(
                group=i,
                reward=won,
                shaped_reward=won,
                values=[9, 9, value, 9, value, 9],
                share_f=share,
            )
        )
    return run_with(folder, rows).path


def test_single_rollouts_are_judged_by_what_is_explained(tmp_path):
    """MAE of a critic that knows half is .09, of one that says 0 only .1."""
    said = unwrapped(printed(single_rollouts(tmp_path / "half", 0.5)))
    assert said.startswith(
        "Explained variance 0.750 [0.750, 0.750], correlation 1.000 "
    )
    assert (
        "over all prefixes: better than a constant; no clear bias. Each group" in said
    )
    assert "do not judge by it. Read: run, step 1: 40 rollouts, each a group of" in said
    blind = unwrapped(printed(single_rollouts(tmp_path / "blind", 0.0)))
    assert blind.startswith(
        "Explained variance 0.000 [0.000, 0.000] over all prefixes:"
    )
    assert "no better or worse, as far as 40 groups tell, than a constant" in blind
    against = unwrapped(printed(single_rollouts(tmp_path / "against", -0.5)))
    assert "over all prefixes: worse than a constant;" in against


def test_a_run_in_which_nothing_was_valued_has_no_critic(tmp_path):
    said = unwrapped(printed(single_rollouts(tmp_path, 0.0, share=0.0)))
    assert said == (
        "This run has no critic: nothing valued its rollouts, and its baseline is 0. "
        "Read: run, step 1: 40 rollouts, each a group of its own."
    )


@pytest.mark.parametrize("value", ["{reward}", "0"])
def test_what_no_critic_valued_is_no_verdict(tmp_path, value):
    """A group mean is exact by construction; a baseline of 0 is off, and neither."""
    lines = [f"{i % 2},{value.format(reward=i % 2)},0,0" for i in range(20)]
    said = unwrapped(printed(table(tmp_path, *lines)))
    assert said.startswith("No critic valued these groups")
    assert "Off by" not in said and "bias." not in said


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_diagram_is_drawn_of_tables_and_runs(tmp_path, suffix):
    lines = [f"{i / 40},{0.5 + i / 90},{(i % 3) / 2},{i % 2}" for i in range(40)]
    run = write_synthetic_run(tmp_path / "run", num_steps=2, algorithm=PACT)
    for source in (table(tmp_path, *lines), run.path):
        target = tmp_path / f"figure{suffix}"
        save_calibration(read_source(source), target, seed=0)
        head = target.read_bytes()[:200]
        assert head.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")
        target.unlink()


def test_the_diagram_shows_every_group_and_prefix_bin(tmp_path):
    figure = calibration_figure(read_source(table(tmp_path, "1,0.5,1,0", "0,0,0,1")), 0)
    (axes,) = figure.axes
    texts = [text.get_text() for text in axes.texts]
    assert {
        "rewards alone (1)",
        "critic (1)",
        "bins of f > 0, 95%\nlargest dot: 1 groups",
    } <= {*texts}
    points = np.concatenate([c.get_offsets() for c in axes.collections])
    assert [0.5, 1.0] in points.tolist() and [0.0, 0.0] in points.tolist()
    assert [text.get_text() for text in figure.texts] == ["probe.csv"]


def test_a_corner_fills_the_diagram_and_thin_bins_are_faint(tmp_path):
    rows = []
    for i in range(60):
        value = 0.04 + 0.002 * min(i % 20, 9) + (0.06 if i > 56 else 0.0)
        values = [9, 9, value, 9, value, 9]
        rows.append(rollout_row(group=i, values=values, shaped_reward=0.1))
    figure = calibration_figure(read_source(run_with(tmp_path, rows).path), 0)
    axes = figure.axes[0]
    assert [text.get_text() for text in figure.texts] == ["run, step 1"]
    assert axes.get_xlim()[0] > 0.03 and axes.get_xlim()[1] < 0.13
    assert "largest dot: " in axes.get_xlabel()
    alphas = {
        dot.get_offsets()[0][0] > 0.1: dot.get_alpha() for dot in axes.collections
    }
    assert alphas == {False: 1.0, True: 0.3}


@pytest.mark.parametrize("name", ["a.pdf", "a", "no/a.png", "folder.png"])
def test_a_picture_that_cannot_be_written_is_refused(tmp_path, name):
    found = read_source(table(tmp_path, "1,0.5,1,0"))
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(ValueError, match="--plot"):
        save_calibration(found, tmp_path / name, seed=0)


def test_the_json_is_strict(tmp_path):
    figures = group_figures(read_source(table(tmp_path, "1,0.5,1,0")).groups)
    assert "NaN" not in json.dumps(figures, allow_nan=False)
