"""Theorem 3: which baselines leave the policy gradient alone, and which break it.

E[Z_t A_t] stands in the rows of the policy's table of logits: a row belongs to one
prefix, so that nothing cancels between tokens. Sums over groups go over every group
that can be drawn.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from accredit.credit import gae_credit, normalized_outcome_credit, outcome_credit
from accredit.critics.group import GroupMean, LeaveOneOut
from accredit.functional.policy_losses import policy_gradient
from accredit.protocols import Critic
from accredit.records import Credit
from accredit.theory.axioms import largest, short_of
from accredit.theory.trees import Tree, random_tree
from accredit.types import Batch

CreditRule = Callable[[Batch, Tensor, Tensor], Credit]


class Groups(NamedTuple):
    """Every group that can be drawn, flattened: member after member."""

    batch: Batch
    leaf: Int[Tensor, " rollout"]
    weight: Float[Tensor, " rollout"]
    """P(group) / group size, so that sums are means over members."""


def every_group(tree: Tree, group_size: int) -> Groups:
    """All ordered groups of trajectories with their probabilities."""
    leaves = torch.arange(len(tree.leaves))
    members = torch.cartesian_prod(*[leaves] * group_size)
    index = members.flatten()
    group_index = torch.arange(len(members)).repeat_interleave(group_size)
    chances = tree.probabilities()[members].prod(1) / group_size
    return Groups(
        replace(tree.batch.rows(index), group_index=group_index),
        index,
        chances[group_index],
    )


def mean_advantages(
    tree: Tree, groups: Groups, critic: Critic, credit: CreditRule, power: int = 1
) -> Float[Tensor, "leaf step"]:
    """E[A_t^power | own trajectory] of each trajectory, over its siblings."""
    rewards = tree.outcomes[groups.leaf]
    dealt = credit(groups.batch, rewards, critic.values(groups.batch, rewards))
    weighted = dealt.advantages.pow(power) * groups.weight[:, None]
    sums = torch.zeros_like(tree.batch.sampling_logprobs)
    sums = sums.index_add(0, groups.leaf, weighted)
    return tree.at_steps(sums / tree.probabilities()[:, None])


def expected_gradient(
    tree: Tree, advantages: Float[Tensor, "leaf step"]
) -> Float[Tensor, "node branch"]:
    """E[sum_t Z_t A_t], as the library's policy-gradient loss gives it."""
    logits = tree.logits.clone().requires_grad_()
    chosen = logits.log_softmax(-1)[tree.parent, tree.token]
    logprobs = tree.at_tokens(tree.after(chosen))
    losses = policy_gradient(
        logprobs, logprobs.detach(), tree.at_tokens(advantages), tree.batch.sampled
    )
    return torch.autograd.grad(-tree.mean(losses.sum(1)), logits)[0]


def exact_gradient(tree: Tree) -> Float[Tensor, "node branch"]:
    """Of V_0 itself, by differentiating the tree's recursion."""
    logits = tree.logits.clone().requires_grad_()
    return torch.autograd.grad(tree.under(logits).values()[0], logits)[0]


def dealt_advantages(
    tree: Tree, values: Float[Tensor, " node"], lambda_: float = 1.0
) -> Float[Tensor, "leaf step"]:
    """The library's GAE of every trajectory under a critic that says `values`."""
    known = tree.at_prefixes(values)
    dealt = gae_credit(tree.batch, tree.outcomes, known, gamma=1.0, lambda_=lambda_)
    return tree.at_steps(dealt.advantages)


def rloo(draw: Generator) -> float:
    """E[Z (R - mean of the others)] = E[Z C], and is the gradient of V_0 (RLOO)."""
    tree = random_tree(draw, depth=2)
    wanted = exact_gradient(tree)
    credits = expected_gradient(tree, dealt_advantages(tree, tree.values(), 0.0))
    errors = [credits - wanted]
    for size in (2, 3) if len(tree.leaves) < 16 else (2,):
        dealt = mean_advantages(
            tree, every_group(tree, size), LeaveOneOut(), outcome_credit
        )
        errors.append(expected_gradient(tree, dealt) - wanted)
    return largest(*errors)


def independent_baseline(draw: Generator) -> float:
    """A baseline that is any function of the prefix leaves the gradient exact."""
    tree = random_tree(draw)
    anything = torch.randn(tree.parent.shape, generator=draw, dtype=torch.float64)
    known = tree.at_prefixes(anything)
    dealt = outcome_credit(tree.batch, tree.outcomes, known)
    found = expected_gradient(tree, tree.at_steps(dealt.advantages))
    return largest(found - exact_gradient(tree))


def privileged_baseline(draw: Generator) -> float:
    """A critic that sees what the policy cannot, as the answer, leaves it exact too.

    One of two reward tables is in force, drawn apart from the tokens; the critic of
    each table is exact.
    """
    tree = random_tree(draw)
    shares = (0.3, 0.7)
    tables = [torch.rand(tree.outcomes.shape, generator=draw).double() for _ in shares]
    found, wanted = torch.zeros_like(tree.logits), torch.zeros_like(tree.outcomes)
    for share, table in zip(shares, tables, strict=True):
        world = tree.paying(table)
        dealt = dealt_advantages(world, world.values())
        found = found + share * expected_gradient(world, dealt)
        wanted = wanted + share * table
    return largest(found - exact_gradient(tree.paying(wanted)))


def baseline_of_the_future(draw: Generator) -> float:
    """A baseline that saw the reward does not: V + (R - V) / 2 halves the gradient."""
    tree = random_tree(draw)
    surprise = dealt_advantages(tree, tree.values())
    wanted = exact_gradient(tree)
    found = expected_gradient(tree, surprise - 0.5 * surprise)
    gap = float((found - wanted).norm() / wanted.norm())
    return max(largest(found - 0.5 * wanted), short_of(gap, 0.4))


def group_mean(draw: Generator) -> float:
    """The mean of the group with oneself gives (G - 1) / G times the gradient."""
    tree = random_tree(draw, depth=2)
    wanted = exact_gradient(tree)
    errors: list[Tensor] = []
    for size in (2, 3) if len(tree.leaves) < 16 else (2,):
        dealt = mean_advantages(
            tree, every_group(tree, size), GroupMean(), outcome_credit
        )
        errors.append(expected_gradient(tree, dealt) - (size - 1) / size * wanted)
    return largest(*errors)


def divided_by_deviation(draw: Generator) -> float:
    """Dividing by the group's deviation breaks it: no scale mends the direction.

    Rewards are uniform, since in pairs of binary ones the deviation is a constant.
    """
    tree = random_tree(draw, depth=2)
    tree = tree.paying(torch.rand(tree.outcomes.shape, generator=draw).double())
    return short_of(sine(deviation_gradient(tree), exact_gradient(tree)))


def deviation_gradient(tree: Tree) -> Float[Tensor, "node branch"]:
    """What GRPO with the deviation, in pairs, does on average."""
    groups = every_group(tree, 2)
    dealt = mean_advantages(tree, groups, GroupMean(), normalized_outcome_credit)
    return expected_gradient(tree, dealt)


def sine(found: Tensor, wanted: Tensor) -> float:
    """Of the angle between two gradients: the least relative error of any scale."""
    along = (found * wanted).sum() / wanted.square().sum()
    return float((found - along * wanted).norm() / found.norm())
