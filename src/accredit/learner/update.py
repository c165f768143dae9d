"""What one update reads, which rows each of its steps uses, and the loss per token.

Pure functions of tensors: no model, no optimizer. Whatever is not trainable is set to 0
before any loss sees it, so that a NaN behind the mask stays there.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from accredit.batches.rows import kept, minibatch_rows
from accredit.functional.logprobs import TokenLogprobs
from accredit.protocols import Objective
from accredit.types import Batch


@dataclass(frozen=True, eq=False)
class UpdateTensors:
    """The per-token tensors of an update, on the learner's device."""

    token_ids: Int[Tensor, "rollout token"]
    trainable: Bool[Tensor, "rollout token"]
    advantages: Float[Tensor, "rollout token"]
    sampling_logprobs: Float[Tensor, "rollout token"]
    old_logprobs: Float[Tensor, "rollout token"]
    reference_logprobs: Float[Tensor, "rollout token"] | None = None

    def part(self, rows: Int[Tensor, " row"], width: int) -> "UpdateTensors":
        """The named rows, cut to their first `width` tokens."""
        reference = self.reference_logprobs
        return UpdateTensors(
            self.token_ids[rows, :width],
            self.trainable[rows, :width],
            self.advantages[rows, :width],
            self.sampling_logprobs[rows, :width],
            self.old_logprobs[rows, :width],
            None if reference is None else reference[rows, :width],
        )

    def with_old(self, old_logprobs: Tensor) -> "UpdateTensors":
        """The same with other `old_logprobs`."""
        return replace(self, old_logprobs=old_logprobs)


def update_tensors(
    batch: Batch, advantages: Tensor, device: torch.device
) -> UpdateTensors:
    """The batch with everything that is not trainable at 0; `old_logprobs` too.

    Raises:
        ValueError: The advantages do not align, or a first token is to be trained on.
    """
    if advantages.shape != batch.token_ids.shape:
        raise ValueError(
            f"advantages must align with token_ids {tuple(batch.token_ids.shape)}, got "
            f"{tuple(advantages.shape)}"
        )
    trainable = batch.trainable
    if bool(trainable[:, :1].any()):
        raise ValueError(
            "a sampled token must have a prefix that predicts it, got one at index 0; "
            "begin every rollout with its prompt"
        )
    return UpdateTensors(
        token_ids=torch.where(batch.token_mask, batch.token_ids, 0).to(device),
        trainable=trainable.to(device),
        advantages=kept(advantages, trainable).to(device),
        sampling_logprobs=kept(batch.sampling_logprobs, trainable).to(device),
        old_logprobs=torch.zeros(batch.token_ids.shape, device=device),
    )


def step_rows(batch: Batch, objective: Objective, seed: int) -> list[Tensor]:
    """Row numbers of each optimizer step, ascending; each epoch covers every row once.

    Several minibatches are cut from an order that is drawn anew for each epoch, or from
    the batch's own. With more minibatches than rows some are empty.
    """
    return minibatch_rows(
        batch.num_rollouts,
        objective.num_minibatches,
        objective.num_epochs,
        seed,
        shuffled=objective.shuffled,
    )


def token_weights(
    batch: Batch, rows: Int[Tensor, " row"], objective: Objective
) -> Float[Tensor, "row token"]:
    """The objective's weights, from the whole minibatch: the only division there is.

    Groups are numbered anew, since a minibatch need not hold all of them.
    """
    _, groups = torch.unique(batch.group_index[rows], return_inverse=True)
    trainable = batch.trainable[rows]
    return kept(objective.aggregation(trainable, groups), trainable)


def weighted_losses(
    objective: Objective,
    tensors: UpdateTensors,
    scores: TokenLogprobs,
    weights: Float[Tensor, "rollout token"],
) -> Float[Tensor, "rollout token"]:
    """The share of each token in the objective, which is their sum.

        weight (correction loss + kl_coefficient kl - entropy_coefficient entropy)

    Loss and correction see a micro-batch, so they may mix the tokens of a row but not
    the rows.
    """
    logprobs, trainable = scores.logprobs, tensors.trainable
    losses = objective.loss(
        logprobs, tensors.old_logprobs, tensors.advantages, trainable
    )
    if objective.correction is not None:
        correction = objective.correction(
            tensors.old_logprobs, tensors.sampling_logprobs, trainable
        )
        losses = losses * correction.detach()
    if objective.kl_estimator is not None:
        assert tensors.reference_logprobs is not None
        divergence = objective.kl_estimator(logprobs, tensors.reference_logprobs)
        losses = losses + objective.kl_coefficient * divergence
    if objective.entropy_coefficient != 0.0:
        losses = losses - objective.entropy_coefficient * scores.entropies
    return torch.where(trainable, weights * losses, 0.0)
