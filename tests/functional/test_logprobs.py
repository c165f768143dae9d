"""Token log-probs: alignment, temperature, precision, chunks; cases P13, B076."""

import math
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.functional.logprobs import at_prefixes, head_logprobs, token_logprobs

F64 = torch.float64
NAN = float("nan")


def everywhere(token_ids):
    return torch.ones_like(token_ids, dtype=torch.bool)


def random_head(seed=0, rollouts=3, tokens=5, hidden=4, vocab=7, dtype=F64):
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(rollouts, tokens, hidden, generator=generator, dtype=dtype),
        torch.randn(vocab, hidden, generator=generator, dtype=dtype),
        torch.randint(vocab, (rollouts, tokens), generator=generator),
        torch.rand(rollouts, tokens, generator=generator) < 0.6,
        torch.randn(vocab, generator=generator, dtype=dtype),
    )


def by_hand(logits, token_ids, where, temperature):
    """Log-probs and entropies token by token, from the definition."""
    logprobs = torch.zeros(token_ids.shape, dtype=logits.dtype)
    entropies = torch.zeros_like(logprobs)
    for i, t in where.nonzero().tolist():
        if t == 0:
            continue
        table = (logits[i, t - 1] / temperature).log_softmax(0)
        logprobs[i, t] = table[token_ids[i, t]]
        entropies[i, t] = -(table.exp() * table).sum()
    return logprobs, entropies


def test_index_t_speaks_about_token_t():
    """The prediction of token t stands at position t - 1; token 0 has none."""
    logits = torch.zeros(1, 3, 4, dtype=F64)
    logits[0, 0, 2] = math.log(5)  # token 1 is drawn from (1, 1, 5, 1) / 8
    logits[0, 1, 3] = math.log(3)  # token 2 is drawn from (1, 1, 1, 3) / 6
    logits[0, 2] = NAN  # predicts what was never sampled
    token_ids = torch.tensor([[0, 2, 1]])
    found = token_logprobs(logits, token_ids, everywhere(token_ids))
    torch.testing.assert_close(
        found.logprobs,
        torch.tensor([[0, 5 / 8, 1 / 6]], dtype=F64).log().nan_to_num(neginf=0),
    )
    first = -(5 / 8 * math.log(5 / 8) + 3 / 8 * math.log(1 / 8))
    second = -(1 / 2 * math.log(1 / 2) + 1 / 2 * math.log(1 / 6))
    torch.testing.assert_close(
        found.entropies, torch.tensor([[0, first, second]], dtype=F64)
    )


@given(
    st.integers(0, 2**31),
    st.sampled_from([0.5, 1.0, 1.7]),
    st.sampled_from([1, 7, 20, 2**20]),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_head_and_logits_agree_with_the_definition(seed, temperature, chunk, biased):
    hidden, weight, token_ids, where, bias = random_head(seed)
    logits = hidden @ weight.T + (bias if biased else 0.0)
    logprobs, entropies = by_hand(logits, token_ids, where, temperature)
    from_logits = token_logprobs(logits, token_ids, where, temperature=temperature)
    from_head = head_logprobs(
        hidden,
        weight,
        token_ids,
        where,
        bias=bias if biased else None,
        temperature=temperature,
        max_logits=chunk,
    )
    for found in (from_logits, from_head):
        torch.testing.assert_close(found.logprobs, logprobs)
        torch.testing.assert_close(found.entropies, entropies)


@pytest.mark.parametrize("chunk", [1, 14, 2**20])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_gradients_of_the_chunked_head_are_those_of_the_plain_one(chunk, temperature):
    hidden, weight, token_ids, where, bias = random_head(2)
    weights = torch.randn(
        2, 3, 5, generator=torch.Generator().manual_seed(9), dtype=F64
    )
    leaves = [x.requires_grad_() for x in (hidden, weight, bias)]

    def gradients(found):
        total = (weights[0] * found.logprobs + weights[1] * found.entropies).sum()
        return torch.autograd.grad(total, leaves)

    plain = gradients(
        token_logprobs(
            hidden @ weight.T + bias, token_ids, where, temperature=temperature
        )
    )
    chunked = gradients(
        head_logprobs(
            hidden,
            weight,
            token_ids,
            where,
            bias=bias,
            temperature=temperature,
            max_logits=chunk,
        )
    )
    for found, expected in zip(chunked, plain, strict=True):
        assert expected.abs().sum() > 0
        torch.testing.assert_close(found, expected)


def test_gradcheck_of_the_head():
    hidden, weight, token_ids, where, bias = random_head(3, 2, 4, 3, 5)
    assert torch.autograd.gradcheck(
        lambda h, w, b: head_logprobs(
            h, w, token_ids, where, bias=b, temperature=0.7, max_logits=10
        ),
        tuple(x.requires_grad_() for x in (hidden, weight, bias)),
    )


def test_gradcheck_of_the_logits():
    logits = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0), dtype=F64)
    token_ids = torch.tensor([[0, 3, 1], [2, 2, 0]])
    assert torch.autograd.gradcheck(
        lambda x: token_logprobs(x, token_ids, everywhere(token_ids), temperature=0.7),
        (logits.requires_grad_(),),
    )


