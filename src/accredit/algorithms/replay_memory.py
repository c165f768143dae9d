"""What AC2 and Prefix GRPO carry between steps, and its JSON form in the state.

Everything of the table in section 2 of our page on the paper: replay buffer, critic
buffer, reference bank, ready set with its error window, entropy offset, the critic's
learning rate with its breach streak.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from accredit.algorithms.control import START_OFFSET
from accredit.algorithms.replay_configs import AC2Config, ReplayConfig
from accredit.critics.readiness import GateState
from accredit.critics.references import ReferenceBank
from accredit.replay import LessonBuffer, RolloutBuffer

Outcome = tuple[float, float, float]
"""A value that the critic said, the mean reward that came, and of how many."""


@dataclass(frozen=True)
class ReplayMemory:
    """What an algorithm needs that goes on from stored rollouts."""

    replay: RolloutBuffer
    entropy_offset: float = START_OFFSET
    """Added to clip_high."""

    @classmethod
    def of(cls, memory: Mapping[str, Any], config: ReplayConfig) -> "ReplayMemory":
        """What a state remembers; of a run that begins, nothing."""
        return cls(
            RolloutBuffer.from_json(memory.get("replay", []), config.store_size),
            number(memory.get("entropy_offset", START_OFFSET), "entropy_offset"),
        )

    def to_json(self) -> dict[str, Any]:
        """For the state."""
        return {
            "replay": self.replay.to_json(),
            "entropy_offset": self.entropy_offset,
        }


@dataclass(frozen=True)
class CriticMemory:
    """What AC2 knows of its critic."""

    lessons: LessonBuffer
    bank: ReferenceBank = field(default_factory=ReferenceBank)
    gate: GateState = field(default_factory=GateState)
    learning_rate: float = 0.0
    breaches: int = 0
    """Steps in a row in which the critic moved the weights too far."""
    spreads: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """Of each problem, groups with siblings and the sum of their endpoints' variances:
    how much credit a chunk deals."""
    outcomes: tuple[tuple[Outcome, ...], ...] = ()
    """Of the last steps, oldest first, where the critic is put right by them."""

    @classmethod
    def of(
        cls, memory: Mapping[str, Any], config: AC2Config, first_rate: float
    ) -> "CriticMemory":
        """What a state remembers; of a run that begins, the critic's first rate."""
        found = memory.get("critic")
        if found is None:
            return cls(LessonBuffer(config.lessons_in_store), learning_rate=first_rate)
        return cls(
            LessonBuffer.from_json(part(found, "lessons"), config.lessons_in_store),
            ReferenceBank.from_json(part(found, "bank")),
            GateState.from_json(part(found, "gate")),
            number(part(found, "learning_rate"), "learning_rate", least=0.0),
            int(number(part(found, "breaches"), "breaches", least=0.0)),
            spreads_of(part(found, "spreads")),
            stored_outcomes(part(found, "outcomes")),
        )

    def to_json(self) -> dict[str, Any]:
        """For the state."""
        return {
            "lessons": self.lessons.to_json(),
            "bank": self.bank.to_json(),
            "gate": self.gate.to_json(),
            "learning_rate": self.learning_rate,
            "breaches": self.breaches,
            "spreads": {id: list(spread) for id, spread in self.spreads.items()},
            "outcomes": [[list(row) for row in step] for step in self.outcomes],
        }


def part(content: Any, name: str) -> Any:
    """What is saved under a name.

    Raises:
        ValueError: nothing is, or nothing has names here.
    """
    if not isinstance(content, Mapping) or name not in content:
        raise torn(name, content)
    return content[name]


def number(value: Any, name: str, least: float = -math.inf) -> float:
    """A saved finite number that is not below the least.

    Raises:
        ValueError: it is something else.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < least:
        raise torn(name, value)
    return float(value)


def spreads_of(content: Any) -> dict[str, tuple[int, float]]:
    """Count and sum of each problem.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(content, Mapping):
        raise torn("spreads", content)
    found: dict[str, tuple[int, float]] = {}
    for problem, pair in content.items():
        if not isinstance(pair, list) or len(pair) != 2:
            raise torn("spreads", pair)
        count, total = (number(value, "spreads", least=0.0) for value in pair)
        found[problem] = (int(count), total)
    return found


def stored_outcomes(content: Any) -> tuple[tuple[Outcome, ...], ...]:
    """Value, reward and count of each step's outcomes.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(content, list):
        raise torn("outcomes", content)
    return tuple(tuple(map(stored_outcome, rows_of(step))) for step in content)


def rows_of(step: Any) -> list[Any]:
    """The outcomes of a step.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(step, list):
        raise torn("outcomes", step)
    return step


def stored_outcome(row: Any) -> Outcome:
    """Value, reward and count.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(row, list) or len(row) != 3:
        raise torn("outcomes", row)
    value, reward, count = (number(x, "outcomes", least=0.0) for x in row)
    if max(value, reward) > 1.0 + 1e-6:
        raise torn("outcomes", row)
    return value, reward, count


def torn(name: str, value: Any) -> ValueError:
    """Of a state that this algorithm has not written."""
    return ValueError(
        f"the memory of the state must hold its {name!r} as it was saved, got "
        f"{value!r:.80}; resume from another checkpoint"
    )
