"""KL estimators and entropy: values, gradients, expectations; case P11."""

import math

import pytest
import torch

from accredit.functional.divergences import entropy, kl_k1, kl_k2, kl_k3

F64 = torch.float64
POLICY = torch.tensor([0.6, 0.4], dtype=F64)
REFERENCE = torch.tensor([0.8, 0.2], dtype=F64)
REVERSE = 0.10464962875290957  # .6 ln(.6/.8) + .4 ln(.4/.2)
FORWARD = 0.09151622184943578  # .8 ln(.8/.6) + .2 ln(.2/.4)


def both_actions(theta):
    """Log-probs of the two actions when action 0 has logit theta and action 1 has 0."""
    return torch.stack([theta, theta * 0]).log_softmax(0)[None]


@pytest.mark.parametrize(
    "estimator, value, slope",
    [(kl_k1, 0.5, 1.0), (kl_k2, 0.125, 0.5), (kl_k3, 0.106531, 0.393469)],
)
def test_p11_one_token(estimator, value, slope):
    """Case P11 (B049): log-prob -1, reference -1.5."""
    logprobs = torch.tensor([[-1.0]], dtype=F64, requires_grad=True)
    found = estimator(logprobs, torch.tensor([[-1.5]], dtype=F64))
    found.sum().backward()
    assert found.item() == pytest.approx(value, abs=1e-6)
    assert logprobs.grad.item() == pytest.approx(slope, abs=1e-6)


@pytest.mark.parametrize(
    "estimator, expected", [(kl_k1, 0.0), (kl_k2, -0.235399), (kl_k3, -0.2)]
)
def test_p11_expected_gradient_as_a_loss(estimator, expected):
    """Case P11: k1 as a loss has none, k2 the reverse KL's, k3 the forward KL's."""
    theta = torch.tensor(math.log(1.5), dtype=F64, requires_grad=True)
    estimates = estimator(both_actions(theta), REFERENCE.log()[None])
    (POLICY * estimates).sum().backward()
    assert theta.grad.item() == pytest.approx(expected, abs=1e-6)


def test_p11_gradients_of_the_two_divergences():
    """Case P11: reverse -.235399, forward -.2; k1 in the reward the first."""
    theta = torch.tensor(math.log(1.5), dtype=F64, requires_grad=True)
    reference = REFERENCE.log()[None]
    logprobs = both_actions(theta)
    reverse = (logprobs.exp() * (logprobs - reference)).sum()
    forward = (reference.exp() * (reference - logprobs)).sum()
    in_reward = (POLICY * kl_k1(logprobs, reference).detach() * logprobs).sum()
    slopes = [
        torch.autograd.grad(x, theta, retain_graph=True)[0].item()
        for x in (reverse, forward, in_reward)
    ]
    assert slopes == pytest.approx([-0.235399, -0.2, -0.235399], abs=1e-6)
    assert reverse.item() == pytest.approx(REVERSE)
    assert forward.item() == pytest.approx(FORWARD)


def test_b054_estimators_are_of_the_reverse_divergence():
    """Case B054: student (.6, .4), teacher (.8, .2): .10465, not .091516."""
    for estimator in (kl_k1, kl_k3):
        found = (POLICY * estimator(POLICY.log()[None], REFERENCE.log()[None])).sum()
        assert found.item() == pytest.approx(REVERSE)
        swapped = (
            REFERENCE * estimator(REFERENCE.log()[None], POLICY.log()[None])
        ).sum()
        assert swapped.item() == pytest.approx(FORWARD)


def test_k2_is_right_to_second_order():
    for size in (1e-1, 1e-2, 1e-3):
        policy = torch.tensor([0.5 + size, 0.5 - size], dtype=F64)
        reference = torch.tensor([0.5, 0.5], dtype=F64)
        exact = (policy * (policy / reference).log()).sum()
        found = (policy * kl_k2(policy.log()[None], reference.log()[None])).sum()
        assert found.item() == pytest.approx(exact.item(), rel=2 * size)


def test_b050_a_sum_of_k3_is_not_the_k3_of_a_sum():
    """Case B050: differences .5, .5."""
    logprobs = torch.tensor([[-1.0, -1.0]], dtype=F64)
    reference = logprobs - 0.5
    assert kl_k3(logprobs, reference).sum().item() == pytest.approx(0.213061, abs=1e-6)
    of_the_sum = kl_k3(logprobs.sum(1, True), reference.sum(1, True))
    assert of_the_sum.item() == pytest.approx(0.367879, abs=1e-6)


