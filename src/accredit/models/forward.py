"""One place that runs a Hugging Face causal LM over right-padded rows.

Right padding makes attention mask and position ids redundant: under causal attention a
real token never sees what comes after it, and its position is its column. Leaving both
out lets attention take its fast causal path and every architecture its own positions.
`read` proves both that and the short way through the output head, or takes the model's
own forward. Packing rows into one is no
alternative on a CPU: measured 2.5 to 9 times slower than padded buckets of like length.

Knows how the model is called; knows no loss and no optimizer. Alignment is
`functional.logprobs`'.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from accredit.batches.rows import row_lengths
from accredit.functional.logprobs import TokenLogprobs, head_logprobs, token_logprobs
from accredit.models.probe import AGAIN, LONGEST, findings, head_is_all, lengths_to_try

Scoring = Callable[[PreTrainedModel, Tensor, Tensor, float], TokenLogprobs]
"""(model, token ids, wanted, temperature) -> log-probs and entropies where wanted."""


def scores_by_head(
    model: PreTrainedModel,
    token_ids: Int[Tensor, "rollout token"],
    wanted: Bool[Tensor, "rollout token"],
    temperature: float,
) -> TokenLogprobs:
    """Backbone first, then the output head at the wanted positions, in chunks."""
    hidden = hidden_states(model, token_ids[:, :-1])
    head: Any = model.get_output_embeddings()
    return head_logprobs(
        # The last column predicts nothing that is asked for: it is not run.
        nn.functional.pad(hidden, (0, 0, 0, 1)),
        head.weight,
        token_ids,
        wanted,
        bias=getattr(head, "bias", None),
        temperature=temperature,
    )


def scores_by_logits(
    model: PreTrainedModel,
    token_ids: Int[Tensor, "rollout token"],
    wanted: Bool[Tensor, "rollout token"],
    temperature: float,
) -> TokenLogprobs:
    """For models that do more to their logits than the head (scale, soft cap).

    Holds the logits of a micro-batch at once.
    """
    logits = own_logits(model, token_ids)
    return token_logprobs(logits, token_ids, wanted, temperature=temperature)


def row_by_row(scoring: Scoring) -> Scoring:
    """The same with nothing beside a row and nothing behind its last wanted token."""

    def alone(
        model: PreTrainedModel, token_ids: Tensor, wanted: Tensor, temperature: float
    ) -> TokenLogprobs:
        width = token_ids.shape[1]
        found: list[TokenLogprobs] = []
        for row, length in enumerate(row_lengths(wanted).clamp(min=2).tolist()):
            here = slice(row, row + 1), slice(0, length)
            scores = scoring(model, token_ids[here], wanted[here], temperature)
            gap = (0, width - length)
            found.append(
                TokenLogprobs(*(nn.functional.pad(part, gap) for part in scores))
            )
        return TokenLogprobs(*map(torch.cat, zip(*found, strict=True)))

    return alone


def own_logits(
    model: PreTrainedModel, token_ids: Int[Tensor, "rollout token"]
) -> Float[Tensor, "rollout token vocab"]:
    """The model's own forward."""
    return model(input_ids=token_ids, use_cache=False).logits


def hidden_states(
    model: PreTrainedModel, token_ids: Int[Tensor, "rollout token"]
) -> Float[Tensor, "rollout token hidden"]:
    """What feeds the output head, final norm included."""
    return model.base_model(input_ids=token_ids, use_cache=False).last_hidden_state


def without_dropout(model: PreTrainedModel) -> PreTrainedModel:
    """The same model with every dropout probability 0; its config stays as it was.

    Training mode must not change a log-prob, or the ratio is not 1 before the first
    step. It cannot be left off either: gradient checkpointing needs it.
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name, value in list(vars(module).items()):
            noisy = "drop" in name or "jitter" in name
            if noisy and isinstance(value, float):
                setattr(module, name, 0.0)
    return model


@dataclass(frozen=True)
class Reading:
    """Which of the short ways of scoring hold for a model."""

    name: str
    """Of its class."""
    short_head: bool
    """Logits are the output head's product with the last hidden states."""
    unpadded: bool
    """Padding behind a row, and rows beside it, change nothing."""

    @property
    def scoring(self) -> Scoring:
        """The shortest way that is right."""
        scoring = scores_by_head if self.short_head else scores_by_logits
        return scoring if self.unpadded else row_by_row(scoring)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is slower than it could be, one line each, for the terminal."""
        notes: list[str] = []
        if not self.short_head:
            notes.append(
                f"{self.name} does more to its logits than its output head: its own "
                "forward is taken, which holds the logits of a whole micro-batch; if "
                "memory runs out, lower learner.micro_batch_tokens"
            )
        if not self.unpadded:
            notes.append(
                f"{self.name} reads a row otherwise when others are beside it: rows "
                "are scored one by one, which is slower"
            )
        return tuple(notes)

    def and_now(self, model: PreTrainedModel) -> "Reading":
        """The same, less what no longer holds at the weights of now.

        The model's mode comes back.

        Raises:
            RuntimeError: The model is none that can be trained, which did not show at
                the weights of the start.
        """
        was_training = model.training
        try:
            found = read(model, AGAIN)
        except ValueError as error:
            raise RuntimeError(f"after its first updates {error}") from error
        finally:
            model.train(was_training)
        return replace(
            self,
            short_head=self.short_head and found.short_head,
            unpadded=self.unpadded and found.unpadded,
        )


def scoring_of(model: PreTrainedModel) -> Scoring:
    """How this model is scored; see `read`."""
    return read(model).scoring


def read(model: PreTrainedModel, longest: int = LONGEST) -> Reading:
    """What holds of this model, proved on rows up to about `longest` tokens.

    Leaves the model in evaluation mode.

    Raises:
        ValueError: What follows a token, or training mode, changes its log-prob.
    """
    name = type(model).__name__
    has_backbone = model.base_model is not model
    lengths = lengths_to_try(model.config, longest)
    # Logits of a short pair alone where they need not be held for long ones.
    pairs = lengths[:1] if has_backbone else lengths
    found = [findings(model, partial(own_logits, model), pairs)]
    if has_backbone:
        # A head that begins at 0 hides what its backbone does.
        found.append(findings(model, partial(hidden_states, model), lengths))
    if not all(each.causal for each in found):
        raise ValueError(
            "a policy must be causal, so that what follows a token changes no "
            f"log-prob, got {name}, whose it changes; train another architecture"
        )
    if not all(each.steady for each in found):
        raise ValueError(
            "a policy must give the same log-probs in training mode, got "
            f"{name}, which does not with all dropout at 0; "
            "turn its noise off in its config.json"
        )
    short_head = has_backbone and head_is_all(model)
    return Reading(name, short_head, all(each.unpadded for each in found))
