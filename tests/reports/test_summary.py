"""Short numbers that read well, and the rows of the final table."""

import math

import pytest

from accredit.reports.summary import (
    decimal,
    duration,
    shown_scores,
    si,
    signed,
    summary_rows,
    time_left,
    totals,
    with_interval,
    with_twin,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 FLOP"),
        (0.5, "0.50 FLOP"),
        (12, "12 FLOP"),
        (999, "999 FLOP"),
        (999.6, "1.00 kFLOP"),
        (1000, "1 kFLOP"),
        (13_125, "13.1 kFLOP"),
        (8_044_544_000, "8.04 GFLOP"),
        (1.148e15, "1.15 PFLOP"),
        (1.99e20, "199 EFLOP"),
        (3e30, "3000000 YFLOP"),
        (math.inf, "–"),
    ],
)
def test_amounts_have_three_digits_and_a_prefix(value, text):
    assert si(value, "FLOP") == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (9.4, "9.4 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (273_600, "3 d 4 h"),
        (math.nan, "–"),
    ],
)
def test_durations_have_two_units_at_most(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (99.4, "99 s"),
        (99.6, "2 min"),
        (5940, "99 min"),
        (5970, "2 h"),
        (172_799, "48 h"),
        (273_600, "3 d"),
        (math.inf, "–"),
        (math.nan, "–"),
    ],
)
def test_the_time_left_has_one_unit(seconds, text):
    assert time_left(seconds) == text


def test_plain_numbers_use_a_true_minus_and_a_dash_for_nothing():
    assert decimal(-0.25) == "−0.250"
    assert decimal(None) == decimal(math.nan) == "–"
    assert signed(0.5, 1) == "+0.5"
    assert signed(-0.5, 1) == "−0.5"


@pytest.mark.parametrize("value", [0.0, -0.0, 0.0004, -0.0004])
def test_what_rounds_to_nothing_has_no_sign(value):
    assert decimal(value) == signed(value) == "0.000"
    assert signed(value, 0) == "0"
    assert signed(math.nan) == "–"


def evaluation_row(step: int, mean: float, reach: float, **others) -> dict:
    return {
        "step": step,
        "eval/num_problems": 10,
        "eval/num_rollouts": 40,
        "eval/mean": mean,
        "eval/mean_low": mean - reach,
        "eval/mean_high": mean + reach,
    } | {key.replace("_at_", "@"): value for key, value in others.items()}


def test_the_table_says_whether_the_intervals_touch():
    start = evaluation_row(0, 0.1, 0.05)
    (far,) = summary_rows([], [start, evaluation_row(9, 0.5, 0.05)])
    assert (far.name, far.change, far.clear) == ("evaluation mean@4", "+0.400", True)
    assert far.start == "0.100 [0.050, 0.150]"
    (near,) = summary_rows([], [start, evaluation_row(9, 0.19, 0.05)])
    assert not near.clear
    (worse,) = summary_rows([], [evaluation_row(0, 0.5, 0.05), start])
    assert worse.clear and worse.change == "−0.400"


def test_binary_rewards_show_pass_and_not_best_again():
    scores = {"eval/pass@1": 0.1, "eval/pass@4": 0.3}
    scores |= {"eval/best@1": 0.1, "eval/best@4": 0.3}
    start, end = (
        evaluation_row(0, 0.1, 0.1) | scores,
        evaluation_row(9, 0.2, 0.1) | scores,
    )
    names = [row.name for row in summary_rows([], [start, end])]
    assert names == ["evaluation mean@4", "evaluation pass@4"]
    graded = {"eval/best@4": 0.6}
    names = [row.name for row in summary_rows([], [start | graded, end | graded])]
    assert names[-1] == "evaluation best@4"


def test_training_rows_average_a_tenth_of_the_run():
    metrics = [{"step": i, "reward/mean": i / 100} for i in range(1, 101)]
    (row,) = summary_rows(metrics, [])
    # 1..10 and 91..100
    assert (row.start, row.final, row.change) == ("0.055", "0.955", "+0.900")
    assert row.name == "training reward, 10 steps"
    assert summary_rows(metrics[:50], [])[0].name == "training reward, 5 steps"
    assert summary_rows(metrics[:6], [])[0].name == "training reward, 1 step"


def test_a_single_problem_shows_no_brackets():
    assert with_interval({"eval/mean": 0.5}, "eval/mean") == "0.500"


