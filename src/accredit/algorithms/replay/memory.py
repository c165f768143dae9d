"""What Prefix GRPO carries between steps."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from accredit.algorithms.replay.control import START_OFFSET
from accredit.batches.replay import RolloutBuffer

Finite = Annotated[float, Field(allow_inf_nan=False)]


@dataclass(frozen=True)
class ReplayMemory:
    """Stored rollouts, and the entropy control's offset."""

    rollouts: RolloutBuffer
    entropy_offset: Finite = START_OFFSET
    """Added to clip_high."""
