"""The three outputs of a value head: what a bias says, and what a loss asks for."""

import math

import pytest
import torch

from accredit.critics.configs import ValueHeadConfig
from accredit.critics.value_head.outputs import (
    CategoricalOutput,
    LinearOutput,
    SigmoidOutput,
    output_of,
)
from accredit.functional.value_losses import bin_mean, smoothed_bins

OUTPUTS = [SigmoidOutput(), LinearOutput(), LinearOutput(0.1), CategoricalOutput(51)]


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("value", [0.06, 0.3, 0.5, 0.91])
def test_the_bias_alone_says_the_value(output, value):
    bias = output.bias(value)
    assert bias.shape == (output.num_outputs,)
    said = output.values(bias.expand(2, 3, -1))
    torch.testing.assert_close(said, torch.full((2, 3), value))


def test_a_value_beyond_an_end_of_the_bins_is_that_ends():
    """Ten bins: .69 of a bin inside, where a smoothed 0 or 1 has its mean."""
    output = CategoricalOutput(10)
    for value, expected in ((0.999, 0.931), (0.001, 0.069)):
        bias = output.bias(value)
        assert bool(torch.isfinite(bias).all())
        said = output.values(bias.expand(1, 1, -1))
        assert float(said) == pytest.approx(expected, abs=1e-3)


def test_fresh_bins_lie_at_both_ends_and_thinly_between():
    """Of .5: nine tenths at the ends, alike, and a tenth spread over all 51."""
    found = CategoricalOutput(51).bias(0.5).double().softmax(-1)
    lost, won = smoothed_bins(torch.tensor([0.0, 1.0], dtype=torch.float64), 51)
    expected = 0.9 * (lost + won) / 2 + 0.1 / 51
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)
    wide = CategoricalOutput(51, sigma=3.0).bias(0.5).softmax(-1)
    assert float(wide[2] / wide[0]) > 5 * float(found[2] / found[0])
    # Of .06: .012 between, and the share w of the won end that gives the mean.
    rare = CategoricalOutput(51).bias(0.06).double().softmax(-1)
    assert float(rare[25] * 51) == pytest.approx(0.012, rel=1e-3)
    share = ((0.06 - 0.006) / 0.988 - 0.690 / 51) / (1 - 2 * 0.690 / 51)
    assert float(rare[-1] / rare[0]) == pytest.approx(share / (1 - share), rel=0.02)
    assert bin_mean(CategoricalOutput(51).bias(0.06)) == pytest.approx(0.06, abs=1e-5)


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_loss_is_least_at_its_target_and_0_where_nobody_asks(output):
    """Descending the loss of a constant target moves the value to it."""
    outputs = output.bias(0.4).expand(1, 2, -1).clone().requires_grad_(True)
    where = torch.tensor([[True, False]])
    targets, old = torch.tensor([[0.7, 0.1]]), torch.full((1, 2), 0.69)
    before = output.losses(outputs, targets, old, where)
    assert before[0, 1] == 0
    optimizer = torch.optim.Adam([outputs], lr=0.05)
    for _ in range(600):
        optimizer.zero_grad()
        output.losses(outputs, targets, old, where).sum().backward()
        optimizer.step()
    after = output.losses(outputs, targets, old, where)
    assert after[0, 0] < before[0, 0]
    said = output.values(outputs)[0]
    assert float(said[0].detach()) == pytest.approx(0.7, abs=0.01)
    assert float(said[1].detach()) == pytest.approx(0.4, abs=1e-5)


def test_a_recipe_names_the_output_and_its_clip_is_in_reward_units():
    wide = {"reward_low": -2.0, "reward_high": 8.0}
    linear = ValueHeadConfig(output="linear", value_clip=0.5, **wide)
    assert output_of(linear) == LinearOutput(0.5 / 10)
    assert output_of(ValueHeadConfig()) == SigmoidOutput()
    bins = ValueHeadConfig(output="categorical", num_bins=9, bin_sigma=0.5)
    assert output_of(bins) == CategoricalOutput(9, 0.5)
    assert [output_of(c).bounded for c in (linear, ValueHeadConfig(), bins)] == [
        False,
        True,
        True,
    ]
    assert output_of(linear).compares and not output_of(ValueHeadConfig()).compares


def test_the_deviation_of_a_bins_target_is_the_recipes():
    """Zero logits: log 9 at any sigma; a sharp peak tells how far a target reaches."""
    where, targets = torch.ones(1, 1) > 0, torch.tensor([[0.5]])
    peak = torch.zeros(1, 1, 9)
    peak[..., 4] = 3.0
    for sigma in (0.3, 1.2):
        output = output_of(
            ValueHeadConfig(output="categorical", num_bins=9, bin_sigma=sigma)
        )
        mass = math.erf(0.5 / sigma / 2**0.5) / math.erf(4.5 / sigma / 2**0.5)
        expected = math.log(8 + math.exp(3.0)) - 3.0 * mass
        found = output.losses(peak, targets, targets, where)
        assert float(found) == pytest.approx(expected, rel=1e-5)
