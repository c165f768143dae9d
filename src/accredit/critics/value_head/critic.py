"""A value head on a backbone: a critic with parameters, and how it is trained.

    V(prefix) = low + (high - low) output(W h + b),    h after the prefix's last token

An update is epochs x minibatches steps of the critic's own AdamW. Each step divides
once, by the number of its wanted prefixes; micro-batches only sum, so that a memory
knob never changes a gradient. The head is float32; on CUDA the backbone runs in
bfloat16. Nothing is dropped out and nothing drawn: the same input has the same value.
No other loss is added, a router's balance of a mixture of experts included: only the
backbone is run, and that loss is its causal LM's.

The ledger counts the forward passes, the recomputed one of gradient checkpointing
included, and the backward pass by what wants a gradient: two products a trained matrix,
one a frozen one (attention that is frozen, all that adapters adapt), and where the head
learns alone none but the head's. The adapters' own, a few hundredths, are left out.

Knows no algorithm: what it should have said is `ValueTargets`.
"""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from accredit.batches.rows import minibatch_rows, row_lengths
from accredit.batches.views import ShownPrompt, View, shown
from accredit.critics.configs import ValueHeadConfig
from accredit.critics.value_head import saved
from accredit.critics.value_head.model import ValueModel
from accredit.critics.value_head.outputs import Output, output_of
from accredit.critics.value_head.targets import (
    CriticTargets,
    critic_targets,
    few_prefixes,
    prompt_weights,
)
from accredit.functional.flops import ModelShape, training_flops
from accredit.functional.logprobs import at_prefixes
from accredit.learner.schedules import Schedule
from accredit.models.backbone import Trunk
from accredit.models.descent import Descent
from accredit.models.micro_batches import row_parts
from accredit.models.optimizer import AdamWOptions, adamw
from accredit.records import CriticUpdate, ValueTargets
from accredit.types import Batch

ROUNDING = 1e-6
"""Of a reward, relative to the range it must lie in."""


@dataclass(eq=False)
class Trace:
    """What the steps of one update leave behind."""

    losses: list[float] = field(default_factory=list)
    gradient_norms: list[float] = field(default_factory=list)
    num_skipped: int = 0
    num_nonfinite: int = 0
    num_forward_tokens: int = 0
    num_backward_tokens: int = 0
    displacements: list[float] = field(default_factory=list)


