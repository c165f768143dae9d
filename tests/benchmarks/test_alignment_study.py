"""The study of alignment is exact where it says so."""

import numpy as np
import pytest
import torch

from accredit.randomness import generator
from accredit.tasks.walk import belief_policy, success_values

NUM_MOVES = 4


@pytest.fixture(scope="module")
def tables():
    return pytest.importorskip("alignment_tables")


@pytest.fixture(scope="module")
def change(tables):
    (found,) = tables.changes_in_a_row(NUM_MOVES, 0.1, 1, seed=3)
    return found


def test_the_change_has_the_size_that_was_asked_for(change):
    ratios = change.ratios.numpy()[change.walks.mask]
    assert np.abs(ratios - 1).mean() == pytest.approx(0.1, abs=1e-6)
    assert np.allclose(change.new.sum(-1), 1)


def test_walks_succeed_as_often_as_their_exact_value_says(tables):
    from walk_tables import mixed_problems, sampled_walks

    policy = belief_policy()
    problems = mixed_problems(policy, NUM_MOVES, generator(0), group_size=400)
    walks = sampled_walks(policy, problems, NUM_MOVES, generator(1))
    exact = success_values(policy, NUM_MOVES)[problems.goals, -1, problems.starts]
    error = walks.outcomes.mean() - exact.mean()
    assert abs(error) < 4 * np.sqrt(0.25 / len(exact))
    assert walks.outcomes.mean() > 0.1


def test_unclipped_trace_expects_the_new_value(tables, change):
    expected = tables.expected_targets(change)
    assert (change.new / change.old).max() < 6
    np.testing.assert_allclose(
        expected["v-trace, cap 6"], change.new_values, atol=1e-12
    )
    np.testing.assert_allclose(expected["plain"], change.old_values, atol=1e-12)
    assert np.abs(expected["pact"] - change.new_values).max() > 1e-3


def test_whole_window_is_wrong_to_second_order_only(tables, change):
    from walk_tables import changed_policy

    def largest_errors(size: float) -> tuple[float, float]:
        new = changed_policy(change.old, change.walks, size)
        exact = success_values(new, NUM_MOVES)
        expected = tables.expected_targets(change._replace(new=new, new_values=exact))
        pact, windowed = (
            float(np.abs(expected[name] - exact).max())
            for name in ("pact", "windowed, whole")
        )
        return pact, windowed

    pact, windowed = largest_errors(0.004)
    smaller_pact, smaller_windowed = largest_errors(0.002)
    assert smaller_pact / pact == pytest.approx(1 / 2, rel=0.05)
    assert smaller_windowed / windowed == pytest.approx(1 / 4, rel=0.05)


def test_mean_targets_approach_their_expectation(tables, change):
    from walk_tables import sampled_walks

    problems = change.walks.problems
    walks = sampled_walks(change.old, problems, NUM_MOVES, generator(9))
    many = [
        sampled_walks(change.old, problems, NUM_MOVES, generator(n)) for n in range(60)
    ]
    expected = tables.expected_targets(change)
    rules = {
        "pact": "pact",
        "windowed, 5": "windowed",
        "v-trace, cap 1": "v-trace, cap 1",
    }
    start = walks.problems.goals, NUM_MOVES, walks.problems.starts
    for table, target in rules.items():
        means = []
        for each in many:
            values = torch.from_numpy(each.along(change.old_values))
            wanted, _, _ = tables.TARGETS[target].aligned(
                tables.ratio_tensor(each, change.old, change.new),
                torch.from_numpy(each.outcomes),
                values,
                torch.from_numpy(each.mask),
            )
            means.append(float(wanted[:, 0].mean()))
        error = np.mean(means) - expected[table][start].mean()
        assert abs(error) < 4 * np.std(means) / np.sqrt(len(means))
        assert abs(np.mean(means) - expected["plain"][start].mean()) > abs(error)


def test_spread_is_students(tables):
    from intervals import spread

    found = spread([0.1, 0.2, 0.3])
    assert found["mean"] == pytest.approx(0.2)
    assert found["half"] == pytest.approx(4.30265 * 0.1 / np.sqrt(3), abs=1e-4)
    assert "half" not in spread([1.0])
