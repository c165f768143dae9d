"""Critics without parameters: the rewards of the siblings estimate V of the prompt.

One number per rollout, the same for all of its prefixes. A rollout that could not be
verified does not vote. `ZeroBaseline` is the critic of algorithms that have none.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from accredit.functional.baselines import group_mean_baseline, leave_one_out_baseline
from accredit.types import Batch


@dataclass(frozen=True)
class GroupMean:
    """Mean reward of the verified siblings, self included (GRPO)."""

    def values(
        self, batch: Batch, rewards: Float[Tensor, " rollout"]
    ) -> Float[Tensor, "rollout prefix"]:
        """V of every prefix, constant along a rollout."""
        baseline = group_mean_baseline(rewards, batch.verified, batch.group_index)
        return _constant(baseline, batch)


@dataclass(frozen=True)
class LeaveOneOut:
    """Mean reward of the verified siblings, self excluded (RLOO)."""

    def values(
        self, batch: Batch, rewards: Float[Tensor, " rollout"]
    ) -> Float[Tensor, "rollout prefix"]:
        """V of every prefix, constant along a rollout."""
        baseline = leave_one_out_baseline(rewards, batch.verified, batch.group_index)
        return _constant(baseline, batch)


@dataclass(frozen=True)
class ZeroBaseline:
    """0 everywhere: no baseline, as a critic."""

    def values(
        self, batch: Batch, rewards: Float[Tensor, " rollout"]
    ) -> Float[Tensor, "rollout prefix"]:
        """0 at every prefix."""
        return _constant(rewards.new_zeros(len(rewards)), batch)


def _constant(baseline: Tensor, batch: Batch) -> Tensor:
    return baseline[:, None].expand(-1, batch.token_ids.shape[1] + 1).contiguous()
