"""Groups in, scores with intervals out."""

import pytest
from synthetic_run import problem_prompt, rollout

from accredit.reports.evaluation import (
    evaluation,
    evaluation_difference,
    powers_of_two,
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
    assert result.mean is not None
    assert result.mean.value == pytest.approx(0.25)
    # a: 1 - C(2, 2) / C(4, 2) = 5/6; b: 0
    assert result.pass_at[2].value == pytest.approx(5 / 12)
    assert result.pass_at[4].value == pytest.approx(0.5)
    assert result.best_at[2].value == pytest.approx(5 / 12)
    assert result.problem_means == {"a": 0.5, "b": 0.0}


def test_partial_credit_is_no_pass_yet_counts_for_best():
    result = evaluation([group("a", [0.5, 0.25]), group("b", [1.0, 0.0])])
    assert result.pass_at[2].value == pytest.approx(0.5)
    assert result.best_at[2].value == pytest.approx(0.75)
    lenient = evaluation([group("a", [0.5, 0.25])], success_at=0.5)
    assert lenient.pass_at[1].value == pytest.approx(0.5)


def test_what_could_not_be_verified_is_left_out_yet_counted():
    result = evaluation([group("a", [1.0, None]), group("b", [0.0, 0.0])])
    assert result.mean is not None
    assert result.mean.value == pytest.approx(0.5)
    assert result.num_invalid == 1
    assert result.metrics()["eval/invalid_share"] == pytest.approx(0.25)
    # a has one valid sample: it counts for pass@1 alone
    assert result.pass_at[1].value == pytest.approx(0.5)
    assert result.pass_at[2].value == 0.0


def test_nothing_verified_gives_counts_without_scores():
    result = evaluation([group("a", [None, None])])
    assert result.mean is None
    assert set(result.metrics()) == {
        "eval/num_problems",
        "eval/num_rollouts",
        "eval/invalid_share",
        "eval/length_mean",
        "eval/truncated_share",
    }


def test_groups_of_one_problem_are_one_cluster():
    split = evaluation([group("a", [1.0]), group("a", [0.0]), group("b", [1.0, 1.0])])
    whole = evaluation([group("a", [1.0, 0.0]), group("b", [1.0, 1.0])])
    assert split == whole


def test_certainty_is_never_claimed_from_equal_scores():
    result = evaluation([group(str(i), [0.0]) for i in range(10)])
    assert result.mean is not None
    # Wilson: 3.841459 / 13.841459
    assert result.mean.high == pytest.approx(0.277533, abs=1e-5)


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
