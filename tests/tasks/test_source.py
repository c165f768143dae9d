"""The order of prompts: endless, shuffled by epoch, and a function of seed and data."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.tasks.source import ShuffledPrompts, data_fingerprints, fingerprint
from accredit.types import Message, Problem, Prompt


def make_prompts(count: int, prefix: str = "p") -> list[Prompt]:
    return [
        Prompt(Problem(f"{prefix}{i}", (Message("user", "x"),)), (i + 1, 7))
        for i in range(count)
    ]


def ids(prompts) -> list[str]:
    return [prompt.problem.id for prompt in prompts]


@given(st.integers(1, 12), st.integers(0, 3), st.integers(0, 40), st.integers(0, 40))
def test_b113_b116_a_resumed_order_equals_the_uninterrupted_one(n, seed, start, count):
    """Cases B113, B116: the number drawn is the whole state, whatever the batches."""
    whole = ShuffledPrompts(make_prompts(n), seed).draw(0, start + count)
    resumed = ShuffledPrompts(make_prompts(n), seed)
    assert ids(resumed.draw(start, count)) == ids(whole[start:])
    assert ids(resumed.draw(0, start)) == ids(whole[:start])


@given(st.integers(1, 12), st.integers(0, 5), st.integers(0, 4))
def test_every_epoch_holds_every_prompt_once(n, seed, epoch):
    source = ShuffledPrompts(make_prompts(n), seed)
    assert sorted(ids(source.draw(epoch * n, n))) == sorted(ids(source.prompts))


def test_b113_six_prompts_two_at_a_time_are_not_repeated_within_an_epoch():
    """Case B113: 6 prompts, batch 2, stop after one step, resume."""
    source = ShuffledPrompts(make_prompts(6), 0)
    batches = [ids(source.draw(start, 2)) for start in (0, 2, 4)]
    drawn = [name for batch in batches for name in batch]
    assert sorted(drawn) == [f"p{i}" for i in range(6)]
    assert ids(ShuffledPrompts(make_prompts(6), 0).draw(2, 2)) == batches[1]


def test_b172_epochs_and_seeds_have_orders_of_their_own():
    """Case B172: another seed, another order; the same seed, the same order."""
    source = ShuffledPrompts(make_prompts(50), 1)
    first, second = ids(source.draw(0, 50)), ids(source.draw(50, 50))
    assert first != second
    assert first != ids(source.prompts)
    assert ids(ShuffledPrompts(make_prompts(50), 2).draw(0, 50)) != first
    assert ids(ShuffledPrompts(make_prompts(50), 1).draw(0, 50)) == first


def test_b174_workers_that_draw_disjoint_ranges_share_no_prompt():
    """Case B174: 2 ranks, 4 prompts."""
    source = ShuffledPrompts(make_prompts(4), 3)
    ranks = [set(ids(source.draw(rank * 2, 2))) for rank in range(2)]
    assert ranks[0].isdisjoint(ranks[1])
    assert len(ranks[0] | ranks[1]) == 4


def test_b114_other_data_begin_at_zero_with_a_warning():
    """Case B114: a run of A (6 prompts) goes on with B (4 prompts), if told."""
    old = ShuffledPrompts(make_prompts(6, "a"), 0)
    new = ShuffledPrompts(make_prompts(4, "b"), 0)
    assert old.resumed_start(5, old.fingerprint) == 5
    assert new.resumed_start(5, old.fingerprint) == 0


@pytest.mark.parametrize(
    ("changed", "fields"),
    [
        ("answers", {"answer": "other"}),
        ("answers", {"answer": None}),
        ("metadata", {"metadata": {"level": 2}}),
        ("metadata", {"metadata": {}}),
        ("prompts", {"id": "other"}),
    ],
)
def test_each_part_of_the_data_has_its_fingerprint(changed: str, fields: dict):
    prompts = [
        Prompt(replace(p.problem, answer="4", metadata={"level": 1}), p.token_ids)
        for p in make_prompts(3)
    ]
    train, held_out = prompts[:2], prompts[2:]
    before = data_fingerprints(train, held_out)
    assert data_fingerprints(list(train), tuple(held_out)) == before
    other = Prompt(replace(prompts[0].problem, **fields), prompts[0].token_ids)
    after = data_fingerprints([other, prompts[1]], held_out)
    assert [key for key in before if before[key] != after[key]] == [changed]
    other = Prompt(replace(prompts[2].problem, **fields), prompts[2].token_ids)
    after = data_fingerprints(train, [other])
    assert [key for key in before if before[key] != after[key]] == ["held_out"]


def test_the_fingerprint_sees_ids_tokens_and_order():
    prompts = make_prompts(3)
    same = fingerprint(make_prompts(3))
    assert fingerprint(prompts) == same
    assert fingerprint(prompts[::-1]) != same
    assert fingerprint(prompts[:2]) != same
    problem = prompts[0].problem
    assert fingerprint([Prompt(problem, (1, 8)), *prompts[1:]]) != same
    assert fingerprint([Prompt(problem, (17,)), *prompts[1:]]) != same


def test_nothing_to_draw_from_and_nonsense_ranges_are_errors():
    with pytest.raises(ValueError, match="at least one prompt"):
        ShuffledPrompts([], 0)
    source = ShuffledPrompts(make_prompts(2), 0)
    assert source.draw(3, 0) == []
    with pytest.raises(ValueError, match="start -1 and count 2"):
        source.draw(-1, 2)
    with pytest.raises(ValueError, match="start 0 and count -2"):
        source.draw(0, -2)
