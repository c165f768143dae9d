"""The map, its text and its exact values."""

import numpy as np
import pytest

from accredit.randomness import generator
from accredit.tasks import walk
from accredit.tasks.walk import ACTIONS, WORLD
from accredit.types import Message, Problem
from builders import empty_rollout

pytestmark = pytest.mark.whole_run


def enumerated_value(policy, goal, cell, moves):
    """Chance to reach the goal by following every path: the oracle of the recursion."""
    if WORLD.cells[cell] == WORLD.goals[goal]:
        return 1.0
    if moves == 0:
        return 0.0
    return sum(
        policy[goal, cell, a]
        * enumerated_value(policy, goal, WORLD.successors[cell, a], moves - 1)
        for a in range(4)
    )


def test_the_map_has_the_cells_and_goals_it_claims():
    assert len(WORLD.cells) == 64 - 22
    assert len(WORLD.goals) == 20
    assert (WORLD.distances < len(WORLD.cells)).all()


def test_walls_and_borders_leave_one_in_place():
    here = WORLD.number["01"]
    moved = dict(zip(ACTIONS, WORLD.successors[here], strict=True))
    # Row 0 is "#.......": up is the border, left a wall, right free, down "11" free.
    assert WORLD.cells[moved["U"]] == "01"
    assert WORLD.cells[moved["L"]] == "01"
    assert WORLD.cells[moved["R"]] == "02"
    assert WORLD.cells[moved["D"]] == "11"


def test_an_island_or_a_walled_goal_is_refused():
    with pytest.raises(ValueError, match="islands"):
        walk.WalkMap(("..#.", "####", "...."), ("00",))
    with pytest.raises(ValueError, match=r"free cells, got walls at \['01'\]"):
        walk.WalkMap((".#",), ("01",))


def test_beliefs_are_wrong_where_they_say_and_noisy_elsewhere():
    policy = walk.belief_policy()
    np.testing.assert_allclose(policy.sum(axis=2), 1.0)
    nearer = WORLD.distances[:, WORLD.successors] < WORLD.distances[:, :, None]
    likeliest = policy.argmax(axis=2)
    right = np.take_along_axis(nearer, likeliest[:, :, None], axis=2)[:, :, 0]
    at_goal = WORLD.distances == 0
    wrong_share = 1.0 - right[~at_goal].mean()
    assert 0.35 < wrong_share < 0.45
    assert policy.max() == pytest.approx(0.68)


def test_success_values_equal_the_enumeration_of_all_paths():
    policy = walk.belief_policy(seed=3)
    values = walk.success_values(policy, 5)
    for goal, cell in [(0, 3), (4, 11), (7, 20), (19, 41)]:
        expected = enumerated_value(policy, goal, cell, 5)
        assert values[goal, 5, cell] == pytest.approx(expected, abs=1e-12)
    assert 0 < values[:, 5].mean() < 1


def test_success_values_equal_the_share_of_sampled_walks_that_succeed():
    policy, draw = walk.belief_policy(), generator(1, "walks")
    start, goal = "10", "04"
    texts = [walk.sample_walk(policy, start, goal, draw) for _ in range(4000)]
    share = np.mean([walk.success_reward(start, goal, t, 20) for t in texts])
    exact = walk.successes(walk.success_values(policy))[f"S{start}G{goal}"]
    assert 0.02 < exact < 0.98
    assert abs(share - exact) < 4 * np.sqrt(exact * (1 - exact) / 4000)


def test_progress_values_equal_the_mean_of_sampled_rewards():
    policy, draw = walk.belief_policy(), generator(2, "walks")
    start, goal = "74", "04"
    texts = [walk.sample_walk(policy, start, goal, draw, 8) for _ in range(4000)]
    rewards = [walk.progress_reward(start, goal, t, 8) for t in texts]
    values = walk.progress_values(policy, start, 8)
    exact = values[WORLD.goals.index(goal), 8, WORLD.number[start]]
    assert 0.02 < exact < 0.98
    assert abs(np.mean(rewards) - exact) < 4 * np.std(rewards) / np.sqrt(4000)


def test_a_value_is_the_mean_of_its_successors_so_credit_is_neutral():
    policy = walk.belief_policy()
    values = walk.success_values(policy)
    for goal in range(len(WORLD.goals)):
        credit = values[goal, 9][WORLD.successors] - values[goal, 10][:, None]
        mean = (policy[goal] * credit).sum(axis=1)
        inner = WORLD.distances[goal] > 0
        np.testing.assert_allclose(mean[inner], 0, atol=1e-12)
        assert np.abs(credit[inner]).max() > 0.01


