"""How likely each of a few known answers is after each of many contexts.

A context is read once. Answers that begin alike share what they share: their common
beginnings are the inner nodes of a tree, which is walked level by level, one token a
step. Knows batches and caches; knows no text and no value.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from accredit.engines.local import lean_decoder
from accredit.engines.local.lean_decoder import LeanDecoder
from accredit.engines.local.module_decoder import ModuleDecoder, evaluation_mode
from accredit.models.positions import counts_columns

Ids = tuple[int, ...]

LEAST_ROWS = 16
"""Contexts that share a pass whatever their lengths."""
SHORTEST = 3 / 4
"""Share of its longest context below which one waits for the next batch."""


def answer_logprobs(
    model: Any,
    contexts: Sequence[Ids],
    answers: Sequence[Ids],
    *,
    max_batch_tokens: int = 131_072,
    max_batch_rows: int = 256,
) -> Float[Tensor, "context answer"]:
    """Log-probs of each answer after each context, at temperature 1, no gradient.

        log p(a | c) = sum_d log softmax(logits(c a_1 .. a_{d-1}))[a_d]

    The log-softmax is in float32; on CUDA the model runs in bfloat16. Equal contexts
    are read once.

    Args:
        model: A causal LM that keeps a cache.
        contexts: Token ids, with room for an answer.
        answers: Token ids; what one begins with another may be.
        max_batch_tokens: Bounds rows x columns of the cache: memory and speed.
        max_batch_rows: Bounds the rows, of which a context has one for each inner node
            of the widest level.

    Returns:
        On the model's device.

    Raises:
        ValueError: A context or an answer is empty, or a bound is not positive.
    """
    _require_bounds(contexts, answers, max_batch_tokens, max_batch_rows)
    levels = inner_levels(answers)
    found = torch.empty((len(contexts), len(answers)), device=model.device)
    if not contexts:
        return found
    distinct = sorted(dict.fromkeys(contexts), key=lambda ids: (-len(ids), ids))
    place = {ids: row for row, ids in enumerate(distinct)}
    scores = torch.empty((len(distinct), len(answers)), device=model.device)
    num_nodes = max(map(len, levels))
    kind = model.device.type
    precision = torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda")
    with evaluation_mode(model), precision:
        lean = LeanDecoder(model) if lean_decoder.supports(model) else None
        for start, end in _batches(
            [len(ids) + len(levels) - 1 for ids in distinct],
            max_batch_tokens // num_nodes,
            max(1, max_batch_rows // num_nodes),
            1.0 if counts_columns(model.config) else SHORTEST,
        ):
            scores[start:end] = _walked(
                model, lean, distinct[start:end], answers, levels
            )
        rows = torch.tensor([place[ids] for ids in contexts], device=model.device)
        found.copy_(scores[rows])
    return found


def inner_levels(answers: Sequence[Ids]) -> list[list[Ids]]:
    """Proper beginnings of the answers by length, each once, from the empty one on."""
    depth = max(map(len, answers))
    return [
        list(dict.fromkeys(ids[:length] for ids in answers if len(ids) > length))
        for length in range(depth)
    ]


def _batches(
    lengths: Sequence[int], max_tokens: int, max_rows: int, shortest: float
) -> Iterator[tuple[int, int]]:
    """First row and the one past the last of each batch; the longest come first.

    At a `shortest` share of 1, all of a batch are of one length.
    """
    start = 0
    for row, length in enumerate(lengths):
        num_rows, longest = row - start, lengths[start]
        full = num_rows >= max_rows or (num_rows + 1) * longest > max_tokens
        many = num_rows >= LEAST_ROWS or shortest == 1
        unlike = many and length < shortest * longest
        if num_rows and (full or unlike):
            yield start, row
            start = row
    yield start, len(lengths)


def _walked(
    model: Any,
    lean: LeanDecoder | None,
    contexts: Sequence[Ids],
    answers: Sequence[Ids],
    levels: Sequence[Sequence[Ids]],
) -> Float[Tensor, "context answer"]:
    """The answers' log-probs after a batch of contexts; a row a context and node."""
    device = model.device
    module = ModuleDecoder(model)
    next_logits = module if lean is None else lean
    rows, logits = module.prefill(contexts)
    scores = torch.zeros((len(contexts), len(answers)), device=device)
    first_rows = torch.arange(len(contexts), device=device)[:, None]
    nodes = levels[0]
    for depth, children in enumerate([*levels[1:], []]):
        number = {node: i for i, node in enumerate(nodes)}
        logprobs = logits.float().log_softmax(-1).view(len(contexts), len(nodes), -1)
        longer = [i for i, ids in enumerate(answers) if len(ids) > depth]
        parents = [number[answers[i][:depth]] for i in longer]
        tokens = [answers[i][depth] for i in longer]
        scores[:, longer] += logprobs[:, parents, tokens]
        if not children:
            break
        parents = [number[child[:-1]] for child in children]
        if parents != list(range(len(nodes))):
            kept = torch.tensor(parents, device=device)
            rows.select((first_rows * len(nodes) + kept).flatten())
        written = torch.tensor([child[-1] for child in children], device=device)
        logits = next_logits(rows, written.repeat(len(contexts)))
        nodes = children
    return scores


def _require_bounds(
    contexts: Sequence[Ids],
    answers: Sequence[Ids],
    max_batch_tokens: int,
    max_batch_rows: int,
) -> None:
    if max_batch_tokens < 1 or max_batch_rows < 1:
        raise ValueError(
            "max_batch_tokens and max_batch_rows must be >= 1, got "
            f"{max_batch_tokens} and {max_batch_rows}"
        )
    if not answers or not all(answers):
        raise ValueError(
            "there must be an answer and each must hold a token, got "
            f"{list(answers)!r}; leave the empty one out"
        )
    if not all(contexts):
        row = [len(ids) for ids in contexts].index(0)
        raise ValueError(
            f"context {row} must hold a token or more, got none; start it with the "
            "prompt"
        )
