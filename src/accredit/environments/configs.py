"""What can be set about how a rollout happens. Loads no torch."""

from typing import Literal

from accredit.recipe.base import BaseConfig


class EnvironmentConfig(BaseConfig):
    """How a rollout happens: one prompt, one completion, one verdict."""

    name: Literal["single_turn"] = "single_turn"
    """Selects the environment; a `module:object` is somebody's own."""
