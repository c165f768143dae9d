"""The health of a step whose critic may end rollouts early: whom it is trusted with.

Accuracy is what a critic says against rewards, and rewards of ready problems exist in
audited groups alone. Against the ends that the critic valued itself it can only be
consistent. The pitfalls that these figures show are those of section 11 of our page on
Wen et al. 2026, arXiv:2609.39247.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from accredit.functional.calibration import constant_error
from accredit.functional.flops import ModelShape, decode_flops
from accredit.functional.pooled import SMALLEST_SPREAD, mean, share
from accredit.records import Record, State
from accredit.types import Group, StopReason

Figures = dict[str, float | int | None]


@dataclass(frozen=True, eq=False)
class Routing:
    """How a step's groups were run and valued: a section of its record.

    NaN stands where nothing was asked, or the answer was not valid.
    """

    ready: Bool[Tensor, " group"]
    """True where the critic was trusted with the group's problem."""
    audited: Bool[Tensor, " group"]
    """True where a ready group ran to its end all the same."""
    num_replayed: Int[Tensor, " group"]
    """Tokens of the replayed prefix."""
    reference_shown: Bool[Tensor, " group"]
    """True where the critic was shown a reference."""
    prefix_values: Float[Tensor, " group"]
    """The critic's value of the replayed prefix, before the step's updates."""
    targets: Float[Tensor, " group"]
    """What it should have said by the group's endpoints, as it is taught."""
    asked: Bool[Tensor, " rollout"]
    """True where a rollout was stopped, and the critic was to value its end."""
    endpoint_values: Float[Tensor, " rollout"]
    """The critic's value of the end of those rollouts."""
    boundary_values: Float[Tensor, " rollout"]
    """Of rollouts that ran on: its value where they would have been stopped."""
    boundary_reached: Bool[Tensor, " rollout"]
    """True where a rollout that ran on would have been stopped."""
    inclusion: Float[Tensor, " group"]
    """Probability of an audit, of ready groups; 1 of all that ran to their end anyway.
    """
    refill: tuple[Group, ...] = ()
    """Fresh rollouts for later steps, which this step does not learn from."""
    num_problems: int = 0
    """In the data."""
    num_ready: int = 0
    """Problems that the critic is trusted with, after the step."""
    num_flipped: int = 0
    """Problems that it was newly trusted with."""
    num_revoked: int = 0
    """Problems whose trust was taken back."""
    shift: float = 0.0
    """Log-odds by which the critic's values were moved to those above."""

    @property
    def further_groups(self) -> tuple[Group, ...]:
        """The refill."""
        return self.refill

    def metrics(
        self, record: Record, state: State, shape: ModelShape | None
    ) -> Figures:
        """Readiness, the critic's errors, what is lost and what is saved."""
        return {
            **routing_metrics(record, self, shape),
            "critic/questions": state.cost.num_questions,
            "critic/valued_share": mean(self.asked.double()),
        }

    def columns(self, group: int, row: int) -> dict[str, Any]:
        """Who valued a rollout, and what was shown and said."""
        values = {
            "prefix_value": self.prefix_values[group],
            "group_target": self.targets[group],
            "endpoint_value": self.endpoint_values[row],
            "boundary_value": self.boundary_values[row],
        }
        return {
            "share_f": float(self.asked[row]),
            "reference_shown": int(self.reference_shown[group]),
            "ready": int(self.ready[group]),
            "audited": int(self.audited[group]),
            "num_replayed": int(self.num_replayed[group]),
            "boundary_reached": int(self.boundary_reached[row]),
            **{key: known(float(value)) for key, value in values.items()},
        }


def known(value: float) -> float | None:
    """Rounded to six decimals; None for NaN."""
    return None if math.isnan(value) else round(value, 6)


