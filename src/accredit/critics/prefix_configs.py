"""What can be set about critics of single prefixes. Loads no torch."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from accredit.critics.configs import CriticConfig, ValueHeadConfig
from accredit.recipe.base import require_used


class PromptedConfig(CriticConfig):
    """The policy's own weights, asked in a new user turn."""

    kind: Literal["prompted"] = "prompted"
    template: str = "instruction"
    """Selects how the critic is asked: `instruction` in words, for chat models;
    `compact` and `compact_progress` as the packaged model was taught; or a TOML file of
    one's own, see docs/ac2.md."""
    readout: Literal["greedy", "expectation"] = "greedy"
    """Reads the grid value that is written greedily, or the mean over the grid by the
    probability of each value."""
    reference: Literal["none", "bank", "source"] = "source"
    """Shows the critic nothing; a passing completion of the bank; or that of the very
    rollout that a prefix is from, where it passed, and the bank's otherwise."""
    both_prompts: bool = True
    """Trains a prefix that has a reference with it and without it, half each."""
    weights: Literal["tied", "separate"] = "tied"
    """Uses the policy's weights, or a copy of them that learns apart."""
    learning_rate: Annotated[float, Field(gt=0)] = 2.83e-6
    """Sets the start rate of the critic's AdamW, which moves the policy's weights too
    where they are tied."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decays the weights, decoupled, by this share per unit of learning rate."""
    max_gradient_norm: Annotated[float, Field(gt=0)] | None = 0.2
    """Clips the critic's gradient to this L2 norm; none clips nothing."""

    @model_validator(mode="after")
    def _keys_are_read(self) -> "PromptedConfig":
        shown = self.reference != "none"
        require_used(self, ("both_prompts",), shown, "a reference other than 'none'")
        return self


class HeadConfig(ValueHeadConfig):
    """A value head, asked about the ends of prefixes."""

    kind: Literal["value_head"] = "value_head"
    trunk: Literal["own", "shared", "lora"] = "shared"
    """Selects the backbone that the head reads: one of its own; the policy's, which it
    then trains along; or adapters on the policy's, which stays as it is (extra
    `lora`)."""
    learning_rate: Annotated[float, Field(gt=0)] = 2.83e-6
    """Sets the start rate of the critic's AdamW."""
    max_gradient_norm: Annotated[float, Field(gt=0)] | None = 0.2
    """Clips the critic's gradient to this L2 norm; none clips nothing."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Is refused here, because no rollout is stopped before the critic is trusted."""

    @model_validator(mode="after")
    def _whole_rollouts_are_not_read(self) -> "HeadConfig":
        if (self.reward_low, self.reward_high) != (0.0, 1.0):
            raise ValueError(
                "algorithm.critic.reward_low and reward_high must be 0 and 1 where "
                f"rollouts are stopped early, got {self.reward_low} and "
                f"{self.reward_high}; scale the rewards"
            )
        for key in (
            "warmup_steps",
            "follows_schedule",
            "max_prefixes",
            "deviation_floor",
        ):
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(
                    f"algorithm.critic.{key} goes with critics of whole rollouts, got "
                    f"{getattr(self, key)} for one that is asked about single "
                    "prefixes; leave it out"
                )
        return self


class ExactConfig(CriticConfig):
    """The ceiling, on `walk` alone: values by dynamic programming."""

    kind: Literal["exact"] = "exact"


PrefixCriticConfig = Annotated[
    PromptedConfig | HeadConfig | ExactConfig, Field(discriminator="kind")
]


def prompted_unless_named(content: Any) -> Any:
    """The section of an algorithm, its critic prompted where it says no kind."""
    critic = content.get("critic") if isinstance(content, dict) else None
    if isinstance(critic, dict) and "kind" not in critic:
        return {**content, "critic": {"kind": "prompted", **critic}}
    return content
