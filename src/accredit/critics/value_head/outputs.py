"""What a value head says and how it is taught, for rewards in [0, 1].

Three outputs, one shape. Outputs have one `output` per prefix or several bins. The
head's range of rewards is the critic's business; here 0 is the lowest and 1 the
highest.
"""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from accredit.critics.configs import ValueHeadConfig
from accredit.functional.value_losses import (
    bin_mean,
    binary_cross_entropy,
    categorical_cross_entropy,
    clipped_squared_error,
    smoothed_bins,
    squared_error,
)

BETWEEN = 0.1
"""Share of a fresh categorical head of .5 that is spread evenly over the bins."""


@runtime_checkable
class Output(Protocol):
    """The last step from a head's outputs to a value, and its loss."""

    @property
    def num_outputs(self) -> int:
        """Width of the head."""
        ...

    @property
    def bounded(self) -> bool:
        """Whether every value lies in the range of the rewards, and so they must."""
        ...

    @property
    def compares(self) -> bool:
        """Whether the loss reads the values from the start of the update."""
        ...

    def bias(self, value: float) -> Float[Tensor, " output"]:
        """The bias with which a head of zero weights says `value` of everything."""
        ...

    def values(
        self, outputs: Float[Tensor, "rollout prefix output"]
    ) -> Float[Tensor, "rollout prefix"]: ...

    def losses(
        self,
        outputs: Float[Tensor, "rollout prefix output"],
        targets: Float[Tensor, "rollout prefix"],
        old_values: Float[Tensor, "rollout prefix"],
        where: Bool[Tensor, "rollout prefix"],
    ) -> Float[Tensor, "rollout prefix"]: ...


@dataclass(frozen=True)
class SigmoidOutput:
    """V = sigmoid(z), soft cross-entropy: targets outside [0, 1] train, too."""

    num_outputs: int = 1
    bounded: bool = True
    compares: bool = False

    def bias(self, value: float) -> Float[Tensor, " output"]:
        """log-odds."""
        return torch.tensor([math.log(value) - math.log1p(-value)])

    def values(
        self, outputs: Float[Tensor, "rollout prefix output"]
    ) -> Float[Tensor, "rollout prefix"]:
        """The probability."""
        return outputs[..., 0].sigmoid()

    def losses(
        self,
        outputs: Float[Tensor, "rollout prefix output"],
        targets: Float[Tensor, "rollout prefix"],
        old_values: Float[Tensor, "rollout prefix"],
        where: Bool[Tensor, "rollout prefix"],
    ) -> Float[Tensor, "rollout prefix"]:
        """softplus(z) - Y z."""
        return binary_cross_entropy(outputs[..., 0], targets, where)


@dataclass(frozen=True)
class LinearOutput:
    """V = z, half the squared error, near the old value where `clip` says so."""

    clip: float | None = None
    """Largest move that counts, as a share of the range; None clips none."""
    num_outputs: int = 1
    bounded: bool = False

    @property
    def compares(self) -> bool:
        """Only where it is clipped."""
        return self.clip is not None

    def bias(self, value: float) -> Float[Tensor, " output"]:
        """The value itself."""
        return torch.tensor([value])

    def values(
        self, outputs: Float[Tensor, "rollout prefix output"]
    ) -> Float[Tensor, "rollout prefix"]:
        """The output itself."""
        return outputs[..., 0]

    def losses(
        self,
        outputs: Float[Tensor, "rollout prefix output"],
        targets: Float[Tensor, "rollout prefix"],
        old_values: Float[Tensor, "rollout prefix"],
        where: Bool[Tensor, "rollout prefix"],
    ) -> Float[Tensor, "rollout prefix"]:
        """(V - Y)^2 / 2, or the larger of it and that of the held value."""
        values = outputs[..., 0]
        if self.clip is None:
            return squared_error(values, targets, where)
        return clipped_squared_error(values, old_values, targets, where, clip=self.clip)


@dataclass(frozen=True)
class CategoricalOutput:
    """V = mean of the bins, cross-entropy to a smoothed target (HL-Gauss)."""

    num_outputs: int = 51
    sigma: float = 0.75
    """Deviation of the smoothed target, in bins."""
    bounded: bool = True
    compares: bool = False

    def bias(self, value: float) -> Float[Tensor, " output"]:
        """Of a distribution with that mean that lies at both ends, and thinly between.

        Most outcomes are won or lost: from there a head has to weigh two ends, while
        from even bins it moves all logits at once. Measured on `walk`: explained
        variance .35 against .07 after 64 updates. A value beyond the mean of an end's
        own distribution is taken for that.
        """
        ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
        lost, won = smoothed_bins(ends, self.num_outputs, self.sigma)
        between = BETWEEN * 2.0 * min(value, 1.0 - value)
        centers = (torch.arange(self.num_outputs) + 0.5) / self.num_outputs
        low, high = float(lost @ centers.double()), float(won @ centers.double())
        wanted = (value - between / 2) / (1.0 - between)
        share = min(max((wanted - low) / (high - low), 0.0), 1.0)
        at_ends = (1.0 - share) * lost + share * won
        thin = between / self.num_outputs
        return ((1.0 - between) * at_ends + thin).log().float()

    def values(
        self, outputs: Float[Tensor, "rollout prefix output"]
    ) -> Float[Tensor, "rollout prefix"]:
        """The mean of the bins' centers."""
        return bin_mean(outputs)

    def losses(
        self,
        outputs: Float[Tensor, "rollout prefix output"],
        targets: Float[Tensor, "rollout prefix"],
        old_values: Float[Tensor, "rollout prefix"],
        where: Bool[Tensor, "rollout prefix"],
    ) -> Float[Tensor, "rollout prefix"]:
        """Cross-entropy to the target spread over the bins."""
        return categorical_cross_entropy(outputs, targets, where, sigma=self.sigma)


def output_of(config: ValueHeadConfig) -> Output:
    """The output that a recipe names."""
    if config.output == "categorical":
        return CategoricalOutput(config.num_bins, config.bin_sigma)
    if config.output == "sigmoid":
        return SigmoidOutput()
    clip, span = config.value_clip, config.reward_high - config.reward_low
    return LinearOutput(None if clip is None else clip / span)
