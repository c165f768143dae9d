"""A step that is taken only where loss and gradient are finite."""

import math

import pytest
import torch

from accredit.models.descent import Descent


def descent(
    limit: float | None = None, most: int = 3, owner: str = "the critic"
) -> tuple[Descent, torch.Tensor]:
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    made = Descent(
        optimizer,
        [weight],
        max_gradient_norm=limit,
        max_consecutive_skips=most,
        owner=owner,
    )
    return made, weight


@pytest.mark.parametrize(
    "limit, moved", [(None, [-3.0, 4.0]), (1.0, [-0.6, 0.8]), (9.0, [-3.0, 4.0])]
)
def test_a_gradient_is_clipped_to_the_limit_and_its_norm_reported(limit, moved):
    """(3, -4) has norm 5."""
    made, weight = descent(limit)
    weight.grad = torch.tensor([3.0, -4.0])
    assert made.step(0.1) == 5.0
    torch.testing.assert_close(weight.detach(), torch.tensor(moved))
    assert weight.grad is None


@pytest.mark.parametrize(
    "loss, gradient",
    [(math.nan, 1.0), (math.inf, 1.0), (1.0, math.nan), (1.0, math.inf)],
)
def test_what_is_not_finite_moves_nothing_and_too_often_is_an_error(loss, gradient):
    made, weight = descent(most=2)

    def step(loss: float, gradient: float) -> float:
        weight.grad = torch.full((2,), gradient)
        return made.step(loss)

    assert math.isnan(step(loss, gradient))
    assert not weight.any() and weight.grad is None
    assert made.num_consecutive_skips == 1
    assert step(1.0, 1.0) == pytest.approx(2**0.5)
    assert made.num_consecutive_skips == 0 and weight.any()
    step(loss, gradient)
    with pytest.raises(RuntimeError, match=r"got 2 steps in a row .* norm"):
        step(loss, gradient)


@pytest.mark.parametrize("owner", ["the policy", "the critic"])
def test_too_many_skips_say_whose_learning_rate_to_lower(owner):
    made, weight = descent(most=1, owner=owner)
    weight.grad = torch.ones(2)
    with pytest.raises(
        RuntimeError, match=rf"gradient of {owner} must .* learning rate of {owner},"
    ):
        made.step(math.nan)
