"""Runs that look alive and learn nothing are called out, once."""

import math
import re
from functools import partial
from pathlib import Path

import pytest
from test_metrics import documented_keys, family

from accredit.algorithms.ac2.alarms import AC2_ALARMS
from accredit.recipe.config import RunConfig, union_members
from accredit.reports.alarms import alarms
from accredit.reports.alarms.alarms import WINDOW, reads
from accredit.reports.alarms.rules import ALARMS as COMMON_ALARMS

ALARMS = (*COMMON_ALARMS, *AC2_ALARMS)
Watch = partial(alarms.Watch, further=AC2_ALARMS)
warning_lines = partial(alarms.warning_lines, further=AC2_ALARMS)
warnings_of = partial(alarms.warnings_of, further=AC2_ALARMS)


METRICS_PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


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
    (line,) = warning_lines(health(12, bad, beside, **half))
    assert "the outcomes were the critic's own word" in line
    assert words not in line
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
    watch = Watch()
    told = [watch.heard(row) for row in rows]
    assert [len(lines) for lines in told] == [0] * 4 + [1] + [0] * 15


@pytest.mark.parametrize("gap", [1, 5, 30])
def test_a_warning_is_told_once_in_a_run_however_often_it_comes_back(gap):
    rows = history(6, policy__clip_share=0.5) + history(gap, policy__clip_share=0.0)
    rows = [row | {"step": n + 1} for n, row in enumerate(rows * 3)]
    watch = Watch()
    told = [warned.text for row in rows for warned in watch.heard(row)]
    assert len(told) == 1 and told[0].startswith("steps 1-5 (5 steps): more than 30%")
    # A resumed run has heard what it read of its own past.
    assert Watch(rows[:7]).heard(rows[-1]) == []
    (last,) = warnings_of(rows)
    first = 2 * (6 + gap) + 1
    assert last.text.startswith(f"steps {first}-{first + 5} (6 steps; 18 of ")


@pytest.mark.parametrize(
    ("held", "num_steps", "told"),
    [
        (lambda n: n % 2 == 0, 21, 1),
        (lambda n: n % 3 != 0, 20, 1),
        (lambda n: n % 4 != 0, 20, 1),
        (lambda n: n % 2 == 0, 20, 0),
        (lambda n: n % 3 == 0, 60, 0),
        (lambda n: n % 5 < 2, 60, 0),
        # 40 of 55 steps, never five in a row
        (lambda n: n % 11 not in (4, 8, 10), 55, 1),
    ],
)
def test_what_holds_in_half_of_twenty_steps_is_told(held, num_steps, told):
    """It comes and goes: five in a row would never tell it."""
    rows = history(num_steps, **TRAINED)
    for n, row in enumerate(rows):
        row["critic/explained_variance"] = -0.2 if held(n) else 0.1
    found = warnings_of(rows)
    assert [warned.is_loud for warned in found] == [True] * told


def test_a_share_that_is_told_names_all_its_steps():
    rows = history(55, **TRAINED)
    for n, row in enumerate(rows):
        row["critic/explained_variance"] = 0.1 if n % 11 in (4, 8, 10) else -0.2
    (line,) = warning_lines(rows)
    assert line.startswith("steps 35-54 (15 steps; 40 of 55 in all): the critic's")


def test_a_step_without_the_metric_does_not_repeat_a_warning():
    rows = [*history(5, critic__explained_variance=-1.0, **TRAINED), {"step": 6}]
    assert Watch(rows[:5]).heard(rows[5]) == []
    assert Watch(rows[:4]).heard(rows[5]) == []
    assert warnings_of([]) == []


def test_every_alarm_reads_a_documented_key():
    titles = ("Every step", "Steps with a gate", "Every evaluation")
    known = {key for title in titles for key in documented_keys(title)}
    for alarm in ALARMS:
        read = (*alarm.keys, *alarm.present, *alarm.absent)
        assert {family(key) for key in read} <= known, alarm.meaning


def documented_rows() -> dict[str, tuple[str, str]]:
    """Key -> (healthy, warning) of the page's tables."""
    rows: dict[str, tuple[str, str]] = {}
    for line in METRICS_PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 6:
            rows[cells[0].strip("`")] = (cells[4], cells[5])
    return rows


ROWS = documented_rows()
RANGE = re.compile(r"(above|below|within|beyond|outside|at most) [±−]?\d|\d to \d")
ALARMED = {family(key) for alarm in ALARMS for key in alarm.keys}


def alarm_behind(key: str) -> bool:
    """Whether the row has an alarm that reads it, or names keys that have."""
    warning = ROWS[key][1]
    if warning.startswith("see "):
        return all(alarm_behind(k) for k in re.findall(r"`([^`]+)`", warning))
    return warning != "–" and key in ALARMED


@pytest.mark.parametrize(
    "key", [key for key, cells in ROWS.items() if RANGE.search(cells[0])]
)
def test_every_healthy_range_has_an_alarm(key):
    assert alarm_behind(key), f"{key} is healthy {ROWS[key][0]!r}, and nobody watches"


@pytest.mark.parametrize(
    "key", [key for key, (_, warning) in ROWS.items() if warning != "–"]
)
def test_every_warning_of_the_page_has_an_alarm(key):
    assert alarm_behind(key)


