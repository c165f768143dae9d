"""Tokens <-> steps: packing, prefix values, chunks across observations."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.batches.decisions import chunk_steps, token_steps
from accredit.functional.advantages import discounted_returns

F64 = torch.float64
NAN = float("nan")


def mask(*rows):
    return torch.tensor([[flag == "1" for flag in row] for row in rows])


# Row 0: prompt, 2 sampled, 2 observed, 3 sampled, 1 observed. Row 1: 1 sampled.
SAMPLED = mask("011001110", "010000000")
REAL = mask("111111111", "110000000")
VALUES = torch.arange(20, dtype=F64).reshape(2, 10)


def test_tokens_as_steps():
    steps = token_steps(SAMPLED, REAL)
    assert steps.step_mask.tolist() == mask("11111", "10000").tolist()
    assert steps.starts.tolist() == [[1, 2, 5, 6, 7], [1, 0, 0, 0, 0]]
    assert steps.step_index[SAMPLED].tolist() == [0, 1, 2, 3, 4, 0]
    # Before each step, then the whole sequence: 9 tokens with the observation, and 2.
    assert steps.prefix_values(VALUES).tolist() == [
        [1, 2, 5, 6, 7, 9],
        [11, 12, 0, 0, 0, 0],
    ]


def test_chunks_as_steps_go_on_after_an_observation():
    steps = chunk_steps(SAMPLED, REAL, 3)
    assert steps.step_mask.tolist() == mask("11", "10").tolist()
    assert steps.starts.tolist() == [[1, 6], [1, 0]]
    assert steps.step_index[SAMPLED].tolist() == [0, 0, 0, 1, 1, 0]
    assert steps.prefix_values(VALUES).tolist() == [[1, 6, 9], [11, 12, 0]]


def test_a_quantity_goes_to_steps_and_back():
    steps = chunk_steps(SAMPLED, REAL, 3)
    x = torch.where(SAMPLED, torch.arange(18.0).reshape(2, 9), NAN)
    # Row 0: 1 + 2 + 5 and 6 + 7; row 1: 10
    totals = steps.sums(x)
    assert totals.tolist() == [[8, 13], [10, 0]]
    assert steps.spread(totals).tolist() == [
        [0, 8, 8, 0, 0, 8, 13, 13, 0],
        [0, 10, 0, 0, 0, 0, 0, 0, 0],
    ]
    assert steps.at_starts(totals).tolist() == [
        [0, 8, 0, 0, 0, 0, 13, 0, 0, 0],
        [0, 10, 0, 0, 0, 0, 0, 0, 0, 0],
    ]


@pytest.mark.parametrize(
    "gamma, expected", [(1.0, [1, 1, 0, 0, 1, 1]), (0.5, [0.125, 0.25, 0, 0, 0.5, 1])]
)
def test_p03_returns_cross_observations(gamma, expected):
    """Case P03 (B008): mask [1,1,0,0,1,1], reward 1 last; one decay an action."""
    sampled = mask("110011")
    steps = token_steps(sampled, torch.ones_like(sampled))
    rewards = torch.tensor([[0, 0, 0, 0, 0, 1]], dtype=F64)
    discounts = steps.step_mask * torch.tensor(gamma, dtype=F64)
    returns = discounted_returns(
        steps.sums(rewards), discounts, torch.zeros(1, dtype=F64), steps.step_mask
    )
    assert steps.spread(returns).tolist() == [expected]


def test_values_that_stand_before_no_step_are_not_read():
    """Case B009: whatever the critic says inside an observation or at padding."""
    for steps in (token_steps(SAMPLED, REAL), chunk_steps(SAMPLED, REAL, 3)):
        dirty = torch.full_like(VALUES, NAN)
        for row, columns in ((0, [1, 2, 5, 6, 7, 9]), (1, [1, 2])):
            dirty[row, columns] = VALUES[row, columns]
        assert torch.equal(steps.prefix_values(dirty), steps.prefix_values(VALUES))


def test_value_gradients_go_to_the_prefixes_of_steps_only():
    values = VALUES.clone().requires_grad_()
    token_steps(SAMPLED, REAL).prefix_values(values).sum().backward()
    assert values.grad.tolist() == [
        [0, 1, 1, 0, 0, 1, 1, 1, 0, 1],
        [0, 1, 1, 0, 0, 0, 0, 0, 0, 0],
    ]


def test_nothing_sampled_makes_no_steps():
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    steps = token_steps(nothing, ~nothing)
    assert steps.step_mask.shape == (2, 0)
    assert steps.prefix_values(torch.ones(2, 4)).tolist() == [[1], [1]]
    x = torch.ones(2, 3)
    assert steps.sums(x).shape == (2, 0)
    assert steps.spread(torch.ones(2, 0)).tolist() == [[0, 0, 0]] * 2
    assert steps.at_starts(torch.ones(2, 0)).tolist() == [[0, 0, 0, 0]] * 2
    assert token_steps(nothing[:0], nothing[:0]).step_mask.shape == (0, 0)


def test_a_chunk_of_no_tokens_is_refused():
    with pytest.raises(ValueError, match="chunk_length must be at least 1, got 0"):
        chunk_steps(SAMPLED, REAL, 0)


@given(
    st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=4),
    st.integers(1, 9),
    st.integers(0, 2**31),
)
@settings(max_examples=80, deadline=None)
def test_packing_is_what_a_loop_over_tokens_does(rows, chunk_length, seed):
    sampled = torch.tensor(rows)
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(len(rows), 8, generator=generator, dtype=F64)
    x = torch.randn(len(rows), 7, generator=generator, dtype=F64)
    steps = chunk_steps(sampled, torch.ones_like(sampled), chunk_length)
    packed, totals = steps.prefix_values(values), steps.sums(x)
    back = steps.spread(totals)
    for i, row in enumerate(rows):
        positions = [t for t in range(7) if row[t]]
        chunks = [
            positions[k : k + chunk_length]
            for k in range(0, len(positions), chunk_length)
        ]
        assert int(steps.step_mask[i].sum()) == len(chunks)
        for k, chunk in enumerate(chunks):
            assert steps.step_mask[i, k]
            assert packed[i, k] == values[i, chunk[0]]
            torch.testing.assert_close(totals[i, k], x[i, chunk].sum())
            assert (back[i, chunk] == totals[i, k]).all()
        assert packed[i, len(chunks)] == values[i, 7]
    assert (back[~sampled] == 0).all()
