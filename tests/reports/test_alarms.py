"""Runs that look alive and learn nothing are called out, once."""

import pytest

from accredit.reports.alarms import ALARMS, new_warning_lines, warning_lines


def history(num_steps: int, **metrics) -> list[dict]:
    named = {key.replace("__", "/"): value for key, value in metrics.items()}
    return [{"step": step, **named} for step in range(1, num_steps + 1)]


DEAD = {"length__truncated_share": 1.0, "reward__mean": 0.0}
FRESH = {
    "critic__valued_share": 1.0,
    "critic__unknown_share": 0.0,
    "policy__num_skipped": 0,
}
"""What a step holds in which a policy learns from fresh rollouts as a critic."""
TRAINED = FRESH | {"critic__num_skipped": 0}
"""The same of a critic that learns."""


def test_b091_all_truncated_without_reward_is_a_loud_warning():
    (line,) = warning_lines(history(5, **DEAD))
    assert line.startswith("steps 1-5 (5 steps): every rollout ran out of tokens")
    assert warning_lines(history(4, **DEAD)) == []
    assert warning_lines(history(9, **(DEAD | {"reward__mean": 0.01}))) == []


def test_b098_negative_explained_variance_is_a_warning_after_n_steps():
    rows = history(12, critic__explained_variance=-5.28)
    assert "explained variance of the baseline was below 0" in warning_lines(rows)[0]
    (line,) = warning_lines(history(12, critic__explained_variance=-0.01, **TRAINED))
    assert "explained variance was below 0" in line
    assert warning_lines(history(4, critic__explained_variance=-0.01, **TRAINED)) == []
    assert warning_lines(history(12, critic__explained_variance=0.0, **TRAINED)) == []


@pytest.mark.parametrize(
    ("key", "bad", "good", "words"),
    [
        ("group__all_equal_share", 1.0, 0.9, "no signal"),
        ("reward__invalid_share", 0.11, 0.1, "could not be verified"),
        ("rollout__failure_share", 0.2, 0.0, "failed in the engine"),
        ("policy__clip_share", 0.31, 0.3, "clipped"),
        ("mismatch__kl_k3_mean", 0.02, 0.015, "disagree"),
        ("policy__entropy_mean", 0.005, 0.01, "entropy"),
        ("policy__num_skipped", 1, 0, "skipped"),
        ("critic__num_skipped", 1, 0, "skipped"),
        ("critic__ratio_mean", 1.3, 1.2, "not 1 on average"),
        ("critic__ratio_mean", 0.75, 0.85, "not 1 on average"),
        ("critic__ratio_max", 31.0, 6.0, "30 times as likely"),
        ("critic__rejected_share", 1.0, 0.1, "taught the critic nothing"),
    ],
)
def test_each_threshold_has_two_sides(key, bad, good, words):
    (line,) = warning_lines(history(5, **{key: bad}))
    assert words in line
    assert warning_lines(history(5, **{key: good})) == []


UNHEALTHY = [
    ({"mae": 0.61}, {"mae": 0.59}, {"constant_mae": 0.5}, "that of a constant"),
    ({"bias": 0.25}, {"bias": 0.15}, {}, "lags behind"),
    ({"bias": -0.25}, {"bias": -0.15}, {}, "lags behind"),
    ({"value_gap": -0.1}, {"value_gap": 0.1}, {"correlation": -0.1}, "failures above"),
    ({"correlation": -0.1}, {"correlation": 0.1}, {"value_gap": -0.1}, "failures"),
    (
        {"step_abs_mean": 0.21},
        {"step_abs_mean": 0.19},
        {"step_abs_bound": 0.1},
        "twice",
    ),
    (
        {"step_large_mean": 4.1},
        {"step_large_mean": 4},
        {"step_large_bound": 4},
        "noisy",
    ),
]
"""What is outside, what is inside, what stands beside it, and the words for it."""


def health(num_steps: int, *figures: dict, **others) -> list[dict]:
    flat = {name: value for part in figures for name, value in part.items()}
    kinds = {name: "credit" if "step" in name else "critic" for name in flat}
    named = {f"{kinds[name]}__{name}": value for name, value in flat.items()}
    return history(num_steps, **named, **others)


@pytest.mark.parametrize(("bad", "good", "beside", "words"), UNHEALTHY)
def test_an_unhealthy_critic_is_called_out_after_patience(bad, good, beside, words):
    (line,) = warning_lines(health(5, bad, beside, **TRAINED))
    assert words in line
    assert warning_lines(health(4, bad, beside, **TRAINED)) == []
    assert warning_lines(health(5, good, beside, **TRAINED)) == []


@pytest.mark.parametrize(("bad", "good", "beside", "words"), UNHEALTHY)
@pytest.mark.parametrize(
    "others",
    [
        {},
        {"policy__num_skipped": 0},
        {"critic__num_skipped": 0, "critic__valued_share": 1.0},
        {"critic__unknown_share": 0.0},
    ],
)
def test_neither_group_nor_warming_critics_are_judged_as_trained(
    bad, good, beside, words, others
):
    assert warning_lines(health(12, bad, beside, **others)) == []


