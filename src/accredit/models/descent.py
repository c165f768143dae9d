"""One optimizer step that is taken only where it can be, and checked after it.

Knows neither what was minimised nor how the gradient came about.
"""

import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from accredit.models.finite import weights_fault
from accredit.models.optimizer import displacement


class Descent:
    """Clips gradients and steps, unless loss or gradient is not finite."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Sequence[nn.Parameter],
        *,
        max_gradient_norm: float | None,
        max_consecutive_skips: int,
        owner: str,
    ) -> None:
        """`owner` is who learns, as an error calls it."""
        self.optimizer = optimizer
        self.num_consecutive_skips = 0
        self._parameters = parameters
        self._moved: list[nn.Parameter] = []
        self._max_gradient_norm = max_gradient_norm
        self._max_consecutive_skips = max_consecutive_skips
        self._owner = owner

    @property
    def displacement(self) -> float:
        """L2 distance that the last step moved the weights; 0 where it was skipped.

        To be read right after it: see `optimizer.displacement`.
        """
        return displacement(self.optimizer, self._moved)

    def step(self, loss: float) -> float:
        """The gradient's norm before it was clipped; NaN where the step was skipped.

        Leaves no gradient behind.

        Raises:
            RuntimeError: Too many steps in a row were not finite, or the weights are
                not any more.
        """
        wanted = [p for p in self._parameters if p.grad is not None]
        gradients = [p.grad for p in wanted if p.grad is not None]
        norm = get_total_norm(gradients)
        finite = math.isfinite(loss) and math.isfinite(float(norm))
        self._moved = wanted if finite else []
        if finite:
            if self._max_gradient_norm is not None:
                clip_grads_with_norm_(self._parameters, self._max_gradient_norm, norm)
            self.optimizer.step()
            self.num_consecutive_skips = 0
            rate = float(self.optimizer.param_groups[0]["lr"])
            fault = weights_fault(self._owner, wanted, rate)
            if fault is not None:
                raise RuntimeError(fault)
        else:
            self.num_consecutive_skips += 1
        self.optimizer.zero_grad(set_to_none=True)
        if self.num_consecutive_skips >= self._max_consecutive_skips:
            raise RuntimeError(
                f"loss and gradient of {self._owner} must be finite, got "
                f"{self.num_consecutive_skips} steps in a row that were not "
                f"(max_consecutive_skips), the last with loss {loss} and gradient norm "
                f"{float(norm)}; lower the learning rate of {self._owner}, or resume "
                "from a checkpoint"
            )
        return float(norm) if finite else math.nan
