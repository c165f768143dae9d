"""What one update of a critic teaches. Pure functions of tensors: no model.

Whatever is not wanted is set to 0 before any loss sees it, so that a NaN behind the
mask stays there.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from accredit.batches.rows import kept
from accredit.functional.baselines import group_deviation
from accredit.randomness import generator
from accredit.records import ValueTargets
from accredit.types import Batch


@dataclass(frozen=True, eq=False)
class CriticTargets:
    """The tensors of an update, on the critic's device."""

    token_ids: Int[Tensor, "rollout token"]
    where: Bool[Tensor, "rollout token"]
    targets: Float[Tensor, "rollout token"]
    """0 is the lowest reward, 1 the highest."""
    weights: Float[Tensor, "rollout token"]
    old_values: Float[Tensor, "rollout token"]
    """From before the update, in the units of the targets; 0 where nobody asks."""

    def part(self, rows: Int[Tensor, " row"], width: int) -> "CriticTargets":
        """The named rows, cut to their first `width` tokens."""
        return CriticTargets(
            self.token_ids[rows, :width],
            self.where[rows, :width],
            self.targets[rows, :width],
            self.weights[rows, :width],
            self.old_values[rows, :width],
        )


def critic_targets(
    batch: Batch, wanted: ValueTargets, low: float, high: float, device: torch.device
) -> CriticTargets:
    """The update's tensors, with rewards rescaled to [0, 1] and no old values yet.

    Raises:
        ValueError: The targets do not align, or the value of an empty prefix is wanted.
    """
    if wanted.where.shape != batch.token_ids.shape:
        raise ValueError(
            f"value targets must align with token_ids {tuple(batch.token_ids.shape)}, "
            f"got {tuple(wanted.where.shape)}"
        )
    where = wanted.where
    if bool((where & ~batch.token_mask).any()):
        raise ValueError("a prefix to be trained on must lie in its rollout")
    if bool(where[:, :1].any()):
        raise ValueError(
            "the value of an empty prefix cannot be trained on, got one at index 0; "
            "begin every rollout with its prompt"
        )
    return CriticTargets(
        token_ids=torch.where(batch.token_mask, batch.token_ids, 0).to(device),
        where=where.to(device),
        targets=kept((wanted.targets - low) / (high - low), where).to(device),
        weights=kept(wanted.weights, where).to(device),
        old_values=torch.zeros(where.shape, device=device),
    )


def few_prefixes(
    where: Bool[Tensor, "rollout token"], most: int, seed: int
) -> Bool[Tensor, "rollout token"]:
    """At most so many of the wanted prefixes of each rollout, evenly separated.

    Of n places, those numbered floor((u + k) n / most) for k = 0, 1, ...: u is drawn
    uniformly for each rollout, so that every place is as likely as any other. Values
    trained on a few separated prefixes beat those trained on all in one study
    (arXiv:2609.18708).

    Args:
        where: True at the prefixes that are wanted.
        most: Prefixes of a rollout that stay; rollouts with fewer keep all.
        seed: Keys the draws.

    Raises:
        ValueError: `most` is below 1.
    """
    if most < 1:
        raise ValueError(f"max_prefixes must be >= 1, got {most}; none takes all")
    offsets = torch.from_numpy(generator(seed, "prefixes").random(len(where)))
    counts = where.sum(1, keepdim=True).cpu()
    steps = (torch.arange(most) + offsets[:, None]) * counts / most
    chosen = torch.zeros(len(where), int(where.shape[1]) + 1, dtype=torch.bool)
    chosen.scatter_(1, steps.floor().long(), True)
    places = where.cumsum(1).cpu() - 1
    few = chosen.gather(1, places.clamp(min=0)).to(where.device)
    return where & (few | (where.sum(1, keepdim=True) <= most))


def prompt_weights(batch: Batch, floor: float) -> Float[Tensor, " rollout"]:
    """Weight of each rollout's loss by how much its prompt's rewards differ.

        w = 1 / max(s, floor),    s the deviation (n - 1) of the verified siblings

    EasyPPO, arXiv:2609.36802: a prompt that is always solved or never has little to
    teach, one in between the most; this weighs them towards one another. A rollout
    without siblings has s = 0.
    """
    deviation = group_deviation(batch.rewards, batch.verified, batch.group_index)
    return 1.0 / deviation.clamp(min=floor)
