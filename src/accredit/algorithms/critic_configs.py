"""What can be set about algorithms whose critic has parameters. Loads no torch.

The defaults of a class are its paper's setting where the paper gives one; the file of
the same name says where each comes from.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from accredit.algorithms.base_configs import (
    EngineCorrection,
    OutcomeConfig,
    Positive,
    Share,
    UnitShare,
    UpdateConfig,
)
from accredit.critics.configs import ValueHeadConfig
from accredit.recipe.base import require_used


class PPOCriticConfig(ValueHeadConfig):
    """The critic of PPO: unbounded, with a clipped squared error."""

    output: Literal["sigmoid", "linear", "categorical"] = "linear"
    value_clip: Annotated[float, Field(gt=0)] | None = 0.2

    @model_validator(mode="before")
    @classmethod
    def _clip_goes_with_linear(cls, content: Any) -> Any:
        chosen = content.get("output", "linear") if isinstance(content, dict) else ""
        if isinstance(content, dict) and chosen != "linear":
            return {"value_clip": None, **content}
        return content


class SAOCriticConfig(ValueHeadConfig):
    """The critic of SAO: attention frozen, two passes an update."""

    freeze_attention: bool = True
    num_epochs: Positive = 2


class ActorCriticConfig(UpdateConfig):
    """What every algorithm has whose critic has parameters."""

    group_size: Positive = 1
    """Samples this many rollouts of each problem; they are not compared with one
    another."""
    truncation: Literal["outcome", "bootstrap"] = "outcome"
    """Values a rollout that ran out of tokens by its verifier's reward, or by the
    critic's value of its last prefix, for policy and critic alike."""
    critic: ValueHeadConfig = ValueHeadConfig()
    """Configures the critic, in a section of its own."""

    @model_validator(mode="after")
    def _deviations_need_siblings(self) -> "ActorCriticConfig":
        floor = getattr(self.critic, "deviation_floor", None)
        if floor is not None and self.group_size < 2:
            raise ValueError(
                "algorithm.critic.deviation_floor needs siblings whose rewards deviate,"
                f" got group_size = {self.group_size}; set algorithm.group_size"
            )
        return self


class PPOConfig(ActorCriticConfig, OutcomeConfig):
    """Proximal policy optimization, with VAPO's options."""

    name: Literal["ppo"] = "ppo"
    gamma: UnitShare = 1.0
    """Discounts every sampled token by this factor."""
    lambda_policy: UnitShare = 1.0
    """Sets the trace decay of the policy's advantages; 1 is return minus value."""
    lambda_critic: UnitShare = 1.0
    """Sets the trace decay of the critic's targets; 1 is the return."""
    length_adaptive_alpha: Annotated[float, Field(gt=0)] | None = None
    """Takes 1 - 1 / (alpha L) as lambda_policy of a rollout with L sampled tokens."""
    clip_low: UnitShare = 0.2
    """Clips the ratio from below at 1 - clip_low, where the advantage is negative."""
    clip_high: Share = 0.2
    """Clips the ratio from above at 1 + clip_high, where the advantage is positive."""
    dual_clip: Annotated[float, Field(gt=1)] | None = None
    """Bounds the ratio from above where the advantage is negative; none sets no
    bound."""
    critic: PPOCriticConfig = PPOCriticConfig()
    """Configures the critic, in a section of its own."""

    @model_validator(mode="after")
    def _one_lambda(self) -> "PPOConfig":
        if self.length_adaptive_alpha is not None and self.lambda_policy != 1.0:
            raise ValueError(
                "algorithm.lambda_policy and algorithm.length_adaptive_alpha exclude "
                f"each other, got {self.lambda_policy} and {self.length_adaptive_alpha}"
            )
        return self


