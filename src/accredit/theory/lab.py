"""The lab: every statement about credit, tried on random trees, with its error.

A statement is one function of a generator that draws its own tree and returns an error:
a distance where something is equal, the violation of an inequality, or how much a gap
falls short where something differs. What it says is its docstring's first line.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Generator

from accredit.randomness import keyed_seed
from accredit.theory import (
    axioms,
    consequences,
    critic_errors,
    gradients,
    teachers,
    value_targets,
    variances,
)
from accredit.theory.magnitudes import magnitudes, order_error

TOLERANCE = 1e-10


@dataclass(frozen=True)
class Identity:
    """A statement and how to try it once."""

    name: str
    error: Callable[[Generator], float]

    @property
    def statement(self) -> str:
        """In words."""
        return (self.error.__doc__ or "").strip().partition("\n")[0].rstrip(".")


@dataclass(frozen=True)
class Result:
    """The largest error of a statement over the trees; None where it is no number."""

    name: str
    statement: str
    error: float | None
    tolerance: float = TOLERANCE

    @property
    def ok(self) -> bool:
        """Whether it held on every tree."""
        return self.error is not None and self.error <= self.tolerance


def targets_in_order(draw: Generator) -> float:
    """Mean error of the expectation: plain > pact > windowed, at .06, .27 and 4.1."""
    return order_error(magnitudes(draw.initial_seed() % 2**32))


ONCE = (Identity("value target / order of magnitudes", targets_in_order),)
"""Tried once, over trees of its own."""

IDENTITIES = (
    Identity("theorem 1 / uniqueness", axioms.uniqueness),
    Identity("theorem 1 / all axioms", axioms.all_axioms),
    Identity("theorem 1 / rank, no completeness", axioms.without_completeness),
    Identity("theorem 1 / rank, no neutrality", axioms.without_neutrality),
    Identity("theorem 1 / rank, no consistency", axioms.without_consistency),
    Identity("theorem 1 / another baseline", axioms.another_baseline),
    Identity("theorem 1 / segments", axioms.segments),
    Identity("theorem 1 / partitions", axioms.partitions),
    Identity("proposition 1 / not neutral", axioms.only_complete_and_consistent),
    Identity("proposition 1 / not consistent", axioms.only_complete_and_neutral),
    Identity("proposition 1 / not complete", axioms.only_consistent_and_neutral),
    Identity("theorem 2 / ideal teacher", teachers.ideal_teacher_is_the_argmax),
    Identity("theorem 2 / gradient", teachers.distillation_gradient),
    Identity("theorem 2 / centred", teachers.centred_teacher),
    Identity("theorem 2 / success, telescopes", teachers.success_teacher_telescopes),
    Identity(
        "theorem 2 / success, not neutral", teachers.success_teacher_is_not_neutral
    ),
    Identity("theorem 3 / RLOO", gradients.rloo),
    Identity("theorem 3 / independent baseline", gradients.independent_baseline),
    Identity("theorem 3 / privileged baseline", gradients.privileged_baseline),
    Identity("theorem 3 / own future", gradients.baseline_of_the_future),
    Identity("theorem 3 / group mean", gradients.group_mean),
    Identity("theorem 3 / deviation", gradients.divided_by_deviation),
    Identity("theorem 4 / energy", variances.energy),
    Identity("theorem 4 / energy bound", variances.energy_bound),
    Identity("theorem 4 / sparsity bound", variances.sparsity_bound),
    Identity("theorem 4 / typical credit", variances.typical_credit),
    Identity("critic error / GAE", critic_errors.gae_of_a_wrong_critic),
    Identity("critic error / lambda 1", critic_errors.lambda_one),
    Identity("critic error / lambda 1, unbiased", critic_errors.lambda_one_is_unbiased),
    Identity("critic error / exact critic", critic_errors.exact_critic_is_unbiased),
    Identity("critic error / bias", critic_errors.lambda_bias),
    Identity("chunk / energy", critic_errors.chunk_energy),
    Identity("chunk / two ends", critic_errors.chunk_ends),
    Identity("chunk / common error", critic_errors.common_error),
    Identity("noise / order", variances.noise_order),
    Identity("noise / sizes", variances.noise_sizes),
    Identity("loss / BCE gradient", consequences.cross_entropy_gradient),
    Identity("loss / BCE excess", consequences.cross_entropy_excess),
    Identity("loss / pact gradient", consequences.corrected_gradient),
    Identity("consequence / order alone", consequences.order_alone),
    Identity("consequence / shared trunk", consequences.order_with_shared_trunk),
    Identity("consequence / correction", consequences.order_with_correction),
    Identity("consequence / one term of many", consequences.one_of_many_terms),
    Identity("value target / plain", value_targets.plain),
    Identity("value target / pact", value_targets.pact),
    Identity("value target / weighted", value_targets.weighted),
    Identity("value target / doubly robust", value_targets.doubly_robust),
    Identity("value target / windowed", value_targets.windowed),
    Identity("value target / window length", value_targets.windowed_by_length),
    Identity("value target / remainder", value_targets.second_order_remainder),
    Identity("value target / V-trace", value_targets.vtrace),
    Identity("value target / V-trace, clipped", value_targets.clipped_vtrace),
    Identity("value target / full product", value_targets.full_product),
    Identity("value target / product, capped", value_targets.capped_product),
    Identity("value target / no change", value_targets.no_change),
)
"""Tried on every tree."""


def results(seed: int, num_trees: int) -> Iterator[Result]:
    """Every statement over `num_trees` draws, each keyed by its name.

    Raises:
        ValueError: no tree is asked for.
    """
    if num_trees < 1:
        raise ValueError(f"the lab needs at least 1 tree, got --trees {num_trees}")
    for identity in IDENTITIES:
        yield tried(identity, seed, num_trees)
    for identity in ONCE:
        yield tried(identity, seed, 1)


def tried(identity: Identity, seed: int, num_trees: int) -> Result:
    """One statement, at its worst."""
    errors = [
        float(identity.error(generator(seed, identity.name, tree)))
        for tree in range(num_trees)
    ]
    known = all(math.isfinite(error) for error in errors)
    return Result(identity.name, identity.statement, max(errors) if known else None)


def generator(seed: int, name: str, tree: int) -> Generator:
    """Draws of one statement on one tree."""
    return torch.Generator().manual_seed(keyed_seed(seed, "lab", tree, name) >> 1)