@dataclass(frozen=True, eq=False)
class Routed:
    """A record with its routing, and what both say together."""

    record: Record
    routing: Routing

    @cached_property
    def has_stopped(self) -> Bool[Tensor, " group"]:
        """True where a member of the group was stopped at a chunk boundary."""
        counts = torch.zeros(len(self.routing.ready), dtype=torch.long)
        asked = self.routing.asked.long()
        return counts.index_add(0, self.record.batch.group_index, asked) > 0

    @cached_property
    def ran_on(self) -> Bool[Tensor, " group"]:
        """True where no member could be stopped.

        A ready group whose members all ended before the boundary is none of these: to
        count it would be to choose by the outcome. Where nobody was stopped at all,
        every group is one.
        """
        ran = ~self.routing.ready | self.routing.audited
        return ran if bool(self.routing.asked.any()) else torch.ones_like(ran)

    @cached_property
    def rewards(self) -> Float[Tensor, " rollout"]:
        """As judged; NaN where nobody could tell, or was asked."""
        verdicts = [v for group in self.record.groups for v in group.verdicts]
        rewards = [torch.nan if v.reward is None else v.reward for v in verdicts]
        return torch.tensor(rewards, dtype=torch.float64)

    @cached_property
    def mean_rewards(self) -> Float[Tensor, " group"]:
        """Of the judged members; NaN where there is none."""
        judged = ~self.rewards.isnan()
        index = self.record.batch.group_index[judged]
        zeros = self.rewards.new_zeros(len(self.routing.ready))
        totals = zeros.index_add(0, index, self.rewards[judged])
        return totals / zeros.index_add(0, index, torch.ones_like(self.rewards[judged]))


def routing_metrics(
    record: Record, routing: Routing, shape: ModelShape | None = None
) -> Figures:
    """Readiness, the critic's errors, what is lost and what is saved.

    Args:
        shape: Of the policy; without it nothing is said of saved FLOPs.
    """
    step = Routed(record, routing)
    metrics = _readiness(routing) | _errors(step) | _endpoints(step)
    metrics["ac2/reward_audited"] = audited_reward(step)
    saved = saved_shares(step, shape)
    return metrics | saved


def _readiness(routing: Routing) -> Figures:
    ready, audited = routing.ready, routing.ready & routing.audited
    return {
        "readiness/share": share(routing.num_ready, routing.num_problems),
        "readiness/sampled_share": mean(ready.double()),
        "readiness/flips": routing.num_flipped,
        "readiness/revocations": routing.num_revoked,
        "readiness/audited_share": share(int(audited.sum()), int(ready.sum())),
        "ac2/reference_share": mean(routing.reference_shown.double()),
        "ac2/prefix_tokens_mean": mean(routing.num_replayed.double()),
    }


def _errors(step: Routed) -> Figures:
    """Of V(prefix), against rewards and against itself; of V(boundary) in audits."""
    routing = step.routing
    values, targets = routing.prefix_values.double(), routing.targets.double()
    off = values - step.mean_rewards
    judged_groups = step.ran_on & ~off.isnan()
    judged = off[judged_groups]
    audited = off[routing.ready & routing.audited & ~off.isnan()]
    own = (values - targets)[step.has_stopped]
    ready = routing.ready[step.record.batch.group_index]
    hoped = routing.boundary_values.double() - step.rewards
    return {
        "ac2/error_rewards": mean(judged.abs()),
        "ac2/constant_error": constant_error(step.mean_rewards[judged_groups]),
        "ac2/error_audited": mean(audited.abs()),
        "ac2/error_self": mean(own[~own.isnan()].abs()),
        "ac2/bias_rewards": mean(judged),
        "ac2/hacking_gap": mean(
            hoped[ready & routing.boundary_reached & ~hoped.isnan()]
        ),
        **sibling_moments(step),
        "ac2/recalibration": routing.shift,
    }


def sibling_moments(step: Routed) -> Figures:
    """How the critic's values of audited siblings move, alone and with their rewards.

        variance    mean of (V_i - mean V)^2
        covariance  mean of (V_i - mean V) (R_i - mean R)

    Over the judged siblings of audited groups that passed their boundary, with V there;
    advantages of stopped rollouts are such V_i - mean V. Two numbers and not their
    ratio, so that means over steps have one. None without siblings.
    """
    routing, values = step.routing, step.routing.boundary_values.double()
    known = ~values.isnan() & ~step.rewards.isnan()
    moved, spread = [], []
    for group in (routing.ready & routing.audited).nonzero()[:, 0].tolist():
        rows = known & (step.record.batch.group_index == group)
        if int(rows.sum()) > 1:
            off = values[rows] - values[rows].mean()
            spread.append(off.square())
            moved.append(off * (step.rewards[rows] - step.rewards[rows].mean()))
    empty = values.new_zeros(0)
    return {
        "ac2/sibling_variance": mean(torch.cat([empty, *spread])),
        "ac2/sibling_covariance": mean(torch.cat([empty, *moved])),
    }


