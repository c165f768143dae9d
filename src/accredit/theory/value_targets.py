"""What each value target says on average, against what it is meant to say.

The old policy samples, the new one is to be valued. Averages are over the old policy's
trajectories that pass through a prefix; what they should be is computed on the tree, by
recursions that know no ratio.
"""

from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from accredit.credit import ValueTargetRule, aligned_value_targets
from accredit.functional.value_losses import binary_cross_entropy
from accredit.functional.value_targets import (
    Aligned,
    doubly_robust_targets,
    full_product_targets,
    pact_targets,
    plain_targets,
    vtrace_targets,
    weighted_targets,
    windowed_targets,
)
from accredit.records import PolicyChange
from accredit.theory.axioms import largest, short_of
from accredit.theory.trees import Tree, random_tree

EVERY_STEP = 64
"""A window longer than any tree is deep."""
UNCLIPPED_VTRACE = partial(vtrace_targets, trace_cap=torch.inf)
FIRST_ORDER = partial(windowed_targets, window=EVERY_STEP)
FULL_PRODUCT = partial(full_product_targets, product_cap=None)


@dataclass(frozen=True, eq=False)
class Change:
    """A tree under the old policy, and the same tree under the new one."""

    old: Tree
    new: Tree

    @property
    def ratios(self) -> Float[Tensor, " node"]:
        """New / old probability of the token on the edge into each node."""
        return self.new.token_probabilities() / self.old.token_probabilities()

    def paying(self, outcomes: Float[Tensor, " leaf"]) -> "Change":
        """The same policies in a world with other rewards."""
        return Change(self.old.paying(outcomes), self.new.paying(outcomes))

    def targets(self, rule: ValueTargetRule, values: Float[Tensor, " node"]) -> Aligned:
        """The library's targets of every trajectory, as a training makes them."""
        old = self.old
        moved = PolicyChange(
            old.at_tokens(old.after(old.token_probabilities().log())),
            old.at_tokens(old.after(self.new.token_probabilities().log())),
            old.batch.sampled,
        )
        known = old.at_prefixes(values)
        taught = aligned_value_targets(old.batch, old.outcomes, known, moved, rule)
        return Aligned(old.at_steps(taught.targets), old.at_steps(taught.weights))

    def expectation(
        self, rule: ValueTargetRule, values: Float[Tensor, " node"] | None = None
    ) -> Float[Tensor, " node"]:
        """The mean target of each inner node under the old policy, as it is weighted.

        No division: the only weights there are, ratios, have mean 1.
        """
        values = self.old.values() if values is None else values
        targets, weights = self.targets(rule, values)
        return self.old.given_prefix(targets * weights)

    def mixed_values(
        self, share: Tensor, changed: Bool[Tensor, " node"]
    ) -> Float[Tensor, " node"]:
        """V where tokens after `changed` nodes follow (1 - share) old + share new."""
        old, new = self.old.edges(), self.new.edges()
        moved = torch.where(changed[self.old.parent], new - old, 0.0)
        return self.old.values(old + share * moved)

    def slope(self, changed: Bool[Tensor, " node"]) -> Float[Tensor, " node"]:
        """Derivative of `mixed_values` at share 0: the first-order change of V."""
        zero = torch.zeros((), dtype=torch.float64)
        values = partial(self.mixed_values, changed=changed)
        _, slope = torch.autograd.functional.jvp(values, zero, torch.ones_like(zero))
        return cast(Tensor, slope)


def random_change(
    draw: Generator, *, depth: int = 4, observed: float = 0.3, size: float = 0.5
) -> Change:
    """A random tree, and a policy whose logits differ by normal noise."""
    tree = random_tree(draw, depth=depth, observed=observed)
    noise = torch.randn(tree.logits.shape, generator=draw, dtype=torch.float64)
    return Change(tree, tree.under(tree.logits + size * noise))


def wrong_values(change: Change, draw: Generator) -> Float[Tensor, " node"]:
    """Of a critic that is far off."""
    return torch.rand(change.ratios.shape, generator=draw, dtype=torch.float64)


def one_new_token(change: Change) -> Float[Tensor, " node"]:
    """The next token from the new policy, the rest from the old one."""
    old = change.old
    best = old.action_values(old.values())
    return torch.where(old.inner, (change.new.logits.softmax(-1) * best).sum(-1), 0.0)


def inner_difference(change: Change, found: Tensor, wanted: Tensor) -> float:
    """Largest error at a prefix that a token follows."""
    return largest(torch.where(change.old.inner, found - wanted, 0.0))


def plain(draw: Generator) -> float:
    """`plain`: E[R] is the old policy's value."""
    change = random_change(draw)
    return inner_difference(
        change, change.expectation(plain_targets), change.old.values()
    )


def pact(draw: Generator) -> float:
    """`pact`: E[ratio_t R] is V with token t from the new policy, the rest old."""
    change = random_change(draw)
    found = change.expectation(pact_targets)
    return inner_difference(change, found, one_new_token(change))


