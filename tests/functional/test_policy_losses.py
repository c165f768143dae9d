"""Policy losses: tables, identities, masks and gradients; cases P13-P15."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.functional.policy_losses import (
    clipped_importance,
    clipped_surrogate,
    double_sided_importance,
    policy_gradient,
    sequence_clipped_surrogate,
)

F64 = torch.float64
NAN, INF = float("nan"), float("inf")
LOSSES = [
    policy_gradient,
    clipped_surrogate,
    partial(clipped_surrogate, dual_clip=3.0),
    sequence_clipped_surrogate,
    clipped_importance,
    double_sided_importance,
]


def row(*numbers):
    return torch.tensor([numbers], dtype=F64)


def at_ratio(loss, ratio, advantage, **knobs):
    """Loss of one token and its derivative by the log-prob."""
    old = row(-2.0)
    logprobs = (old + math.log(ratio)).requires_grad_()
    value = loss(logprobs, old, row(advantage), torch.ones(1, 1).bool(), **knobs)
    value.sum().backward()
    return value.item(), logprobs.grad.item()


# (ratio, A): loss at eps .2, with dual clip 3, with clip_high .28; derivative at eps .2
CLIP_TABLE = [
    (1.5, 1.0, -1.2, -1.2, -1.28, 0.0),
    (0.5, 1.0, -0.5, -0.5, -0.5, -0.5),
    (1.5, -1.0, 1.5, 1.5, 1.5, 1.5),
    (0.5, -1.0, 0.8, 0.8, 0.8, 0.0),
    (5.0, -1.0, 5.0, 3.0, 5.0, 5.0),
    (5.0, 1.0, -1.2, -1.2, -1.28, 0.0),
    (1.1, 2.0, -2.2, -2.2, -2.2, -2.2),
]


@pytest.mark.parametrize("ratio, advantage, plain, dual, higher, slope", CLIP_TABLE)
def test_p15_clip_table(ratio, advantage, plain, dual, higher, slope):
    """Case P15 (B058): dual clip only against negative advantages."""
    value, derivative = at_ratio(clipped_surrogate, ratio, advantage)
    assert value == pytest.approx(plain)
    assert derivative == pytest.approx(slope)
    value, derivative = at_ratio(clipped_surrogate, ratio, advantage, dual_clip=3.0)
    assert value == pytest.approx(dual)
    assert derivative == pytest.approx(slope if dual == plain else 0.0)
    value, _ = at_ratio(clipped_surrogate, ratio, advantage, clip_high=0.28)
    assert value == pytest.approx(higher)


def test_b059_each_knob_changes_the_loss():
    """Case B059: (5, -1) gives 5 without and 3 with a dual clip of 3."""
    assert at_ratio(clipped_surrogate, 5.0, -1.0)[0] == pytest.approx(5)
    assert at_ratio(clipped_surrogate, 5.0, -1.0, dual_clip=3.0)[0] == pytest.approx(3)
    assert at_ratio(clipped_surrogate, 0.5, -1.0, clip_low=0.4)[0] == pytest.approx(0.6)


@pytest.mark.parametrize("dual_clip", [1.0, 0.5, -3.0])
def test_b058_a_dual_clip_of_at_most_one_is_refused(dual_clip):
    """Case B058: c <= 1 is an error."""
    with pytest.raises(ValueError, match=f"dual_clip must be > 1, got {dual_clip}"):
        at_ratio(clipped_surrogate, 1.0, 1.0, dual_clip=dual_clip)


@pytest.mark.parametrize(
    "loss", [clipped_surrogate, sequence_clipped_surrogate, clipped_importance]
)
def test_clip_bounds_outside_their_range_are_named(loss):
    for clip_low in (-0.1, 1.2, NAN):
        with pytest.raises(ValueError, match=r"clip_low must be in \[0, 1\], got"):
            at_ratio(loss, 1.0, 1.0, clip_low=clip_low)
    for clip_high in (-0.1, NAN):
        with pytest.raises(ValueError, match=r"clip_high must be >= 0, got"):
            at_ratio(loss, 1.0, 1.0, clip_high=clip_high)


@pytest.mark.parametrize("low, high", [(2.0, 1.0), (-0.1, 2.0), (1.0, 1.0), (NAN, 2.0)])
def test_an_accepted_range_upside_down_is_refused(low, high):
    with pytest.raises(ValueError, match="accept_low must be >= 0 and below"):
        at_ratio(double_sided_importance, 1.0, 1.0, accept_low=low, accept_high=high)


def test_no_clip_is_the_plain_importance_weight():
    for ratio, advantage in ((7.0, 2.0), (0.1, -2.0), (7.0, -2.0)):
        value, slope = at_ratio(
            clipped_surrogate, ratio, advantage, clip_low=1.0, clip_high=INF
        )
        assert value == pytest.approx(-ratio * advantage)
        assert slope == pytest.approx(-ratio * advantage)


def test_b060_ratio_is_new_over_old():
    """Case B060: new -1, old -2 is e, not 1 / e."""
    found = clipped_surrogate(
        row(-1), row(-2), row(1), torch.ones(1, 1).bool(), clip_high=INF
    )
    assert -found.item() == pytest.approx(2.718282, abs=1e-6)


def test_p14_overflow_behind_a_mask_stays_there():
    """Case P14 (B062): loss -.5, gradient [-.5, 0], in float32."""
    sampled = torch.tensor([[True, False]])
    for loss in (clipped_surrogate, sequence_clipped_surrogate):
        logprobs = torch.tensor([[0.0, 1000.0]], requires_grad=True)
        losses = loss(logprobs, torch.zeros(1, 2), torch.ones(1, 2), sampled)
        total = losses.sum() / 2
        total.backward()
        assert total.item() == -0.5
        assert logprobs.grad.tolist() == [[-0.5, 0]]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("junk", [NAN, INF, -INF])
def test_b019_junk_where_not_sampled_reaches_nothing(loss, junk):
    """Case B019: old [0, NaN], mask [1, 0]: loss -1, gradient [-1, 0]."""
    sampled = torch.tensor([[True, False]])
    for column in range(3):
        arguments = [row(-1, -1), row(-1, -1), row(1, 1)]
        arguments[column] = arguments[column].clone()
        arguments[column][0, 1] = junk
        arguments[0].requires_grad_()
        losses = loss(*arguments, sampled)
        losses.sum().backward()
        # A surrogate has value -A, a weighted log-prob -A log pi = 1; both slope -A.
        assert abs(losses[0, 0].item()) == pytest.approx(1)
        assert losses[0, 1].item() == 0
        torch.testing.assert_close(arguments[0].grad, row(-1, 0))


def test_b014_an_observation_has_no_gradient_in_any_loss():
    """Case B014: tokens [act, obs, act]."""
    sampled = torch.tensor([[True, False, True]])
    for loss in LOSSES:
        logprobs = row(-1, -2, -3).requires_grad_()
        loss(logprobs, row(-1, -2.5, -3), row(2, 5, 7), sampled).sum().backward()
        torch.testing.assert_close(logprobs.grad, row(-2, 0, -7))


@pytest.mark.parametrize("loss", LOSSES)
def test_at_ratio_one_every_loss_has_the_policy_gradient(loss):
    generator = torch.Generator().manual_seed(0)
    logprobs = -torch.rand(3, 4, generator=generator, dtype=F64)
    advantages = torch.randn(3, 4, generator=generator, dtype=F64)
    sampled = torch.rand(3, 4, generator=generator) < 0.7
    logprobs.requires_grad_()
    losses = loss(logprobs, logprobs.detach().clone(), advantages, sampled)
    losses.sum().backward()
    torch.testing.assert_close(logprobs.grad, torch.where(sampled, -advantages, 0.0))
    assert (losses[~sampled] == 0).all()


def test_policy_gradient_closed_form():
    losses = policy_gradient(
        row(-0.5, -2), row(NAN, NAN), row(3, -5), torch.ones(1, 2).bool()
    )
    torch.testing.assert_close(losses, row(1.5, -10))


def test_a_clipped_token_that_overflows_is_a_constant():
    sampled = torch.ones(1, 1, dtype=torch.bool)
    for advantage, dual_clip, expected in ((1.0, None, -1.2), (-1.0, 3.0, 3.0)):
        logprobs = torch.tensor([[1000.0]], requires_grad=True)
        loss = clipped_surrogate(
            logprobs,
            torch.zeros(1, 1),
            torch.tensor([[advantage]]),
            sampled,
            dual_clip=dual_clip,
        )
        loss.sum().backward()
        assert loss.item() == pytest.approx(expected)
        assert logprobs.grad.item() == 0


def test_zero_advantage_has_zero_loss_even_where_the_ratio_overflows():
    logprobs = torch.tensor([[1000.0, -1000.0]], requires_grad=True)
    for loss in (clipped_surrogate, clipped_importance, double_sided_importance):
        logprobs.grad = None
        losses = loss(
            logprobs, torch.zeros(1, 2), torch.zeros(1, 2), torch.ones(1, 2).bool()
        )
        losses.sum().backward()
        assert losses.abs().tolist() == [[0, 0]]
        assert logprobs.grad.abs().tolist() == [[0, 0]]


def sequence_loss(logprobs, old_logprobs, advantage, low, high):
    """GSPO's loss of one sequence, from its definition and with its own gradient."""
    ratio = (logprobs - old_logprobs).mean().exp()
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)


