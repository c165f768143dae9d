"""Groups in, right-padded tensors out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.batches.collate import collate
from accredit.types import Group, Message, Problem, Prompt, Rollout, StopReason, Verdict


def prompt(name: str, *token_ids: int) -> Prompt:
    return Prompt(Problem(name, (Message("user", name),)), token_ids)


def rollout(
    asked: Prompt,
    completion: list[int],
    stop_reason: StopReason = StopReason.STOP,
    observed: int = 0,
) -> Rollout:
    """Sampled with log-probs -.5, -1, -1.5, ...; the last `observed` tokens are not."""
    num_prompt, num_new = len(asked.token_ids), len(completion)
    sampled = torch.zeros(num_prompt + num_new, dtype=torch.bool)
    sampled[num_prompt : num_prompt + num_new - observed] = True
    logprobs = torch.zeros(len(sampled))
    logprobs[sampled] = -0.5 * torch.arange(1.0, int(sampled.sum()) + 1)
    token_ids = torch.tensor([*asked.token_ids, *completion])
    return Rollout(asked, token_ids, sampled, logprobs, stop_reason)


A, B = prompt("a", 5, 6), prompt("b", 7)


def test_two_groups_by_hand():
    batch = collate(
        [
            Group(
                A,
                (rollout(A, [8, 9]), rollout(A, [1], StopReason.LENGTH)),
                (Verdict(1.0), Verdict(None, "hung")),
            ),
            Group(B, (rollout(B, [2, 3, 4, 4], observed=1),), (Verdict(-0.5),)),
        ]
    )
    assert batch.token_ids.tolist() == [
        [5, 6, 8, 9, 0],
        [5, 6, 1, 0, 0],
        [7, 2, 3, 4, 4],
    ]
    assert batch.token_mask.int().tolist() == [
        [1, 1, 1, 1, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1],
    ]
    assert batch.sampled.int().tolist() == [
        [0, 0, 1, 1, 0],
        [0, 0, 1, 0, 0],
        [0, 1, 1, 1, 0],
    ]
    assert batch.sampling_logprobs.tolist() == [
        [0, 0, -0.5, -1, 0],
        [0, 0, -0.5, 0, 0],
        [0, -0.5, -1, -1.5, 0],
    ]
    assert batch.rewards.tolist() == [1.0, 0.0, -0.5]
    assert batch.verified.tolist() == [True, False, True]
    assert batch.truncated.tolist() == [False, True, False]
    assert batch.group_index.tolist() == [0, 0, 1]
    assert batch.token_ids.dtype == torch.int64
    assert batch.rewards.dtype == torch.float32


@pytest.mark.parametrize("reason", list(StopReason))
def test_truncated_is_what_has_not_received_its_outcome(reason):
    batch = collate([Group(A, (rollout(A, [8], reason),), (Verdict(1.0),))])
    finished = reason in (StopReason.STOP, StopReason.ENVIRONMENT)
    assert batch.truncated.tolist() == [not finished]


def test_an_unverified_rollout_is_not_a_wrong_one():
    """Case P10: None and 0 differ in `verified`."""
    members = (rollout(A, [8]), rollout(A, [8]))
    batch = collate([Group(A, members, (Verdict(0.0), Verdict(None, "hung")))])
    assert batch.rewards.tolist() == [0.0, 0.0]
    assert batch.verified.tolist() == [True, False]
    assert batch.trainable.any(1).tolist() == [True, False]


def test_nothing_sampled_is_a_row_without_trainable_tokens():
    batch = collate([Group(A, (rollout(A, []),), (Verdict(None, "empty"),))])
    assert batch.token_ids.tolist() == [[5, 6]]
    assert not batch.trainable.any()


def test_no_group_is_an_error():
    with pytest.raises(ValueError, match="at least one group, got none"):
        collate([])


completions = st.lists(st.integers(0, 9), min_size=0, max_size=6)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(completions, min_size=1, max_size=3), min_size=1, max_size=3))
def test_every_rollout_is_found_again_under_the_mask(sizes):
    groups = [
        Group(
            A,
            tuple(rollout(A, completion) for completion in members),
            tuple(Verdict(float(n)) for n in range(len(members))),
        )
        for members in sizes
    ]
    batch = collate(groups)
    rollouts = [member for group in groups for member in group.rollouts]
    assert batch.num_rollouts == len(rollouts)
    for row, member in enumerate(rollouts):
        kept = batch.token_mask[row]
        assert batch.token_ids[row][kept].tolist() == member.token_ids.tolist()
        assert batch.sampled[row][kept].tolist() == member.sampled.tolist()
        assert not batch.sampled[row][~kept].any()
        found = batch.sampling_logprobs[row]
        assert found[kept].tolist() == member.sampling_logprobs.tolist()
        assert not found[~kept].any()
    sizes_found = torch.bincount(batch.group_index).tolist()
    assert sizes_found == [len(group.rollouts) for group in groups]
