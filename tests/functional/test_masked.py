"""Masked reductions: closed forms, junk behind the mask; cases P04, P07, B176."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.functional.masked import (
    bounded_ratios,
    masked_log_ratios,
    masked_mean,
    masked_sum,
    masked_variance,
    whitened,
)

F64 = torch.float64
NAN, INF = float("nan"), float("inf")


def tensor(*numbers):
    return torch.tensor(numbers, dtype=F64)


def mask(*flags):
    return torch.tensor(flags, dtype=torch.bool)


@pytest.mark.parametrize("junk", [NAN, INF, -INF, 1e30])
def test_junk_behind_the_mask_reaches_no_result(junk):
    x, keep = tensor(2, junk, 5, 11), mask(1, 0, 1, 1)
    assert masked_sum(x, keep).item() == 18
    assert masked_mean(x, keep).item() == 6
    # mean 6: (16 + 1 + 25) / 2 = 21
    torch.testing.assert_close(masked_variance(x, keep), tensor(21).squeeze())
    expected = tensor(-4, 0, -1, 5) / 21**0.5
    torch.testing.assert_close(whitened(x, keep), expected)


@pytest.mark.parametrize("junk", [NAN, INF])
@pytest.mark.parametrize("function", [masked_sum, masked_mean, masked_variance])
def test_junk_behind_the_mask_reaches_no_gradient(function, junk):
    x = tensor(2, junk, 5, 11).requires_grad_()
    function(x, mask(1, 0, 1, 1)).backward()
    assert torch.isfinite(x.grad).all()
    assert x.grad[1] == 0


def test_whitening_has_finite_gradients_next_to_junk():
    x = tensor(2, NAN, 5, 11).requires_grad_()
    (whitened(x, mask(1, 0, 1, 1)) * tensor(1, 1, 2, 5)).sum().backward()
    assert torch.isfinite(x.grad).all()
    assert x.grad[1] == 0
    assert (x.grad[[0, 2, 3]] != 0).all()


def test_reductions_along_a_dimension_are_those_of_each_row():
    x = tensor(1, 2, 4, 3, 5, NAN, 7, 9, 9).reshape(3, 3)
    keep = mask(1, 1, 1, 1, 1, 0, 0, 0, 0).reshape(3, 3)
    torch.testing.assert_close(masked_sum(x, keep, 1), tensor(7, 8, 0))
    torch.testing.assert_close(masked_mean(x, keep, 1), tensor(7 / 3, 4, 0))
    # row 0: mean 7/3, squares 16/9 + 1/9 + 25/9 = 42/9, over 2
    torch.testing.assert_close(masked_variance(x, keep, 1), tensor(7 / 3, 2, 0))
    # columns 0 and 1 keep (1, 3) and (2, 5); column 2 keeps one entry
    torch.testing.assert_close(masked_variance(x, keep, 0), tensor(2, 4.5, 0))


def test_nothing_kept_is_zero_and_not_a_division_by_zero():
    x, keep = tensor(NAN, 5), mask(0, 0)
    for function in (masked_sum, masked_mean, masked_variance):
        assert function(x, keep).item() == 0
    assert whitened(x, keep).tolist() == [0, 0]


def test_one_kept_entry_has_variance_zero():
    assert masked_variance(tensor(5, 9), mask(1, 0)).item() == 0


def test_an_empty_tensor_is_reduced_to_zero():
    x, keep = torch.zeros(0), torch.zeros(0, dtype=torch.bool)
    assert masked_variance(x, keep).item() == 0
    assert whitened(x, keep).shape == (0,)


def test_p04_masked_whitening():
    """Case P04 (B017): n - 1, unchanged below two entries, no exception at none."""
    torch.testing.assert_close(
        whitened(tensor(1, 2, 3, 100), mask(1, 1, 1, 0)), tensor(-1, 0, 1, 0)
    )
    assert whitened(tensor(5, 9), mask(1, 0)).tolist() == [5, 0]
    assert whitened(tensor(5, 9), mask(0, 0)).tolist() == [0, 0]


@pytest.mark.parametrize("value", [0.1, 0.7, 0.95, 1 / 3])
@pytest.mark.parametrize("count", [2, 3, 7, 8, 31])
def test_equal_entries_have_no_variance_in_float32(value, count):
    """Case B037's kind: rounding of the mean must not pass for a deviation."""
    x, keep = torch.full((count,), value), torch.ones(count, dtype=torch.bool)
    assert masked_variance(x, keep).item() == 0
    assert whitened(x, keep).tolist() == [0.0] * count


