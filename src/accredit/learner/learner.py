"""Takes gradient steps and owns weights, optimizer and schedule.

An update is num_epochs x num_minibatches optimizer steps over one batch. Each step
weighs its tokens once, over its whole minibatch; micro-batches then only sum, so that a
memory knob never changes a gradient. Weights are float32 masters; on CUDA the backbone
runs in bfloat16 and the log-softmax in float32.

Knows no algorithm: what is minimised is the `Objective` it is given.
"""

import json
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedModel

from accredit.folders import MODEL_FOLDER
from accredit.learner.descent import Descent
from accredit.learner.finite import require_loadable, require_savable
from accredit.learner.forward import read, without_dropout
from accredit.learner.micro_batches import row_parts
from accredit.learner.optimizer import adamw, load_optimizer, save_optimizer
from accredit.learner.options import LearnerOptions
from accredit.learner.probe import is_due
from accredit.learner.scorer import Scorer
from accredit.learner.state_json import read_counts
from accredit.learner.update import (
    UpdateTensors,
    row_lengths,
    step_rows,
    token_weights,
    update_tensors,
    weighted_losses,
)
from accredit.protocols import Interlude, Objective
from accredit.records import PolicyUpdate
from accredit.types import Batch

OPTIMIZER_FILE = "optimizer.safetensors"
LEARNER_FILE = "learner.json"
SCHEMA = 1


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


