"""Buffers that forget their oldest, draws from them, and where rollouts are cut."""

import base64
import math
import zlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.batches import replay
from accredit.batches.replay import (
    ExampleBuffer,
    RolloutBuffer,
    StoredExample,
    StoredRollout,
    cut_points,
    drawn_cut,
    drawn_rollouts,
    packed,
    unpacked,
)
from accredit.randomness import generator

IDS = st.lists(st.integers(0, 2**31 - 1), max_size=5)
NAMES = st.sampled_from("abcde")
ROLLOUTS = st.lists(st.tuples(NAMES, IDS, st.floats(-2, 2)), max_size=12)
LESSONS = st.lists(st.tuples(NAMES, IDS, st.floats(0, 1), st.none() | IDS), max_size=12)


def rollouts_of(rows):
    return RolloutBuffer(12).added([StoredRollout.of(*row) for row in rows])


def lessons_of(rows):
    return ExampleBuffer(12).added([StoredExample.of(*row) for row in rows])


KINDS = [
    (RolloutBuffer, lambda i: StoredRollout.of(f"p{i}", [i], 0.5)),
    (ExampleBuffer, lambda i: StoredExample.of(f"p{i}", [i], 0.5, None)),
]


def raw_text(raw):
    return base64.b64encode(zlib.compress(raw)).decode()


@given(IDS)
def test_packing_is_undone(token_ids):
    assert unpacked(packed(token_ids)) == tuple(token_ids)
    assert packed(token_ids) == packed(tuple(token_ids))


def test_ids_are_packed_as_little_endian_int32_and_short():
    raw = zlib.decompress(base64.b64decode(packed([1, 256, 151_935])))
    # 151,935 = 2 * 65,536 + 81 * 256 + 127
    assert raw == bytes([1, 0, 0, 0, 0, 1, 0, 0, 127, 81, 2, 0])
    ids = generator(0).integers(0, 151_936, 10_000).tolist()
    assert len(packed(ids)) < 4.5 * 10_000
    assert len(packed([7] * 10_000)) < 200


def test_ids_that_are_none_are_not_packed(monkeypatch):
    with pytest.raises(ValueError, match=r"in 0..2\^31-1, got -1..5"):
        packed([5, -1])
    with pytest.raises(ValueError, match=r"in 0..2\^31-1, got 0..2147483648"):
        packed([0, 1 << 31])
    monkeypatch.setattr(replay, "LARGEST_NUM_TOKENS", 3)
    assert unpacked(packed([1, 2, 3])) == (1, 2, 3)
    with pytest.raises(ValueError, match="at most 3 token ids are packed, got 4"):
        packed([1, 2, 3, 4])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "é",
        "abcd",
        packed([1, 2, 3])[:-4],
        packed([1, 2, 3])[:-8] + "AAAAAAA=",
        packed([1]) + "\n",
        raw_text(b"12345"),
        base64.b64encode(zlib.compress(b"1234") + b"5").decode(),
        base64.b64encode(zlib.compress(b"12345678")[:-1]).decode(),
        raw_text(np.array([3, -1], "<i4").tobytes()),
    ],
)
def test_what_nobody_packed_is_refused(text):
    with pytest.raises(ValueError, match="stored token ids must be base64 of zlib"):
        unpacked(text)


def test_a_short_text_cannot_fill_the_memory():
    bomb = raw_text(bytes(4 * (replay.LARGEST_NUM_TOKENS + 1)))
    assert len(bomb) < 30_000
    with pytest.raises(ValueError, match="got more than 4194304 ids"):
        unpacked(bomb)


def test_a_stored_rollout_counts_its_tokens_and_minds_a_torn_one():
    stored = StoredRollout.of("a", [3, 5, 7], 0.25)
    assert stored == StoredRollout("a", packed([3, 5, 7]), 3, 0.25)
    assert stored.token_ids == (3, 5, 7)
    with pytest.raises(ValueError, match="got 3 of 4 ids"):
        _ = StoredRollout("a", packed([3, 5, 7]), 4, 0.25).token_ids
    with pytest.raises(ValueError, match="num_tokens must be >= 0, got -1 for 'a'"):
        StoredRollout("a", packed([]), -1, 0.0)
    with pytest.raises(ValueError, match="stored reward must be finite, got nan"):
        StoredRollout.of("a", [], math.nan)