@pytest.mark.parametrize("false_at", [None, 3, 4, 5])
def test_credits_sum_to_the_outcome_minus_the_value_of_the_start(false_at):
    policy = walk.belief_policy()
    values = walk.success_values(policy)
    draw = generator(5, "credits")
    start, goal = "10", "04"
    first = values[WORLD.goals.index(goal), 20, WORLD.number[start]]
    for _ in range(40):
        text = walk.sample_walk(policy, start, goal, draw)
        if false_at is not None:
            text = text[:false_at] + "9" + text[false_at + 1 :]
        credits = walk.walk_credits(values, start, goal, text)
        outcome = walk.success_reward(start, goal, text, 20)
        assert credits.sum() == pytest.approx(outcome - first)
        written = np.delete(credits, np.arange(0, len(text), 3))
        assert (written != 0).sum() == (0 if false_at in (None, 3) else 1)
    assert np.abs(credits).max() > 0.01


def test_an_actions_credit_is_the_step_in_value():
    values = walk.success_values(walk.belief_policy())
    credits = walk.walk_credits(values, "01", "04", "R02R03R04")
    v = values[WORLD.goals.index("04")]
    cell = WORLD.number
    steps = [
        v[19, cell["02"]] - v[20, cell["01"]],
        v[18, cell["03"]] - v[19, cell["02"]],
        1.0 - v[18, cell["03"]],
    ]
    np.testing.assert_allclose(credits, np.kron(steps, [1, 0, 0]))


def test_what_follows_the_goal_or_the_budget_earns_nothing():
    values = walk.success_values(walk.belief_policy(), 2)
    assert walk.walk_credits(values, "01", "04", "R02R03R04")[6:].tolist() == [0] * 3
    values = walk.success_values(walk.belief_policy())
    beyond = walk.walk_credits(values, "03", "04", "R04R05")
    assert beyond[0] > 0 and beyond[3:].tolist() == [0] * 3


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("R02R03R04", 1.0),
        ("R02R03R04R05", 1.0),
        ("U01R02R03R04", 1.0),
        ("R02R03", 0.0),
        ("R02R03R0", 0.0),
        ("R02R04", 0.0),
        ("R03R04", 0.0),
        ("X02R03R04", 0.0),
        ("", 0.0),
        ("goal reached", 0.0),
        ("R02\u0000", 0.0),
    ],
)
def test_only_true_moves_that_reach_the_goal_are_paid(text, reward):
    assert walk.success_reward("01", "04", text, 20) == reward


def test_the_budget_counts_moves():
    assert walk.success_reward("01", "04", "R02R03R04", 3) == 1.0
    assert walk.success_reward("01", "04", "R02R03R04", 2) == 0.0


def test_progress_pays_the_share_of_the_way_made_good():
    # 01 -> 04 is three moves; after two of them a third of the way is left.
    assert walk.progress_reward("01", "04", "R02R03", 20) == pytest.approx(2 / 3)
    assert walk.progress_reward("01", "04", "R02R03R04", 20) == 1.0
    assert walk.progress_reward("01", "04", "R02R03R04", 2) == pytest.approx(2 / 3)
    assert walk.progress_reward("01", "04", "R02R05", 20) == 0.0
    assert walk.progress_reward("01", "04", "", 20) == 0.0


def test_shortest_walks_succeed_for_every_problem():
    for goal in WORLD.goals:
        for start in WORLD.cells:
            if start != goal:
                text = walk.shortest_walk(start, goal)
                distance = WORLD.distances[WORLD.goals.index(goal), WORLD.number[start]]
                assert len(text) == 3 * distance
                assert walk.success_reward(start, goal, text, int(distance)) == 1.0


@pytest.mark.parametrize("split", list(walk.SPLITS))
def test_splits_hold_problems_of_the_success_they_name(split):
    problems = walk.walk_problems(split)
    low, high = walk.SPLITS[split]
    success = [p.metadata["success"] for p in problems.train + problems.evaluation]
    assert all(low <= p <= high for p in success)
    assert len(problems.train) >= 25 and len(problems.evaluation) >= 12
    ids = {p.id for p in problems.train} & {p.id for p in problems.evaluation}
    assert not ids
    means = [np.mean([p.metadata["success"] for p in part]) for part in
             (problems.train, problems.evaluation)]  # fmt: skip
    assert means[0] == pytest.approx(means[1], rel=0.1)


def test_an_unknown_or_empty_split_is_named():
    with pytest.raises(ValueError, match="split must be one of easy, hard"):
        walk.walk_problems("harder")
    with pytest.raises(ValueError, match="at least 3 problems, got 0"):
        walk.walk_problems("hard", num_moves=40_000)


def test_the_verifier_scores_gold_1_and_a_wrong_walk_0_with_its_fault():
    problem = Problem(
        "walk-S01G04",
        (Message("user", "S01G04"),),
        metadata={"start": "01", "goal": "04"},
    )
    gold, rollout = walk.shortest_walk("01", "04"), empty_rollout(problem)
    verdicts = walk.WalkVerifier().verify(
        [(problem, text, rollout) for text in (gold, "R04", "")]
    )
    assert [verdict.reward for verdict in verdicts] == [1.0, 0.0, 0.0]
    assert "R from 01 leads to 02, not '04'" in verdicts[1].reason
