"""A recipe's algorithm, by name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from accredit.algorithms.ac2.ac2 import ac2
from accredit.algorithms.ac2.ac2_plus import ac2_plus
from accredit.algorithms.ac2.alarms import AC2_ALARMS
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
from accredit.recipe.plugins import built, is_plugin
from accredit.records import Alarm
from accredit.world import Algorithm

Part = TypeVar("Part")


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


BUILDERS: dict[str, Callable[[Any, Parts], Algorithm]] = {
    "grpo": lambda config, parts: grpo(config),
    "dr_grpo": lambda config, parts: dr_grpo(config, parts.max_new_tokens),
    "dapo": lambda config, parts: dapo(config, parts.max_new_tokens),
    "rloo": lambda config, parts: rloo(config),
    "reinforce_pp": lambda config, parts: reinforce_pp(config),
    "gspo": lambda config, parts: gspo(config),
    "cispo": lambda config, parts: cispo(config),
    "ppo": lambda config, parts: ppo(config, wanted(parts.critic)),
    "sao": lambda config, parts: sao(config, wanted(parts.critic)),
    "pact": lambda config, parts: pact(config, wanted(parts.critic)),
    "opd": lambda config, parts: opd(config, wanted(parts.teacher)),
    "vine": lambda config, parts: vine(config, parts.max_new_tokens),
    "prefix_grpo": lambda config, parts: prefix_grpo(config, parts.max_new_tokens),
    "ac2": lambda config, parts: ac2(
        config, wanted(parts.prefix_critic), parts.max_new_tokens
    ),
    "ac2_plus": lambda config, parts: ac2_plus(
        config, wanted(parts.prefix_critic), parts.max_new_tokens
    ),
}
"""Name in a recipe -> what builds it."""


ALARMS = {"ac2": AC2_ALARMS, "ac2_plus": AC2_ALARMS}
"""Name in a recipe -> what is asked of its metrics beside what is asked of all."""


def alarms_of(name: str, section: object) -> tuple[Alarm, ...]:
    """The algorithm's own alarms; none where nobody knows the name.

    Somebody's own algorithm has them as `alarms` of its section or that one's class.
    """
    return tuple(getattr(section, "alarms", ALARMS.get(name, ())))


def build_algorithm(config: Any, parts: Parts) -> Algorithm:
    """The algorithm that a section `[algorithm]` describes."""
    if is_plugin(config.name):
        return built(config, Algorithm, parts)
    return BUILDERS[config.name](config, parts)


def wanted(part: Part | None) -> Part:
    """The part, where the run has it.

    Raises:
        ValueError: it has none.
    """
    if part is None:
        raise ValueError(
            "an algorithm with a critic or a teacher must be given it, got none"
        )
    return part
