"""The clip's offset, the critic's rate and the number of audits, by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.algorithms.replay.control import (
    START_OFFSET,
    audit_count,
    critic_rate,
    entropy_offset,
)

FIRST = 2.83e-6
LIMIT = math.sqrt(2)


def rate_after(rate, streak, **changes):
    """A breach, unless told otherwise: 3 > sqrt(2) (1 + 1)."""
    step = {
        "first": FIRST,
        "floor": 0.25,
        "limit": LIMIT,
        "critic_displacement": 3.0,
        "actor_displacements": [1.0, 1.0],
        "finite": True,
        "updated": True,
    }
    return critic_rate(rate, streak, **(step | changes))


def test_the_offset_climbs_while_the_entropy_is_low_and_falls_while_it_is_high():
    offset, climbed = START_OFFSET, []
    assert offset == 0.06
    for _ in range(3):
        offset = entropy_offset(offset, 0.1, 0.28)
        climbed.append(offset)
    assert climbed == pytest.approx([0.08, 0.08, 0.08])
    fell = []
    for _ in range(9):
        offset = entropy_offset(offset, 0.5, 0.28)
        fell.append(offset)
    ladder = [0.06, 0.04, 0.02, 0.0, -0.02, -0.04, -0.06, -0.08, -0.08]
    assert fell == pytest.approx(ladder, abs=1e-12)


def test_the_offset_stays_at_the_target_and_where_nobody_knows():
    assert entropy_offset(0.04, 0.28, 0.28) == 0.04
    assert entropy_offset(0.04, None, 0.28) == 0.04
    assert entropy_offset(0.04, math.nan, 0.28) == 0.04
    # 0 nats is an entropy, not the lack of one.
    assert entropy_offset(0.04, 0.0, 0.28) == pytest.approx(0.06)


def test_the_rate_is_halved_every_second_breach_down_to_its_floor():
    rate, streak, seen = FIRST, 0, []
    for _ in range(8):
        rate, streak = rate_after(rate, streak)
        seen.append((rate, streak))
    rates = [2.83e-6, 1.415e-6, 1.415e-6, 7.075e-7, 7.075e-7, 7.075e-7]
    assert [r for r, _ in seen[:6]] == pytest.approx(rates)
    assert [s for _, s in seen] == [1, 0] * 4
    assert seen[-1][0] == pytest.approx(7.075e-7)


def test_the_floor_binds_between_halvings_and_never_raises_a_rate():
    assert rate_after(1.0, 1, first=1.0, floor=0.7) == (0.7, 0)
    assert rate_after(0.5, 1, first=1.0, floor=0.7) == (0.5, 0)
    assert rate_after(0.5, 1, first=1.0, floor=0.1) == (0.25, 0)


def test_a_breach_is_more_than_the_limit_times_all_that_the_policy_moved():
    assert rate_after(FIRST, 1, limit=1.5) == (FIRST, 0)
    assert rate_after(FIRST, 1, limit=1.5, critic_displacement=3.01) == (FIRST / 2, 0)
    # 3 is more than sqrt(2) times 2, less than sqrt(2) times 2.2.
    assert rate_after(FIRST, 0, actor_displacements=[2.0, 0.0]) == (FIRST, 1)
    assert rate_after(FIRST, 1, actor_displacements=[1.0, 1.2]) == (FIRST, 0)


def test_a_loss_that_is_not_finite_halves_at_once():
    assert rate_after(FIRST, 0, finite=False) == (FIRST / 2, 0)
    assert rate_after(FIRST, 1, finite=False, updated=False) == (FIRST / 2, 0)
    unknown = {"limit": None, "critic_displacement": None}
    assert rate_after(FIRST, 1, finite=False, **unknown) == (FIRST / 2, 0)
    assert rate_after(0.3, 0, first=1.0, finite=False) == (0.25, 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"updated": False},
        {"limit": None},
        {"critic_displacement": None},
        {"critic_displacement": 0.0, "actor_displacements": [0.0]},
        {"actor_displacements": []},
        {"critic_displacement": 1.0},
    ],
)
def test_what_is_no_breach_ends_the_streak(changes):
    assert rate_after(FIRST, 1, **changes) == (FIRST, 0)


def test_beside_a_policy_that_stood_still_any_move_is_a_breach():
    still = {"actor_displacements": [0.0, 0.0], "critic_displacement": 1e-9}
    assert rate_after(FIRST, 0, **still) == (FIRST, 1)
    assert rate_after(FIRST, 1, **still) == (FIRST / 2, 0)


@given(st.lists(st.booleans(), max_size=30), st.floats(0.01, 1.0))
def test_the_rate_never_rises_nor_leaves_its_range(breaches, floor):
    rate, streak = FIRST, 0
    for breach in breaches:
        moved = 3.0 if breach else 1.0
        new, streak = rate_after(rate, streak, floor=floor, critic_displacement=moved)
        assert floor * FIRST <= new <= rate
        assert streak in (0, 1)
        rate = new


def test_audits_are_rounded_up_and_products_are_whole_up_to_rounding():
    counts = [audit_count(n, 0.25) for n in range(10)]
    assert counts == [0, 1, 1, 1, 1, 2, 2, 2, 2, 3]
    assert audit_count(30, 0.1) == 3
    # .07 * 100 = 7.000000000000001, and .1 + .2 is a bit more than .3.
    assert audit_count(100, 0.07) == 7
    assert audit_count(10, 0.1 + 0.2) == 3
    assert audit_count(7, 0.0) == 0
    assert audit_count(7, 1.0) == 7
    assert audit_count(7, 1e-6) == 1
