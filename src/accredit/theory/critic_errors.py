"""What a critic's errors do to credit: GAE's identity, and why a chunk may trust them.

With V^ = V + e inside and V^_n = R,

    A_t = sum_{i>=t} l^{i-t} C_i - e_{t-1} + (1 - l) sum_{i>=t} l^{i-t} e_i,  l = lambda

The middle term knows the prefix only and biases no gradient; the last one knows T_t.
lambda = 1 removes it and leaves R - V^_{t-1} (PACT, arXiv:2609.26355).
"""

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from accredit.credit import chunk_credit, outcome_credit
from accredit.functional.baselines import group_mean_baseline
from accredit.theory.axioms import largest, short_of
from accredit.theory.gradients import (
    dealt_advantages,
    exact_gradient,
    expected_gradient,
)
from accredit.theory.trees import Tree, random_tree

LAMBDAS = (0.0, 0.3, 0.95, 1.0)
BIASED = 0.5
"""A lambda at which a wrong critic shows."""


def critic_errors(
    tree: Tree, draw: Generator, size: float = 0.3
) -> Float[Tensor, " node"]:
    """e of each inner node, normal; 0 at leaves, where V^ is the outcome."""
    noise = torch.randn(tree.parent.shape, generator=draw, dtype=torch.float64)
    return torch.where(tree.inner, size * noise, 0.0)


def discounted(x: Float[Tensor, "leaf step"], lambda_: float) -> Tensor:
    """sum_{i>=t} lambda^{i-t} x_i of each step, written out."""
    steps = torch.arange(x.shape[1])
    ahead = steps - steps[:, None]
    base = torch.tensor(lambda_, dtype=x.dtype)
    return x @ torch.where(ahead >= 0, base ** ahead.clamp(min=0), 0.0).T


def later_errors(tree: Tree, errors: Tensor, lambda_: float) -> Tensor:
    """(1 - lambda) sum_{i>=t} lambda^{i-t} e_i: the term that knows the token."""
    return (1.0 - lambda_) * discounted(tree.after(errors), lambda_)


def gae_of_a_wrong_critic(draw: Generator) -> float:
    """GAE under V + e is GAE under V, minus e before, plus (1-lambda) errors after."""
    tree = random_tree(draw)
    values, errors = tree.values(), critic_errors(tree, draw)
    credits = tree.after(values) - tree.before(values)
    differences: list[Tensor] = []
    for lambda_ in LAMBDAS:
        found = dealt_advantages(tree, values + errors, lambda_)
        terms = discounted(credits, lambda_) + later_errors(tree, errors, lambda_)
        wanted = torch.where(tree.step_mask, terms - tree.before(errors), 0.0)
        differences.append(found - wanted)
    return largest(*differences)


def lambda_one(draw: Generator) -> float:
    """lambda = 1 leaves R - V^, whatever the critic says in between."""
    tree = random_tree(draw)
    wrong = tree.values() + critic_errors(tree, draw)
    known = tree.at_prefixes(wrong)
    outcome = tree.at_steps(outcome_credit(tree.batch, tree.outcomes, known).advantages)
    written = torch.where(
        tree.step_mask, tree.outcomes[:, None] - tree.before(wrong), 0.0
    )
    return largest(outcome - written, dealt_advantages(tree, wrong) - written)


def lambda_one_is_unbiased(draw: Generator) -> float:
    """With lambda = 1 the gradient is exact under any wrong critic."""
    tree = random_tree(draw)
    wrong = tree.values() + critic_errors(tree, draw)
    found = expected_gradient(tree, dealt_advantages(tree, wrong, 1.0))
    return largest(found - exact_gradient(tree))


def exact_critic_is_unbiased(draw: Generator) -> float:
    """With an exact critic the gradient is exact at every lambda."""
    tree = random_tree(draw)
    wanted, values = exact_gradient(tree), tree.values()
    return largest(
        *(
            expected_gradient(tree, dealt_advantages(tree, values, lambda_)) - wanted
            for lambda_ in LAMBDAS
        )
    )


def lambda_bias(draw: Generator) -> float:
    """Below 1 the bias of the gradient is that of the last term alone, and is there."""
    tree = random_tree(draw)
    errors = critic_errors(tree, draw)
    found = expected_gradient(
        tree, dealt_advantages(tree, tree.values() + errors, BIASED)
    )
    bias = found - exact_gradient(tree)
    wanted = expected_gradient(tree, later_errors(tree, errors, BIASED))
    return max(largest(bias - wanted), short_of(float(bias.abs().amax())))


def chunk_energies(tree: Tree) -> Float[Tensor, " length"]:
    """E[(V_end - V_start)^2] of the first 1, 2, ... tokens."""
    values = tree.values()
    moves = values[tree.paths[:, 1:]] - values[0]
    return tree.probabilities() @ moves.square()


def chunk_energy(draw: Generator) -> float:
    """The energy of a chunk's credit is the sum over its tokens, and grows with it."""
    tree = random_tree(draw)
    values = tree.values()
    credits = dealt_advantages(tree, values, 0.0)
    by_token = (tree.probabilities() @ credits.square()).cumsum(0)
    falling = -chunk_energies(tree).diff()
    return max(0.0, largest(chunk_energies(tree) - by_token), float(falling.amax()))


def chunk_ends(draw: Generator) -> float:
    """A critic's errors enter a chunk's credit at its two ends only."""
    tree = random_tree(draw)
    errors = critic_errors(tree, draw)
    exact, wrong = (
        chunk_credit(
            tree.batch, tree.outcomes, tree.at_prefixes(values), chunk_length=2
        )
        for values in (tree.values(), tree.values() + errors)
    )
    found = tree.at_steps(wrong.advantages - exact.advantages)
    start = torch.arange(tree.step_mask.shape[1]) // 2 * 2
    end = (start + 2).clamp(max=tree.step_mask.shape[1])
    wanted = errors[tree.paths[:, end]] - errors[tree.paths[:, start]]
    return largest(torch.where(tree.step_mask, found - wanted, 0.0))


def common_error(draw: Generator) -> float:
    """A group mean cancels an error that all endpoints of the siblings share."""
    tree = random_tree(draw)
    depths = tree.depths
    ends = (depths == 2).nonzero()[:, 0]
    _, siblings = tree.parent[ends].unique(return_inverse=True)
    worth = tree.values()[ends]
    shared = torch.randn(len(ends), generator=draw, dtype=torch.float64)[siblings]
    votes = torch.ones_like(siblings, dtype=torch.bool)
    exact, wrong = (
        values - group_mean_baseline(values, votes, siblings)
        for values in (worth, worth + shared)
    )
    spread = float(exact.abs().amax())
    return max(largest(exact - wrong), short_of(spread, 1e-6))