def test_p07_pooled_mean_over_ranks_is_not_the_mean_of_means():
    """Case P07 (B175): 3 of 12 and 3 of 4 clipped are 6 of 16."""
    clipped = torch.zeros(2, 12)
    clipped[:, :3] = 1
    keep = torch.ones(2, 12, dtype=torch.bool)
    keep[1, 4:] = False
    assert masked_mean(clipped, keep).item() == pytest.approx(0.375)
    assert masked_mean(clipped, keep, 1).mean().item() == pytest.approx(0.5)


def test_b176_entropy_estimate_leaves_padding_out():
    """Case B176: log-probs [-1, -1, -7, -7], two real tokens: 2 summed, 1 averaged."""
    logprobs, keep = tensor(-1, -1, -7, -7), mask(1, 1, 0, 0)
    assert -masked_sum(logprobs, keep).item() == 2
    assert -masked_mean(logprobs, keep).item() == 1


def test_b029_kl_term_leaves_padding_out():
    """Case B029: kl [1, 9], mask [1, 0], beta .1 charges .1, not .5."""
    assert 0.1 * masked_mean(tensor(1, 9), mask(1, 0)).item() == pytest.approx(0.1)


def test_b057_masked_mean_divides_once():
    """Case B057: kl [1, 1] averages to 1, not .5."""
    assert masked_mean(tensor(1, 1), mask(1, 1)).item() == 1


def test_b016_trainable_tokens_are_the_denominator():
    """Case B016: losses [1, _, 1], mask [1, 0, 1] average to 1, not 2/3."""
    assert masked_mean(tensor(1, NAN, 1), mask(1, 0, 1)).item() == 1


def test_log_ratios_are_masked_before_they_are_exponentiated():
    logprobs = tensor(-1, NAN, -INF).reshape(1, 3).requires_grad_()
    other = tensor(-3, -1, -INF).reshape(1, 3)
    log_ratios = masked_log_ratios(logprobs, other, mask(1, 0, 0).reshape(1, 3))
    assert log_ratios.tolist() == [[2, 0, 0]]
    log_ratios.exp().sum().backward()
    torch.testing.assert_close(logprobs.grad, tensor(7.38905609893065, 0, 0)[None])


@given(st.integers(0, 2**31), st.floats(-100, 100), st.floats(0.01, 100))
@settings(max_examples=60, deadline=None)
def test_whitening_ignores_shift_and_scale(seed, shift, scale):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(7, generator=generator, dtype=F64)
    keep = torch.tensor([1, 1, 0, 1, 1, 0, 1], dtype=torch.bool)
    white = whitened(x, keep)
    torch.testing.assert_close(whitened(x * scale + shift, keep), white)
    assert masked_mean(white, keep).item() == pytest.approx(0, abs=1e-12)
    assert masked_variance(white, keep).item() == pytest.approx(1)


def test_variance_agrees_with_torch_and_passes_gradcheck():
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(1), dtype=F64)
    keep = torch.ones(3, 5, dtype=torch.bool)
    torch.testing.assert_close(masked_variance(x, keep), x.var())
    torch.testing.assert_close(masked_variance(x, keep, 1), x.var(1))
    keep[1, 2:] = False
    assert torch.autograd.gradcheck(
        lambda x: (
            masked_variance(x, keep, 1),
            masked_mean(x, keep),
            whitened(x, keep),
        ),
        (x.requires_grad_(),),
    )


def test_whitening_agrees_with_torch_on_the_kept_entries():
    x = torch.randn(50, generator=torch.Generator().manual_seed(2), dtype=F64)
    keep = torch.rand(50, generator=torch.Generator().manual_seed(3)) < 0.7
    kept = x[keep]
    expected = torch.zeros_like(x)
    expected[keep] = (kept - kept.mean()) / kept.std()
    torch.testing.assert_close(whitened(x, keep), expected)


@pytest.mark.parametrize(
    ("log_ratio", "ratio", "slope"),
    [
        (0.0, 1.0, 1.0),
        (-30.0, math.exp(-30), math.exp(-30)),
        (19.5, math.exp(19.5), math.exp(19.5)),
        (20.5, math.exp(20), 0.0),
        (88.0, math.exp(20), 0.0),
        (1000.0, math.exp(20), 0.0),
        (math.inf, math.exp(20), 0.0),
    ],
)
def test_a_ratio_is_bounded_before_it_overflows(log_ratio, ratio, slope):
    x = torch.tensor([log_ratio], requires_grad=True)
    found = bounded_ratios(x)
    found.sum().backward()
    assert found.item() == pytest.approx(ratio, rel=1e-5)
    assert x.grad.item() == pytest.approx(slope, rel=1e-5)
