"""Theorem 1 and Proposition 1: three axioms, one credit (PACT, arXiv:2609.26355).

Completeness: sum_i C_i = R - V_0. Prefix consistency: trajectories equal through i have
equal S_i = C_1 + ... + C_i. Neutrality: E[C_i | F_{i-1}] = 0. Together they leave
C_i = V_i - V_{i-1}, and a segment's credit is V_end - V_start.

Each identity draws a tree and returns its error; a statement that something is *not* so
returns by how much the gap falls short of a bound.
"""

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from accredit.credit import chunk_credit, gae_credit
from accredit.theory.trees import Tree, random_tree

SMALLEST_GAP = 1e-3
"""What counts as a difference where something is claimed to differ."""


def short_of(gap: float | int, bound: float = SMALLEST_GAP) -> float:
    """By how much a gap that is claimed falls short of its bound; 0 if it does not."""
    return max(0.0, bound - gap)


def largest(*differences: Tensor) -> float:
    """Largest absolute entry; NaN if there is one."""
    return float(torch.stack([x.abs().amax() for x in differences]).amax())


def exact_credits(tree: Tree) -> Float[Tensor, "leaf step"]:
    """What the library's credit rule deals under the true values, lambda = 0."""
    values = tree.at_prefixes(tree.values())
    dealt = gae_credit(tree.batch, tree.outcomes, values, gamma=1.0, lambda_=0.0)
    return tree.at_steps(dealt.advantages)


def axioms_system(tree: Tree) -> tuple[Tensor, Tensor, Tensor]:
    """Neutrality and completeness as equations in one unknown S a node.

    Prefix consistency is what makes S a function of the node.

    Returns:
        The neutrality rows, one an inner node; the completeness rows, one a leaf; the
        right-hand side of both, in that order.
    """
    identity = torch.eye(len(tree.parent), dtype=torch.float64)
    follows = torch.zeros_like(identity)
    children = torch.arange(1, len(tree.parent))
    follows[tree.parent[1:], children] = tree.edges()[1:]
    inner = tree.inner
    neutrality = (follows - identity)[inner]
    completeness = identity[tree.leaves]
    ends = tree.outcomes - tree.values()[0]
    return neutrality, completeness, torch.cat([ends.new_zeros(len(neutrality)), ends])


def uniqueness(draw: Generator) -> float:
    """The three axioms are a full-rank system whose one solution is S = V - V_0."""
    tree = random_tree(draw)
    neutrality, completeness, wanted = axioms_system(tree)
    system = torch.cat([neutrality, completeness])
    missing_rank = len(tree.parent) - _rank(system)
    solved = torch.linalg.solve(system, wanted)
    values = tree.values()
    dealt = exact_credits(tree).cumsum(1)
    return max(
        float(missing_rank),
        largest(solved - (values - values[0])),
        largest(torch.where(tree.step_mask, dealt - tree.after(solved), 0.0)),
    )


def without_completeness(draw: Generator) -> float:
    """Without completeness the rank drops by the number of leaves."""
    tree = random_tree(draw)
    neutrality, _, _ = axioms_system(tree)
    missing = len(tree.parent) - _rank(neutrality)
    return abs(missing - len(tree.leaves)) + short_of(missing, 1.0)


def without_neutrality(draw: Generator) -> float:
    """Without neutrality the rank drops by the number of inner nodes."""
    tree = random_tree(draw)
    _, completeness, _ = axioms_system(tree)
    missing = len(tree.parent) - _rank(completeness)
    return abs(missing - int(tree.inner.sum())) + short_of(missing, 1.0)


def without_consistency(draw: Generator) -> float:
    """Without prefix consistency, one unknown a token of each trajectory, many fit.

    Neutrality and completeness say the mean of R - V_0 twice: of their equations all
    but one are independent.
    """
    tree = random_tree(draw, depth=3)
    leaves, steps = tree.step_mask.nonzero(as_tuple=True)
    unknowns = torch.arange(len(leaves))
    neutrality = torch.zeros(len(tree.parent), len(leaves), dtype=torch.float64)
    starts = tree.paths[leaves, steps]
    chances = tree.probabilities()[leaves] / tree.reach()[starts]
    neutrality[starts, unknowns] = chances
    completeness = torch.zeros(len(tree.leaves), len(leaves), dtype=torch.float64)
    completeness[leaves, unknowns] = 1.0
    equations = torch.cat([neutrality[tree.inner], completeness])
    rank = _rank(equations)
    return abs(rank - (len(equations) - 1)) + short_of(len(leaves) - rank, 1.0)


