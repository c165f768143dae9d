"""Value losses against numbers by hand, and what their minimisers are."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import binary_cross_entropy_with_logits

from accredit.functional.value_losses import (
    bin_mean,
    binary_cross_entropy,
    categorical_cross_entropy,
    clipped_squared_error,
    smoothed_bins,
    squared_error,
)

F64 = torch.float64
NAN, INF = float("nan"), float("inf")


def row(*numbers):
    return torch.tensor([numbers], dtype=F64)


def test_p16_value_clip():
    """Cases P16, B096, B097: (V, old, R) = 1,5,10; 5,1,10; 5.1,5,10; 6,5,5.5."""
    values = row(1.0, 5.0, 5.1, 6.0).requires_grad_()
    old, targets = row(5.0, 1.0, 5.0, 5.0), row(10.0, 10.0, 10.0, 5.5)
    where = torch.ones(1, 4, dtype=torch.bool)
    losses = clipped_squared_error(values, old, targets, where, clip=0.2)
    # (1-10)^2/2; (1.2-10)^2/2; (5.1-10)^2/2; (6-5.5)^2/2 beside (5.2-5.5)^2/2
    torch.testing.assert_close(losses, row(40.5, 38.72, 12.005, 0.125))
    (gradient,) = torch.autograd.grad(losses.sum(), values)
    torch.testing.assert_close(gradient, row(-9.0, 0.0, -4.9, 0.5))


def test_a_wide_clip_is_the_squared_error():
    values, old, targets = row(0.3, 2.0), row(0.9, -1.0), row(1.0, 0.5)
    where = torch.ones(1, 2, dtype=torch.bool)
    plain = squared_error(values, targets, where)
    torch.testing.assert_close(plain, row(0.245, 1.125))
    wide = clipped_squared_error(values, old, targets, where, clip=100.0)
    torch.testing.assert_close(wide, plain)


def test_what_is_not_wanted_has_no_loss_and_no_gradient_even_at_nan():
    values = row(0.5, float("nan"), 7.0).requires_grad_()
    targets, where = row(1.0, 0.0, float("nan")), torch.tensor([[True, False, False]])
    for losses in (
        squared_error(values, targets, where),
        clipped_squared_error(values, row(0.0, 0.0, 0.0), targets, where, clip=1.0),
    ):
        torch.testing.assert_close(losses, row(0.125, 0.0, 0.0))
        (gradient,) = torch.autograd.grad(losses.sum(), values)
        torch.testing.assert_close(gradient, row(-0.5, 0.0, 0.0))


def test_gradients_are_those_of_finite_differences():
    values = row(0.3, 2.0, -1.0).requires_grad_()
    old, targets = row(0.9, -1.0, -1.05), row(1.0, 0.5, 0.25)
    where = torch.ones(1, 3, dtype=torch.bool)
    assert torch.autograd.gradcheck(
        lambda v: clipped_squared_error(v, old, targets, where, clip=0.5), (values,)
    )


def test_a_clip_that_is_not_positive_is_named():
    ones = row(1.0)
    with pytest.raises(ValueError, match="clip must be > 0, got 0"):
        clipped_squared_error(ones, ones, ones, ones > 0, clip=0.0)


def test_binary_cross_entropy_closed_form():
    # sigmoid(log 3) = 3/4: softplus = log 4; - Y log 3 for Y = 1, 0, .5, 2, -1
    z = math.log(3)
    logits, targets = row(*[z] * 5, 0.0), row(1.0, 0.0, 0.5, 2.0, -1.0, 1.0)
    losses = binary_cross_entropy(logits, targets, torch.ones_like(logits) > 0)
    fours, threes = math.log(4), math.log(3)
    expected = [fours - y * threes for y in (1, 0, 0.5, 2, -1)]
    torch.testing.assert_close(losses, row(*expected, math.log(2)))


@given(st.floats(-50, 50), st.floats(-3, 7))
@settings(max_examples=60, deadline=None)
def test_the_gradient_is_value_minus_target_for_any_target(z, y):
    """pact.md 2: sigmoid(z) - Y, for Y above 1 too."""
    logits = row(z).requires_grad_()
    losses = binary_cross_entropy(logits, row(y), torch.ones(1, 1) > 0)
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    expected = logits.detach().sigmoid() - y
    torch.testing.assert_close(gradient, expected, atol=1e-12, rtol=1e-12)


def test_binary_cross_entropy_at_a_fresh_head_and_at_the_ends():
    logits = torch.tensor([[0.0, 1e4, -1e4, 1e4, -1e4]], requires_grad=True)
    targets = torch.tensor([[1.0, 1.0, 0.0, 0.0, 1.0]])
    losses = binary_cross_entropy(logits, targets, torch.ones(1, 5) > 0)
    expected = torch.tensor([[math.log(2), 0, 0, 1e4, 1e4]])
    torch.testing.assert_close(losses, expected)
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    torch.testing.assert_close(gradient, torch.tensor([[-0.5, 0, 0, 1, -1]]))


def test_binary_cross_entropy_is_torchs():
    generator = torch.Generator().manual_seed(0)
    logits, targets = torch.randn(2, 3, 7, generator=generator, dtype=F64)
    losses = binary_cross_entropy(logits, targets, torch.ones(3, 7) > 0)
    expected = binary_cross_entropy_with_logits(logits, targets, reduction="none")
    torch.testing.assert_close(losses, expected)


@given(st.floats(0.001, 0.999), st.floats(-20, 20))
@settings(max_examples=100, deadline=None)
def test_excess_cross_entropy_bounds_the_squared_error(mean, z):
    """pact.md 2: BCE(V, m) - BCE(m, m) >= 2 (V - m)^2, with equality at V = m."""
    best = math.log(mean / (1 - mean))
    losses = binary_cross_entropy(row(z, best), row(mean, mean), torch.ones(1, 2) > 0)
    excess = float(losses[0, 0] - losses[0, 1])
    value = 1 / (1 + math.exp(-z))
    assert excess >= 2 * (value - mean) ** 2 - 1e-12


def categories(*rows):
    return torch.tensor([rows], dtype=F64)


def test_smoothed_bins_closed_form():
    # Two bins of .5 with sigma one bin: Phi at -1, 0, 1 deviations about .5.
    found = smoothed_bins(row(0.5, 0.0, 1.0), 2, sigma=1.0)
    first, second = math.erf(1 / 2**0.5), math.erf(2 / 2**0.5)
    low = first / second
    expected = categories([0.5, 0.5], [low, 1 - low], [1 - low, low])
    torch.testing.assert_close(found, expected)
    # Sigma is in bins: the same numbers for a range of another width.
    wide = smoothed_bins(row(5.0, -1.0, 11.0), 2, sigma=1.0, low=-1.0, high=11.0)
    torch.testing.assert_close(wide, expected)


@given(st.floats(0, 1), st.integers(2, 60), st.floats(0.05, 3))
@settings(max_examples=60, deadline=None)
def test_smoothed_bins_are_probabilities_about_the_target(target, num_bins, sigma):
    found = smoothed_bins(row(target), num_bins, sigma, 0.0, 1.0)
    assert found.shape == (1, 1, num_bins)
    assert (found >= 0).all()
    torch.testing.assert_close(found.sum(-1), row(1.0))
    mirrored = smoothed_bins(row(1 - target), num_bins, sigma)
    torch.testing.assert_close(found.flip(-1), mirrored, atol=1e-9, rtol=1e-6)


def test_a_target_away_from_the_ends_is_the_mean_of_its_bins():
    centers = (torch.arange(51, dtype=F64) + 0.5) / 51
    targets = row(0.1, 0.3333, 0.5, 0.77)
    found = smoothed_bins(targets, 51) @ centers
    torch.testing.assert_close(found, targets, atol=1e-4, rtol=0)
    # Cut in half by the end: .8176 * .5 + .1747 * 1.5 + .0077 * 2.5 bins inside.
    at_the_end = (smoothed_bins(row(0.0), 51) @ centers).item() * 51
    assert at_the_end == pytest.approx(0.690, abs=1e-3)


def test_targets_outside_the_range_extend_the_line_through_its_ends():
    """The sum stays 1, and the mean keeps pace: 1.6 of the way from end to end."""
    low, high = smoothed_bins(row(0.0, 1.0), 5)[0]
    found = smoothed_bins(row(1.6, -0.5, 1.0), 5)[0]
    torch.testing.assert_close(found[0], high + 0.6 * (high - low))
    torch.testing.assert_close(found[1], low - 0.5 * (high - low))
    assert torch.equal(found[2], high)
    torch.testing.assert_close(found.sum(-1), row(1.0, 1.0, 1.0)[0])
    assert float(found[0, 0]) < 0
    wide = smoothed_bins(row(7.0), 5, low=-2.0, high=2.0)[0, 0]
    ends = smoothed_bins(row(-2.0, 2.0), 5, low=-2.0, high=2.0)[0]
    torch.testing.assert_close(wide, ends[1] + 5 / 4 * (ends[1] - ends[0]))


def test_a_corrected_target_teaches_its_expectation_to_bins_too():
    """Ratio 2 or 0 of an outcome of .8: in the mean, the bins of its two ends."""
    mixed = smoothed_bins(row(1.6, 0.0), 51)[0].mean(0)
    centers = (torch.arange(51, dtype=torch.float64) + 0.5) / 51
    assert float(mixed @ centers) == pytest.approx(0.8, abs=0.01)
    assert bool((mixed > -1e-12).all())


def test_a_narrow_normal_is_one_bin():
    found = smoothed_bins(row(0.5), 5, sigma=1e-3)
    torch.testing.assert_close(found, categories([0, 0, 1, 0, 0]))


def test_bin_mean_closed_form():
    # Weights 1, 3 of bins about .25 and .75; of -2 and 2 in [-4, 4]
    logits = categories([0.0, math.log(3)], [0.0, 0.0])
    torch.testing.assert_close(bin_mean(logits), row(0.625, 0.5))
    torch.testing.assert_close(bin_mean(logits, -4.0, 4.0), row(1.0, 0.0))
    assert bin_mean(torch.zeros(51)).item() == pytest.approx(0.5)


def test_categorical_cross_entropy_closed_form():
    # Target .5 of two bins: p = (1/2, 1/2); softmax = (1/4, 3/4)
    logits = categories([0.0, math.log(3)]).requires_grad_()
    losses = categorical_cross_entropy(logits, row(0.5), torch.ones(1, 1) > 0)
    torch.testing.assert_close(losses, row(-0.5 * math.log(3 / 16)))
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    torch.testing.assert_close(gradient, categories([-0.25, 0.25]))


@given(st.floats(-1, 3), st.floats(0.2, 2), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_the_categorical_gradient_is_softmax_minus_the_smoothed_target(y, sigma, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(1, 1, 7, generator=generator, dtype=F64).requires_grad_()
    knobs = {"sigma": sigma, "low": -0.5, "high": 2.0}
    where = torch.ones(1, 1) > 0
    losses = categorical_cross_entropy(logits, row(y), where, **knobs)
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    wanted = smoothed_bins(row(y), 7, **knobs)
    torch.testing.assert_close(gradient, logits.detach().softmax(-1) - wanted)


def test_soft_losses_touch_nothing_that_is_not_wanted_even_at_nan():
    where = torch.tensor([[True, False, False, False]])
    logits = row(0.0, NAN, 7.0, INF).requires_grad_()
    losses = binary_cross_entropy(logits, row(1.0, 0.0, NAN, 1.0), where)
    torch.testing.assert_close(losses, row(math.log(2), 0, 0, 0))
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    torch.testing.assert_close(gradient, row(-0.5, 0, 0, 0))
    bins = categories([0.0, 0.0], [NAN, 1.0], [2.0, INF], [3.0, 1.0]).requires_grad_()
    losses = categorical_cross_entropy(bins, row(0.5, 0.0, 1.0, NAN), where)
    torch.testing.assert_close(losses, row(math.log(2), 0, 0, 0))
    (gradient,) = torch.autograd.grad(losses.sum(), bins)
    assert torch.equal(gradient[0, 1:], torch.zeros(3, 2, dtype=F64))


def test_gradcheck_of_the_soft_losses():
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(2, 3, generator=generator, dtype=F64).requires_grad_()
    bins = torch.randn(2, 3, 5, generator=generator, dtype=F64).requires_grad_()
    targets = torch.rand(2, 3, generator=generator, dtype=F64) * 2
    where = torch.tensor([[True, False, True], [True, True, False]])
    assert torch.autograd.gradcheck(
        lambda z, b: (
            binary_cross_entropy(z, targets, where),
            categorical_cross_entropy(b, targets, where),
            bin_mean(b),
        ),
        (logits, bins),
    )


def test_a_smoothed_target_has_no_gradient():
    targets = row(0.5).requires_grad_()
    assert not smoothed_bins(targets, 3).requires_grad


def test_bad_bins_are_named():
    ones = row(1.0)
    with pytest.raises(ValueError, match=r"sigma must be > 0 bins, got 0\.0"):
        smoothed_bins(ones, 5, 0.0)
    for call in (
        lambda: smoothed_bins(ones, 5, low=1.0, high=1.0),
        lambda: bin_mean(categories([0.0, 1.0]), 1.0, 1.0),
    ):
        with pytest.raises(ValueError, match=r"need low < high, got \[1.0, 1.0\]"):
            call()