def weighted(draw: Generator) -> float:
    """`weighted`: ratio_t as a loss weight has the minimiser of `pact`."""
    change = random_change(draw)
    # No outcome of 0 or 1, so that the minimiser's logit is finite.
    change = change.paying(0.1 + 0.8 * change.old.outcomes)
    old, wanted = change.old, one_new_token(change)
    targets, weights = change.targets(weighted_targets, old.values())
    logits = old.before(wanted.logit(eps=1e-9)).requires_grad_()
    losses = weights * binary_cross_entropy(logits, targets, old.step_mask)
    weight = old.probabilities()[:, None]
    slopes = torch.autograd.grad((losses * weight).sum(), logits)[0]
    summed = old.given_prefix(slopes / weight)
    inside = float(targets.amax()) - 1.0
    agree = inner_difference(change, change.expectation(weighted_targets), wanted)
    return max(largest(summed), agree, inside)


def doubly_robust(draw: Generator) -> float:
    """`doubly_robust`: the expectation of `pact`, under any critic."""
    change = random_change(draw)
    wanted = one_new_token(change)
    critics = (change.old.values(), wrong_values(change, draw))
    return max(
        inner_difference(
            change, change.expectation(doubly_robust_targets, values), wanted
        )
        for values in critics
    )


def windowed(draw: Generator) -> float:
    """`windowed` at full length: V^old plus its exact first-order change to V^new."""
    change = random_change(draw)
    first_order = change.old.values() + change.slope(change.old.inner)
    return max(
        inner_difference(change, change.expectation(FIRST_ORDER, values), first_order)
        for values in (change.old.values(), wrong_values(change, draw))
    )


def windowed_by_length(draw: Generator) -> float:
    """`windowed` with window n: the first-order change of the next n + 1 tokens."""
    change = random_change(draw)
    values, depths = change.old.values(), change.old.depths
    errors: list[float] = []
    for window in (0, 1, 2):
        found = change.expectation(partial(windowed_targets, window=window))
        for depth in range(int(depths.max())):
            near = (depths >= depth) & (depths <= depth + window)
            wanted = values + change.slope(near)
            here = change.old.inner & (depths == depth)
            errors.append(largest(torch.where(here, found - wanted, 0.0)))
    return max(errors)


def second_order_remainder(draw: Generator) -> float:
    """What `windowed` then misses of V^new shrinks with the square of the change."""
    change = random_change(draw)
    missed = [
        inner_difference(part, part.expectation(FIRST_ORDER), part.new.values())
        for part in (part_of(change, 1e-2), part_of(change, 5e-3))
    ]
    return max(0.0, missed[1] - 0.3 * missed[0], short_of(missed[0], 1e-9))


def part_of(change: Change, share: float) -> Change:
    """The change to the mixture (1 - share) old + share new, token by token."""
    old, new = (tree.logits.softmax(-1) for tree in (change.old, change.new))
    mixture = (1.0 - share) * old + share * new
    return Change(change.old, change.old.under(mixture.log()))


def vtrace(draw: Generator) -> float:
    """`vtrace`, unclipped: V^new exactly, under any critic."""
    change = random_change(draw)
    return max(
        inner_difference(
            change, change.expectation(UNCLIPPED_VTRACE, values), change.new.values()
        )
        for values in (change.old.values(), wrong_values(change, draw))
    )


def clipped_vtrace(draw: Generator) -> float:
    """`vtrace`, clipped: the fixed recursion over min(ratio, cap) of its definition."""
    change = random_change(draw, size=1.0)
    old, cap = change.old, 1.2
    values = wrong_values(change, draw)
    known = torch.where(old.inner, values, old.values())
    traced = old.edges() * change.ratios.clamp(max=cap)
    moved = torch.zeros_like(known)
    for node in range(len(known) - 1, 0, -1):
        parent = old.parent[node]
        step = known[node] - known[parent] + moved[node]
        moved[parent] = moved[parent] + traced[node] * step
    found = change.expectation(partial(vtrace_targets, trace_cap=cap), values)
    return inner_difference(change, found, known + moved)


def full_product(draw: Generator) -> float:
    """`full_product`: E[(prod of all later ratios) R] is V^new exactly."""
    change = random_change(draw)
    found = change.expectation(FULL_PRODUCT)
    return inner_difference(change, found, change.new.values())


def capped_product(draw: Generator) -> float:
    """`full_product` with a cap never exceeds V^new, and falls short of it."""
    change = random_change(draw, size=1.0)
    found = change.expectation(partial(full_product_targets, product_cap=1.0))
    missing = torch.where(change.old.inner, change.new.values() - found, 0.0)
    return max(0.0, float(-missing.amin()), short_of(float(missing.amax())))


def no_change(draw: Generator) -> float:
    """Where the policy stands still, every target is the outcome, token by token."""
    tree = random_tree(draw)
    still = Change(tree, tree)
    values = wrong_values(still, draw)
    wanted = torch.where(tree.step_mask, tree.outcomes[:, None], 0.0)
    rules = (
        plain_targets,
        pact_targets,
        weighted_targets,
        doubly_robust_targets,
        FIRST_ORDER,
        UNCLIPPED_VTRACE,
        FULL_PRODUCT,
    )
    ones = tree.step_mask.double()
    return largest(
        *(still.targets(rule, values).targets - wanted for rule in rules),
        *(still.targets(rule, values).weights - ones for rule in rules),
    )