def test_entropy_alone_reaches_the_parameters():
    """Case B034: the entropy bonus changes the gradient, not only the number."""
    hidden, weight, token_ids, where, _ = random_head(4)
    head_logprobs(
        hidden, weight.requires_grad_(), token_ids, where
    ).entropies.sum().backward()
    assert (weight.grad != 0).all()


def test_frozen_parts_get_no_gradient():
    hidden, weight, token_ids, where, bias = random_head(5)
    found = head_logprobs(hidden.requires_grad_(), weight, token_ids, where, bias=bias)
    found.logprobs.sum().backward()
    assert weight.grad is None
    assert bias.grad is None
    with torch.no_grad():
        found = head_logprobs(hidden, weight, token_ids, where)
    assert not found.logprobs.requires_grad


@pytest.mark.parametrize("junk", [NAN, float("inf")])
def test_positions_that_predict_nothing_wanted_are_never_read(junk):
    hidden, weight, token_ids, _, _ = random_head(6)
    where = torch.zeros(3, 5, dtype=torch.bool)
    where[0, 2:4] = where[2, 1] = True
    clean = head_logprobs(hidden, weight, token_ids, where)
    needed = torch.zeros(3, 5, dtype=torch.bool)
    needed[0, 1:3] = needed[2, 0] = True
    dirty_hidden = torch.where(needed[..., None], hidden, junk).requires_grad_()
    dirty_ids = torch.where(where, token_ids, 10**6)
    dirty = head_logprobs(dirty_hidden, weight, dirty_ids, where)
    assert torch.equal(dirty.logprobs, clean.logprobs)
    assert torch.equal(dirty.entropies, clean.entropies)
    assert (dirty.logprobs[~where] == 0).all()
    (dirty.logprobs.sum() + dirty.entropies.sum()).backward()
    assert torch.isfinite(dirty_hidden.grad).all()
    from_logits = token_logprobs(dirty_hidden @ weight.T, dirty_ids, where)
    torch.testing.assert_close(from_logits.logprobs, clean.logprobs)


def test_nothing_wanted_gives_zeros_and_zero_gradients():
    hidden, weight, token_ids, _, _ = random_head(7)
    where = torch.zeros(3, 5, dtype=torch.bool)
    where[:, 0] = True
    hidden.requires_grad_(), weight.requires_grad_()
    for found in (
        head_logprobs(hidden, weight, token_ids, where),
        token_logprobs(hidden @ weight.T, token_ids, where),
    ):
        assert (found.logprobs == 0).all()
        assert (found.entropies == 0).all()
        (found.logprobs.sum() + found.entropies.sum()).backward()
    assert (hidden.grad == 0).all()
    assert (weight.grad == 0).all()


def test_no_more_logits_exist_at_once_than_allowed(monkeypatch):
    """4 positions of 7 tokens at a time, forward and backward."""
    hidden, weight, token_ids, where, _ = random_head(8, rollouts=6)
    made = []
    original = torch.Tensor.__matmul__
    monkeypatch.setattr(
        torch.Tensor,
        "__matmul__",
        lambda a, b: made.append(original(a, b)) or made[-1],
    )
    found = head_logprobs(
        hidden.requires_grad_(), weight, token_ids, where, max_logits=30
    )
    (found.logprobs.sum() + found.entropies.sum()).backward()
    assert len(made) > 6
    assert max(x.numel() for x in made) <= 28


def test_p13_temperature_divides_the_logits():
    """Case P13 (B063): logits [2, 1, 0]."""
    logits = torch.tensor([[[2.0, 1.0, 0.0], [0, 0, 0]]]).expand(3, -1, -1)
    token_ids = torch.tensor([[0, 0], [0, 1], [0, 2]])
    for temperature, expected in (
        (1.0, [-0.407606, -1.407606, -2.407606]),
        (0.5, [-0.142932, -2.142932, -4.142932]),
        (0.6, [-0.202573, -1.86924, -3.535906]),
    ):
        found = token_logprobs(
            logits, token_ids, everywhere(token_ids), temperature=temperature
        )
        assert found.logprobs[:, 1].tolist() == pytest.approx(expected, abs=1e-6)
        head = head_logprobs(
            torch.ones(3, 2, 1),
            torch.tensor([[2.0], [1.0], [0.0]]),
            token_ids,
            everywhere(token_ids),
            temperature=temperature,
        )
        assert head.logprobs[:, 1].tolist() == pytest.approx(expected, abs=1e-6)


