"""Aggregation modes: exact weights, split invariance, empty rows; cases P05, P06."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.functional.aggregation import (
    AGGREGATIONS,
    fixed_length_token_sum,
    group_mean_token_mean,
    sequence_mean_token_mean,
    sequence_mean_token_sum,
    token_mean,
)

F64 = torch.float64
MODES = [
    partial(mode, max_length=4) if name == "fixed_length_token_sum" else mode
    for name, mode in AGGREGATIONS.items()
]


def padded(*rows):
    """Losses of each rollout, right-padded with junk, and where they are sampled."""
    width = max(map(len, rows))
    losses = torch.full((len(rows), width), 1e3, dtype=F64)
    sampled = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        losses[i, : len(row)] = torch.tensor(row, dtype=F64)
        sampled[i, : len(row)] = True
    return losses, sampled


def objective(mode, losses, sampled, groups=None, **knobs):
    group_index = torch.tensor(groups if groups else [0] * len(losses))
    weights = mode(sampled, group_index, dtype=F64, **knobs)
    return (losses * weights).sum().item()


def test_p05_modes():
    """Case P05 (B020, B024, B026): token losses [1, 1, 1] and [5]."""
    given = padded([1, 1, 1], [5])
    assert objective(token_mean, *given) == pytest.approx(2)
    assert objective(sequence_mean_token_mean, *given) == pytest.approx(3)
    assert objective(sequence_mean_token_sum, *given) == pytest.approx(4)
    assert objective(fixed_length_token_sum, *given, max_length=4) == pytest.approx(1)
    assert objective(group_mean_token_mean, *given) == pytest.approx(2)
    assert objective(group_mean_token_mean, *given, groups=[0, 1]) == pytest.approx(3)


def test_b028_mean_within_the_group_is_not_the_mean_over_the_batch():
    """Case B028: groups of lengths (1, 1) with loss 1 and (3, 3) with loss 0."""
    given = padded([1], [1], [0, 0, 0], [0, 0, 0])
    groups = [0, 0, 1, 1]
    assert objective(token_mean, *given, groups=groups) == pytest.approx(0.25)
    assert objective(group_mean_token_mean, *given, groups=groups) == pytest.approx(0.5)


@pytest.mark.parametrize("mode", MODES)
def test_p05_p06_the_split_does_not_change_the_gradient(mode):
    """Cases P05, P06 (B021, B022, B032): micro-batches [1,1,1], [5], [2,2], [0,4]."""
    x, sampled = padded([1, 1, 1], [5], [2, 2], [0, 4])
    weights = mode(sampled, torch.tensor([0, 0, 1, 1]), dtype=F64)
    gradients = []
    for size in (1, 2, 3, 4):
        w = torch.ones((), dtype=F64, requires_grad=True)
        for start in range(0, 4, size):
            rows = slice(start, start + size)
            (
                weights[rows] * w * torch.where(sampled[rows], x[rows], 0.0)
            ).sum().backward()
        gradients.append(w.grad.item())
    assert gradients == pytest.approx([gradients[0]] * 4)
    if mode is token_mean:
        assert gradients[0] == pytest.approx(2)


def test_p06_ranks():
    """Case P06 (B023): rank 0 [1,1,1], [5]; rank 1 [2,6]; DDP averages."""
    losses, sampled = padded([1, 1, 1], [5], [2, 6])
    weights = token_mean(sampled, torch.tensor([0, 0, 1]), dtype=F64)
    world = 2
    per_rank = [
        world * (losses[rows] * weights[rows]).sum().item()
        for rows in (slice(0, 2), slice(2, 3))
    ]
    assert sum(per_rank) / world == pytest.approx(16 / 6)


def test_b018_filler_rows_are_counted_nowhere():
    """Case B018: two real rows of two tokens with loss 1 and one filler row."""
    losses, sampled = padded([1, 1], [1, 1], [0, 0])
    sampled[2] = False
    for mode in (token_mean, sequence_mean_token_mean, group_mean_token_mean):
        assert objective(mode, losses, sampled, groups=[0, 0, 1]) == pytest.approx(1)
    assert objective(sequence_mean_token_sum, losses, sampled) == pytest.approx(2)
    found = objective(fixed_length_token_sum, losses, sampled, max_length=4)
    assert found == pytest.approx(0.5)


@pytest.mark.parametrize("mode", MODES)
def test_b030_all_masked_has_weight_zero(mode):
    """Case B030: 0, not 0 / 0."""
    nothing = torch.zeros(3, 2, dtype=torch.bool)
    weights = mode(nothing, torch.tensor([0, 0, 1]))
    assert weights.tolist() == [[0, 0]] * 3
    assert mode(nothing[:0], torch.zeros(0, dtype=torch.int64)).shape == (0, 2)


@pytest.mark.parametrize("mode", MODES)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=6),
    st.integers(0, 2**31),
)
@settings(max_examples=40, deadline=None)
def test_weights_are_positive_exactly_where_sampled(mode, lengths, seed):
    sampled = torch.arange(4) < torch.tensor(lengths)[:, None]
    generator = torch.Generator().manual_seed(seed)
    group_index = torch.randint(3, (len(lengths),), generator=generator)
    weights = mode(sampled, group_index)
    assert torch.equal(weights > 0, sampled)
    assert torch.isfinite(weights).all()
    order = torch.randperm(len(lengths), generator=generator)
    assert torch.equal(mode(sampled[order], group_index[order]), weights[order])
    wider = torch.cat([sampled, torch.zeros(len(lengths), 2, dtype=torch.bool)], 1)
    assert torch.equal(mode(wider, group_index)[:, :4], weights)


@pytest.mark.parametrize(
    "mode", [token_mean, sequence_mean_token_mean, group_mean_token_mean]
)
def test_means_weigh_one_in_total(mode):
    _, sampled = padded([1, 1, 1], [5], [], [2, 2])
    weights = mode(sampled, torch.tensor([0, 1, 2, 0]), dtype=F64)
    assert weights.sum().item() == pytest.approx(1)


def test_b033_an_entropy_bonus_of_one_is_one_under_every_mean():
    """Case B033: H = 1 everywhere gives coefficient x 1 whatever the split."""
    losses, sampled = padded([1, 1, 1], [1], [1, 1])
    for mode in (token_mean, sequence_mean_token_mean, group_mean_token_mean):
        assert objective(mode, losses, sampled) == pytest.approx(1)


def test_names_are_the_functions():
    assert {name: mode.__name__ for name, mode in AGGREGATIONS.items()} == {
        name: name for name in AGGREGATIONS
    }
    assert len(AGGREGATIONS) == 5


def test_a_length_that_cannot_divide_is_refused():
    _, sampled = padded([1])
    with pytest.raises(ValueError, match="max_length must be at least 1, got 0"):
        fixed_length_token_sum(sampled, torch.tensor([0]), max_length=0)
