"""The learning rate as a function of finished updates."""

import math

import pytest

from accredit.learner.schedules import DECAYS, Schedule, constant, cosine, linear


def test_warm_up_rises_linearly_and_never_starts_at_zero() -> None:
    schedule = Schedule(peak=8.0, num_warmup_updates=4)
    assert [schedule.rate(u) for u in range(6)] == [2.0, 4.0, 6.0, 8.0, 8.0, 8.0]


def test_linear_decay_by_hand() -> None:
    schedule = Schedule(
        peak=10.0, decay=linear, num_warmup_updates=2, num_updates=7, final_share=0.1
    )
    # After the warm-up, p = 0, 1/5, ..., 4/5, then 1 for good; rate 10 (.1 + .9 (1-p)).
    expected = [5.0, 10.0, 10.0, 8.2, 6.4, 4.6, 2.8, 1.0, 1.0]
    assert [schedule.rate(u) for u in range(9)] == pytest.approx(expected, abs=1e-12)


def test_cosine_decay_by_hand() -> None:
    schedule = Schedule(peak=2.0, decay=cosine, num_updates=6)
    # p = 1/6, 1/3, 1/2: cos = sqrt(3)/2, 1/2, 0; rate = 1 + cos.
    assert schedule.rate(0) == 2.0
    assert schedule.rate(1) == pytest.approx(1 + math.sqrt(3) / 2)
    assert schedule.rate(2) == pytest.approx(1.5)
    assert schedule.rate(3) == pytest.approx(1.0)
    assert schedule.rate(6) == pytest.approx(0.0, abs=1e-12)


def test_every_decay_starts_at_the_peak() -> None:
    for decay in DECAYS.values():
        assert Schedule(peak=3.0, decay=decay, num_updates=5).rate(0) == 3.0


def test_constant_keeps_the_peak_without_a_length() -> None:
    assert Schedule(peak=3.0).rate(10**9) == 3.0
    assert DECAYS["constant"] is constant


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"peak": -1.0}, "a learning rate must be >= 0, got -1.0"),
        ({"peak": math.nan}, "a learning rate must be >= 0, got nan"),
        ({"peak": 1.0, "num_warmup_updates": -1}, "must be >= 0, got -1"),
        ({"peak": 1.0, "final_share": 1.5}, r"must be in \[0, 1\], got 1.5"),
        ({"peak": 1.0, "decay": linear}, "num_updates None"),
        (
            {"peak": 1.0, "decay": cosine, "num_updates": 3, "num_warmup_updates": 3},
            "lengthen the run or shorten the warm-up",
        ),
    ],
)
def test_impossible_schedules_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schedule(**settings)
