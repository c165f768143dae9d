"""Where a completion ends, read off its tokens."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from accredit.engines.completion_mask import completion_mask


@pytest.mark.parametrize(
    ("ids", "stops", "mask", "truncated"),
    [
        ([5, 6, 2, 2, 2], {2}, [1, 1, 1, 0, 0], False),
        ([5, 6, 8, 9, 4], {2}, [1, 1, 1, 1, 1], True),
        ([5, 7, 0, 0, 0], {2, 7}, [1, 1, 0, 0, 0], False),
        ([2, 2, 2, 2, 2], {2}, [1, 0, 0, 0, 0], False),
        ([5, 2, 6, 2, 2], {2}, [1, 1, 0, 0, 0], False),
        # B090: filled up with the stop token, another id being the pad token.
        ([5, 2, 2, 2, 2], (2,), [1, 1, 0, 0, 0], False),
        # B087: cut at the budget; nothing is appended.
        ([7, 8, 9], {2}, [1, 1, 1], True),
        ([7, 8, 9], set(), [1, 1, 1], True),
    ],
)
def test_p18_completion_mask(ids, stops, mask, truncated):
    """Cases P18, B086, B087, B090."""
    got_mask, got_truncated = completion_mask(torch.tensor([ids]), stops)
    assert got_mask.tolist() == [[bool(keep) for keep in mask]]
    assert got_truncated.tolist() == [truncated]


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=8),
    st.integers(0, 4),
    st.integers(0, 5),
)
def test_b088_room_after_the_stop_token_changes_nothing(ids, pad, room):
    """Case B088: a larger budget, padded with any id, gives the same mask."""
    ids = [*ids, 2]
    mask, truncated = completion_mask(torch.tensor([ids]), {2})
    wider, wider_truncated = completion_mask(torch.tensor([ids + [pad] * room]), {2})
    assert wider[:, : len(ids)].equal(mask)
    assert not wider[:, len(ids) :].any()
    assert truncated.tolist() == wider_truncated.tolist() == [False]


@given(st.lists(st.lists(st.integers(0, 4), min_size=6, max_size=6), min_size=1))
def test_rows_do_not_see_each_other(rows):
    mask, truncated = completion_mask(torch.tensor(rows), {2, 3})
    for row, ids in enumerate(rows):
        alone, alone_truncated = completion_mask(torch.tensor([ids]), {2, 3})
        assert mask[row].equal(alone[0])
        assert truncated[row] == alone_truncated[0]
