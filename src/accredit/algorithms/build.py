"""A recipe's algorithm, by name."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from accredit.algorithms.ac2.ac2 import ac2
from accredit.algorithms.ac2.ac2_plus import ac2_plus
from accredit.algorithms.cispo import cispo
from accredit.algorithms.dapo import dapo
from accredit.algorithms.dr_grpo import dr_grpo
from accredit.algorithms.grpo import grpo
from accredit.algorithms.gspo import gspo
from accredit.algorithms.opd import Teacher, opd
from accredit.algorithms.pact import pact
from accredit.algorithms.ppo import ppo
from accredit.algorithms.reinforce_pp import reinforce_pp
from accredit.algorithms.replay.prefix_grpo import prefix_grpo
from accredit.algorithms.rloo import rloo
from accredit.algorithms.sao import sao
from accredit.algorithms.vine import vine
from accredit.protocols import PrefixCritic, TrainableCritic
from accredit.world import Algorithm


@dataclass(frozen=True)
class Parts:
    """What an algorithm is built from besides its own section of the recipe."""

    max_new_tokens: int
    """Budget of a completion."""
    critic: TrainableCritic | None = None
    """Where the section has one that reads whole rollouts."""
    prefix_critic: PrefixCritic | None = None
    """Where the section has one that is asked about single prefixes."""
    teacher: Teacher | None = None
    """Where the section names one."""


def build_algorithm(config: Any, supplies: Parts) -> Algorithm:
    """The algorithm that a section `[algorithm]` describes."""
    budgeted = {"max_new_tokens": supplies.max_new_tokens}
    judged: dict[str, Any] = {"critic": supplies.critic}
    taught: dict[str, Any] = {"teacher": supplies.teacher}
    asked: dict[str, Any] = {"critic": supplies.prefix_critic, **budgeted}
    builders: dict[str, Callable[[Any], Algorithm]] = {
        "grpo": grpo,
        "dr_grpo": partial(dr_grpo, **budgeted),
        "dapo": partial(dapo, **budgeted),
        "rloo": rloo,
        "reinforce_pp": reinforce_pp,
        "gspo": gspo,
        "cispo": cispo,
        "ppo": partial(ppo, **judged),
        "sao": partial(sao, **judged),
        "pact": partial(pact, **judged),
        "opd": partial(opd, **taught),
        "vine": partial(vine, **budgeted),
        "prefix_grpo": partial(prefix_grpo, **budgeted),
        "ac2": partial(ac2, **asked),
        "ac2_plus": partial(ac2_plus, **asked),
    }
    return builders[config.name](config)
