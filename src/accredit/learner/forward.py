"""One place that runs a Hugging Face causal LM over right-padded rows.

Right padding makes attention mask and position ids redundant: under causal attention a
real token never sees what comes after it, and its position is its column. Leaving both
out lets attention take its fast causal path and every architecture its own positions.
`scoring_of` refuses a model for which this does not hold. Packing rows into one is no
alternative on a CPU: measured 2.5 to 9 times slower than padded buckets of like length.

Knows how the model is called; knows no loss and no optimizer. Alignment is
`functional.logprobs`'.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from accredit.functional.logprobs import TokenLogprobs, head_logprobs, token_logprobs

PROBE_TOLERANCE = 1e-3
"""Relative; far above float32 noise, far below what a mask or a dropout does."""


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
    logits = model(input_ids=token_ids, use_cache=False).logits
    return token_logprobs(logits, token_ids, wanted, temperature=temperature)


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
            if "drop" in name and isinstance(value, float):
                setattr(module, name, 0.0)
    return model


@torch.no_grad()
def scoring_of(model: PreTrainedModel) -> Scoring:
    """How this model is scored, proved on two short rows.

    Raises:
        ValueError: Right padding or training mode changes what the model says.
    """
    device = model.device
    embedding: Any = model.get_input_embeddings()
    vocab_size = embedding.weight.shape[0]
    token_ids = (torch.arange(12, device=device) % vocab_size).view(2, 6)
    # A row of four and two columns of padding, beside one without.
    token_ids[1, 4:] = 0
    wanted = torch.ones_like(token_ids, dtype=torch.bool)
    wanted[:, 0] = False
    wanted[1, 4:] = False
    model.eval()
    expected = torch.zeros(token_ids.shape, device=device)
    for row, length in enumerate((6, 4)):
        alone = model(
            input_ids=token_ids[row : row + 1, :length],
            attention_mask=torch.ones((1, length), dtype=torch.long, device=device),
        ).logits
        ids, where = token_ids[row : row + 1, :length], wanted[row : row + 1, :length]
        expected[row, :length] = token_logprobs(alone, ids, where).logprobs[0]

    def agrees(scoring: Scoring) -> bool:
        found = scoring(model, token_ids, wanted, 1.0).logprobs
        return bool(
            torch.allclose(
                found.to(expected), expected, rtol=PROBE_TOLERANCE, atol=PROBE_TOLERANCE
            )
        )

    has_head = model.base_model is not model and model.get_output_embeddings()
    head_is_all = has_head and agrees(scores_by_head)
    scoring = scores_by_head if head_is_all else scores_by_logits
    if not agrees(scoring):
        raise ValueError(
            "a policy must be causal, so that right padding changes no log-prob, got "
            f"{type(model).__name__}, which it changes; train another architecture"
        )
    model.train()
    steady = agrees(scoring)
    model.eval()
    if not steady:
        raise ValueError(
            "a policy must give the same log-probs in training mode, got "
            f"{type(model).__name__}, which does not with all dropout at 0; "
            "turn its noise off in its config.json"
        )
    return scoring
