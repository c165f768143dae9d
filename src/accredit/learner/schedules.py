"""The learning rate as a pure function of how many updates are done.

No counter of its own, so that a resumed run cannot be at another place of the schedule
than the uninterrupted one. Knows no optimizer.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

Decay = Callable[[float], float]
"""Share of the way from the final to the peak rate, given progress in [0, 1]."""


def constant(progress: float) -> float:
    """1 everywhere: the peak rate is kept."""
    return 1.0


def linear(progress: float) -> float:
    """1 - progress."""
    return 1.0 - progress


def cosine(progress: float) -> float:
    """(1 + cos(pi progress)) / 2."""
    return (1.0 + math.cos(math.pi * progress)) / 2.0


DECAYS: dict[str, Decay] = {"constant": constant, "linear": linear, "cosine": cosine}


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Linear warm-up to the peak, then a decay to a share of it.

        rate(u) = peak (u + 1) / W                                  u < W
        rate(u) = peak (final_share + (1 - final_share) decay(p))   u >= W
        p = min(1, (u - W) / (U - W)),  W = num_warmup_updates,  U = num_updates

    u counts finished updates, so that the first update never has rate 0 and the last
    one is a step short of the final rate.
    """

    peak: float
    decay: Decay = constant
    num_warmup_updates: int = 0
    num_updates: int | None = None
    """Length of the run in updates; a decay other than `constant` needs it."""
    final_share: float = 0.0
    """Of the peak, reached after `num_updates`."""

    def __post_init__(self) -> None:
        if not (self.peak >= 0 and math.isfinite(self.peak)):
            raise ValueError(f"a learning rate must be >= 0, got {self.peak}")
        if self.num_warmup_updates < 0:
            raise ValueError(
                f"num_warmup_updates must be >= 0, got {self.num_warmup_updates}"
            )
        if not 0.0 <= self.final_share <= 1.0:
            raise ValueError(f"final_share must be in [0, 1], got {self.final_share}")
        if self.decay is constant:
            return
        if self.num_updates is None or self.num_updates <= self.num_warmup_updates:
            raise ValueError(
                "a decaying learning rate needs num_updates > num_warmup_updates, got "
                f"num_updates {self.num_updates} and num_warmup_updates "
                f"{self.num_warmup_updates}; lengthen the run or shorten the warm-up"
            )

    def rate(self, num_done: int) -> float:
        """The learning rate of the update that follows `num_done` updates."""
        if num_done < self.num_warmup_updates:
            return self.peak * (num_done + 1) / self.num_warmup_updates
        progress = 1.0
        if self.num_updates is not None and self.num_updates > self.num_warmup_updates:
            decay_length = self.num_updates - self.num_warmup_updates
            progress = min(1.0, (num_done - self.num_warmup_updates) / decay_length)
        share = self.decay(progress)
        return self.peak * (self.final_share + (1.0 - self.final_share) * share)
