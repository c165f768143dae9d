"""A live bar for people, plain lines for files, and the final table."""

import io
import re

import pytest
from rich.console import Console

from accredit.reports.progress import TrainingProgress, final_table, status_line

METRICS = {
    "step": 1,
    "reward/mean": 0.4125,
    "length/mean": 36.24,
    "tokens/per_s": 2130.0,
    "flops/decode": 6.72e11,
}


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.moment = 100.0

    def __call__(self) -> float:
        return self.moment


def console(terminal: bool, width: int = 140) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=width)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_status_names_what_matters():
    assert status_line(METRICS, "0.380", 200.0) == (
        "reward 0.412  eval 0.380  len 36  2.1k tok/s  672 GFLOP  3 min left"
    )
    assert status_line({"step": 1}, "", None) == "reward –"


def test_a_critic_shows_its_explained_variance_in_place_of_the_evaluation():
    valued = METRICS | {"critic/valued_share": 1.0, "critic/explained_variance": 0.1234}
    assert status_line(valued, "0.380", 200.0) == (
        "reward 0.412  ev 0.12  len 36  2.1k tok/s  672 GFLOP  3 min left"
    )
    alone = valued | {"count/critic_only_steps": 1, "critic/explained_variance": -0.001}
    line = status_line(alone, "0.380", 200.0, 62)
    assert line == "reward 0.412  critic alone  ev 0.00  len 36  3 min left"
    unknown = {"reward/mean": 0.5, "critic/valued_share": 1.0}
    assert status_line(unknown, "0.380", None) == "reward 0.500  ev –"


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (67, "reward 0.412  eval 0.380  len 36  2.1k tok/s  672 GFLOP  3 min left"),
        (66, "reward 0.412  eval 0.380  len 36  2.1k tok/s  3 min left"),
        (55, "reward 0.412  eval 0.380  len 36  3 min left"),
        (43, "reward 0.412  eval 0.380  3 min left"),
        (5, "reward 0.412  eval 0.380  3 min left"),
    ],
)
def test_a_narrow_status_drops_flops_then_speed_then_length(width, text):
    assert status_line(METRICS, "0.380", 200.0, width) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [(7431.0, "7.4k"), (9960.0, "10k"), (131.0, "130"), (3.0, "3"), (0.0, "0")],
)
def test_speeds_have_two_digits(rate, text):
    line = status_line({"tokens/per_s": rate, "length/mean": 3.21}, "", None)
    assert line == f"reward –  len 3.2  {text} tok/s"


def ordinary_run(out: Console, num_steps: int, seconds: float) -> str:
    clock = Clock()
    with TrainingProgress(num_steps, console=out, clock=clock) as progress:
        progress.evaluated({"step": 0, "eval/mean": 0.536})
        for step in range(1, num_steps + 1):
            clock.moment += seconds
            costs = {"flops/decode": 1.5e10 * step, "tokens/per_s": 7431.0}
            progress.update(METRICS | costs | {"step": step, "length/mean": 50.0})
    return written(out)


def test_a_plain_line_fits_79_characters_and_keeps_its_flops():
    lines = ordinary_run(console(False, 80), 60, 0.8125).splitlines()
    assert len(lines) == 61
    assert max(map(len, lines)) <= 79
    assert lines[12] == (
        "step 12/60  reward 0.412  eval 0.536  len 50  7.4k tok/s  180 GFLOP  39 s left"
    )
    long_run = ordinary_run(console(False, 80), 5000, 90.0).splitlines()
    assert len(long_run) == 51
    assert max(map(len, long_run)) <= 79
    assert all(" left" in line for line in long_run[1:])


def test_a_file_gets_no_hard_wraps_however_long_the_line():
    out = console(terminal=False, width=20)
    with TrainingProgress(10, console=out) as progress:
        progress.warn(["word " * 40])
        progress.update(METRICS)
    assert len(written(out).splitlines()) == 2


@pytest.mark.parametrize(
    ("width", "shown", "dropped"),
    [
        (80, ["eval 0.536", "len 50", "7.4k tok/s", "39 s left"], ["FLOP"]),
        (65, ["eval 0.536", "len 50", "39 s left"], ["FLOP", "tok/s"]),
        (55, ["eval 0.536", "39 s left"], ["FLOP", "tok/s", "len"]),
        (140, ["eval 0.536", "len 50", "7.4k tok/s", "180 GFLOP", "39 s left"], []),
        (30, ["reward"], ["FLOP", "tok/s", "len"]),
    ],
)
def test_a_narrow_terminal_keeps_bar_and_counter(width, shown, dropped):
    text = ordinary_run(console(True, width), 60, 0.8125)
    frames = re.split(r"[\r\n]", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text))
    bars = [frame for frame in frames if "60/60" in frame]
    assert bars
    for bar in bars:
        assert bar.startswith("━" * 12 + " 60/60 reward")
        assert len(bar) <= width
    status = bars[-1]
    for part in shown:
        assert part.replace("39 s", "0 s").replace("180 G", "900 G") in status
    assert not any(part in status for part in dropped)