@pytest.mark.parametrize("advantage", [2.0, -3.0])
@pytest.mark.parametrize("shift", [-0.5, -0.01, 0.0, 0.01, 0.5])
def test_sequence_surrogate_averaged_over_tokens_is_gspo(advantage, shift):
    generator = torch.Generator().manual_seed(1)
    old = -torch.rand(5, generator=generator, dtype=F64)
    new = old + shift + 0.1 * torch.randn(5, generator=generator, dtype=F64)
    expected_in = new.clone().requires_grad_()
    expected = sequence_loss(expected_in, old, advantage, 0.1, 0.2)
    expected.backward()
    found_in = torch.cat([new, new[:1] * NAN])[None].requires_grad_()
    sampled = torch.tensor([[True] * 5 + [False]])
    losses = sequence_clipped_surrogate(
        found_in,
        torch.cat([old, old[:1]])[None],
        torch.full((1, 6), advantage, dtype=F64),
        sampled,
        clip_low=0.1,
        clip_high=0.2,
    )
    (losses.sum() / 5).backward()
    torch.testing.assert_close(losses.sum() / 5, expected)
    torch.testing.assert_close(found_in.grad[0, :5], expected_in.grad)
    assert found_in.grad[0, 5] == 0


def test_sequence_ratio_is_the_geometric_mean():
    """Case B065: .012 a token over 100 tokens is 1.012072, not 3.320117."""
    old = torch.full((1, 100), -1.0, dtype=F64)
    found = sequence_clipped_surrogate(
        old + 0.012,
        old,
        torch.ones(1, 100, dtype=F64),
        torch.ones(1, 100).bool(),
        clip_high=5.0,
    )
    torch.testing.assert_close(
        found, torch.full((1, 100), -1.012072, dtype=F64), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize(
    "ratio, advantage, weight",
    [(1.5, 2.0, 1.28), (0.5, 2.0, 0.7), (1.5, -2.0, 1.28), (0.9, -2.0, 0.9)],
)
def test_clipped_importance_clips_the_weight_and_keeps_the_gradient(
    ratio, advantage, weight
):
    value, slope = at_ratio(
        clipped_importance, ratio, advantage, clip_low=0.3, clip_high=0.28
    )
    assert slope == pytest.approx(-weight * advantage)
    assert value == pytest.approx(-weight * advantage * (-2 + math.log(ratio)))


def test_clipped_importance_leaves_the_lower_side_open_by_default():
    assert at_ratio(clipped_importance, 0.01, 1.0)[1] == pytest.approx(-0.01)


@pytest.mark.parametrize(
    "ratio, weight", [(0.69, 0), (0.71, 0.71), (1, 1), (5.9, 5.9), (6.1, 0)]
)
@pytest.mark.parametrize("advantage", [2.0, -2.0])
def test_double_sided_importance_drops_both_sides_whatever_the_sign(
    ratio, weight, advantage
):
    value, slope = at_ratio(double_sided_importance, ratio, advantage)
    assert slope == pytest.approx(-weight * advantage)
    assert value == pytest.approx(-weight * advantage * (-2 + math.log(ratio)))


def test_double_sided_importance_excludes_its_bounds():
    for bounds in ((1.0, 2.0), (0.5, 1.0)):
        low, high = bounds
        _, slope = at_ratio(
            double_sided_importance, 1.0, 3.0, accept_low=low, accept_high=high
        )
        assert slope == 0


def test_b047_a_rejected_token_keeps_its_place_and_its_siblings_their_reward():
    """Case B047: the outcome is per rollout; rejecting one token leaves the other's."""
    logprobs = row(-1, -1).requires_grad_()
    sampled = torch.ones(1, 2, dtype=torch.bool)
    losses = double_sided_importance(logprobs, row(-1, -9), row(1, 1), sampled)
    (losses.sum() / sampled.sum()).backward()
    torch.testing.assert_close(logprobs.grad, row(-0.5, 0))


@pytest.mark.parametrize("loss", LOSSES)
def test_advantages_and_old_logprobs_carry_no_gradient(loss):
    logprobs = row(-1.0001, -2).requires_grad_()
    advantages = row(1, -1).requires_grad_()
    losses = loss(logprobs, row(-1, -2), advantages, torch.ones(1, 2).bool())
    losses.sum().backward()
    assert advantages.grad is None
    assert (logprobs.grad != 0).all()


@given(st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_gradcheck_where_the_value_is_the_objective(seed):
    generator = torch.Generator().manual_seed(seed)
    logprobs = -torch.rand(2, 3, generator=generator, dtype=F64)
    old = logprobs + 0.1 * torch.randn(2, 3, generator=generator, dtype=F64)
    advantages = torch.randn(2, 1, generator=generator, dtype=F64).expand(2, 3)
    sampled = torch.rand(2, 3, generator=generator) < 0.8
    for loss in (
        policy_gradient,
        partial(clipped_surrogate, clip_low=1.0, clip_high=INF),
        partial(clipped_surrogate, clip_low=0.0, clip_high=0.0),
        lambda *a: sequence_clipped_surrogate(*a, clip_low=1.0, clip_high=INF).sum(1),
    ):
        assert torch.autograd.gradcheck(
            lambda x, loss=loss: loss(x, old, advantages, sampled),
            (logprobs.requires_grad_(),),
        )


@pytest.mark.parametrize("loss", LOSSES)
@given(st.permutations(range(5)), st.integers(0, 2**31))
@settings(max_examples=15, deadline=None)
def test_rows_do_not_see_each_other(loss, order, seed):
    generator = torch.Generator().manual_seed(seed)
    logprobs = -torch.rand(5, 4, generator=generator, dtype=F64)
    old = logprobs + 0.5 * torch.randn(5, 4, generator=generator, dtype=F64)
    advantages = torch.randn(5, 4, generator=generator, dtype=F64)
    sampled = torch.rand(5, 4, generator=generator) < 0.8
    arguments = (logprobs, old, advantages, sampled)
    together = loss(*arguments)
    assert torch.equal(loss(*(x[order] for x in arguments)), together[order])
    assert torch.equal(loss(*(x[2:3] for x in arguments)), together[2:3])
    wider = loss(*(torch.cat([x, torch.zeros_like(x[:, :2])], 1) for x in arguments))
    torch.testing.assert_close(wider[:, :4], together, rtol=1e-14, atol=0)


def test_p13_one_temperature_gives_ratio_one():
    """Case P13 (B063): logits [2, 1, 0]; mixing T = 1 and T = .5 gives .767456."""
    logits = row(2, 1, 0)
    at_one, at_half = logits.log_softmax(-1), (logits / 0.5).log_softmax(-1)
    expected = row(-0.407606, -1.407606, -2.407606)
    torch.testing.assert_close(at_one, expected, atol=1e-6, rtol=0)
    first = torch.ones(1, 1, dtype=torch.bool)

    def ratio(new, old):
        return -clipped_surrogate(
            new[:, :1], old[:, :1], row(1), first, clip_low=1.0, clip_high=INF
        ).item()

    assert ratio(at_half, at_half) == 1
    assert ratio(at_one, at_half) == pytest.approx(0.767456, abs=1e-6)
    assert ratio(at_half, at_one) == pytest.approx(1.303007, abs=1e-6)


HUGE = [20.5, 50.0, 90.0, 800.0, 1e30]


def beside(loss, gap, advantage, **knobs):
    """Losses and gradients of a usual row beside one whose ratio is exp(gap)."""
    logprobs = torch.tensor([[-1.0, -1.5], [-1.0, -0.5]], requires_grad=True)
    old = logprobs.detach().clone()
    old[1] -= gap
    advantages = torch.tensor([[1.0, 1.0], [advantage, advantage]])
    losses = loss(logprobs, old, advantages, torch.ones(2, 2).bool(), **knobs)
    losses.sum().backward()
    return losses.detach(), logprobs.grad


@pytest.mark.parametrize("gap", HUGE)
@pytest.mark.parametrize(
    "loss",
    [
        clipped_surrogate,
        partial(clipped_surrogate, clip_high=INF),
        sequence_clipped_surrogate,
        partial(sequence_clipped_surrogate, clip_high=INF),
    ],
)
def test_a_row_with_a_huge_ratio_is_a_constant_beside_the_others(loss, gap):
    """It neither makes the loss infinite nor has a gradient; the rest keeps its own."""
    losses, slopes = beside(loss, gap, -1.0)
    assert losses[1].tolist() == pytest.approx([math.exp(20)] * 2, rel=1e-5)
    assert losses[0].tolist() == [-1.0, -1.0]
    assert slopes[0].tolist() == [-1.0, -1.0]
    assert slopes[1].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("gap", HUGE)
def test_a_huge_detached_weight_stays_finite_and_keeps_its_gradient(gap):
    losses, slopes = beside(clipped_importance, gap, -1.0, clip_high=INF)
    assert losses.isfinite().all()
    assert slopes[1].tolist() == pytest.approx([math.exp(20)] * 2, rel=1e-5)
    losses, slopes = beside(double_sided_importance, gap, -1.0, accept_high=INF)
    assert losses.isfinite().all()
    assert slopes[1].tolist() == pytest.approx([math.exp(20)] * 2, rel=1e-5)
    losses, slopes = beside(double_sided_importance, gap, -1.0)
    assert losses[1].tolist() == [0.0, 0.0]
    assert slopes[1].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("gap", [0.5, 3.0, 10.0, 19.9])
def test_up_to_the_bound_a_ratio_is_what_it_is(gap):
    for loss in (clipped_surrogate, sequence_clipped_surrogate):
        losses, slopes = beside(loss, gap, -2.0)
        expected = [2 * math.exp(gap)] * 2
        assert losses[1].tolist() == pytest.approx(expected, rel=1e-4)
        assert slopes[1].tolist() == pytest.approx(expected, rel=1e-4)
