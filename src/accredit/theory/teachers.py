"""Theorem 2: a distillation teacher is an implicit critic.

The ideal teacher q* = argmax E_q[Q] - beta KL(q || p) is q* ~ p exp(Q / beta), with
Q = E[V_t | F_{t-1}, T_t]. A student that follows log q* - log p of its own samples
follows (1 / beta) C. The teacher that imitates successes, q ~ p V, does something else.
"""

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from accredit.theory.axioms import (
    consistency_error,
    exact_credits,
    largest,
    neutrality_error,
    short_of,
)
from accredit.theory.gradients import exact_gradient, expected_gradient
from accredit.theory.trees import Tree, random_tree

BETAS = (0.2, 1.0)


def ideal_teacher(tree: Tree, beta: float) -> Float[Tensor, "node branch"]:
    """Logits of p exp(Q / beta)."""
    return tree.logits + tree.action_values(tree.values()) / beta


def success_teacher(tree: Tree) -> Float[Tensor, "node branch"]:
    """Logits of the policy given that the outcome is paid: q(a) = p(a) Q(a) / V."""
    paid = tree.action_values(tree.values()).log()
    return tree.logits + torch.where(tree.inner[:, None], paid, 0.0)


def teacher_advantages(
    tree: Tree, teacher: Float[Tensor, "node branch"]
) -> Float[Tensor, " node"]:
    """log q - log p of the token on the edge into each node; 0 at the root."""
    difference = tree.under(teacher).token_probabilities().log()
    return difference - tree.token_probabilities().log()


def ideal_teacher_is_the_argmax(draw: Generator) -> float:
    """q ~ p exp(Q / beta) reaches beta log E_p[exp(Q / beta)], and no other q more."""
    tree = random_tree(draw)
    action_values = tree.action_values(tree.values())
    prior = tree.logits.log_softmax(-1)
    errors: list[Tensor] = []
    for beta in BETAS:
        reached = _regularised(ideal_teacher(tree, beta), prior, action_values, beta)
        most = beta * (prior + action_values / beta).logsumexp(-1)
        noise = torch.randn(prior.shape, generator=draw, dtype=torch.float64)
        others = ideal_teacher(tree, beta) + noise
        rival = _regularised(others, prior, action_values, beta)
        errors.append(torch.where(tree.inner, reached - most, 0.0))
        errors.append(torch.where(tree.inner, rival - most, 0.0).clamp(min=0.0))
    return largest(*errors)


def distillation_gradient(draw: Generator) -> float:
    """The sampled-token distillation gradient is (1 / beta) E[Z C], that of V_0."""
    tree = random_tree(draw)
    wanted = exact_gradient(tree)
    errors: list[Tensor] = []
    for beta in BETAS:
        told = teacher_advantages(tree, ideal_teacher(tree, beta))
        errors.append(expected_gradient(tree, tree.after(told)) - wanted / beta)
    return largest(*errors)


def centred_teacher(draw: Generator) -> float:
    """beta log(q / p), centred by its mean under p, is the token's credit."""
    tree = random_tree(draw, observed=0.0)
    errors: list[Tensor] = []
    for beta in BETAS:
        told = tree.after(beta * teacher_advantages(tree, ideal_teacher(tree, beta)))
        centred = told - tree.before(tree.given_prefix(told))
        errors.append(centred - exact_credits(tree))
    return largest(*errors)


def success_teacher_telescopes(draw: Generator) -> float:
    """The success-conditioned teacher's log q / p sums to log R / V_0, consistently."""
    tree = _paid_tree(draw)
    told = tree.after(teacher_advantages(tree, success_teacher(tree)))
    total = (tree.outcomes / tree.values()[0]).log()
    return max(largest(told.sum(1) - total), consistency_error(tree, told))


def success_teacher_is_not_neutral(draw: Generator) -> float:
    """The success-conditioned teacher is not neutral: the mean of log q / p is < 0."""
    tree = _paid_tree(draw)
    told = tree.after(teacher_advantages(tree, success_teacher(tree)))
    above = float(tree.given_prefix(told).amax())
    return max(above, short_of(neutrality_error(tree, told)))


def _paid_tree(draw: Generator) -> Tree:
    """Without observations, and every outcome worth something: a log needs both."""
    tree = random_tree(draw, observed=0.0)
    return tree.paying(0.1 + 0.9 * tree.outcomes)


def _regularised(
    logits: Tensor, prior: Tensor, action_values: Tensor, beta: float
) -> Tensor:
    """E_q[Q] - beta KL(q || p) at each node, q the softmax of the logits."""
    logs = logits.log_softmax(-1)
    exists = logits > -torch.inf
    gains = torch.where(exists, action_values - beta * (logs - prior), 0.0)
    return (logs.exp() * gains).sum(-1)