def test_b052_sign_of_the_engine_divergence():
    """Case B052: trainer -1, engine -1.5: k1 of KL(engine || trainer) is -.5."""
    trainer, engine = torch.tensor([[-1.0]]), torch.tensor([[-1.5]])
    assert kl_k1(engine, trainer).item() == -0.5


def test_b051_masked_inputs_keep_an_overflow_out():
    """Case B051: d = [.1, 1e10], mask [1, 0]."""
    sampled = torch.tensor([[True, False]])
    logprobs = torch.tensor([[-1.1, -1e10]], requires_grad=True)
    reference = torch.tensor([[-1.0, 0.0]])
    found = kl_k3(
        torch.where(sampled, logprobs, 0.0), torch.where(sampled, reference, 0.0)
    )
    found.sum().backward()
    # exp(.1) - .1 - 1 = .005171
    assert found.tolist()[0] == pytest.approx([0.005171, 0], abs=1e-6)
    assert torch.isfinite(logprobs.grad).all()


def test_b053_equal_models_diverge_exactly_nowhere():
    """Case B053: at step 0 the KL is 0 exactly."""
    logprobs = -torch.rand(3, 4, generator=torch.Generator().manual_seed(0))
    for estimator in (kl_k1, kl_k2, kl_k3):
        assert (estimator(logprobs, logprobs.clone()) == 0).all()


def test_k3_keeps_its_digits_near_zero_in_float32():
    # d = 1e-4: exp(d) - d - 1 = 5.0002e-9, which 1 + d - d - 1 would round away.
    found = kl_k3(torch.tensor([[-1.0 - 1e-4]]), torch.tensor([[-1.0]]))
    assert found.item() == pytest.approx(5e-9, rel=0.02)


def test_entropy_closed_forms():
    assert entropy(torch.zeros(4)).item() == pytest.approx(math.log(4))
    logits = torch.tensor([[0.6, 0.4], [1.0, 0.0]], dtype=F64).log()
    # -(.6 ln .6 + .4 ln .4) = .673012; a certain token has none
    torch.testing.assert_close(
        entropy(logits), torch.tensor([0.6730116670092565, 0.0], dtype=F64)
    )
    torch.testing.assert_close(entropy(logits + 7), entropy(logits))


def test_entropy_agrees_with_torch_and_passes_gradcheck():
    logits = torch.randn(3, 2, 5, generator=torch.Generator().manual_seed(0), dtype=F64)
    expected = torch.distributions.Categorical(logits=logits).entropy()
    torch.testing.assert_close(entropy(logits), expected)
    assert torch.autograd.gradcheck(entropy, (logits.requires_grad_(),))


def test_entropy_of_a_forbidden_token_has_finite_gradients():
    logits = torch.tensor([1.0, float("-inf"), 0.0], requires_grad=True)
    entropy(logits).backward()
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[0] < 0 < logits.grad[2]


def test_b034_b035_entropy_alone_flattens_the_policy():
    """Cases B034, B035: the bonus has a gradient, and a step up it raises entropy."""
    logits = torch.tensor([1.0, 0.0], requires_grad=True)
    before = entropy(logits)
    (-0.1 * before).backward()
    assert (logits.grad != 0).all()
    assert entropy(logits - 0.5 * logits.grad) > before


def test_entropy_is_taken_in_float32():
    logits = torch.tensor([20.0625, 20.0, 19.5, 10.0])
    found = entropy(logits.bfloat16())
    assert found.dtype is torch.float32
    torch.testing.assert_close(found, entropy(logits.bfloat16().float()))


@pytest.mark.parametrize("gap", [20.5, 40.0, 90.0, 800.0])
def test_k3_goes_on_as_a_tangent_and_still_pulls_back(gap):
    """d = log ref - log pi: a token that the policy has all but lost."""
    logprobs = torch.tensor([[-gap]], requires_grad=True)
    found = kl_k3(logprobs, torch.zeros(1, 1))
    found.sum().backward()
    top = math.exp(20)
    assert found.item() == pytest.approx(top * (gap - 19) - 1 - gap, rel=1e-5)
    assert logprobs.grad.item() == pytest.approx(1 - top, rel=1e-5)


@pytest.mark.parametrize("gap", [-90.0, -1.0, 0.0, 0.3, 5.0, 19.9])
def test_k3_below_its_bound_is_the_closed_form(gap):
    logprobs = torch.tensor([[-gap]], dtype=torch.float64, requires_grad=True)
    found = kl_k3(logprobs, torch.zeros(1, 1, dtype=torch.float64))
    found.sum().backward()
    assert found.item() == pytest.approx(math.expm1(gap) - gap, rel=1e-12)
    assert logprobs.grad.item() == pytest.approx(1 - math.exp(gap), rel=1e-12)