def test_a_lesson_has_a_reference_or_none():
    example = StoredExample.of("a", [3, 5], 0.5, [7, 11, 13])
    assert example.token_ids == (3, 5)
    assert example.reference_ids == (7, 11, 13)
    assert StoredExample.of("a", [], 0.5, None).reference_ids is None
    assert StoredExample.of("a", [], 0.5, []).reference_ids == ()
    with pytest.raises(ValueError, match="stored target must be finite, got inf"):
        StoredExample.of("a", [], math.inf, None)


@pytest.mark.parametrize(("kind", "item"), KINDS)
def test_the_oldest_go_first(kind, item):
    buffer = kind(3).added([item(1), item(2)])
    assert buffer.items == (item(1), item(2))
    fuller = buffer.added([item(3), item(4)])
    assert fuller.items == (item(2), item(3), item(4))
    assert buffer.items == (item(1), item(2))
    assert kind(3).added([item(i) for i in range(9)]).items == (
        item(6),
        item(7),
        item(8),
    )
    assert fuller.added([]) == fuller


@given(st.integers(1, 6), st.lists(st.integers(0, 8), max_size=6))
@pytest.mark.parametrize(("kind", "item"), KINDS)
def test_a_buffer_holds_the_newest_and_no_more_than_it_may(
    kind, item, capacity, batches
):
    buffer, everything = kind(capacity), []
    for size in batches:
        new = [item(len(everything) + i) for i in range(size)]
        everything += new
        buffer = buffer.added(new)
        assert len(buffer.items) <= capacity
        assert buffer.items == tuple(everything[-capacity:])


@pytest.mark.parametrize(("kind", "item"), KINDS)
def test_a_buffer_is_not_born_overfull(kind, item):
    with pytest.raises(ValueError, match="got 2 items and a capacity of 1"):
        kind(1, (item(1), item(2)))
    with pytest.raises(ValueError, match="got 0 items and a capacity of 0"):
        kind(0)
    assert len(kind(2, (item(1), item(2))).items) == 2


def test_lessons_are_drawn_without_replacement_and_evenly():
    buffer = ExampleBuffer(9).added([KINDS[1][1](i) for i in range(5)])
    draw = generator(3)
    assert buffer.drawn(0, draw) == []
    few = [buffer.drawn(2, draw) for _ in range(2000)]
    assert all(one != other for one, other in few)
    counts = Counter(example.problem_id for pair in few for example in pair)
    # Two of five in 2,000 draws: 800 each, deviation 22; and first in 400, 18.
    assert all(abs(counts[f"p{i}"] - 800) < 110 for i in range(5))
    first = Counter(pair[0].problem_id for pair in few)
    assert all(abs(first[f"p{i}"] - 400) < 90 for i in range(5))


@given(LESSONS, st.integers(0, 20), st.integers(0, 99))
def test_all_lessons_are_drawn_where_there_are_fewer(examples, count, seed):
    buffer = lessons_of(examples)
    drawn = buffer.drawn(count, generator(seed))
    assert len(drawn) == min(count, len(examples))
    assert not Counter(drawn) - Counter(buffer.items)
    assert drawn == buffer.drawn(count, generator(seed))


