"""Value losses against numbers by hand."""

import pytest
import torch

from accredit.functional.value_losses import clipped_squared_error, squared_error

F64 = torch.float64


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
