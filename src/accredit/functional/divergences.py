"""Per-token estimators of the KL divergence from a reference, and the entropy.

All three estimate KL(policy || reference) from tokens that the *policy* sampled; they
differ in variance and, used as a loss, in what they descend. They do not mask: both
arguments hold 0 where nothing was sampled, as `logprobs.py` returns them, or are masked
by the caller *before* the call, since `kl_k3` exponentiates their difference.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from accredit.functional.masked import LOG_RATIO_BOUND


def kl_k1(
    logprobs: Float[Tensor, "rollout token"],
    reference_logprobs: Float[Tensor, "rollout token"],
) -> Float[Tensor, "rollout token"]:
    """Log-ratio, the plain unbiased estimator of the KL divergence (k1).

        k1_t = log pi(a_t) - log ref(a_t)

    Schulman 2020, "Approximating KL divergence". Its mean is KL(pi || ref), each term
    may be negative. For the reward, not for the loss: as a loss on the policy's own
    samples its expected gradient is zero.

    Returns:
        Nats.
    """
    return logprobs - reference_logprobs


def kl_k2(
    logprobs: Float[Tensor, "rollout token"],
    reference_logprobs: Float[Tensor, "rollout token"],
) -> Float[Tensor, "rollout token"]:
    """Half the squared log-ratio (k2).

        k2_t = (log pi(a_t) - log ref(a_t))^2 / 2

    Schulman 2020, "Approximating KL divergence". Biased as an estimator, right to
    second order; as a loss its expected on-policy gradient is that of KL(pi || ref).

    Returns:
        Nats, never negative.
    """
    return 0.5 * (logprobs - reference_logprobs).square()


def kl_k3(
    logprobs: Float[Tensor, "rollout token"],
    reference_logprobs: Float[Tensor, "rollout token"],
) -> Float[Tensor, "rollout token"]:
    """Bregman form of the log-ratio (k3).

        k3_t = exp(d_t) - d_t - 1,    d_t = log ref(a_t) - log pi(a_t)

    Schulman 2020, "Approximating KL divergence"; the KL term of arXiv:2402.03300. Its
    mean is KL(pi || ref); as a loss it descends the *forward* divergence KL(ref || pi).
    Past d = 20 it goes on as the tangent there, so that it stays finite and a token far
    from the reference is still pulled back to it.

    Returns:
        Nats, never negative.
    """
    differences = reference_logprobs - logprobs
    # Two branches, not a clamp: its two large gradients would cancel to rounding noise.
    far = differences > LOG_RATIO_BOUND
    near = torch.where(far, LOG_RATIO_BOUND, differences)
    beyond = torch.where(far, differences - LOG_RATIO_BOUND, 0.0)
    tangent = math.exp(LOG_RATIO_BOUND) * beyond
    return torch.expm1(near) + tangent - differences


def entropy(logits: Float[Tensor, "*shape vocab"]) -> Float[Tensor, "*shape"]:
    """Entropy of the categorical distribution that logits describe.

        H = -sum_a p_a log p_a,    p = softmax(logits), 0 log 0 = 0

    In float32 at least, whatever the logits are. Differentiable. A logit of -inf is a
    token that cannot be drawn.

    Args:
        logits: Already divided by the temperature.

    Returns:
        Nats, in [0, log vocab].
    """
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
    logprobs = precise.log_softmax(-1)
    finite = torch.where(logprobs == -torch.inf, 0.0, logprobs)
    return -(logprobs.exp() * finite).sum(-1)
