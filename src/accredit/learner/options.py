"""How gradient steps are taken; nothing here knows what they minimise."""

import math
from dataclasses import dataclass, field

from accredit.learner.schedules import Schedule
from accredit.models.optimizer import AdamWOptions


@dataclass(frozen=True, kw_only=True)
class LearnerOptions:
    """The learner's knobs."""

    schedule: Schedule
    optimizer: AdamWOptions = field(default_factory=AdamWOptions)
    max_gradient_norm: float | None = 1.0
    """L2 over all parameters; None never clips."""
    micro_batch_tokens: int = 2048
    """Padded tokens run at once: memory and speed, not the result."""
    temperature: float = 1.0
    """The sampling temperature; of greedy rollouts, 1."""
    gradient_checkpointing: bool = False
    """Keeps activations of one layer at a time, at the price of a second forward."""
    max_consecutive_skips: int = 10
    """Steps in a row with a loss or gradient that is not finite, before giving up."""

    def __post_init__(self) -> None:
        if self.max_gradient_norm is not None and not self.max_gradient_norm > 0:
            raise ValueError(
                f"max_gradient_norm must be > 0, got {self.max_gradient_norm}; "
                "leave it out to never clip"
            )
        if self.micro_batch_tokens < 1:
            raise ValueError(
                f"micro_batch_tokens must be >= 1, got {self.micro_batch_tokens}"
            )
        if not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise ValueError(
                f"temperature must be > 0, got {self.temperature}; the log-probs of a "
                "greedy rollout are taken at 1"
            )
        if self.max_consecutive_skips < 1:
            raise ValueError(
                f"max_consecutive_skips must be >= 1, got {self.max_consecutive_skips}"
            )
