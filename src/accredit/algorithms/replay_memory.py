"""What AC2 and Prefix GRPO carry between steps, and its JSON form in the state.

Everything of the table in section 2 of our page on the paper: replay buffer, critic
buffer, reference bank, ready set with its error window, entropy offset, the critic's
learning rate with its breach streak.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from accredit.algorithms.control import START_OFFSET
from accredit.algorithms.replay_configs import AC2Config, ReplayConfig
from accredit.critics.readiness import GateState
from accredit.critics.references import ReferenceBank
from accredit.replay import LessonBuffer, RolloutBuffer


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
            RolloutBuffer.from_json(memory.get("replay", []), config.replay_capacity),
            memory.get("entropy_offset", START_OFFSET),
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

    @classmethod
    def of(
        cls, memory: Mapping[str, Any], config: AC2Config, first_rate: float
    ) -> "CriticMemory":
        """What a state remembers; of a run that begins, the critic's first rate."""
        found = memory.get("critic")
        if found is None:
            return cls(LessonBuffer(config.critic_capacity), learning_rate=first_rate)
        return cls(
            LessonBuffer.from_json(found["lessons"], config.critic_capacity),
            ReferenceBank.from_json(found["bank"]),
            GateState.from_json(found["gate"]),
            found["learning_rate"],
            found["breaches"],
            {id: (count, total) for id, (count, total) in found["spreads"].items()},
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
        }