def test_b076_log_softmax_is_in_float32():
    """Case B076: logits [20.06, 20, 19.5, 10]: -.921484; in bfloat16 -.958037."""
    token_ids = torch.zeros(1, 2, dtype=torch.int64)
    logits = torch.tensor([20.06, 20.0, 19.5, 10.0]).expand(1, 2, 4)
    found = token_logprobs(logits, token_ids, everywhere(token_ids))
    assert found.logprobs[0, 1].item() == pytest.approx(-0.921484, abs=1e-6)
    rounded = token_logprobs(logits.bfloat16(), token_ids, everywhere(token_ids))
    assert rounded.logprobs.dtype is torch.float32
    assert rounded.logprobs[0, 1].item() == pytest.approx(-0.958037, abs=1e-6)


def test_b076_the_head_multiplies_in_float32_also_under_autocast():
    """Case B076: a bfloat16 model's logits are not rounded to bfloat16."""
    hidden, weight, token_ids, where, bias = random_head(9, 3, 5, 32, 50, torch.float32)
    hidden, weight, bias = (x.bfloat16() for x in (hidden, weight, bias))
    exact = head_logprobs(
        hidden.double(), weight.double(), token_ids, where, bias=bias.double()
    )
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            found = head_logprobs(
                hidden.requires_grad_(),
                weight.requires_grad_(),
                token_ids,
                where,
                bias=bias,
            )
        assert found.logprobs.dtype is torch.float32
        torch.testing.assert_close(
            found.logprobs, exact.logprobs.float(), atol=2e-5, rtol=1e-5
        )
        found.logprobs.sum().backward()
        assert hidden.grad.dtype is weight.grad.dtype is torch.bfloat16


def test_extreme_logits_stay_finite():
    token_ids = torch.tensor([[0, 0], [0, 1]])
    found = head_logprobs(
        torch.full((2, 2, 1), 1e4),
        torch.tensor([[1.0], [-1.0]]),
        token_ids,
        everywhere(token_ids),
    )
    assert found.logprobs[:, 1].tolist() == [0, -2e4]
    assert found.entropies[:, 1].tolist() == [0, 0]


@pytest.mark.parametrize("temperature", [0.0, -1.0, NAN])
def test_a_temperature_that_cannot_divide_is_refused(temperature):
    hidden, weight, token_ids, where, _ = random_head()
    message = "temperature must be > 0, got .*taken at 1"
    with pytest.raises(ValueError, match=message):
        head_logprobs(hidden, weight, token_ids, where, temperature=temperature)
    with pytest.raises(ValueError, match=message):
        token_logprobs(hidden @ weight.T, token_ids, where, temperature=temperature)


@pytest.mark.slow
def test_logprobs_and_entropies_agree_with_trl():
    """TRL 1.16's helpers take logits already aligned to the tokens they predict."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reference = pytest.importorskip("trl.trainer.utils")
    hidden, weight, token_ids, _, _ = random_head(10, dtype=torch.float32)
    logits = hidden @ weight.T
    found = head_logprobs(
        hidden, weight, token_ids, everywhere(token_ids), temperature=0.7
    )
    aligned = logits[:, :-1] / 0.7
    torch.testing.assert_close(
        found.logprobs[:, 1:],
        reference.selective_log_softmax(aligned, token_ids[:, 1:]),
    )
    torch.testing.assert_close(
        found.entropies[:, 1:], reference.entropy_from_logits(aligned)
    )


@given(rows=st.integers(0, 3), positions=st.integers(0, 5), width=st.integers(0, 3))
@settings(deadline=None, max_examples=40)
def test_an_output_stands_at_the_prefix_that_its_position_has_read(
    rows, positions, width
):
    """Position t - 1 has read `token_ids[:t]`; nothing has read the empty prefix."""
    shape = (rows, positions, width) if width else (rows, positions)
    outputs = torch.randn(shape, dtype=F64, requires_grad=True)
    found = at_prefixes(outputs)
    assert found.shape == (rows, positions + 1, *shape[2:])
    assert found.dtype == F64
    assert not found[:, :1].any()
    for t in range(1, positions + 1):
        assert torch.equal(found[:, t], outputs[:, t - 1])
    found.sum().backward()
    assert bool((outputs.grad == 1).all())


def test_the_value_before_token_t_and_its_log_prob_are_read_at_one_position():
    """With logits as outputs: column t of both comes from the same row of numbers."""
    hidden, weight, token_ids, _, _ = random_head()
    logits = hidden @ weight.T
    before = at_prefixes(logits)[:, :-1].log_softmax(-1)
    expected = before.gather(2, token_ids[..., None])[..., 0]
    found = token_logprobs(logits, token_ids, everywhere(token_ids)).logprobs
    torch.testing.assert_close(found[:, 1:], expected[:, 1:])