class Learner:
    """The policy's learner on one device."""

    def __init__(
        self,
        model: PreTrainedModel,
        options: LearnerOptions,
        reference: Callable[[], PreTrainedModel] | None = None,
    ) -> None:
        """Takes the model over; `reference` loads the frozen one when it is needed.

        The reference is the model the run began with, also after a resume.
        """
        self.model = savable(without_dropout(model.float()))
        self.options = options
        self.version = 0
        """Finished updates."""
        self._reading = read(self.model)
        self.watch: Callable[[int, int], None] | None = None
        """Told of micro-batches done and to do of an optimizer step, before each."""
        self._scorer = Scorer(
            self.model,
            self._reading.scoring,
            options.micro_batch_tokens,
            options.temperature,
        )
        if options.gradient_checkpointing:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self._optimizer = adamw(self.model, options.optimizer)
        self._descent = Descent(
            self._optimizer,
            [p for p in self.model.parameters() if p.requires_grad],
            max_gradient_norm=options.max_gradient_norm,
            max_consecutive_skips=options.max_consecutive_skips,
            owner="the policy",
        )
        self._load_reference = reference
        self._reference: Scorer | None = None

    @property
    def num_consecutive_skips(self) -> int:
        """Optimizer steps in a row that were left out as not finite."""
        return self._descent.num_consecutive_skips

    @property
    def notes(self) -> tuple[str, ...]:
        """What is slower than it could be about the model, one line each."""
        return self._reading.notes

    def logprobs(self, batch: Batch) -> Float[Tensor, "rollout token"]:
        """Current log-probs of every sampled token, 0 elsewhere; no gradient."""
        return self._scorer.logprobs(batch)

    def reference_logprobs(self, batch: Batch) -> Float[Tensor, "rollout token"]:
        """The frozen model's log-probs of every sampled token, 0 elsewhere."""
        return self._frozen().logprobs(batch)

    def entropies(self, batch: Batch) -> Float[Tensor, "rollout token"]:
        """Current entropies in nats at every sampled token, 0 elsewhere; no gradient.

        Of the distribution at the sampling temperature that the token is drawn from.
        """
        return self._scorer.entropies(batch)

    def update_policy(
        self,
        batch: Batch,
        advantages: Tensor,
        objective: Objective,
        seed: int,
        interlude: Interlude | None = None,
    ) -> PolicyUpdate:
        """One update of the policy; `seed` keys which rows share a minibatch.

        Per-token results are 0 where the batch is not trainable. Tokens are counted up
        to the last trainable one of a row, forward ones with and without gradient.

        An `interlude` may run and move the model, and leave it in either mode: old
        log-probs are from before the first step all the same. The clip covers the sum
        of a step's gradient and what is added to it. A step without a trainable token
        is not taken, so that nothing is added to it; what follows it happens.

        Raises:
            ValueError: The advantages or the objective do not fit the batch.
            RuntimeError: Too many steps in a row were not finite.
        """
        tensors = update_tensors(batch, advantages, self.model.device)
        steps = step_rows(batch, objective, seed)
        trace = Trace(
            torch.zeros_like(tensors.advantages), torch.zeros_like(tensors.advantages)
        )
        tensors = self._with_frozen_logprobs(tensors, steps, objective, trace)
        learning_rate = self.options.schedule.rate(self.version)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        for rows in steps:
            loss = self._backward(batch, tensors, rows, objective, trace)
            self._descend(loss, trace, interlude)
        self.model.eval()
        self.version += 1
        known = self.notes
        self._read_again()
        device = batch.token_ids.device
        reference = tensors.reference_logprobs
        return PolicyUpdate(
            old_logprobs=tensors.old_logprobs.to(device),
            logprobs=trace.logprobs.to(device),
            entropies=trace.entropies.to(device),
            reference_logprobs=None if reference is None else reference.to(device),
            losses=tuple(trace.losses),
            gradient_norms=tuple(trace.gradient_norms),
            learning_rate=learning_rate,
            num_skipped=trace.num_skipped,
            num_forward_tokens=trace.num_forward_tokens,
            num_backward_tokens=trace.num_backward_tokens,
            displacements=tuple(trace.displacements),
            notes=tuple(line for line in self.notes if line not in known),
        )

    def save(self, folder: Path) -> None:
        """Writes `model/` (a plain Hugging Face directory), optimizer and counters.

        Raises:
            RuntimeError: A weight or a moment is not finite; nothing is written.
        """
        require_savable("the policy", self.model.state_dict().items())
        save_optimizer(
            folder / OPTIMIZER_FILE, self._optimizer, self.model, "the policy"
        )
        self.model.save_pretrained(folder / MODEL_FOLDER)
        counters = {
            "schema": SCHEMA,
            "version": self.version,
            "num_consecutive_skips": self.num_consecutive_skips,
        }
        (folder / LEARNER_FILE).write_text(json.dumps(counters), encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Continues exactly where `save` was called.

        Raises:
            ValueError: The folder is another model's, or another version's.
        """
        names = ("version", "num_consecutive_skips")
        counters = read_counts(folder / LEARNER_FILE, SCHEMA, names)
        weights = saved_weights(type(self.model), folder)
        require_loadable(str(folder), weights.items())
        self.model.load_state_dict(weights)
        load_optimizer(folder / OPTIMIZER_FILE, self._optimizer, self.model)
        self.version = counters["version"]
        self._descent.num_consecutive_skips = counters["num_consecutive_skips"]
        self._reading = self._reading.and_now(self.model)
        self._scorer = replace(self._scorer, scoring=self._reading.scoring)

    def _read_again(self) -> None:
        """Takes back a short way that the first updates have shown to be wrong."""
        if is_due(self.version):
            self._reading = self._reading.and_now(self.model)
            self._scorer = replace(self._scorer, scoring=self._reading.scoring)

    def _backward(
        self,
        batch: Batch,
        tensors: UpdateTensors,
        rows: Int[Tensor, " row"],
        objective: Objective,
        trace: Trace,
    ) -> float | None:
        """The loss of a minibatch, its gradient in the weights; None without a token.

        Until the first step, weights are the old policy's: its log-probs are then its
        own old ones, the ratio is exactly 1, and no forward is spent on them.
        """
        lengths = row_lengths(batch.trainable[rows])
        if not bool(lengths.any()):
            return None
        is_old_policy = not trace.losses and not objective.old_from_engine
        device = self.model.device
        weights = token_weights(batch, rows, objective).to(device)
        self.model.train()
        self._optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=device)
        parts = row_parts(lengths, self.options.micro_batch_tokens)
        for number, (chosen, width) in enumerate(parts):
            if self.watch is not None:
                self.watch(number, len(parts))
            places = rows[chosen].to(device)
            part = tensors.part(places, width)
            scores = self._scorer.scores(part.token_ids, part.trainable)
            trace.logprobs[places, :width] = scores.logprobs.detach()
            trace.entropies[places, :width] = scores.entropies.detach()
            if is_old_policy:
                part = part.with_old(scores.logprobs.detach())
                tensors.old_logprobs[places, :width] = part.old_logprobs
            shares = weighted_losses(
                objective, part, scores, weights[chosen.to(device), :width]
            )
            loss = shares.sum()
            loss.backward()
            total += loss.detach()
        num_tokens = int(lengths.sum())
        num_forwards = 2 if self.options.gradient_checkpointing else 1
        trace.num_forward_tokens += num_forwards * num_tokens
        trace.num_backward_tokens += num_tokens
        return float(total)

    def _descend(
        self, loss: float | None, trace: Trace, interlude: Interlude | None
    ) -> None:
        """Steps, if it can be, and notes what happened; with what else happens then.

        It cannot where there is no loss, or loss or gradient is not finite.
        """
        index = len(trace.losses)
        other = interlude or Interlude()
        norm, moved = math.nan, 0.0
        if loss is not None:
            if other.add_gradient is not None:
                other.add_gradient(index)
            norm = self._descent.step(loss)
            moved = 0.0 if interlude is None else self._descent.displacement
        trace.losses.append(math.nan if loss is None else loss)
        trace.gradient_norms.append(norm)
        trace.num_skipped += math.isnan(norm)
        if interlude is not None:
            trace.displacements.append(moved)
        if other.after_step is not None:
            other.after_step(index)
            self._optimizer.zero_grad(set_to_none=True)

    def _with_frozen_logprobs(
        self,
        tensors: UpdateTensors,
        steps: list[Tensor],
        objective: Objective,
        trace: Trace,
    ) -> UpdateTensors:
        """Adds the log-probs that stay fixed during the update: old and reference.

        Rows of the first step are left out of the old ones; that step provides them.
        """
        device = self.model.device
        if objective.old_from_engine:
            tensors = tensors.with_old(tensors.sampling_logprobs)
        else:
            later = tensors.trainable.clone()
            later[steps[0].to(device)] = False
            old = self._scorer.wanted_logprobs(tensors.token_ids, later)
            trace.num_forward_tokens += int(row_lengths(later).sum())
            tensors = tensors.with_old(old)
        if objective.kl_estimator is None:
            return tensors
        frozen = self._frozen()
        reference = frozen.wanted_logprobs(tensors.token_ids, tensors.trainable)
        trace.num_forward_tokens += int(row_lengths(tensors.trainable).sum())
        return replace(tensors, reference_logprobs=reference)

    def _frozen(self) -> Scorer:
        """The reference model's, loaded when it is first asked for."""
        if self._reference is None:
            if self._load_reference is None:
                raise ValueError(
                    "a KL term needs a reference model, got a learner without one; "
                    "give Learner a `reference` that loads it"
                )
            reference = without_dropout(self._load_reference().float())
            if reference is self.model:
                raise ValueError(
                    "the reference must be a model of its own, got the policy itself"
                )
            nn.Module.to(reference, self.model.device)
            frozen = reference.eval().requires_grad_(False)
            self._reference = replace(self._scorer, model=frozen)
        return self._reference


def savable(model: PreTrainedModel) -> PreTrainedModel:
    """The same model with a generation config that transformers agrees to write.

    It reads sampling settings beside greedy decoding, and refuses to save them: a run
    would end at its first checkpoint. What stays is which tokens start, stop and pad.
    """
    config = model.generation_config
    if config is None:
        return model
    try:
        config.validate(strict=True)
    except ValueError as error:
        warnings.warn(
            "generation_config.json must be valid to be saved again, got "
            f"{error}; checkpoints keep its token ids only",
            stacklevel=3,
        )
        model.generation_config = GenerationConfig(
            bos_token_id=config.bos_token_id,
            eos_token_id=config.eos_token_id,
            pad_token_id=config.pad_token_id,
        )
    return model


def saved_weights(kind: type[PreTrainedModel], folder: Path) -> dict[str, Tensor]:
    """The weights that `Learner.save` wrote, as this kind of model names them."""
    message = "a checkpoint must be of the model of the run"
    try:
        loaded: Any = kind.from_pretrained(
            folder / MODEL_FOLDER,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
        )
    except (RuntimeError, OSError, SafetensorError) as error:
        raise ValueError(f"{message}, got {error}") from error
    model, report = loaded
    strangers = sorted({*report["missing_keys"], *report["unexpected_keys"]})
    if strangers:
        raise ValueError(f"{message}, got weights that differ by {strangers}")
    return model.state_dict()
