"""What AC2 carries between steps: the table in section 2 of our page on its paper."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from accredit.algorithms.replay.control import START_OFFSET
from accredit.algorithms.replay.memory import Finite
from accredit.batches.replay import ExampleBuffer, RolloutBuffer
from accredit.critics.readiness import Amount, Count, GateState
from accredit.critics.references import ReferenceBank

Credit = Annotated[float, Field(ge=0, le=1 + 1e-6, allow_inf_nan=False)]
Outcome = tuple[Credit, Credit, Amount]
"""A value that the critic said, the mean reward that came, and of how many."""


@dataclass(frozen=True)
class AC2Memory:
    """Buffers, bank, gate and what the controls turn."""

    rollouts: RolloutBuffer
    """To go on from."""
    examples: ExampleBuffer
    """Of the critic."""
    learning_rate: Amount
    """Of the critic's next update."""
    entropy_offset: Finite = START_OFFSET
    """Added to clip_high."""
    bank: ReferenceBank = field(default_factory=ReferenceBank)
    gate: GateState = field(default_factory=GateState)
    breaches: Count = 0
    """Steps in a row in which the critic moved the weights too far."""
    spreads: Mapping[str, tuple[Count, Amount]] = field(default_factory=dict)
    """Of each problem, groups with siblings and the sum of their endpoints' variances:
    how much credit a chunk deals."""
    outcomes: tuple[tuple[Outcome, ...], ...] = ()
    """Of the last steps, oldest first, where the critic is recalibrated by them."""
