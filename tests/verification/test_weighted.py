"""Several verifiers as one."""

from collections.abc import Callable, Sequence

import pytest

from accredit.types import Problem, Rollout, Verdict
from accredit.verification.weighted import WeightedVerifier


class Table:
    """Gives the listed rewards, whatever it is shown."""

    def __init__(self, rewards: list[float | None]) -> None:
        self.rewards = rewards
        self.closed = False

    def verify(self, items: Sequence[tuple[Problem, str, Rollout]]) -> list[Verdict]:
        return [
            Verdict(reward, "unknown" if reward is None else "")
            for reward in self.rewards
        ]

    def close(self) -> None:
        self.closed = True


def test_p10_none_does_not_count_unless_all_are_none(item: Callable) -> None:
    """Case B039: 1*1 + 2*.5 = 2, 2*.5 = 1, 1*0 = 0, and nothing to add up."""
    parts = {
        "a": (Table([1.0, None, 0.0, None]), 1.0),
        "b": (Table([0.5, 0.5, None, None]), 2.0),
    }
    verdicts = WeightedVerifier(parts).verify([item("4", "x")] * 4)
    assert [verdict.reward for verdict in verdicts] == [2.0, 1.0, 0.0, None]
    assert [dict(verdict.parts) for verdict in verdicts] == [
        {"a": 1, "b": 0.5},
        {"b": 0.5},
        {"a": 0},
        {},
    ]
    assert verdicts[1].reason == "a: unknown"
    assert verdicts[3].reason == "a: unknown; b: unknown"


def test_b040_a_part_must_give_one_verdict_an_item(item: Callable) -> None:
    """Case B040: one value for three items is never broadcast."""
    verifier = WeightedVerifier({"short": (Table([1.0]), 1.0)})
    with pytest.raises(ValueError, match=r"'short' .* 1 verdicts for 3 items"):
        verifier.verify([item("4", "x")] * 3)


def test_closing_closes_every_part() -> None:
    tables = [Table([]), Table([])]
    WeightedVerifier({"a": (tables[0], 1.0), "b": (tables[1], 1.0)}).close()
    assert [table.closed for table in tables] == [True, True]


def test_at_least_one_part_is_needed() -> None:
    with pytest.raises(ValueError, match="at least one part"):
        WeightedVerifier({})