def only_complete_and_consistent(draw: Generator) -> float:
    """The whole outcome on the last token is complete and consistent, not neutral."""
    tree = random_tree(draw)
    last = tree.step_mask & ~tree.step_mask.roll(-1, 1)
    last[:, -1] = tree.step_mask[:, -1]
    credits = torch.where(last, (tree.outcomes - tree.values()[0])[:, None], 0.0)
    broken = short_of(neutrality_error(tree, credits))
    return max(
        completeness_error(tree, credits), consistency_error(tree, credits), broken
    )


def only_complete_and_neutral(draw: Generator) -> float:
    """The whole outcome on the first token is complete and neutral, not consistent."""
    tree = random_tree(draw)
    credits = torch.zeros(tree.step_mask.shape, dtype=torch.float64)
    credits[:, 0] = tree.outcomes - tree.values()[0]
    broken = short_of(consistency_error(tree, credits))
    return max(
        completeness_error(tree, credits), neutrality_error(tree, credits), broken
    )


def only_consistent_and_neutral(draw: Generator) -> float:
    """No credit for anybody is consistent and neutral, not complete."""
    tree = random_tree(draw)
    credits = torch.zeros(tree.step_mask.shape, dtype=torch.float64)
    broken = short_of(completeness_error(tree, credits))
    return max(
        consistency_error(tree, credits), neutrality_error(tree, credits), broken
    )


def all_axioms(draw: Generator) -> float:
    """The credit that the library deals under exact values keeps all three axioms."""
    tree = random_tree(draw)
    credits = exact_credits(tree)
    return max(
        completeness_error(tree, credits),
        consistency_error(tree, credits),
        neutrality_error(tree, credits),
    )


def another_baseline(draw: Generator) -> float:
    """Sums that end at R - b start at V_0 - b: any b but V_0 contradicts neutrality."""
    tree = random_tree(draw)
    neutrality, completeness, wanted = axioms_system(tree)
    shift = 0.1 + torch.rand((), generator=draw, dtype=torch.float64)
    system = torch.cat([neutrality, completeness])
    shifted = wanted - torch.where(
        torch.arange(len(wanted)) < len(neutrality), 0, shift
    )
    start = torch.linalg.solve(system, shifted)[0]
    return max(largest(start + shift), short_of(float(start.abs())))


def segments(draw: Generator) -> float:
    """The credit of a chunk is V_end - V_start, the sum of its tokens' credits."""
    tree = random_tree(draw)
    values, credits = tree.values(), exact_credits(tree)
    known = tree.at_prefixes(values)
    errors: list[Tensor] = []
    for length in range(1, tree.step_mask.shape[1] + 1):
        dealt = chunk_credit(tree.batch, tree.outcomes, known, chunk_length=length)
        by_chunk = tree.at_steps(dealt.advantages)
        for start in range(0, tree.step_mask.shape[1], length):
            own = slice(start, start + length)
            ends = tree.paths[:, min(start + length, tree.paths.shape[1] - 1)]
            worth = values[ends] - values[tree.paths[:, start]]
            real = tree.step_mask[:, start]
            errors.append(torch.where(real, by_chunk[:, start] - worth, 0.0))
            errors.append(credits[:, own].sum(1) - worth)
    return largest(*errors)


def partitions(draw: Generator) -> float:
    """Over any cut of a trajectory into segments the credits sum to R - V_0."""
    tree = random_tree(draw)
    values = tree.values()
    cuts = torch.rand(tree.step_mask.shape, generator=draw) < 0.5
    cuts[:, -1] = True
    totals = torch.zeros_like(tree.outcomes)
    start = values[tree.paths[:, 0]]
    for step, cut in enumerate(cuts.T, start=1):
        here = values[tree.paths[:, step]]
        totals = totals + torch.where(cut, here - start, 0.0)
        start = torch.where(cut, here, start)
    return largest(totals - (tree.outcomes - values[0]))


def completeness_error(tree: Tree, credits: Float[Tensor, "leaf step"]) -> float:
    """Largest |sum_i C_i - (R - V_0)| over trajectories."""
    return largest(credits.sum(1) - (tree.outcomes - tree.values()[0]))


def consistency_error(tree: Tree, credits: Float[Tensor, "leaf step"]) -> float:
    """Largest spread of S_i among the trajectories that share F_i."""
    sums = credits.cumsum(1)
    ends = tree.paths[:, 1:]
    start = torch.zeros_like(tree.chance)
    highest = start.scatter_reduce(
        0, ends.flatten(), sums.flatten(), "amax", include_self=False
    )
    lowest = start.scatter_reduce(
        0, ends.flatten(), sums.flatten(), "amin", include_self=False
    )
    return largest(highest - lowest)


def neutrality_error(tree: Tree, credits: Float[Tensor, "leaf step"]) -> float:
    """Largest |E[C_i | F_{i-1}]| over inner nodes."""
    return largest(tree.given_prefix(credits))


def _rank(equations: Tensor) -> int:
    return int(torch.linalg.matrix_rank(equations))
