"""Groups in, scores with intervals out."""

import math

import pytest
from synthetic_run import problem_prompt, rollout

from accredit.reports.evaluation import (
    evaluation,
    evaluation_difference,
    powers_of_two,
    selection_score,
)
from accredit.types import Group, StopReason, Verdict


def group(name: str, rewards: list[float | None], lengths: list[int] | None = None):
    prompt = problem_prompt(name)
    lengths = lengths or [3] * len(rewards)
    rollouts = tuple(
        rollout(
            prompt,
            tuple(range(n)),
            [-0.5] * n,
            StopReason.LENGTH if n > 5 else StopReason.STOP,
            sample,
        )
        for sample, n in enumerate(lengths)
    )
    verdicts = tuple(
        Verdict(None, "cannot tell") if r is None else Verdict(r) for r in rewards
    )
    return Group(prompt, rollouts, verdicts)


def test_scores_are_means_over_problems_by_hand():
    result = evaluation([group("a", [1.0, 0.0, 0.0, 1.0]), group("b", [0.0] * 4)])
    assert result.valid.mean is not None
    assert result.valid.mean.value == pytest.approx(0.25)
    # a: 1 - C(2, 2) / C(4, 2) = 5/6; b: 0
    assert result.valid.pass_at[2].value == pytest.approx(5 / 12)
    assert result.valid.pass_at[4].value == pytest.approx(0.5)
    assert result.valid.best_at[2].value == pytest.approx(5 / 12)
    assert result.valid.problem_means == {"a": 0.5, "b": 0.0}


def test_partial_credit_is_no_pass_yet_counts_for_best():
    result = evaluation([group("a", [0.5, 0.25]), group("b", [1.0, 0.0])])
    assert result.valid.pass_at[2].value == pytest.approx(0.5)
    assert result.valid.best_at[2].value == pytest.approx(0.75)
    lenient = evaluation([group("a", [0.5, 0.25])], success_at=0.5)
    assert lenient.valid.pass_at[1].value == pytest.approx(0.5)


def test_what_could_not_be_verified_is_left_out_yet_counted():
    result = evaluation([group("a", [1.0, None]), group("b", [0.0, 0.0])])
    assert result.valid.mean is not None
    assert result.valid.mean.value == pytest.approx(0.5)
    assert result.num_invalid == 1
    assert result.metrics()["eval/invalid_share"] == pytest.approx(0.25)
    # a has one valid sample: it counts for pass@1 alone
    assert result.valid.pass_at[1].value == pytest.approx(0.5)
    assert result.valid.pass_at[2].value == 0.0


def test_nothing_verified_gives_counts_and_a_mean_of_0():
    result = evaluation([group("a", [None, None])])
    assert result.valid.mean is None
    row = result.metrics()
    assert {key for key in row if not key.endswith("_all")} == {
        "eval/num_problems",
        "eval/num_rollouts",
        "eval/invalid_share",
        "eval/length_mean",
        "eval/truncated_share",
    }
    scores = ("mean", "pass@1", "pass@2", "best@1", "best@2")
    assert {key: row[f"eval/{key}_all"] for key in scores} == dict.fromkeys(scores, 0.0)


# (rewards of one problem's samples, scores of the valid ones, of all of them)
UNSCORABLE = [
    # answers [5, unscorable x 3] to a gold 5: 1 - C(3, 2) / C(4, 2) = 1/2
    ([1.0, None, None, None], {"mean": 1.0, "pass@1": 1.0}, (0.25, 0.25, 0.5, 1.0)),
    ([1.0, 1.0, None, 0.0], {"mean": 2 / 3, "pass@2": 1.0}, (0.5, 0.5, 5 / 6, 1.0)),
    ([None, None, None, 0.0], {"mean": 0.0, "pass@1": 0.0}, (0.0, 0.0, 0.0, 0.0)),
    ([None] * 4, {}, (0.0, 0.0, 0.0, 0.0)),
    ([1.0, 1.0, 1.0, 1.0], {"mean": 1.0, "pass@4": 1.0}, (1.0, 1.0, 1.0, 1.0)),
    ([0.5, None, 0.5, None], {"mean": 0.5, "best@2": 0.5}, (0.25, 0.0, 0.0, 0.0)),
]


