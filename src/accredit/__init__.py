"""Reinforcement learning of language models with critics that are measured.

`accredit train walk_grpo` is the short way in; `accredit.train("walk_grpo")` does the
same from Python. A name of `__all__` is imported when it is first asked for.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from accredit.command.recipes import train
    from accredit.recipe.config import RunConfig, load_recipe
    from accredit.runs.session import resume_training, start_training
    from accredit.types import Problem, Rollout, Verdict

_HOMES = {
    "RunConfig": "recipe.config",
    "load_recipe": "recipe.config",
    "train": "command.recipes",
    "start_training": "runs.session",
    "resume_training": "runs.session",
    "Problem": "types",
    "Rollout": "types",
    "Verdict": "types",
}
__all__ = [
    "Problem",
    "Rollout",
    "RunConfig",
    "Verdict",
    "load_recipe",
    "resume_training",
    "start_training",
    "train",
]


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first asked for, so that torch can wait."""
    if name not in _HOMES:
        raise AttributeError(f"module 'accredit' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"accredit.{_HOMES[name]}"), name)
