"""The same rollouts behind another prompt: nothing is lost, and all comes back."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.batches.collate import collate
from accredit.batches.views import shown
from accredit.types import (
    Batch,
    Group,
    Message,
    Problem,
    Prompt,
    Rollout,
    StopReason,
    Verdict,
)

NAN = float("nan")


def prompt(name: str, *token_ids: int) -> Prompt:
    return Prompt(Problem(name, (Message("user", name),)), token_ids)


def rollout(asked: Prompt, flags: str, first_id: int = 10) -> Rollout:
    """`flags` after the prompt: s sampled, o observed; ids count up."""
    sampled = torch.tensor([False] * len(asked.token_ids) + [f == "s" for f in flags])
    ids = [*asked.token_ids, *range(first_id, first_id + len(flags))]
    logprobs = torch.where(sampled, -torch.arange(1.0, len(ids) + 1), 0.0)
    return Rollout(asked, torch.tensor(ids), sampled, logprobs, StopReason.STOP)


def batch_of(*rows: tuple[Prompt, str]) -> Batch:
    return collate(
        [
            Group(asked, (rollout(asked, flags, 10 * n + 10),), (Verdict(float(n)),))
            for n, (asked, flags) in enumerate(rows)
        ]
    )


SHORT, LONG = prompt("short", 1), prompt("long", 1, 2, 3)
# Two rows of four and six tokens; the second one with an observation.
BATCH = batch_of((SHORT, "sss"), (LONG, "sos"))


def twice(asked: Prompt) -> tuple[int, ...]:
    return (*asked.token_ids, *asked.token_ids)


def test_a_longer_prompt_by_hand():
    view = shown(BATCH, twice)
    assert view.batch.token_ids.tolist() == [
        [1, 1, 10, 11, 12, 0, 0, 0, 0],
        [1, 2, 3, 1, 2, 3, 20, 21, 22],
    ]
    assert view.batch.token_mask.sum(1).tolist() == [5, 9]
    assert view.batch.sampled.int().tolist() == [
        [0, 0, 1, 1, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 1, 0, 1],
    ]
    assert view.batch.sampling_logprobs.tolist() == [
        [0, 0, -2, -3, -4, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, -4, 0, -6],
    ]
    assert [p.token_ids for p in view.batch.prompts] == [(1, 1), (1, 2, 3, 1, 2, 3)]
    assert view.batch.rewards.tolist() == [0.0, 1.0]
    assert view.batch.group_index.tolist() == [0, 1]


def test_what_is_said_of_the_view_comes_back_by_hand():
    """Token 10 lies at index 2 of the view and 1 of the rollout, token 20 at 6 and 3.

    V of a rollout's whole prompt stands at its length: 2 and 1, 6 and 3.
    """
    view = shown(BATCH, twice)
    columns = torch.arange(9.0).repeat(2, 1)
    assert view.back(columns).tolist() == [[0, 2, 3, 4, 0, 0], [0, 0, 0, 6, 7, 8]]
    prefixes = torch.arange(10.0).repeat(2, 1)
    assert view.back_values(prefixes).tolist() == [
        [0, 2, 3, 4, 5, 0, 0],
        [0, 0, 0, 6, 7, 8, 9],
    ]


def test_what_is_said_of_the_rollouts_goes_onto_the_view_by_hand():
    view = shown(BATCH, twice)
    columns = torch.arange(6.0).repeat(2, 1)
    assert view.onto(columns).tolist() == [
        [0, 0, 1, 2, 3, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 3, 4, 5],
    ]


def test_a_shorter_prompt_moves_the_other_way():
    view = shown(BATCH, lambda asked: [7])
    assert view.batch.token_ids.tolist() == [[7, 10, 11, 12], [7, 20, 21, 22]]
    assert view.back(torch.arange(4.0).repeat(2, 1)).tolist() == [
        [0, 1, 2, 3, 0, 0],
        [0, 0, 0, 1, 2, 3],
    ]


def test_siblings_ask_for_their_prompt_once():
    asked = []

    def show(p: Prompt) -> tuple[int, ...]:
        asked.append(p.problem.id)
        return p.token_ids

    members = tuple(rollout(SHORT, "s" * n) for n in (1, 2, 3))
    group = Group(SHORT, members, (Verdict(1.0),) * 3)
    shown(collate([group, Group(LONG, (rollout(LONG, "s"),), (Verdict(0.0),))]), show)
    assert asked == ["short", "long"]


def test_what_cannot_be_shown_is_an_error():
    with pytest.raises(ValueError, match=r"must hold its prompts .* got none"):
        shown(replace(BATCH, prompts=()), twice)
    with pytest.raises(ValueError, match="prompt of 'short' must not be empty"):
        shown(BATCH, lambda asked: ())


def test_a_tensor_of_the_other_side_is_refused():
    view = shown(BATCH, twice)
    with pytest.raises(ValueError, match="must have 9 columns, got 6"):
        view.back(torch.zeros(2, 6))
    with pytest.raises(ValueError, match="must have 10 columns, got 9"):
        view.back_values(torch.zeros(2, 9))
    with pytest.raises(ValueError, match="must have 6 columns, got 9"):
        view.onto(torch.zeros(2, 9))


lengths = st.integers(1, 5)
rows = st.lists(
    st.tuples(lengths, lengths, st.text("so", min_size=0, max_size=5)),
    min_size=1,
    max_size=5,
)


def view_of(sizes):
    """A batch with prompts of the first sizes, shown behind prompts of the second."""
    asked = [prompt(f"p{n}", *range(1, k + 1)) for n, (k, _, _) in enumerate(sizes)]
    batch = batch_of(
        *((p, flags) for p, (_, _, flags) in zip(asked, sizes, strict=True))
    )
    new = {f"p{n}": [9] * size for n, (_, size, _) in enumerate(sizes)}
    return batch, shown(batch, lambda p: new[p.problem.id])


def opened(batch: Batch) -> torch.Tensor:
    """True at the tokens behind the prompt."""
    ends = torch.tensor([[len(p.token_ids)] for p in batch.prompts])
    return batch.token_mask & (torch.arange(batch.token_ids.shape[1]) >= ends)


@settings(deadline=None, max_examples=60)
@given(rows)
def test_whatever_is_behind_the_prompt_is_the_same_tokens(sizes):
    batch, view = view_of(sizes)
    for row, (_, new, flags) in enumerate(sizes):
        kept = view.batch.token_mask[row]
        assert int(kept.sum()) == new + len(flags)
        ids = view.batch.token_ids[row][kept].tolist()
        assert ids[:new] == [9] * new
        assert ids[new:] == batch.token_ids[row][opened(batch)[row]].tolist()
    where = opened(batch)
    for name in ("token_ids", "sampled", "sampling_logprobs"):
        before, after = getattr(batch, name), getattr(view.batch, name)
        assert torch.equal(
            view.back(after), before.where(where, torch.zeros_like(before))
        )


@settings(deadline=None, max_examples=60)
@given(rows)
def test_going_onto_the_view_and_back_is_the_identity_behind_the_prompt(sizes):
    batch, view = view_of(sizes)
    x = torch.rand(batch.token_ids.shape)
    assert torch.equal(view.back(view.onto(x)), torch.where(opened(batch), x, 0.0))
    assert torch.equal(view.onto(batch.sampled), view.batch.sampled)


@settings(deadline=None, max_examples=60)
@given(rows)
def test_padding_and_the_shown_prompt_never_come_back(sizes):
    """NaN everywhere but behind the shown prompt: nothing of it arrives."""
    _, view = view_of(sizes)
    behind = opened(view.batch)
    assert view.back(torch.where(behind, 1.0, NAN)).isfinite().all()
    moved = view.onto(torch.where(view.back(behind), 1.0, NAN))
    assert torch.equal(moved.isfinite(), torch.ones_like(behind))
    ends = torch.tensor([len(p.token_ids) for p in view.batch.prompts])
    columns = torch.arange(view.batch.token_ids.shape[1] + 1)
    total = view.batch.token_mask.sum(1)
    known = (columns >= ends[:, None]) & (columns <= total[:, None])
    assert view.back_values(torch.where(known, 1.0, NAN)).isfinite().all()


@settings(deadline=None, max_examples=40)
@given(rows)
def test_the_value_before_a_token_comes_back_before_that_token(sizes):
    """A value that names the next token's id, in the view and in the rollout."""
    batch, view = view_of(sizes)
    named = torch.cat([view.batch.token_ids, torch.zeros(len(sizes), 1).long()], 1)
    found = view.back_values(named.float())[:, :-1]
    where = opened(batch)
    assert torch.equal(found[where], batch.token_ids[where].float())


def test_the_same_prompt_shows_the_same_batch():
    view = shown(BATCH, lambda asked: asked.token_ids)
    assert torch.equal(view.batch.token_ids, BATCH.token_ids)
    assert torch.equal(view.batch.token_mask, BATCH.token_mask)
    assert view.batch.prompts == BATCH.prompts
