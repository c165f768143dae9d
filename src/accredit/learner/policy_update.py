"""One update of the policy, taken step by step by whoever asked for it.

    update = learner.begin(batch, advantages, objective, seed)
    for index in range(update.num_steps):
        update.step(index)
    policy = update.result()                # or `update.run()` for the last three lines

An update is num_epochs x num_minibatches optimizer steps over one batch. Each step
weighs its tokens once, over its whole minibatch; micro-batches then only sum, so that a
memory knob never changes a gradient. Between two steps the caller may use the model and
move its weights: old log-probs are from before the first step all the same.

A step is two halves, `backward` and `descend`, so that the gradient of another loss can
be added to the policy's before the one optimizer step that takes both.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from accredit.batches.rows import row_lengths
from accredit.learner.update import (
    UpdateTensors,
    step_rows,
    token_weights,
    update_tensors,
    weighted_losses,
)
from accredit.models.descent import Descent
from accredit.models.micro_batches import row_parts
from accredit.models.scorer import Scorer
from accredit.protocols import Objective
from accredit.records import PolicyUpdate
from accredit.types import Batch


@dataclass(eq=False)
class Trace:
    """What the steps of one update leave behind."""

    logprobs: Float[Tensor, "rollout token"]
    entropies: Float[Tensor, "rollout token"]
    losses: list[float] = field(default_factory=list)
    gradient_norms: list[float] = field(default_factory=list)
    displacements: list[float] = field(default_factory=list)
    num_skipped: int = 0
    num_forward_tokens: int = 0
    num_backward_tokens: int = 0


@dataclass
class Counters:
    """What a learner counts over a run."""

    version: int = 0
    """Of the policy's weights: rises with every optimizer step that moves them."""
    num_updates: int = 0
    """Finished updates; the schedule of the learning rate follows them."""


@dataclass(frozen=True, eq=False)
class StepTools:
    """What an update borrows from its learner."""

    scorer: Scorer
    reference: Callable[[], Scorer]
    """The frozen model's, loaded when it is first asked for."""
    descent: Descent
    micro_batch_tokens: int
    num_forwards: int
    """Forward passes behind one backward pass: 2 with gradient checkpointing."""
    counters: Counters
    finish: Callable[[], tuple[str, ...]]
    """Ends the update; gives what is to be said of the model since then."""
    watch: Callable[[int, int], None] | None = None
    """Told of micro-batches done and to do of an optimizer step, before each."""