def _endpoints(step: Routed) -> Figures:
    """Who was valued, who was not, and where values tell siblings apart."""
    record, routing, batch = step.record, step.routing, step.record.batch
    valued = routing.asked & ~routing.endpoint_values.isnan()
    num_stopped_groups = int(step.has_stopped.sum())
    tokens = batch.trainable.sum(1)
    left_out = record.counts.get("questions_left_out", 0)
    return {
        "ac2/valued_share": mean(valued.double()),
        "ac2/invalid_share": share(
            record.counts.get("critic_answers_invalid", 0),
            record.cost.num_questions - left_out,
        ),
        "ac2/left_out_share": share(left_out, record.cost.num_questions),
        "ac2/equal_values_share": share(
            sum(
                _all_equal(batch.rewards[(batch.group_index == g) & batch.verified])
                for g in step.has_stopped.nonzero()[:, 0].tolist()
            ),
            num_stopped_groups,
        ),
        "ac2/chunk_token_share": share(
            int(tokens[routing.asked].sum()), int(tokens.sum())
        ),
    }


def _all_equal(values: Float[Tensor, " rollout"]) -> bool:
    """Whether no sibling is worth more than another, so that nobody learns anything."""
    return not len(values) or float(values.max() - values.min()) <= SMALLEST_SPREAD


def audited_reward(step: Routed) -> float | None:
    """Mean reward as if every group had run to its end, unbiased.

        sum over groups that ran on of (mean reward / inclusion) / num_groups

    What was not judged counts as the others of its kind, ready or not: by their mean,
    weighted so. None where there are none.
    """
    routing, means = step.routing, step.mean_rewards
    weights = 1.0 / routing.inclusion.double()
    if not bool(routing.asked.any()):
        weights = torch.ones_like(weights)
    total = 0.0
    for kept in (routing.ready, ~routing.ready):
        ran = kept & step.ran_on
        known = ran & ~means.isnan()
        if not bool(kept.any()):
            continue
        if not bool(known.any()):
            return None
        judged = weights[ran].sum() / weights[known].sum()
        total += float((weights * means)[known].sum() * judged)
    return share(total, len(means))


def saved_shares(step: Routed, shape: ModelShape | None) -> Figures:
    """What stopping saved, as a share of it and of what was decoded in the step.

    How far a stopped rollout would have gone is told by audited ones that passed their
    boundary, else by those of problems that are not ready: their mean tokens beyond as
    many new ones. A rollout that none of them outlasts is left out.
    """
    record, routing = step.record, step.routing
    rollouts = [rollout for group in record.groups for rollout in group.rollouts]
    lengths = record.batch.sampled.sum(1)
    failed = torch.tensor([r.stop_reason is StopReason.FAILURE for r in rollouts])
    ready = routing.ready[record.batch.group_index]
    ran = ~failed & ~routing.asked
    audits, others = ran & ready & routing.boundary_reached, ran & ~ready
    tokens = flops = 0.0
    num_told = 0
    stopped = routing.asked.nonzero()[:, 0].tolist()
    for row in stopped:
        length = int(lengths[row])
        further = _mean_further(lengths, length, audits)
        further = _mean_further(lengths, length, others) if further is None else further
        if further is None:
            continue
        num_told += 1
        tokens += further
        if shape is not None:
            begun = len(rollouts[row].token_ids) - length
            whole = decode_flops(shape, begun, length + round(further))
            flops += whole - decode_flops(shape, begun, length)
    if stopped and not num_told:
        return {}
    spent = record.cost
    metrics: Figures = {
        "tokens/saved_share": share(tokens, tokens + spent.tokens_generated)
    }
    if shape is not None:
        metrics["flops/saved_share"] = share(flops, flops + spent.decode_flops)
    return metrics


def _mean_further(
    lengths: Int[Tensor, " rollout"], length: int, kept: Bool[Tensor, " rollout"]
) -> float | None:
    """Mean tokens beyond `length` of those that went on beyond it."""
    beyond = lengths[kept & (lengths > length)] - length
    return mean(beyond.double())
