"""What Prefix GRPO carries between steps."""

from dataclasses import dataclass

from accredit.algorithms.replay.control import START_OFFSET
from accredit.replay import RolloutBuffer


@dataclass(frozen=True)
class ReplayMemory:
    """Stored rollouts, and the entropy control's offset."""

    rollouts: RolloutBuffer
    entropy_offset: float = START_OFFSET
    """Added to clip_high."""