@pytest.mark.parametrize(
    ("bad", "good", "beside"),
    [
        ({"mae": 0.61}, {"mae": 0.59}, {"constant_mae": 0.5}),
        ({"bias": 0.25}, {"bias": 0.15}, {}),
        ({"bias": -0.25}, {"bias": -0.15}, {}),
        ({"value_gap": -0.1}, {"value_gap": 0.1}, {"correlation": -0.1}),
        ({"correlation": -0.1}, {"correlation": 0.1}, {"value_gap": -0.1}),
    ],
)
def test_fresh_rollouts_are_a_critic_that_can_be_wrong(bad, good, beside):
    (line,) = warning_lines(health(5, bad, beside, **FRESH))
    assert "fresh rollouts" in line
    assert warning_lines(health(4, bad, beside, **FRESH)) == []
    assert warning_lines(health(5, good, beside, **FRESH)) == []


@pytest.mark.parametrize(("bad", "good", "beside", "words"), UNHEALTHY)
def test_a_critic_is_not_judged_by_the_few_rollouts_that_ended(
    bad, good, beside, words
):
    """Those that end soon won: the others' outcomes are the critic's own word."""
    half = TRAINED | {"critic__unknown_share": 0.5}
    assert warning_lines(health(12, bad, beside, **half)) == []
    few = TRAINED | {"critic__unknown_share": 0.1}
    assert len(warning_lines(health(12, bad, beside, **few))) == 1


def test_the_noise_of_few_fresh_rollouts_is_no_alarm():
    """One at each prefix: explained variance -1, many a large step."""
    noise = {"explained_variance": -1.0, "step_large_mean": 9.0, "step_abs_mean": 0.2}
    exact = {"step_large_bound": 1.0, "step_abs_bound": 0.05}
    assert warning_lines(health(12, noise, exact, **FRESH)) == []


def test_a_leave_one_out_baseline_at_its_worst_is_no_alarm():
    rows = history(12, critic__explained_variance=-1.0, critic__value_gap=-0.5)
    assert warning_lines(rows) == []


def test_a_solved_task_forgives_the_last_token_its_surprise():
    """V .6, R always 1: one large step a rollout where Var(R) allows none."""
    figures = {"step_large_mean": 1.0, "step_large_bound": 0.0}
    small = {"step_abs_mean": 0.02, "step_abs_bound": 0.0}
    assert warning_lines(health(12, figures, small, **TRAINED)) == []


def test_a_streak_must_not_be_interrupted():
    rows = history(9, policy__clip_share=0.5)
    rows[4]["policy/clip_share"] = 0.0
    assert warning_lines(rows) == []


def test_steps_without_the_metric_neither_feed_nor_end_a_streak():
    rows = history(7, critic__explained_variance=-1.0, **TRAINED)
    del rows[2]["critic/explained_variance"]
    rows[4]["critic/explained_variance"] = None
    assert warning_lines(rows)[0].startswith("steps 1-7 (5 steps)")
    assert warning_lines(rows[:6]) == []


def test_a_past_streak_stays_in_the_report_with_its_steps():
    rows = history(6, policy__clip_share=0.5) + history(6, policy__clip_share=0.0)
    assert warning_lines(rows)[0].startswith("steps 1-6 (6 steps)")


def test_a_warning_is_told_live_exactly_once():
    rows = history(20, **DEAD)
    told = [new_warning_lines(rows[: n + 1]) for n in range(20)]
    assert [len(lines) for lines in told] == [0] * 4 + [1] + [0] * 15


def test_a_step_without_the_metric_does_not_repeat_a_warning():
    rows = [*history(5, critic__explained_variance=-1.0, **TRAINED), {"step": 6}]
    assert new_warning_lines(rows) == []
    assert new_warning_lines([]) == []


def test_every_alarm_reads_a_documented_key():
    from test_metrics import documented_keys

    known = documented_keys("Every step") | documented_keys("Steps with a gate")
    read = {
        key for alarm in ALARMS for key in (*alarm.keys, *alarm.present, *alarm.absent)
    }
    assert read <= known


def test_half_without_a_reward_is_told_at_its_first_step_once_a_streak():
    rows = history(9, reward__invalid_share=0.5)
    rows[2]["reward/invalid_share"] = 0.49
    told = [new_warning_lines(rows[: n + 1]) for n in range(9)]
    at_once = [[line for line in lines if "half" in line] for lines in told]
    assert [len(lines) for lines in at_once] == [1, 0, 0, 1, 0, 0, 0, 0, 0]
    assert at_once[3][0].startswith("step 4: half of the rollouts or more had no")
    # the patient alarm of a tenth counts all steps and speaks at the fifth
    assert [len(lines) for lines in told] == [1, 0, 0, 1, 1, 0, 0, 0, 0]


def test_a_single_step_without_rewards_stays_in_the_report():
    rows = history(8, reward__invalid_share=0.0)
    rows[3]["reward/invalid_share"] = 1.0
    (line,) = warning_lines(rows)
    assert line.startswith("step 4: half")
