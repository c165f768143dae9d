"""The bank keeps the first passing completion of a problem, and only that."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.critics.references import ReferenceBank
from accredit.randomness import generator

PASSING = st.lists(
    st.tuples(st.sampled_from("abc"), st.lists(st.integers(0, 9), max_size=3)),
    max_size=8,
)


def test_the_first_is_kept_and_never_replaced():
    draw = generator(0)
    bank = ReferenceBank().added([("a", [3, 5])], draw)
    later = bank.added([("a", [7]), ("b", [11, 13])], draw)
    assert bank.reference("a") == (3, 5)
    assert bank.reference("b") is None
    assert later.reference("a") == (3, 5)
    assert later.reference("b") == (11, 13)
    assert (len(ReferenceBank()), len(bank), len(later)) == (0, 1, 2)
    assert "b" in later
    assert "b" not in bank


def test_an_empty_completion_is_a_reference_and_not_the_lack_of_one():
    assert ReferenceBank().added([("a", [])], generator(0)).reference("a") == ()


def test_of_several_in_one_step_each_is_as_likely():
    passing = [("a", [1]), ("b", [9]), ("a", [2]), ("a", [3])]
    counts = Counter(
        ReferenceBank().added(passing, generator(seed)).reference("a")
        for seed in range(600)
    )
    # 200 each, deviation 11.5: five of them.
    assert set(counts) == {(1,), (2,), (3,)}
    assert all(abs(count - 200) < 58 for count in counts.values())


@given(PASSING, st.integers(0, 99))
def test_the_order_of_the_problems_decides_nothing(passing, seed):
    """A stable sort by problem keeps each one's completions in their order."""
    regrouped = sorted(passing, key=lambda pair: pair[0], reverse=True)
    one = ReferenceBank().added(passing, generator(seed))
    other = ReferenceBank().added(regrouped, generator(seed))
    assert one == other


@given(PASSING, PASSING, st.integers(0, 99))
def test_what_is_kept_passed_and_stays(first, second, seed):
    draw = generator(seed)
    bank = ReferenceBank().added(first, draw)
    later = bank.added(second, draw)
    for name in "abc":
        kept = bank.reference(name)
        mine = [tuple(ids) for problem, ids in first if problem == name]
        assert (kept in mine) if mine else kept is None
        if kept is not None:
            assert later.reference(name) == kept
    assert len(later) == len({name for name, _ in first + second})


def test_a_torn_completion_is_refused_when_it_is_read():
    with pytest.raises(ValueError, match="stored token ids must be base64"):
        ReferenceBank({"a": "torn"}).reference("a")
