"""A step whose critic ends rollouts early, small enough to be counted by hand.

Chunks of two tokens, a prompt of four:

    group  route            replayed  new tokens        reward or value
    0      not ready        2         5, 3 (truncated)  1, 0
    1      ready, stopped   0         2 (stopped), 1    valued .4, 0
    2      ready, audited   3         6, 4              0, .5; at the boundary .75, .25
    3      ready, stopped   1         2, 2 (stopped)    valued .6, no valid answer

V of the replayed prefixes is .75, .3, .2 and not valid.
"""

import math

import torch
from synthetic_run import collated, problem_prompt

from accredit.algorithms.ac2.metrics import Routing
from accredit.records import Cost, Credit, CriticUpdate, PolicyUpdate, Record
from accredit.types import Group, Prompt, Rollout, StopReason, Verdict

NAN = math.nan
STOPPED = Verdict(None, "stopped at a chunk boundary: not judged")
CHUNK, STOP, LENGTH = StopReason.CHUNK, StopReason.STOP, StopReason.LENGTH
BORDER = 2


def continuation(
    prompt: Prompt, num_replayed: int, num_new: int, reason: StopReason
) -> Rollout:
    num_given = len(prompt.token_ids) + num_replayed
    written = tuple(range(10, 10 + num_replayed + num_new))
    return Rollout(
        prompt=prompt,
        token_ids=torch.tensor(prompt.token_ids + written),
        sampled=torch.tensor([False] * num_given + [True] * num_new),
        sampling_logprobs=torch.tensor([0.0] * num_given + [-1.0] * num_new),
        stop_reason=reason,
    )


def routed_groups() -> tuple[Group, ...]:
    """The four groups of the table above, as they were judged."""
    plan = [
        (2, [(5, STOP, 1.0), (3, LENGTH, 0.0)]),
        (0, [(2, CHUNK, None), (1, STOP, 0.0)]),
        (3, [(6, STOP, 0.0), (4, STOP, 0.5)]),
        (1, [(2, CHUNK, None), (2, CHUNK, None)]),
    ]
    groups = []
    for number, (num_replayed, members) in enumerate(plan):
        prompt = problem_prompt(f"p{number}")
        groups.append(
            Group(
                prompt,
                tuple(continuation(prompt, num_replayed, n, r) for n, r, _ in members),
                tuple(STOPPED if r is None else Verdict(r) for _, _, r in members),
            )
        )
    return tuple(groups)


def routing(**changes) -> Routing:
    return Routing(
        **{
            "ready": torch.tensor([False, True, True, True]),
            "audited": torch.tensor([False, False, True, False]),
            "num_replayed": torch.tensor([2, 0, 3, 1]),
            "reference_shown": torch.tensor([False, True, True, False]),
            "prefix_values": torch.tensor([0.75, 0.3, 0.2, NAN]),
            "targets": torch.tensor([0.5, 0.2, 0.25, NAN]),
            "asked": torch.tensor(
                [False, False, True, False] + [False] * 2 + [True] * 2
            ),
            "endpoint_values": torch.tensor([NAN, NAN, 0.4, NAN, NAN, NAN, 0.6, NAN]),
            "boundary_values": torch.tensor([NAN] * 4 + [0.75, 0.25] + [NAN] * 2),
            "boundary_reached": torch.tensor([False] * 4 + [True] * 2 + [False] * 2),
            "inclusion": torch.tensor([3.0, 1.0, 1.0, 1.0]).double() / 3,
            "num_problems": 10,
            "num_ready": 3,
            "num_flipped": 2,
            "num_revoked": 1,
        }
        | changes
    )


def routed_record(**changes) -> Record:
    """The record of that step; `changes` are of its routing."""
    groups, routed = routed_groups(), routing(**changes)
    judged = collated(groups)
    endpoints = torch.tensor([1.0, 0.0, 0.4, 0.0, 0.0, 0.5, 0.6, 0.6])
    batch = collated(groups)
    batch.rewards.copy_(endpoints)
    batch.verified.copy_(torch.tensor([True] * 7 + [False]))
    shape = batch.token_ids.shape
    logprobs = torch.where(batch.sampled, -1.0, 0.0)
    policy = PolicyUpdate(
        old_logprobs=logprobs,
        logprobs=logprobs,
        entropies=torch.where(batch.sampled, 1.0, 0.0),
        reference_logprobs=None,
        losses=(0.25,),
        gradient_norms=(1.5,),
        learning_rate=1e-3,
        num_skipped=0,
        num_forward_tokens=0,
        num_backward_tokens=0,
    )
    return Record(
        groups=groups,
        batch=batch,
        shaped_rewards=endpoints,
        values=carried(groups, routed, endpoints),
        credit=Credit(torch.zeros(shape), torch.zeros(shape[0], shape[1] + 1)),
        policy=policy,
        cost=Cost(tokens_generated=31, num_questions=9),
        times_s={"generate": 2.0},
        counts={"critic_answers_invalid": 2},
        critic=CriticUpdate((0.5,), (0.7,), 5e-6, 0, 1e6),
        valued_by_critic=True,
        outcome_known=judged.verified
        & ~routed.prefix_values[batch.group_index].isnan(),
        sections=(routed,),
    )


def carried(
    groups: tuple[Group, ...], routed: Routing, endpoints: torch.Tensor
) -> torch.Tensor:
    """V as last known: of the replayed prefix, of the boundary, and v at the end."""
    rollouts = [(g, r) for g, group in enumerate(groups) for r in group.rollouts]
    width = max(len(r.token_ids) for _, r in rollouts)
    values = torch.zeros(len(rollouts), width + 1)
    for row, (group, rollout) in enumerate(rollouts):
        length = len(rollout.token_ids)
        start = length - rollout.num_sampled
        for place, value in (
            (start, routed.prefix_values[group]),
            (start + BORDER, routed.boundary_values[row]),
        ):
            if not value.isnan():
                values[row, place:length] = value
        values[row, length] = endpoints[row]
    return values
