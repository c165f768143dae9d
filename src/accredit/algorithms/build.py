"""A recipe's algorithm, by name."""

from collections.abc import Callable
from functools import partial
from typing import Any

from accredit.algorithms.cispo import cispo
from accredit.algorithms.dapo import dapo
from accredit.algorithms.dr_grpo import dr_grpo
from accredit.algorithms.grpo import grpo
from accredit.algorithms.gspo import gspo
from accredit.algorithms.outcome_step import Algorithm
from accredit.algorithms.reinforce_pp import reinforce_pp
from accredit.algorithms.rloo import rloo


def build_algorithm(config: Any, max_new_tokens: int) -> Algorithm:
    """The algorithm that a section `[algorithm]` describes."""
    budgeted = {"max_new_tokens": max_new_tokens}
    builders: dict[str, Callable[[Any], Algorithm]] = {
        "grpo": grpo,
        "dr_grpo": partial(dr_grpo, **budgeted),
        "dapo": partial(dapo, **budgeted),
        "rloo": rloo,
        "reinforce_pp": reinforce_pp,
        "gspo": gspo,
        "cispo": cispo,
    }
    return builders[config.name](config)