def test_totals_sum_time_and_read_cumulative_costs():
    metrics = [
        {"step": 1, "time/step_s": 2.0, "tokens/generated": 100, "flops/decode": 1e9},
        {"step": 2, "time/step_s": 3.0, "tokens/generated": 250, "flops/decode": 2e9},
    ]
    spent = dict(totals(metrics))
    assert spent["training time"] == "5.0 s"
    assert spent["tokens per second"] == "50"
    assert spent["decode"] == "2 GFLOP"
    assert totals([]) == []
    assert "steps of the critic alone" not in spent
    alone = [row | {"count/critic_only_steps": 1} for row in metrics]
    assert dict(totals(alone))["steps of the critic alone"] == "2"


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"critic/value_mean": 0.0}, False),
        ({"critic/value_mean": 0.0, "critic/valued_share": 1.0}, True),
        ({"critic/value_mean": 0.25}, True),
    ],
)
def test_a_baseline_of_0_is_no_critic(change, kept):
    """A group mean is one; a critic that has said 0 so far as well."""
    metrics = [{"step": 1, "critic/mae": 0.5, "reward/mean": 0.5} | change]
    names = [row.name for row in summary_rows(metrics, [])]
    assert ("critic mean absolute error" in names) == kept


# what an evaluation found of valid samples and of all; the names of its rows
LEFT_OUT = [
    ((0.5, 0.5), (0.9, 0.9), ["evaluation mean@4"]),
    ((0.5, 0.5), (1.0, 0.25), ["evaluation mean@4", "evaluation mean@4, all"]),
    ((0.5, 0.4), (1.0, 1.0), ["evaluation mean@4", "evaluation mean@4, all"]),
    ((None, 0.0), (1.0, 0.25), ["evaluation mean@4, all"]),
    ((0.5, None), (1.0, 0.25), ["evaluation mean@4"]),
    ((None, None), (1.0, 0.25), []),
]


@pytest.mark.parametrize(("start", "end", "names"), LEFT_OUT)
def test_a_mean_that_leaves_samples_out_has_its_twin_beside_it(start, end, names):
    rows = [
        evaluation_row(step, 0.0, 0.1) | {"eval/mean": mean, "eval/mean_all": whole}
        for step, (mean, whole) in ((0, start), (9, end))
    ]
    found = summary_rows([], rows)
    assert [row.name for row in found] == names
    twins = [row for row in found if row.name.endswith("all")]
    for row in twins:
        assert (row.start, row.final) == (f"{start[1]:.3f}", f"{end[1]:.3f}")


def test_the_largest_k_has_its_twin_too():
    scores = {f"eval/pass@{k}": 1.0 for k in (1, 4)}
    scores |= {f"eval/pass@{k}_all": 0.25 * k for k in (1, 4)}
    rows = [evaluation_row(step, 0.5, 0.1) | scores for step in (0, 9)]
    names = [row.name for row in summary_rows([], rows)]
    assert names == ["evaluation mean@4", "evaluation pass@4"]
    rows = [row | {"eval/pass@4_all": 0.5} for row in rows]
    names = [row.name for row in summary_rows([], rows)]
    assert names[1:] == ["evaluation pass@4", "evaluation pass@4, all"]
    shown = shown_scores({"eval/pass@4": 1.0, "eval/pass@4_low": 0.9, **scores})
    assert shown == ["eval/pass@4", "eval/pass@1", "eval/pass@1_all"]


def test_the_training_reward_over_all_is_a_row_where_it_differs():
    metrics = [{"step": i, "reward/mean": 0.8, "reward/mean_all": 0.2} for i in (1, 2)]
    rows = {row.name: row.final for row in summary_rows(metrics, [])}
    assert rows == {"training reward, 1 step": "0.800", "training reward, all": "0.200"}
    whole = [row | {"reward/mean_all": 0.8} for row in metrics]
    assert len(summary_rows(whole, [])) == 1


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"eval/mean": 1.0, "eval/mean_all": 0.25}, "1.000 (all 0.250)"),
        ({"eval/mean": 1.0, "eval/mean_all": 1.0}, "1.000"),
        ({"eval/mean": 1.0}, "1.000"),
        ({"eval/mean_all": 0.0}, "– (all 0.000)"),
        ({}, "–"),
    ],
)
def test_a_mean_in_a_line_has_its_twin_in_brackets(row, text):
    assert with_twin(row, "eval/mean") == text