def test_a_file_gets_plain_lines_and_not_too_many():
    out = console(terminal=False)
    with TrainingProgress(1000, console=out) as progress:
        for step in range(1, 1001):
            progress.update(METRICS | {"step": step})
    lines = written(out).splitlines()
    assert len(lines) == 50
    assert lines[0].startswith("step 20/1000  reward 0.412")
    assert lines[-1].startswith("step 1000/1000")
    assert "\x1b" not in written(out)


def test_a_terminal_gets_a_bar():
    out = console(terminal=True)
    with TrainingProgress(10, console=out) as progress:
        progress.update(METRICS)
    assert "1/10" in written(out)
    assert "reward 0.412" in written(out)


def test_the_time_left_follows_the_recent_pace():
    clock = Clock()
    with TrainingProgress(12, 2, console(False), clock) as progress:
        assert progress.seconds_left is None
        clock.moment += 4.0
        progress.update(METRICS | {"step": 3})
        assert progress.seconds_left == 4.0 * 9
        clock.moment += 14.0
        progress.update(METRICS | {"step": 4})
        # pace .9 * 4 + .1 * 14 = 5, eight steps to go
        assert abs(progress.seconds_left - 40.0) < 1e-9


def test_evaluations_and_warnings_are_always_shown():
    out = console(terminal=False)
    with TrainingProgress(1000, console=out) as progress:
        progress.evaluated(
            {"step": 0, "eval/mean": 0.1, "eval/mean_low": 0.05, "eval/mean_high": 0.2}
        )
        progress.warn(["[bold]not markup[/bold]"])
        progress.update(METRICS | {"step": 20})
    assert "step 0  evaluation 0.100 [0.050, 0.200]" in written(out)
    assert "warning: [bold]not markup[/bold]" in written(out)
    assert "eval 0.100" in written(out)


def test_the_final_table_holds_start_end_and_interval(finished_run):
    out = console(terminal=False)
    out.print(final_table(finished_run.metrics(), finished_run.evaluations()))
    text = written(out)
    first, last = finished_run.evaluations()[0], finished_run.evaluations()[-1]
    line = next(x for x in text.splitlines() if "mean@4" in x)
    assert f"{first['eval/mean']:.3f}" in line
    assert f"[{last['eval/mean_low']:.3f}, {last['eval/mean_high']:.3f}]" in line
    assert "tokens generated" in text


def test_the_final_table_of_an_empty_run_is_no_error():
    out = console(terminal=False)
    out.print(final_table([], []))
    assert "training" not in written(out)


def test_an_80_column_table_has_no_wrapped_row():
    start, end = (
        {
            "step": step,
            "eval/num_problems": 10,
            "eval/num_rollouts": 10_240,
            "eval/length_mean": length,
            "eval/truncated_share": 0.5,
            "eval/invalid_share": 0.25,
        }
        | {
            f"eval/{score}{end}": 0.5
            for score in ("mean", "pass@1024", "best@1024")
            for end in ("", "_low", "_high")
        }
        for step, length in ((0, 200.0), (200, 1300.0))
    )
    end["eval/best@1024"] = 0.75
    keys = ("reward/mean", "length/mean", "policy/entropy_mean", "critic/mae")
    row = dict.fromkeys((*keys, "critic/explained_variance"), 0.5)
    costs = {"tokens/generated": 6973e3, "flops/decode": 9.92e12, "flops/total": 9.9e13}
    costs["cost/gpu_hours"] = 0.2
    metrics = [row | costs | {"step": i, "time/step_s": 8e2} for i in range(1, 201)]
    metrics[-1]["length/mean"] = 20_000.0
    out = console(False, 80)
    out.print(final_table(metrics, [start, end]))
    lines = [line.rstrip() for line in written(out).splitlines()]
    # head, 3 scores, 3 evaluation and 5 training rows, blank, 2 totals, ledgers, note
    assert lines[17:] == ["1 other warning of the run: see its page"]
    lines = lines[:17]
    assert max(map(len, lines)) <= 80
    assert [line.count("0.500") > 0 for line in lines[1:4]] == [True] * 3
    assert "training reward, 10 steps" in lines[7]
    assert lines[13].endswith("tokens generated 6.97 M")
    assert lines[14] == "tokens per second 43.6"
    assert lines[15] == (
        "decode 9.92 TFLOP · full ledger 99 TFLOP · estimated GPU time 12 min"
    )
