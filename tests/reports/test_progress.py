"""A live bar for people, plain lines for files, and the final table."""

import io

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


def console(terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=140)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_status_names_what_matters():
    assert status_line(METRICS, "0.380", 200.0) == (
        "reward 0.412  eval 0.380  length 36.2  2.13 k tok/s  672 GFLOP  "
        "3 min 20 s left"
    )
    assert status_line({"step": 1}, "", None) == "reward –"


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