class ValueHeadCritic:
    """A trainable critic on one device."""

    def __init__(
        self,
        trunk: Trunk,
        config: ValueHeadConfig,
        *,
        micro_batch_tokens: int = 4096,
        max_consecutive_skips: int = 10,
        prompt_ids: ShownPrompt | None = None,
    ) -> None:
        """A fresh head on `trunk`; all that wants a gradient there is trained along.

        `prompt_ids` says what the critic is shown, where it has a prompt of its own.
        """
        self.trunk = trunk
        self.config = config
        self.output: Output = output_of(config)
        self.model = ValueModel(trunk.module, self.output.num_outputs)
        with torch.no_grad():
            self.model.head.bias.copy_(self.output.bias(self._unit(config.first_value)))
        self.num_updates = 0
        self.schedule: Schedule | None = None
        """Of the learning rate over its updates; None leaves the rate as it is set."""
        self.is_measured = False
        """Whether an update says how far it moved the weights."""
        self._micro_batch_tokens = micro_batch_tokens
        self._prompt_ids = prompt_ids
        optimizer = adamw(self.model, AdamWOptions(weight_decay=config.weight_decay))
        self._descent = Descent(
            optimizer,
            [p for p in self.model.parameters() if p.requires_grad],
            max_gradient_norm=config.max_gradient_norm,
            max_consecutive_skips=max_consecutive_skips,
            owner="the critic",
        )
        self.learning_rate = config.learning_rate
        # The head takes the place of the vocabulary.
        self._shape = replace(
            ModelShape.from_config(trunk.module.config), vocab=self.output.num_outputs
        )
        self._num_frozen = 0
        if config.trunk == "lora":
            self._num_frozen = self._shape.layer_parameters
        elif config.freeze_attention:
            self._num_frozen = self._shape.attention_parameters

    @property
    def learning_rate(self) -> float:
        """Of the updates to come: the config's, until another one is set."""
        return self._descent.optimizer.param_groups[0]["lr"]

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        for group in self._descent.optimizer.param_groups:
            group["lr"] = rate

    @property
    def num_warmup_steps(self) -> int:
        """First steps of a run in which the critic alone learns."""
        return self.config.warmup_steps

    @property
    def reference_shown(self) -> bool:
        """Whether its own prompt holds the answer."""
        return "{answer}" in self.config.template

    def values(
        self, batch: Batch, rewards: Float[Tensor, " rollout"]
    ) -> Float[Tensor, "rollout prefix"]:
        """V of every prefix in reward units, without gradient; 0 at the empty one.

        0 past the end of a rollout, too.

        Raises:
            ValueError: The rewards lie outside the range of a bounded output.
        """
        self._require_range(batch, rewards)
        view = self._view(batch)
        seen = batch if view is None else view.batch
        everything = seen.token_mask.sum(1)
        token_ids = torch.where(seen.token_mask, seen.token_ids, 0)
        unit = self._unit_values(token_ids, everything)
        values = self.config.reward_low + self._span * unit
        prefixes = at_prefixes(seen.token_mask.to(values.device))
        values = torch.where(prefixes, values, 0.0).to(batch.token_ids.device)
        return values if view is None else view.back_values(values)

    def values_flops(self, batch: Batch) -> float:
        """Operations of `values`."""
        view = self._view(batch)
        lengths = (batch if view is None else view.batch).token_mask.sum(1).tolist()
        return training_flops(self._shape, lengths, sum(lengths), 0)

    def update(
        self, batch: Batch, wanted: ValueTargets, seed: int, *, warming_up: bool
    ) -> CriticUpdate:
        """One update towards what is wanted; `seed` keys rows and chosen prefixes.

        Its displacement is the sum of its steps': exact for one, else an upper bound.

        Raises:
            ValueError: The targets do not fit the batch.
            RuntimeError: Too many steps in a row were not finite.
        """
        config = self.config
        if self.schedule is not None:
            self.learning_rate = self.schedule.rate(self.num_updates)
        taught = self._targets(batch, wanted, seed)
        steps = minibatch_rows(
            batch.num_rollouts,
            config.num_minibatches,
            config.warmup_epochs if warming_up else config.num_epochs,
            seed,
        )
        trace = Trace()
        if self.output.compares and len(steps) > 1:
            lengths = row_lengths(taught.where)
            old = self._unit_values(taught.token_ids, lengths)[:, :-1]
            taught = replace(taught, old_values=torch.where(taught.where, old, 0.0))
            trace.num_forward_tokens += int(lengths.sum())
        self.model.train()
        # A policy that stays as it is must not move with the trunk that it shares.
        head_only = warming_up and self.config.trunk == "shared"
        alone = len(steps) == 1
        for rows in steps:
            self._step(taught, rows, trace, is_alone=alone, head_only=head_only)
        self.model.eval()
        self.num_updates += 1
        num_steps = len(steps) - trace.num_skipped
        moves_policy = self.config.trunk == "shared" and not head_only
        return CriticUpdate(
            losses=tuple(trace.losses),
            gradient_norms=tuple(trace.gradient_norms),
            learning_rate=self.learning_rate,
            num_skipped=trace.num_skipped,
            num_nonfinite=trace.num_nonfinite,
            train_flops=self._update_flops(taught, trace, head_only),
            displacement=math.fsum(trace.displacements) if self.is_measured else None,
            num_policy_steps=num_steps if moves_policy else 0,
        )

    def save(self, folder: Path) -> None:
        """Writes head, optimizer and counters, and what of the trunk is the critic's.

        With a trunk of its own that is a plain Hugging Face directory.

        Raises:
            RuntimeError: A weight or a moment is not finite.
        """
        saved.begin(folder, self.model)
        self.trunk.save(folder)
        saved.write_head(folder, self.model.head, self._card())
        saved.write_optimizer(folder, self._descent.optimizer, self.model)

    def load(self, folder: Path) -> None:
        """Continues exactly where `save` was called.

        Raises:
            ValueError: The folder is another critic's, or lacks a part of this one.
        """
        card = self.take(folder)
        saved.read_optimizer(folder, self._descent.optimizer, self.model)
        self.num_updates = card.num_updates
        self._descent.num_consecutive_skips = card.num_consecutive_skips

    def take(self, folder: Path) -> saved.Card:
        """The weights of a saved critic alone: optimizer and counters stay fresh.

        Raises:
            ValueError: The folder is not of a critic like this one.
        """
        card = saved.read_card(folder)
        saved.require_same_kind(card, self._card(), folder)
        saved.read_head(folder, self.model.head)
        self.trunk.load(folder)
        saved.require_finite(self.model, folder)
        return card

    def _step(
        self,
        taught: CriticTargets,
        rows: Int[Tensor, " row"],
        trace: Trace,
        *,
        is_alone: bool,
        head_only: bool,
    ) -> None:
        """One optimizer step over a minibatch; skipped and counted if it cannot be.

        The only step of an update sees the values from before it: its own.
        """
        device = taught.where.device
        where = taught.where[rows.to(device)]
        lengths = row_lengths(where)
        if not bool(lengths.any()):
            trace.losses.append(math.nan)
            trace.gradient_norms.append(math.nan)
            trace.num_skipped += 1
            return
        count = int(where.sum())
        total = torch.zeros((), device=device)
        self._descent.optimizer.zero_grad(set_to_none=True)
        for chosen, width in row_parts(lengths, self._micro_batch_tokens):
            part = taught.part(rows[chosen].to(device), width)
            # The last token predicts nothing that is wanted: it is not run.
            outputs = self.model(part.token_ids[:, :-1], head_only)
            old_values = part.old_values
            if is_alone and self.output.compares:
                old_values = self.output.values(outputs).detach()
            losses = self.output.losses(outputs, part.targets, old_values, part.where)
            weighted = torch.where(part.where, part.weights * losses, 0.0)
            loss = weighted.sum() / count
            loss.backward()
            total += loss.detach()
        num_tokens = int((lengths - 1).clamp(min=0).sum())
        recomputes = self.trunk.module.is_gradient_checkpointing and not head_only
        trace.num_forward_tokens += (2 if recomputes else 1) * num_tokens
        trace.num_backward_tokens += num_tokens
        norm = self._descent.step(float(total))
        trace.losses.append(float(total))
        trace.gradient_norms.append(norm)
        trace.num_skipped += math.isnan(norm)
        trace.num_nonfinite += math.isnan(norm)
        if self.is_measured and not math.isnan(norm):
            trace.displacements.append(self._descent.displacement)

    def _update_flops(
        self, taught: CriticTargets, trace: Trace, head_only: bool
    ) -> float:
        """Ledger of an update, by the tokens it passed and what of it is trained."""
        run = (row_lengths(taught.where) - 1).clamp(min=0).tolist()
        num_forward, num_backward = trace.num_forward_tokens, trace.num_backward_tokens
        if head_only:
            head = 2 * self._shape.logit_parameters * num_backward
            return training_flops(self._shape, run, num_forward, 0) + head
        return training_flops(
            self._shape, run, num_forward, num_backward, self._num_frozen
        )

    @torch.no_grad()
    def _unit_values(
        self,
        token_ids: Int[Tensor, "rollout token"],
        lengths: Int[Tensor, " rollout"],
    ) -> Float[Tensor, "rollout prefix"]:
        """V of the prefixes up to each row's length, between 0 and 1 by the rewards."""
        device = self.trunk.module.device
        self.model.eval()
        found = torch.zeros(len(token_ids), token_ids.shape[1] + 1, device=device)
        for rows, width in row_parts(lengths, self._micro_batch_tokens):
            places = rows.to(token_ids.device)
            outputs = self.model(token_ids[places, :width].to(device))
            found[rows.to(device), : width + 1] = self.output.values(outputs)
        return found

    def _targets(self, batch: Batch, wanted: ValueTargets, seed: int) -> CriticTargets:
        """What is taught, in the critic's own view of the batch."""
        config = self.config
        where, weights = wanted.where, wanted.weights
        if config.max_prefixes is not None:
            where = few_prefixes(where, config.max_prefixes, seed)
        if config.deviation_floor is not None:
            weights = weights * prompt_weights(batch, config.deviation_floor)[:, None]
        targets = wanted.targets
        view = self._view(batch)
        if view is not None:
            batch = view.batch
            targets, weights = view.onto(targets), view.onto(weights)
            where = view.onto(where)
        return critic_targets(
            batch,
            ValueTargets(targets, weights, where),
            config.reward_low,
            config.reward_high,
            self.trunk.module.device,
        )

    def _view(self, batch: Batch) -> View | None:
        """The batch as the critic is shown it; None where that is the policy's view."""
        return None if self._prompt_ids is None else shown(batch, self._prompt_ids)

    def _require_range(self, batch: Batch, rewards: Float[Tensor, " rollout"]) -> None:
        """A bounded output can only say what lies between its ends."""
        low, high = self.config.reward_low, self.config.reward_high
        slack = ROUNDING * self._span
        inside = (rewards >= low - slack) & (rewards <= high + slack)
        strangers = rewards[batch.verified & ~inside]
        if self.output.bounded and len(strangers):
            raise ValueError(
                f"rewards must lie in [{low}, {high}] for a critic with output = "
                f"{self.config.output!r}, got {float(strangers[0])}; set "
                "algorithm.critic.reward_low and algorithm.critic.reward_high to the "
                "range of the rewards, which rescales them"
            )

    @property
    def _span(self) -> float:
        return self.config.reward_high - self.config.reward_low

    def _unit(self, reward: float) -> float:
        return (reward - self.config.reward_low) / self._span

    def _card(self) -> saved.Card:
        """What a saved critic says about itself."""
        config = self.config
        return saved.Card(
            trunk=self.trunk.name,
            output=config.output,
            num_outputs=self.output.num_outputs,
            bin_sigma=config.bin_sigma,
            reward_low=config.reward_low,
            reward_high=config.reward_high,
            template=config.template,
            policy=self.trunk.policy_weights(),
            lora_rank=config.lora_rank,
            lora_alpha=config.lora_alpha,
            num_updates=self.num_updates,
            num_consecutive_skips=self._descent.num_consecutive_skips,
        )
