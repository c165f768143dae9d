"""What AC2 turns while it runs: the clip's offset, the critic's rate, the audits.

Pure functions of numbers; who measures them, and where they are kept, is unknown here.
"""

import math
from collections.abc import Sequence

START_OFFSET = 0.06
"""Of the clip's upper bound, before the first step."""
OFFSET_STEP = 0.02
LARGEST_OFFSET = 0.08
PATIENCE = 2
"""Steps in a row in which the critic moved too far, after which its rate is halved."""


def entropy_offset(offset: float, entropy: float | None, target: float) -> float:
    """What the next update adds to the clip's upper bound.

        k <- clip(k + .02 sign(target - H), -.08, .08)

    Args:
        offset: k of the step before.
        entropy: H, nats a token; None, where nobody had an empty prefix, and NaN leave
            k as it is.
        target: H aimed at, nats.
    """
    if entropy is None:
        return offset
    sign = (target > entropy) - (target < entropy)
    return min(max(offset + OFFSET_STEP * sign, -LARGEST_OFFSET), LARGEST_OFFSET)


def critic_rate(
    rate: float,
    streak: int,
    *,
    first: float,
    floor: float,
    limit: float | None,
    critic_displacement: float | None,
    actor_displacements: Sequence[float],
    finite: bool,
    updated: bool,
) -> tuple[float, int]:
    """The critic's next learning rate, and how many breaches in a row it has now.

        breach:  d_critic > limit sum_i d_actor,i

    Two breaches in a row halve the rate and begin a new streak; a loss that is not
    finite halves it at once. A step ends the streak where it is no breach: the critic
    was not updated, or nobody measured how far it went, or the policy took no step to
    compare with. A policy that took steps and did not move is compared with: there any
    move of the critic is a breach.

    Args:
        rate: Of this step.
        streak: Breaches in a row before this step.
        first: Rate of the first step.
        floor: Smallest rate, as a share of `first`; a rate below it stays.
        limit: Most that is no breach; None knows no breach.
        critic_displacement: L2 distance that the critic's update moved the weights.
        actor_displacements: Of each of the policy's updates; empty where it had none.
        finite: Whether the critic's loss was.
        updated: Whether the critic took a step.
    """
    halved = min(rate, max(rate / 2, floor * first))
    if not finite:
        return halved, 0
    if critic_displacement is None or limit is None:
        return rate, 0
    breach = critic_displacement > limit * math.fsum(actor_displacements)
    if not (breach and updated and actor_displacements):
        return rate, 0
    if streak + 1 >= PATIENCE:
        return halved, 0
    return rate, streak + 1


def audit_count(num_ready: int, share: float) -> int:
    """How many ready slots run to their end all the same: ceil(n share).

    Products are whole up to rounding: .1 of 30 is 3.
    """
    return math.ceil(num_ready * share - 1e-9)