@given(ROLLOUTS.filter(bool), st.integers(0, 30), st.integers(0, 99))
def test_problems_are_drawn_as_evenly_as_can_be(rollouts, count, seed):
    buffer = rollouts_of(rollouts)
    drawn = drawn_rollouts(buffer, count, generator(seed))
    problems = {item.problem_id for item in buffer.items}
    assert len(drawn) == count
    assert set(drawn) <= set(buffer.items)
    counts = Counter(item.problem_id for item in drawn)
    even = {count // len(problems), -(-count // len(problems))}
    assert {counts[name] for name in problems} <= even
    # One order, round after round.
    names = [item.problem_id for item in drawn]
    assert names[len(problems) :] == names[: max(0, count - len(problems))]
    assert drawn == drawn_rollouts(buffer, count, generator(seed))


def test_problems_come_in_any_order_and_rollouts_of_one_are_as_likely():
    """a has three rollouts, b and c one: a is drawn no more often for it."""
    stored = [StoredRollout.of("a", [i], 0.0) for i in range(3)]
    stored += [StoredRollout.of(name, [9], 0.0) for name in "bc"]
    buffer = RolloutBuffer(9).added(stored)
    draws = [drawn_rollouts(buffer, 1, generator(seed))[0] for seed in range(1800)]
    problems = Counter(item.problem_id for item in draws)
    # 600 each, deviation 20; 200 each of a's, deviation 13.
    assert all(abs(problems[name] - 600) < 100 for name in "abc")
    mine = Counter(item.token_ids for item in draws if item.problem_id == "a")
    assert all(abs(mine[(i,)] - 200) < 66 for i in range(3))
    # Each time anew: two of a's in one draw differ two times in three.
    pairs = [drawn_rollouts(buffer, 6, generator(seed)) for seed in range(300)]
    twice = [[r for r in pair if r.problem_id == "a"] for pair in pairs]
    differ = sum(one != other for one, other in twice)
    assert 160 < differ < 240


def test_nothing_is_drawn_from_an_empty_buffer_or_a_negative_number():
    with pytest.raises(ValueError, match="a buffer that holds some, got an empty one"):
        drawn_rollouts(RolloutBuffer(3), 1, generator(0))
    buffer = RolloutBuffer(3).added([StoredRollout.of("a", [1], 0.0)])
    with pytest.raises(ValueError, match="count must be >= 0, got -1"):
        drawn_rollouts(buffer, -1, generator(0))
    with pytest.raises(ValueError, match="count must be >= 0, got -2"):
        ExampleBuffer(3).drawn(-2, generator(0))
    assert drawn_rollouts(buffer, 0, generator(0)) == []


@pytest.mark.parametrize(
    ("num_tokens", "grid", "share", "expected"),
    [
        (50_000, 10_000, 0.9, [0, 10_000, 20_000, 30_000, 40_000]),
        (100, 10, 0.9, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]),
        (99, 10, 0.9, [0, 10, 20, 30, 40, 50, 60, 70, 80]),
        # .7 * 30 = 20.999999999999996, and .29 * 100 = 28.999999999999996.
        (30, 7, 0.7, [0, 7, 14, 21]),
        (100, 29, 0.29, [0, 29]),
        (20, 10, 1.0, [0, 10]),
        (9, 10, 0.9, [0]),
        (1, 1, 0.9, [0]),
        (1, 1, 1.0, [0]),
        (0, 5, 0.9, [0]),
        (40, 10, 0.0, [0]),
    ],
)
def test_cuts_by_hand(num_tokens, grid, share, expected):
    assert cut_points(num_tokens, grid, share) == expected


@given(st.integers(0, 300), st.integers(1, 40), st.integers(0, 100))
def test_cuts_are_all_multiples_in_their_range(num_tokens, grid, percent):
    """In whole numbers: 100 k grid <= percent L, and k grid < L."""
    expected = [
        cut
        for cut in range(0, max(num_tokens, 1), grid)
        if cut == 0 or 100 * cut <= percent * num_tokens
    ]
    assert cut_points(num_tokens, grid, percent / 100) == expected


def test_cuts_are_as_likely_as_each_other():
    draw = generator(11)
    counts = Counter(drawn_cut(50, 10, 0.9, draw) for _ in range(5000))
    assert set(counts) == {0, 10, 20, 30, 40}
    chi_square = sum((count - 1000) ** 2 / 1000 for count in counts.values())
    # 4 degrees of freedom: more than 18.5 once in a thousand.
    assert chi_square < 18.5
    assert drawn_cut(5, 10, 0.9, draw) == 0
    again = [drawn_cut(900, 10, 0.9, generator(2)) for _ in range(2)]
    assert again[0] == again[1]


@pytest.mark.parametrize(
    "arguments", [(-1, 10, 0.9), (10, 0, 0.9), (10, 10, -0.1), (10, 10, 1.1)]
)
def test_a_cut_needs_a_length_a_grid_and_a_share(arguments):
    with pytest.raises(ValueError, match=r"cuts need num_tokens >= 0, grid >= 1 and"):
        cut_points(*arguments)
    with pytest.raises(ValueError, match=r"got .*; mend the recipe"):
        drawn_cut(10, 10, math.nan, generator(0))
