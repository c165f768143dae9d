"""What follows for a training loop: the loss, the order of updates, the missing terms.

The actor and the critic of `one_iteration` are linear in random features of the prefix
and take exact expected gradient steps, so that nothing but the order differs.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from accredit.credit import ValueTargetRule
from accredit.functional.policy_losses import policy_gradient
from accredit.functional.value_losses import binary_cross_entropy
from accredit.functional.value_targets import pact_targets, plain_targets
from accredit.theory.axioms import largest, short_of
from accredit.theory.gradients import dealt_advantages
from accredit.theory.trees import Tree, random_tree
from accredit.theory.value_targets import (
    Change,
    one_new_token,
    random_change,
)

NUM_FEATURES, WIDTH = 5, 3
LEARNING_RATE = 0.5
ACTOR_FIRST, CRITIC_FIRST = ("actor", "critic"), ("critic", "actor")
Parameters = dict[str, Tensor]


def cross_entropy_gradient(draw: Generator) -> float:
    """The gradient of soft BCE in the logit is V - Y, also for targets Y > 1."""
    logits, targets = 3 * _normal(draw, 8, 5), 1.0 + 2 * _normal(draw, 8, 5)
    where = torch.rand(8, 5, generator=draw) < 0.8
    moving = logits.clone().requires_grad_()
    total = binary_cross_entropy(moving, targets, where).sum()
    found = torch.autograd.grad(total, moving)[0]
    wanted = torch.where(where, logits.sigmoid() - targets, 0.0)
    return max(largest(found - wanted), short_of(float(targets.amax()), 1.0))


def cross_entropy_excess(draw: Generator) -> float:
    """BCE's excess over its minimum is at least 2 (v - m)^2."""
    logits, means = 3 * _normal(draw, 8, 5), torch.rand(8, 5, generator=draw).double()
    everywhere = torch.ones_like(means, dtype=torch.bool)
    excess = binary_cross_entropy(logits, means, everywhere) - binary_cross_entropy(
        means.logit(), means, everywhere
    )
    least = 2 * (logits.sigmoid() - means).square()
    return max(0.0, float((least - excess).amax()))


def corrected_gradient(draw: Generator) -> float:
    """The critic's gradient under `pact` is V - ratio R; at ratio 1, plain BCE's."""
    change = random_change(draw)
    still = Change(change.old, change.old)
    tree = change.old
    logits = tree.before(_normal(draw, len(tree.parent)))
    outcomes = tree.outcomes[:, None]
    errors: list[Tensor] = []
    for moved in (change, still):
        moving = logits.clone().requires_grad_()
        targets = moved.targets(pact_targets, tree.values()).targets
        total = binary_cross_entropy(moving, targets, tree.step_mask).sum()
        found = torch.autograd.grad(total, moving)[0]
        wanted = logits.sigmoid() - tree.after(moved.ratios) * outcomes
        errors.append(torch.where(tree.step_mask, found - wanted, 0.0))
    return largest(*errors)


def order_alone(draw: Generator) -> float:
    """With separate weights and plain targets the order of updates changes nothing."""
    tree = random_tree(draw, depth=3)
    start = starting_parameters(tree, draw, shared=False)
    gap = order_gap(tree, start, plain_targets)
    moved = one_iteration(tree, start, plain_targets, ACTOR_FIRST)
    least = min(_distance(start, moved, name) for name in start if name != "features")
    return max(gap, short_of(least, 1e-6))


def order_with_shared_trunk(draw: Generator) -> float:
    """On a shared trunk the order matters, with the same plain targets."""
    tree = random_tree(draw, depth=3)
    start = starting_parameters(tree, draw, shared=True)
    return short_of(order_gap(tree, start, plain_targets), 1e-6)


def order_with_correction(draw: Generator) -> float:
    """With `pact` targets the order matters for separate weights too."""
    tree = random_tree(draw, depth=3)
    start = starting_parameters(tree, draw, shared=False)
    return short_of(order_gap(tree, start, pact_targets), 1e-6)


def first_order_terms(change: Change) -> list[Float[Tensor, " node"]]:
    """Change of V by the next token's new policy alone, by the one after's, ..."""
    depths = change.old.depths
    most = int(depths.max())
    terms = [torch.zeros_like(change.ratios) for _ in range(most)]
    for depth in range(most):
        by_place = change.slope(depths == depth)
        for start in range(depth + 1):
            here = (depths == start) & change.old.inner
            terms[depth - start] = torch.where(here, by_place, terms[depth - start])
    return terms


