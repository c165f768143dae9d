"""Value losses: what a critic minimises, per prefix. Neither masked out nor averaged.

Values and targets are in reward units. Nothing here knows where a target came from.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def squared_error(
    values: Float[Tensor, "rollout token"],
    value_targets: Float[Tensor, "rollout token"],
    where: Bool[Tensor, "rollout token"],
) -> Float[Tensor, "rollout token"]:
    """Half the squared error of each value.

        L_t = (V_t - R_t)^2 / 2,    0 where not wanted

    Args:
        values: Of the critic, with gradient.
        value_targets: What it should have said.
        where: True at the prefixes that are trained on.

    Returns:
        Squared reward units; no gradient reaches what is not wanted.
    """
    errors = torch.where(where, values - value_targets, 0.0)
    return 0.5 * errors.square()


def clipped_squared_error(
    values: Float[Tensor, "rollout token"],
    old_values: Float[Tensor, "rollout token"],
    value_targets: Float[Tensor, "rollout token"],
    where: Bool[Tensor, "rollout token"],
    *,
    clip: float,
) -> Float[Tensor, "rollout token"]:
    """The larger of the squared error and that of a value held near the old one.

        L_t = max((V_t - R_t)^2, (V'_t - R_t)^2) / 2
        V'_t = V_old + clamp(V_t - V_old, -clip, clip)

    As in the reference implementation of PPO (Schulman et al. 2017, arXiv:1707.06347):
    pessimistic, and without gradient once the clipped branch is the larger one.

    Args:
        values: Of the critic, with gradient.
        old_values: Of the critic at the start of the update.
        value_targets: What it should have said.
        where: True at the prefixes that are trained on.
        clip: Largest move from the old value that counts, reward units.

    Returns:
        Squared reward units; no gradient reaches what is not wanted.

    Raises:
        ValueError: `clip` is not positive.
    """
    if not clip > 0:
        raise ValueError(f"clip must be > 0, got {clip}; leave it out to never clip")
    moves = (values - old_values).clamp(-clip, clip)
    errors = torch.where(where, values - value_targets, 0.0)
    held_errors = torch.where(where, old_values + moves - value_targets, 0.0)
    return 0.5 * torch.maximum(errors.square(), held_errors.square())