class PolicyUpdateSteps:
    """An update of the policy that has begun."""

    def __init__(
        self,
        tools: StepTools,
        batch: Batch,
        advantages: Tensor,
        objective: Objective,
        seed: int,
        *,
        learning_rate: float,
        measures_displacement: bool,
    ) -> None:
        """Takes the log-probs that stay fixed; moves nothing.

        Args:
            tools: The learner's.
            batch: What is learned from.
            advantages: Of every token, as `batch.token_ids`.
            objective: What is minimised.
            seed: Keys which rows share a minibatch.
            learning_rate: Of all steps.
            measures_displacement: Whether `result` says how far each step moved the
                weights.

        Raises:
            ValueError: The advantages or the objective do not fit the batch.
        """
        self._tools = tools
        self._batch = batch
        self._objective = objective
        self._learning_rate = learning_rate
        self._measures_displacement = measures_displacement
        self._steps = step_rows(batch, objective, seed)
        self._pending: float | None = None
        device = tools.scorer.model.device
        tensors = update_tensors(batch, advantages, device)
        zeros = torch.zeros_like(tensors.advantages)
        self._trace = Trace(zeros, zeros.clone())
        self._tensors = self._with_frozen_logprobs(tensors)

    @property
    def num_steps(self) -> int:
        """Optimizer steps of the update."""
        return len(self._steps)

    def run(self) -> PolicyUpdate:
        """All steps, one after the other, and their result."""
        for index in range(self.num_steps):
            self.step(index)
        return self.result()

    def step(self, index: int) -> None:
        """Optimizer step number `index`; steps are taken in their order.

        A step without a trainable token is not taken, and counts as skipped.

        Raises:
            RuntimeError: Too many steps in a row were not finite.
        """
        self.backward(index)
        self.descend()

    def backward(self, index: int) -> bool:
        """The first half of a step: its gradient in the weights.

        False where its rows hold no trainable token: then there is none, and `descend`
        takes no step.
        """
        taken = len(self._trace.losses)
        if index != taken:
            raise ValueError(f"step {taken} of an update comes next, got {index}")
        self._pending = self._minibatch_loss(index)
        return self._pending is not None

    def descend(self) -> None:
        """The second half: clips what gradient there is, steps, and notes it.

        Nothing is stepped where loss or gradient is not finite.
        """
        trace, loss, norm, moved = self._trace, self._pending, math.nan, 0.0
        descent = self._tools.descent
        self._pending = None
        if loss is not None:
            norm = descent.step(loss)
            moved = descent.displacement if self._measures_displacement else 0.0
        trace.losses.append(math.nan if loss is None else loss)
        trace.gradient_norms.append(norm)
        trace.num_skipped += math.isnan(norm)
        if self._measures_displacement:
            trace.displacements.append(moved)
        self._tools.counters.version += not math.isnan(norm)

    def result(self) -> PolicyUpdate:
        """What all its steps did. Per-token results are 0 where nothing is trainable.

        Tokens are counted up to the last trainable one of a row, forward ones with and
        without gradient.
        """
        taken = len(self._trace.losses)
        if taken != self.num_steps:
            raise ValueError(
                f"an update ends after its {self.num_steps} steps, got {taken}"
            )
        trace, tensors = self._trace, self._tensors
        self._tools.scorer.model.eval()
        # What a caller left behind between two steps is not the next update's.
        self._tools.descent.optimizer.zero_grad(set_to_none=True)
        notes = self._tools.finish()
        device = self._batch.token_ids.device
        reference = tensors.reference_logprobs
        return PolicyUpdate(
            old_logprobs=tensors.old_logprobs.to(device),
            logprobs=trace.logprobs.to(device),
            entropies=trace.entropies.to(device),
            reference_logprobs=None if reference is None else reference.to(device),
            losses=tuple(trace.losses),
            gradient_norms=tuple(trace.gradient_norms),
            learning_rate=self._learning_rate,
            num_skipped=trace.num_skipped,
            num_forward_tokens=trace.num_forward_tokens,
            num_backward_tokens=trace.num_backward_tokens,
            displacements=tuple(trace.displacements),
            notes=notes,
        )

    def _minibatch_loss(self, index: int) -> float | None:
        """The loss of a minibatch, its gradient in the weights; None without a token.

        Until the first step, weights are the old policy's: its log-probs are then its
        own old ones, the ratio is exactly 1, and no forward is spent on them.
        """
        rows, batch, tensors = self._steps[index], self._batch, self._tensors
        lengths = row_lengths(batch.trainable[rows])
        if not bool(lengths.any()):
            return None
        tools, trace, objective = self._tools, self._trace, self._objective
        is_old_policy = index == 0 and not objective.old_from_engine
        model = tools.scorer.model
        weights = token_weights(batch, rows, objective).to(model.device)
        model.train()
        tools.descent.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=model.device)
        parts = row_parts(lengths, tools.micro_batch_tokens)
        for number, (chosen, width) in enumerate(parts):
            if tools.watch is not None:
                tools.watch(number, len(parts))
            places = rows[chosen].to(model.device)
            part = tensors.part(places, width)
            scores = tools.scorer.scores(part.token_ids, part.trainable)
            trace.logprobs[places, :width] = scores.logprobs.detach()
            trace.entropies[places, :width] = scores.entropies.detach()
            if is_old_policy:
                part = part.with_old(scores.logprobs.detach())
                tensors.old_logprobs[places, :width] = part.old_logprobs
            shares = weighted_losses(
                objective, part, scores, weights[chosen.to(model.device), :width]
            )
            loss = shares.sum()
            loss.backward()
            total += loss.detach()
        num_tokens = int(lengths.sum())
        trace.num_forward_tokens += tools.num_forwards * num_tokens
        trace.num_backward_tokens += num_tokens
        return float(total)

    def _with_frozen_logprobs(self, tensors: UpdateTensors) -> UpdateTensors:
        """Adds the log-probs that stay fixed during the update: old and reference.

        Rows of the first step are left out of the old ones; that step provides them.
        """
        objective, scorer, trace = self._objective, self._tools.scorer, self._trace
        if objective.old_from_engine:
            tensors = tensors.with_old(tensors.sampling_logprobs)
        else:
            later = tensors.trainable.clone()
            later[self._steps[0].to(later.device)] = False
            old = scorer.wanted_logprobs(tensors.token_ids, later)
            trace.num_forward_tokens += int(row_lengths(later).sum())
            tensors = tensors.with_old(old)
        if objective.kl_estimator is None:
            return tensors
        frozen = self._tools.reference()
        reference = frozen.wanted_logprobs(tensors.token_ids, tensors.trainable)
        trace.num_forward_tokens += int(row_lengths(tensors.trainable).sum())
        return replace(tensors, reference_logprobs=reference)
