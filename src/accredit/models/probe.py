"""Is a model read rightly in padded rows, and is its output head all there is?

One definition for the policy, its reference, a teacher and a critic's backbone. Results
are compared where they are made, before any head: a head that begins at 0 says the same
of everything. What cannot be seen at the weights of the start (a layer that begins at
0) shows later, so that a learner asks again after its first updates.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from accredit.models.positions import row_limit, thresholds

TOLERANCE = 1e-3
"""Of the largest entry; far above float32 noise, far below what a mask or a dropout
does."""
SHORT = (6, 4)
"""Lengths of the two rows that are tried first."""
LONGEST = 512
"""Tokens up to which both sides of a threshold are tried: a row that long costs less
than one step of training."""
SIZES = (1e-2, 1.0, 1e2, 1e4)
"""Of what is put in place of hidden states and logits: soft caps show at the large
ones, offsets at the small ones."""

AGAIN = 64
"""The same when a learner asks again."""
ASK_AGAIN = 64
"""Updates up to which a learner asks again, at 1, 2, 4, ...; a model that has learned
for so long has no layer left that says nothing."""

Reading = Callable[[Tensor], Tensor]
"""Token ids of rows -> what the model makes of each position."""


class Findings(NamedTuple):
    """What holds of a model."""

    causal: bool
    """A position is read alike whatever follows it."""
    unpadded: bool
    """Padding behind a row, and rows beside it, change nothing."""
    steady: bool
    """Training mode changes nothing."""


def is_due(num_updates: int) -> bool:
    """Whether a learner asks again after that many updates."""
    return 0 < num_updates <= ASK_AGAIN and num_updates.bit_count() == 1


def lengths_to_try(config: Any, longest: int = LONGEST) -> list[tuple[int, int]]:
    """Pairs of a longer and a shorter row: within and across each threshold."""
    limit = row_limit(config) or longest + 2
    found = [(min(SHORT[0], limit), min(SHORT[1], max(1, limit - 1)))]
    for threshold in thresholds(config):
        pair = (threshold + 2, threshold - 1)
        if pair[0] <= limit and threshold <= longest and pair[1] >= 1:
            found.append(pair)
    return found


@torch.no_grad()
def findings(
    model: PreTrainedModel, reading: Reading, lengths: Sequence[tuple[int, int]]
) -> Findings:
    """What holds of `reading` on two rows of each pair of lengths.

    Leaves the model in evaluation mode.
    """
    causal = unpadded = steady = True
    for index, (longer, shorter) in enumerate(lengths):
        rows = probe_rows(model, longer)
        padded = rows.clone()
        padded[1, shorter:] = 0
        model.eval()
        whole, short = reading(rows[:1]), reading(padded[1:, :shorter])
        begun, beside = reading(rows[:1, :shorter]), reading(padded)
        causal &= alike(begun[0], whole[0, :shorter])
        unpadded &= alike(beside[0], whole[0]) and alike(beside[1, :shorter], short[0])
        if index == 0:
            model.train()
            trained = reading(rows[:1])
            steady = alike(trained[0], whole[0])
            model.eval()
    return Findings(causal, unpadded, steady)


def probe_rows(model: PreTrainedModel, length: int) -> Tensor:
    """Two rows of token ids, the same at every call."""
    embedding: Any = model.get_input_embeddings()
    ids = torch.arange(2 * length, device=model.device) % embedding.weight.shape[0]
    return ids.view(2, length)


def alike(found: Tensor, expected: Tensor) -> bool:
    """Whether two results differ by rounding alone; yes where one overflowed."""
    found, expected = found.float(), expected.float()
    largest = float(expected.abs().max())
    return not math.isfinite(largest) or bool(
        torch.allclose(found, expected, rtol=0, atol=TOLERANCE * largest)
    )


@torch.no_grad()
def head_is_all(model: PreTrainedModel) -> bool:
    """Whether logits are the output head's product with the last hidden states.

    Both are replaced on their way by numbers of every size, so that neither the weights
    of the moment nor their scale decides: the head must be given just what the backbone
    gave, and what the head says must come out as it is. A soft cap, a scale of logits
    or of hidden states, and a layer in between are seen. Leaves the model in evaluation
    mode.
    """
    head: Any = model.get_output_embeddings()
    backbone: Any = model.base_model
    if type(head) is not nn.Linear or backbone is model:
        return False
    ids = probe_rows(model, 2 * len(SIZES))[:1]
    sizes = torch.tensor(SIZES, device=ids.device).repeat_interleave(2)[None, :, None]
    hidden = sizes * wave(head.in_features, ids.device)
    loud = sizes * wave(head.out_features, ids.device)
    given: list[Tensor] = []
    replaced: list[bool] = []

    def told(module: Any, arguments: Any, output: Any) -> Any:
        output.last_hidden_state = hidden.to(output.last_hidden_state)
        replaced.append(True)
        return output

    def heard(module: Any, arguments: Any, output: Any) -> Any:
        given.append(arguments[0])
        return loud.to(output)

    model.eval()
    with hooked(backbone, told), hooked(head, heard):
        try:
            logits = model(input_ids=ids, use_cache=False).logits
        except (AttributeError, TypeError, RuntimeError):
            # A forward that does not take what was put in its place is another one.
            return False
    if not replaced:
        # The causal LM runs a part of its backbone: what that gives must be the same.
        hidden = backbone(input_ids=ids, use_cache=False).last_hidden_state
    return len(given) == 1 and same(given[0], hidden) and same(logits, loud)


def wave(width: int, device: torch.device) -> Tensor:
    """Numbers of both signs up to 1, no two neighbours alike."""
    return torch.sin(torch.arange(1, width + 1, device=device) * 1.7)


def same(found: Tensor, expected: Tensor) -> bool:
    """Equal, entry by entry, up to the rounding of a change of type."""
    return found.shape == expected.shape and bool(
        torch.allclose(found.float(), expected.float(), rtol=TOLERANCE, atol=1e-6)
    )


@contextmanager
def hooked(module: nn.Module, hook: Any) -> Iterator[None]:
    """The hook stands while the block runs."""
    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
