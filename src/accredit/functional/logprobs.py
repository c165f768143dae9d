"""Log-probs and entropies of tokens, from logits or from hidden states.

Alignment and temperature live here. A causal model's output at position t - 1 predicts
token t and values the prefix before it; `_predictions` and `at_prefixes` alone know it,
so that index t of every result speaks about `token_ids[t]` or the prefix before it.
Log-softmax is in float32 (float64 in, float64 kept), also under autocast.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.autograd.function import once_differentiable

from accredit.functional.divergences import entropy


class TokenLogprobs(NamedTuple):
    """Nats, exactly 0 where not asked for and at index 0, which nothing predicts."""

    logprobs: Float[Tensor, "rollout token"]
    entropies: Float[Tensor, "rollout token"]
    """Of the distribution that token t was drawn from."""


def token_logprobs(
    logits: Float[Tensor, "rollout token vocab"],
    token_ids: Int[Tensor, "rollout token"],
    where: Bool[Tensor, "rollout token"],
    *,
    temperature: float = 1.0,
) -> TokenLogprobs:
    """Log-prob of each token given the tokens before it, from logits.

        logprob_t = log softmax(logits_{t-1} / temperature)[token_t]
        entropy_t = H(softmax(logits_{t-1} / temperature))

    Args:
        logits: Output of the model at each position.
        token_ids: The tokens it was given.
        where: True at the tokens whose log-prob is wanted; the rest costs nothing.
        temperature: As at sampling; of a greedy rollout, 1.

    Raises:
        ValueError: `temperature` is not positive.
    """
    _require_temperature(temperature)
    rows, sources = _predictions(where)
    selected = _precise(logits[rows, sources]) / temperature
    targets = token_ids[rows, sources + 1][:, None]
    logprobs = selected.log_softmax(-1).gather(1, targets)[:, 0]
    return TokenLogprobs(
        _scattered(logprobs, rows, sources, where),
        _scattered(entropy(selected), rows, sources, where),
    )


def head_logprobs(
    hidden: Float[Tensor, "rollout token hidden"],
    weight: Float[Tensor, "vocab hidden"],
    token_ids: Int[Tensor, "rollout token"],
    where: Bool[Tensor, "rollout token"],
    *,
    bias: Float[Tensor, " vocab"] | None = None,
    temperature: float = 1.0,
    max_logits: int = 2**24,
) -> TokenLogprobs:
    """Log-prob of each token, from the hidden states that feed the output head.

        logits_{t-1} = weight hidden_{t-1} + bias,    then as `token_logprobs`

    The logits are made in chunks of positions, forgotten, and made again in the
    backward pass, so that at most `max_logits` of them exist at once (and one more
    tensor of their size). Log-probs and entropies are differentiable in `hidden`,
    `weight` and `bias`, once.

    Args:
        hidden: Last hidden states, after the final norm.
        weight: The output head's.
        token_ids: The tokens the model was given.
        where: True at the tokens whose log-prob is wanted; the rest costs nothing.
        bias: The output head's, if it has one.
        temperature: As at sampling; of a greedy rollout, 1.
        max_logits: Positions x vocabulary of a chunk; changes memory, not the result.

    Raises:
        ValueError: `temperature` is not positive.
    """
    _require_temperature(temperature)
    rows, sources = _predictions(where)
    num_positions = max(1, max_logits // weight.shape[0])
    selected, targets = hidden[rows, sources], token_ids[rows, sources + 1]
    apply = cast(Callable[..., tuple[Tensor, Tensor]], _HeadLogprobs.apply)  # pyright: ignore[reportUnknownMemberType]
    logprobs, entropies = apply(
        selected, weight, bias, targets, temperature, num_positions
    )
    return TokenLogprobs(
        _scattered(logprobs, rows, sources, where),
        _scattered(entropies, rows, sources, where),
    )


def at_prefixes(
    outputs: Shaped[Tensor, "rollout position *output"],
) -> Shaped[Tensor, "rollout prefix *output"]:
    """What a causal model says at each position, at the prefix it has read by then.

        y_t = x_{t-1},    y_0 = 0

    The output at position t - 1 has read `token_ids[:t]`: it speaks about the prefix
    before token t, at the very place whose logits predict that token. The index law of
    values (PACT, arXiv:2609.26355): V of the prefix before token t has index t.

    Args:
        outputs: Of the model at each position, one number or several.

    Returns:
        One prefix more than there are positions; exactly 0 at the empty prefix, which
        nothing speaks about.
    """
    nothing = outputs.new_zeros(len(outputs), 1, *outputs.shape[2:])
    return torch.cat([nothing, outputs], dim=1)


def _predictions(where: Tensor) -> tuple[Tensor, Tensor]:
    """Row of each wanted token, and the position whose output predicts it."""
    rows, sources = where[:, 1:].nonzero(as_tuple=True)
    return rows, sources


def _scattered(x: Tensor, rows: Tensor, sources: Tensor, where: Tensor) -> Tensor:
    return x.new_zeros(where.shape).index_put((rows, sources + 1), x)


def _precise(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _require_temperature(temperature: float) -> None:
    if not temperature > 0:
        raise ValueError(
            f"temperature must be > 0, got {temperature}; "
            "the log-probs of a greedy rollout are taken at 1"
        )


class _HeadLogprobs(torch.autograd.Function):
    """Chunked output head, log-softmax, gather and entropy, with their gradient.

    With p = softmax(z), z the logits over the temperature:
        d logprob / d z = onehot(target) - p
        d entropy / d z = -p (log p + entropy)
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Float[Tensor, "position hidden"],
        weight: Float[Tensor, "vocab hidden"],
        bias: Float[Tensor, " vocab"] | None,
        targets: Int[Tensor, " position"],
        temperature: float,
        num_positions: int,
    ) -> tuple[Float[Tensor, " position"], Float[Tensor, " position"]]:
        logprobs = _precise(hidden.new_empty(len(hidden)))
        entropies, normalizers = torch.empty_like(logprobs), torch.empty_like(logprobs)
        head = _precise(weight)
        for start in range(0, len(hidden), num_positions):
            chunk = slice(start, start + num_positions)
            logits = _logits(hidden[chunk], head, bias, temperature)
            highest = logits.amax(1, keepdim=True)
            logits -= highest
            chosen = logits.gather(1, targets[chunk, None])[:, 0]
            weights = logits.exp()
            totals = weights.sum(1)
            entropies[chunk] = totals.log() - weights.mul_(logits).sum(1) / totals
            logprobs[chunk] = chosen - totals.log()
            normalizers[chunk] = totals.log() + highest[:, 0]
        ctx.save_for_backward(hidden, weight, bias, targets, entropies, normalizers)
        ctx.temperature, ctx.num_positions = temperature, num_positions
        return logprobs, entropies

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        by_logprob, by_entropy = gradients
        hidden, weight, bias, targets, entropies, normalizers = ctx.saved_tensors
        head = _precise(weight)
        by_hidden = torch.empty_like(hidden)
        by_weight = torch.zeros_like(head) if ctx.needs_input_grad[1] else None
        by_bias = torch.zeros_like(head[:, 0]) if ctx.needs_input_grad[2] else None
        for start in range(0, len(hidden), ctx.num_positions):
            chunk = slice(start, start + ctx.num_positions)
            slopes = _logits(hidden[chunk], head, bias, ctx.temperature)
            slopes -= normalizers[chunk, None]
            probabilities = slopes.exp()
            slopes += entropies[chunk, None]
            slopes *= by_entropy[chunk, None]
            slopes += by_logprob[chunk, None]
            slopes *= probabilities.neg_()
            slopes.scatter_add_(1, targets[chunk, None], by_logprob[chunk, None])
            slopes /= ctx.temperature
            by_hidden[chunk] = (slopes @ head).to(by_hidden.dtype)
            if by_weight is not None:
                by_weight.addmm_(slopes.T, _precise(hidden[chunk]))
            if by_bias is not None:
                by_bias += slopes.sum(0)
        return (
            by_hidden,
            None if by_weight is None else by_weight.to(weight.dtype),
            None if by_bias is None else by_bias.to(bias.dtype),
            None,
            None,
            None,
        )


def _logits(
    hidden: Tensor, head: Tensor, bias: Tensor | None, temperature: float
) -> Tensor:
    """Logits over the temperature in full precision, also under autocast."""
    with torch.autocast(hidden.device.type, enabled=False):
        logits = _precise(hidden) @ head.T
    if bias is not None:
        logits += bias
    return logits.div_(temperature)
