"""Trees: what the lab stands on, against pencil and paper and the tiny language."""

import math

import pytest
import torch

import oracle
from accredit.theory.gradients import every_group, exact_gradient
from accredit.theory.trees import planted, random_tree

LOG = [math.log(0.25), math.log(0.75)]


@pytest.fixture
def small():
    """Token 0 ends in 1; token 1 is answered: .4 ends in 0, .6 leads to a choice."""
    logits = torch.full((6, 3), 9.0, dtype=torch.float64)
    logits[0, :2] = torch.tensor(LOG)
    logits[3, :2] = torch.tensor([0.0, math.log(4.0)])
    return planted(
        parent=[0, 0, 0, 0, 3, 3],
        token=[0, 0, 1, 1, 0, 1],
        chance=[1.0, 1.0, 0.4, 0.6, 1.0, 1.0],
        spoken=[0, 0, 2, 1, 0, 0],
        logits=logits,
        ends=[1, 2, 4, 5],
        outcomes=torch.tensor([1.0, 0.0, 0.5, 1.0], dtype=torch.float64),
    )


def test_values_and_chances_are_those_of_pencil_and_paper(small):
    after = 0.2 * 0.5 + 0.8 * 1.0
    root = 0.25 * 1.0 + 0.75 * 0.6 * after
    assert small.values().tolist() == pytest.approx([root, 1.0, 0.0, after, 0.5, 1.0])
    assert small.probabilities().tolist() == pytest.approx([0.25, 0.3, 0.09, 0.36])
    assert small.reach().tolist() == pytest.approx([1, 0.25, 0.3, 0.45, 0.09, 0.36])
    action_values = small.action_values(small.values())[0]
    assert action_values.tolist() == pytest.approx([1.0, 0.6 * after, 0.0])


def test_tokens_and_observations_lie_where_a_rollout_has_them(small):
    assert small.batch.token_mask.sum(1).tolist() == [2, 4, 4, 4]
    assert small.batch.sampled.int().tolist() == [
        [0, 1, 0, 0],
        [0, 1, 0, 0],
        [0, 1, 0, 1],
        [0, 1, 0, 1],
    ]
    assert small.depths.tolist() == [0, 1, 1, 1, 2, 2]
    assert small.inner.tolist() == [True, False, False, True, False, False]


def test_a_value_that_nobody_may_read_is_not_there(small):
    values = small.at_prefixes(torch.arange(6, dtype=torch.float64))
    seen = [[[], [0.0], [], [], []]] * 2 + [[[], [0.0], [], [3.0], []]] * 2
    known = [[[x] if x == x else [] for x in row] for row in values.tolist()]
    assert known == seen


def test_a_mean_given_a_prefix_is_over_those_who_pass_through_it(small):
    steps = torch.tensor([[1.0, 9.0], [2.0, 9.0], [3.0, 5.0], [4.0, 7.0]]).double()
    means = small.given_prefix(steps)
    first = 0.25 * 1 + 0.3 * 2 + 0.09 * 3 + 0.36 * 4
    assert means.tolist() == pytest.approx([first, 0, 0, 0.2 * 5 + 0.8 * 7, 0, 0])


def test_before_and_after_are_the_ends_of_a_step(small):
    nodes = torch.arange(6, dtype=torch.float64)
    assert small.before(nodes).tolist() == [[0, 0], [0, 0], [0, 3], [0, 3]]
    assert small.after(nodes).tolist() == [[1, 0], [2, 0], [3, 4], [3, 5]]


def test_every_group_has_its_chance(small):
    groups = every_group(small, 2)
    assert len(groups.leaf) == 32
    assert float(groups.weight.sum()) == pytest.approx(1.0)
    # Pairs are in the order (0, 0), (0, 1), ..: the seventh is (1, 2).
    pair = groups.batch.group_index == 6
    assert groups.leaf[pair].tolist() == [1, 2]
    assert groups.weight[pair].tolist() == pytest.approx([0.3 * 0.09 / 2] * 2)


def test_a_tree_agrees_with_the_tiny_language():
    language = oracle.random_language(3)
    inner, every = len(oracle.PREFIXES), oracle.NUM_NODES
    logits = torch.zeros(every, 3, dtype=torch.float64)
    logits[:inner, :2] = language.logits.detach()
    tree = planted(
        parent=[0, *((node - 1) // 2 for node in range(1, every))],
        token=[0, *((node - 1) % 2 for node in range(1, every))],
        chance=[1.0] * every,
        spoken=[0] * every,
        logits=logits,
        ends=list(range(inner, every)),
        outcomes=language.rewards,
    )
    assert torch.allclose(tree.values(), language.exact_values(), atol=1e-14)
    found = exact_gradient(tree)[:inner, :2]
    assert torch.allclose(found, language.exact_gradient(), atol=1e-14)


@pytest.mark.parametrize("seed", range(5))
def test_a_random_tree_is_what_the_lab_needs(seed):
    tree = random_tree(torch.Generator().manual_seed(seed))
    assert float(tree.probabilities().sum()) == pytest.approx(1.0, abs=1e-12)
    assert tree.outcomes.min() == 0.0
    assert tree.outcomes.max() == 1.0
    assert set(tree.depths[tree.leaves].tolist()) <= {2, 3, 4}
    assert bool((tree.parent[1:] < torch.arange(1, len(tree.parent))).all())


def test_random_trees_have_observations_early_ends_and_both_kinds_of_reward():
    trees = [random_tree(torch.Generator().manual_seed(seed)) for seed in range(20)]
    assert any(bool((tree.chance < 1).any()) for tree in trees)
    assert any(not bool(tree.step_mask.all()) for tree in trees)
    binary = [bool(((t.outcomes == 0) | (t.outcomes == 1)).all()) for t in trees]
    assert 3 <= sum(binary) <= 17
    plain = random_tree(torch.Generator().manual_seed(0), observed=0.0, stop=False)
    assert bool(plain.step_mask.all())
    assert bool((plain.chance == 1).all())
