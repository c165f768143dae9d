"""Theorem 4: how much credit there is, and how noisy its estimates are.

The credits of a trajectory are martingale differences, so that their energies add up to
the variance of the outcome, whatever the length.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from accredit.credit import outcome_credit
from accredit.critics.group import LeaveOneOut
from accredit.theory.axioms import exact_credits, largest
from accredit.theory.gradients import dealt_advantages, every_group, mean_advantages
from accredit.theory.trees import Tree, random_tree

THRESHOLDS = (0.05, 0.1, 0.2, 0.4)


@dataclass(frozen=True, eq=False)
class Vote:
    """An odd number of fair coins, paid 1 if most show heads: long, and still exact."""

    sizes: Float[Tensor, "coin heads"]
    """|C| of each coin after so many heads; heads and tails have the same."""
    chances: Float[Tensor, "coin heads"]

    def count_above(self, eps: float) -> float:
        """Mean number of coins with |C| > eps."""
        return float((self.chances * (self.sizes > eps)).sum())

    @property
    def energy(self) -> float:
        """E[sum C^2]."""
        return float((self.chances * self.sizes.square()).sum())

    @property
    def typical(self) -> float:
        """Mean |C| over coins."""
        return float((self.chances * self.sizes).sum() / len(self.sizes))


def vote(length: int) -> Vote:
    """The vote of `length` coins, an odd number."""
    values = (torch.arange(length + 1) > length // 2).double()
    sizes = torch.zeros(length, length, dtype=torch.float64)
    for coin in reversed(range(length)):
        sizes[coin, : coin + 1] = values.diff() / 2
        values = (values[1:] + values[:-1]) / 2
    chances = torch.zeros_like(sizes)
    chances[0, 0] = 1.0
    for coin in range(1, length):
        chances[coin] = (chances[coin - 1] + chances[coin - 1].roll(1)) / 2
    return Vote(sizes, chances)


def energy(draw: Generator) -> float:
    """E[sum C_i^2] is the variance of the outcome, and so is its rest at any prefix."""
    tree = random_tree(draw)
    values = tree.values()
    spread = tree.mean((tree.outcomes - values[0]).square())
    energies = exact_credits(tree).square()
    found = tree.given_prefix(_to_go(energies))
    rest = tree.given_prefix((tree.outcomes[:, None] - tree.before(values)).square())
    return largest(tree.mean(energies.sum(1)) - spread, found - rest)


def energy_bound(draw: Generator) -> float:
    """E[sum C_i^2] <= 1/4 for outcomes in [0, 1]."""
    tree = random_tree(draw)
    return max(0.0, float(tree.mean(exact_credits(tree).square().sum(1))) - 0.25)


def sparsity_bound(draw: Generator) -> float:
    """At most 1 / (4 eps^2) tokens have |C| > eps on average, whatever the length."""
    tree = random_tree(draw)
    sizes = exact_credits(tree).abs()
    flips = vote(_odd_length(draw))
    excess = [0.0]
    for eps in THRESHOLDS:
        many = float(tree.mean((sizes > eps).double().sum(1)))
        excess.append(max(many, flips.count_above(eps)) - 0.25 / eps**2)
    return max(excess)


def typical_credit(draw: Generator) -> float:
    """A typical |C| is at most sqrt(Var R / T) at length T."""
    tree = random_tree(draw, stop=False)
    spread = tree.mean((tree.outcomes - tree.values()[0]).square())
    typical = tree.mean(exact_credits(tree).abs().mean(1))
    bound = (spread / tree.step_mask.shape[1]).sqrt()
    flips = vote(_odd_length(draw))
    of_flips = flips.typical - 0.5 / len(flips.sizes) ** 0.5
    return max(0.0, float(typical - bound), of_flips, abs(flips.energy - 0.25))


def second_moments(tree: Tree) -> dict[str, Float[Tensor, "leaf step"]]:
    """A_t^2 of each trajectory, averaged over siblings, by estimator."""
    values = tree.values()
    pairs = mean_advantages(
        tree, every_group(tree, 2), LeaveOneOut(), outcome_credit, power=2
    )
    return {
        "RLOO": pairs,
        "lambda 1": dealt_advantages(tree, values, 1.0).square(),
        "lambda 0": dealt_advantages(tree, values, 0.0).square(),
    }


def noise_order(draw: Generator) -> float:
    """E[A_t^2 | prefix]: RLOO >= lambda = 1 >= lambda = 0, with an exact critic."""
    tree = random_tree(draw, depth=2)
    by_estimator = second_moments(tree)
    group, one, zero = (tree.given_prefix(x) for x in by_estimator.values())
    return max(0.0, float((one - group).amax()), float((zero - one).amax()))


def noise_sizes(draw: Generator) -> float:
    """They are G/(G-1) Var R at the start, the energy to come, the token's energy."""
    tree = random_tree(draw, depth=2)
    values = tree.values()
    energies = (tree.after(values) - tree.before(values)).square()
    moments = second_moments(tree)
    spread = tree.mean((tree.outcomes - tree.values()[0]).square())
    group = tree.given_prefix(moments["RLOO"])[0] - 2.0 * spread
    one = tree.given_prefix(moments["lambda 1"] - _to_go(energies))
    zero = tree.given_prefix(moments["lambda 0"] - energies)
    return largest(group, one, zero)


def _odd_length(draw: Generator) -> int:
    return 2 * int(torch.randint(2, 100, (), generator=draw)) + 1


def _to_go(x: Tensor) -> Tensor:
    """Sums from each step to the last."""
    return x.flip(1).cumsum(1).flip(1)