def one_of_many_terms(draw: Generator) -> float:
    """`pact` keeps one first-order term, the current token's; n - t + 1 add up."""
    change = random_change(draw)
    old = change.old
    terms = first_order_terms(change)
    total = change.slope(old.inner)
    current = one_new_token(change) - old.values()
    last = old.depths.amax() - old.depths
    errors = [torch.where(old.inner, terms[0] - current, 0.0), sum(terms) - total]
    # A prefix with n - t + 1 tokens to go has no term beyond them.
    beyond = [torch.where(k >= last, term, 0.0) for k, term in enumerate(terms)]
    left_out = float((total - terms[0]).abs().amax())
    return max(largest(*errors, *beyond), short_of(left_out, 1e-6))


def order_gap(tree: Tree, start: Parameters, rule: ValueTargetRule) -> float:
    """Largest difference between the weights of both orders."""
    ends = [
        one_iteration(tree, start, rule, order) for order in (ACTOR_FIRST, CRITIC_FIRST)
    ]
    return max(
        largest(first - second)
        for first, second in zip(ends[0].values(), ends[1].values(), strict=True)
    )


def one_iteration(
    tree: Tree, start: Parameters, rule: ValueTargetRule, order: Sequence[str]
) -> Parameters:
    """Two steps of each, one after the other, on trajectories of the starting policy.

    Advantages are from the critic at the start, as in PPO and in PACT's box.
    """
    old = tree.under(_actor(tree, start))
    first_values = _critic(start).sigmoid().detach()
    advantages = dealt_advantages(old, first_values)
    now = start
    for turn in order:
        for _ in range(2):
            moving = {k: v.detach().requires_grad_() for k, v in now.items()}
            if turn == "actor":
                loss = _actor_loss(old, _actor(tree, moving), advantages)
            else:
                change = Change(old, tree.under(_actor(tree, now)))
                targets = change.targets(rule, first_values).targets
                loss = _critic_loss(old, _critic(moving), targets)
            now = _stepped(moving, loss)
    return now


def starting_parameters(tree: Tree, draw: Generator, *, shared: bool) -> Parameters:
    """Features of the prefixes, a trunk or two, and two heads."""
    trunks = ["trunk"] if shared else ["actor_trunk", "critic_trunk"]
    return {
        "features": _normal(draw, len(tree.parent), NUM_FEATURES),
        **{name: 0.5 * _normal(draw, NUM_FEATURES, WIDTH) for name in trunks},
        "actor_head": 0.5 * _normal(draw, WIDTH, tree.logits.shape[1]),
        "critic_head": 0.5 * _normal(draw, WIDTH),
    }


def _actor(tree: Tree, parameters: Parameters) -> Float[Tensor, "node branch"]:
    """Logits of the linear policy."""
    trunk = parameters["trunk" if "trunk" in parameters else "actor_trunk"]
    logits = parameters["features"] @ trunk @ parameters["actor_head"]
    return torch.where(tree.logits > -torch.inf, logits, -torch.inf)


def _critic(parameters: Parameters) -> Float[Tensor, " node"]:
    """Logits of the linear critic."""
    trunk = parameters["trunk" if "trunk" in parameters else "critic_trunk"]
    return parameters["features"] @ trunk @ parameters["critic_head"]


def _actor_loss(old: Tree, logits: Tensor, advantages: Tensor) -> Tensor:
    chosen = logits.log_softmax(-1)[old.parent, old.token]
    logprobs = old.at_tokens(old.after(chosen))
    losses = policy_gradient(
        logprobs, logprobs.detach(), old.at_tokens(advantages), old.batch.sampled
    )
    return old.mean(losses.sum(1))


def _critic_loss(old: Tree, logits: Tensor, targets: Tensor) -> Tensor:
    losses = binary_cross_entropy(old.before(logits), targets, old.step_mask)
    return old.mean(losses.sum(1))


def _stepped(moving: Parameters, loss: Tensor) -> Parameters:
    """Gradient descent on everything but the features."""
    names = [name for name in moving if name != "features"]
    slopes = torch.autograd.grad(
        loss, [moving[name] for name in names], allow_unused=True
    )
    stepped = {name: value.detach() for name, value in moving.items()}
    for name, slope in zip(names, slopes, strict=True):
        if slope is not None:
            stepped[name] = stepped[name] - LEARNING_RATE * slope
    return stepped


def _distance(first: Parameters, second: Parameters, name: str) -> float:
    return largest(first[name] - second[name])


def _normal(draw: Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=draw, dtype=torch.float64)