class SAOConfig(ActorCriticConfig):
    """Single-rollout asynchronous optimization."""

    name: Literal["sao"] = "sao"
    ratio_low: UnitShare = 0.7
    """Masks tokens whose ratio to the engine is not above it."""
    ratio_high: Annotated[float, Field(ge=1)] = 6.0
    """Masks tokens whose ratio to the engine is not below it."""
    length_adaptive_alpha: Annotated[float, Field(gt=0)] = 1.5
    """Takes 1 - 1 / (alpha L) as lambda_policy of a rollout with L sampled tokens."""
    critic: SAOCriticConfig = SAOCriticConfig()
    """Configures the critic, in a section of its own."""

    @model_validator(mode="after")
    def _ratio_one_counts(self) -> "SAOConfig":
        require_around_one("ratio", self.ratio_low, self.ratio_high)
        return self

    @property
    def reads_engine(self) -> bool:
        """Always: the engine is its old policy."""
        return True


class PACTConfig(ActorCriticConfig, OutcomeConfig):
    """Policy aligned critic training."""

    name: Literal["pact"] = "pact"
    engine_correction: EngineCorrection = "truncated_importance"
    """Weighs the gap between engine and trainer; the default is the paper's."""
    actor_loss: Literal["double_sided_importance", "clipped_surrogate"] = (
        "double_sided_importance"
    )
    """Selects the paper's loss for agentic math (double-sided importance sampling) or
    for coding (PPO's)."""
    ratio_low: UnitShare = 0.7
    """Masks tokens whose ratio is not above it (`double_sided_importance`)."""
    ratio_high: Annotated[float, Field(ge=1)] = 6.0
    """Masks tokens whose ratio is not below it (`double_sided_importance`)."""
    clip_low: UnitShare = 0.2
    """Clips the ratio from below at 1 - clip_low, where the advantage is negative
    (`clipped_surrogate`)."""
    clip_high: Share = 0.28
    """Clips the ratio from above at 1 + clip_high, where the advantage is positive
    (`clipped_surrogate`)."""
    target: Literal[
        "plain",
        "pact",
        "weighted",
        "doubly_robust",
        "windowed",
        "vtrace",
        "full_product",
        "shuffled",
        "mask_only",
    ] = "pact"
    """Selects the critic's targets. `windowed` brought critics closer to the new policy
    than the paper's `pact` in docs/pact.md; the rest are controls and alternatives."""
    accept_low: Share = 0.0
    """Trains the critic at prefixes whose token has at least this ratio."""
    accept_high: Annotated[float, Field(gt=0)] = 6.0
    """Trains the critic at prefixes whose token has at most this ratio."""
    window: Annotated[int, Field(ge=0)] = 16
    """Includes the ratios of this many later tokens (`windowed`)."""
    trace_cap: Annotated[float, Field(gt=0)] = 6.0
    """Limits the ratios of both kinds (`vtrace`)."""
    product_cap: Annotated[float, Field(gt=0)] = 6.0
    """Limits the product of ratios (`full_product`)."""

    @model_validator(mode="after")
    def _ranges_hold_ratio_one(self) -> "PACTConfig":
        require_around_one("ratio", self.ratio_low, self.ratio_high)
        if not self.accept_low <= 1 <= self.accept_high:
            raise ValueError(
                "algorithm.accept_low and algorithm.accept_high must have ratio 1, a "
                f"token that did not change, between them, got {self.accept_low} and "
                f"{self.accept_high}"
            )
        return self

    @model_validator(mode="after")
    def _keys_are_read(self) -> "PACTConfig":
        clipped = self.actor_loss == "clipped_surrogate"
        for keys, used, by in (
            (("clip_low", "clip_high"), clipped, "actor_loss = 'clipped_surrogate'"),
            (
                ("ratio_low", "ratio_high"),
                not clipped,
                "actor_loss = 'double_sided_importance'",
            ),
            (("window",), self.target == "windowed", "target = 'windowed'"),
            (("trace_cap",), self.target == "vtrace", "target = 'vtrace'"),
            (
                ("product_cap",),
                self.target == "full_product",
                "target = 'full_product'",
            ),
            (
                ("accept_low", "accept_high"),
                self.target != "plain",
                "a target other than 'plain'",
            ),
        ):
            require_used(self, keys, used, by)
        return self


def require_around_one(name: str, low: float, high: float) -> None:
    """Nothing, where a range of ratios counts the tokens that did not change."""
    if not low < 1 < high:
        raise ValueError(
            f"algorithm.{name}_low must be below 1 and algorithm.{name}_high above it, "
            f"got {low} and {high}; they are ratios, not distances from 1"
        )