@pytest.mark.parametrize(("rewards", "valid", "over_all"), UNSCORABLE)
def test_a_policy_gains_nothing_by_being_unscorable(rewards, valid, over_all):
    row = evaluation([group("a", rewards)]).metrics()
    for name, value in valid.items():
        assert row[f"eval/{name}"] == pytest.approx(value)
    assert ("eval/mean" in row) == bool(valid)
    names = ("mean", "pass@1", "pass@2", "pass@4")
    found = [row[f"eval/{name}_all"] for name in names]
    assert found == pytest.approx(over_all)


def test_problems_without_any_verdict_count_as_unsolved():
    """a: 1; b, c and d: nothing. The valid mean is 1, that over all .25."""
    lost = [group(name, [None, None]) for name in "bcd"]
    row = evaluation([group("a", [1.0, 1.0]), *lost]).metrics()
    assert row["eval/mean"] == row["eval/pass@2"] == row["eval/best@2"] == 1.0
    for name in ("mean", "pass@1", "pass@2", "best@1", "best@2"):
        assert row[f"eval/{name}_all"] == 0.25
        assert row[f"eval/{name}_all_low"] <= 0.25 <= row[f"eval/{name}_all_high"]


def test_a_negative_reward_is_worse_than_a_missing_one():
    row = evaluation([group("a", [-1.0, None])]).metrics()
    assert (row["eval/mean"], row["eval/mean_all"]) == (-1.0, -0.5)
    assert row["eval/best@2_all"] == 0.0


@pytest.mark.parametrize(
    ("row", "score"),
    [
        ({"eval/mean": 1.0, "eval/mean_all": 0.25}, 0.25),
        ({"eval/mean_all": 0.0}, 0.0),
        ({"eval/mean": 0.5}, 0.5),
        ({"eval/mean": 0.5, "eval/mean_all": None}, 0.5),
        ({"eval/mean": math.nan, "eval/mean_all": math.inf}, None),
        ({"eval/mean": "0.5"}, None),
        ({"eval/mean": True}, None),
        ({}, None),
    ],
)
def test_checkpoints_are_chosen_by_the_mean_over_all(row, score):
    assert selection_score(row) == score


def test_a_difference_counts_what_is_missing_as_0():
    first = evaluation([group("a", [1.0, 0.0]), group("b", [None, None])])
    second = evaluation([group("a", [1.0, None]), group("b", [1.0, 1.0])])
    # a: .5 to .5 and not to 1; b: 0 to 1
    assert evaluation_difference(first, second, seed=0).value == pytest.approx(0.5)


def test_groups_of_one_problem_are_one_cluster():
    split = evaluation([group("a", [1.0]), group("a", [0.0]), group("b", [1.0, 1.0])])
    whole = evaluation([group("a", [1.0, 0.0]), group("b", [1.0, 1.0])])
    assert split == whole


def test_certainty_is_never_claimed_from_equal_scores():
    result = evaluation([group(str(i), [0.0]) for i in range(10)])
    assert result.valid.mean is not None
    # Wilson: 3.841459 / 13.841459
    assert result.valid.mean.high == pytest.approx(0.277533, abs=1e-5)


def test_lengths_and_truncation_count_invalid_rollouts_too():
    result = evaluation([group("a", [1.0, None], lengths=[3, 8])])
    assert result.length_mean == pytest.approx(5.5)
    assert result.truncated_share == pytest.approx(0.5)


def test_rows_name_each_score_with_its_interval():
    row = evaluation([group("a", [1.0, 0.0]), group("b", [0.0, 0.0])]).metrics()
    for score in ("mean", "pass@1", "pass@2", "best@2"):
        assert row[f"eval/{score}_low"] <= row[f"eval/{score}"]
        assert row[f"eval/{score}"] <= row[f"eval/{score}_high"]


def test_difference_pairs_shared_problems():
    first = evaluation([group("a", [0.0]), group("b", [1.0]), group("c", [0.0])])
    second = evaluation([group("b", [1.0]), group("a", [1.0])])
    assert evaluation_difference(first, second, seed=0).value == pytest.approx(0.5)
    with pytest.raises(ValueError, match="a problem in common"):
        evaluation_difference(first, evaluation([group("z", [0.0])]), seed=0)


def test_an_empty_evaluation_is_refused():
    with pytest.raises(ValueError, match="at least one problem"):
        evaluation([])


def test_powers_of_two_end_at_the_largest_group():
    assert powers_of_two(1) == [1]
    assert powers_of_two(6) == [1, 2, 4]
    assert powers_of_two(8) == [1, 2, 4, 8]
    assert powers_of_two(0) == []