@pytest.mark.parametrize("alarm", ALARMS, ids=lambda alarm: alarm.keys[0])
def test_every_alarm_has_its_warning_on_the_page(alarm):
    warnings = [ROWS[family(key)][1] for key in alarm.keys]
    told = " ".join(w for w in warnings if not w.startswith("see ") and w != "–")
    assert told
    assert not alarm.is_loud or "loud" in told
    assert not alarm.at_once or "at once" in told


def recipe_keys(model, prefix: str = "") -> set[str]:
    """Every dotted key of a recipe, of all algorithms and critics."""
    found: set[str] = set()
    for key, field in model.model_fields.items():
        found.add(prefix + key)
        sections = union_members(field) if field.discriminator else [field.annotation]
        for section in sections:
            if hasattr(section, "model_fields"):
                found |= recipe_keys(section, f"{prefix}{key}.")
    return found


KNOWN_KEYS = recipe_keys(RunConfig)
SECTIONS = {key for key in KNOWN_KEYS if "." not in key}


@pytest.mark.parametrize("alarm", ALARMS, ids=lambda alarm: alarm.keys[0])
def test_every_alarm_names_keys_that_a_recipe_has(alarm):
    words = re.findall(r"[a-z_]+(?:\.[a-z_]+)*", alarm.turn)
    dotted = [word for word in words if "." in word or word == "max_invalid_share"]
    named = [word for word in dotted if word.split(".")[0] in SECTIONS]
    assert named
    assert named == dotted
    assert set(named) <= KNOWN_KEYS


@pytest.mark.parametrize(
    ("row", "loud", "words"),
    [
        ({"ac2/invalid_share": 0.5}, True, "no number on its grid"),
        ({"ac2/invalid_share": 1.0}, True, "no number on its grid"),
        ({"reward/invalid_share": 1.0}, True, "had no reward"),
        ({"reward/mean": 1.0, "reward/mean_all": 0.25}, False, "taken for 0"),
        ({"eval/mean": 1.0, "eval/mean_all": 0.25}, False, "leaves out samples"),
        ({"eval/mean": 0.5, "eval/mean_all": 0.511}, False, "leaves out samples"),
        ({"eval/invalid_share": 0.11}, False, "samples could not be verified"),
        ({"eval/truncated_share": 1.0, "eval/mean_all": 0.0}, False, "every sample of"),
    ],
)
def test_what_no_run_should_wait_for_is_told_at_once(row, loud, words):
    (warned,) = Watch().heard({"step": 3, **row})
    assert warned.text.startswith("step 3: ") and words in warned.text
    assert warned.is_loud is loud


@pytest.mark.parametrize(
    "row",
    [
        {"reward/mean": 0.5, "reward/mean_all": 0.495},
        {"eval/mean": 0.5, "eval/mean_all": 0.49},
        {"eval/mean_all": 0.0},
        {"ac2/invalid_share": 0.1},
        {"eval/invalid_share": 0.1, "eval/truncated_share": 1.0, "eval/mean_all": 0.1},
        {"reward/invalid_share": "most", "ac2/invalid_share": None},
        {"ac2/invalid_share": math.nan, "reward/mean": True, "reward/mean_all": 0},
        {"ac2/invalid_share": [1.0], "eval/invalid_share": {"share": 1}},
    ],
)
def test_what_is_well_or_no_number_raises_nothing(row):
    assert Watch([row] * WINDOW).told() == []


GATED = {"readiness/flips": 0, "critic/explained_variance": -0.3}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (GATED | {"readiness/sampled_share": 0.1}, "explained variance was below 0"),
        (
            {
                "readiness/sampled_share": 0.5,
                "ac2/error_rewards": 0.45,
                "ac2/constant_error": 0.3,
            },
            "further from the rewards than a constant",
        ),
    ],
)
def test_a_gate_that_trusts_a_critic_worse_than_a_constant_is_loud(row, words):
    rows = [row | {"step": step} for step in range(1, 6)]
    (warned,) = warnings_of(rows)
    assert warned.is_loud and words in warned.text
    closed = [row | {"readiness/sampled_share": 0.0} for row in rows]
    assert warnings_of(closed) == []
    assert warnings_of(rows[:4]) == []


def test_an_alarm_reads_numbers_alone():
    alarm = next(alarm for alarm in ALARMS if alarm.keys == ("policy/clip_share",))
    assert reads(alarm, {"policy/clip_share": 1})
    for value in (None, "1", True, math.inf, [1], {}):
        assert not reads(alarm, {"policy/clip_share": value})


def test_half_without_a_reward_is_told_at_its_first_step_once_a_run():
    rows = history(9, reward__invalid_share=0.5)
    rows[2]["reward/invalid_share"] = 0.49
    watch = Watch()
    told = [watch.heard(row) for row in rows]
    # the patient alarm of a tenth counts all steps and speaks at the fifth
    assert [len(lines) for lines in told] == [1, 0, 0, 0, 1, 0, 0, 0, 0]
    assert told[0][0].text.startswith("step 1: half of the rollouts or more had no")
    assert [told[0][0].is_loud, told[4][0].is_loud] == [True, False]


def test_a_single_step_without_rewards_stays_in_the_report():
    rows = history(8, reward__invalid_share=0.0)
    rows[3]["reward/invalid_share"] = 1.0
    (line,) = warning_lines(rows)
    assert line.startswith("step 4: half")
