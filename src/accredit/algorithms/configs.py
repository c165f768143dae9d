"""What can be set about each algorithm. Loads no torch.

The defaults of a class are its paper's setting where the paper gives one; the file of
the same name says where each comes from.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from accredit.algorithms.base_configs import (
    OutcomeConfig,
    Positive,
    Share,
    UnitShare,
)
from accredit.algorithms.critic_configs import PACTConfig, PPOConfig, SAOConfig
from accredit.algorithms.replay_configs import (
    AC2Config,
    AC2PlusConfig,
    PrefixGRPOConfig,
)
from accredit.recipe.base import require_placeholders


class GroupConfig(OutcomeConfig):
    """What every algorithm with siblings as critics has."""

    group_size: Annotated[int, Field(ge=2)] = 8
    """Samples this many rollouts of each problem, which are compared with one
    another."""


class ClippedConfig(GroupConfig):
    """Group algorithms with a clipped surrogate and a KL loss to the start model."""

    clip_low: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Clips the ratio from below at 1 - clip_low, where the advantage is negative."""
    clip_high: Annotated[float, Field(ge=0)] = 0.2
    """Clips the ratio from above at 1 + clip_high, where the advantage is positive."""
    dual_clip: Annotated[float, Field(gt=1)] | None = None
    """Bounds the ratio from above where the advantage is negative; none sets no
    bound."""
    kl_coefficient: Share = 0.0
    """Weighs the KL loss to the start model; 0 leaves that model unloaded."""
    kl_estimator: Literal["kl_k1", "kl_k2", "kl_k3"] = "kl_k3"
    """Selects the estimator that the KL loss differentiates; the gradient of k1 is zero
    in expectation."""


class GRPOConfig(ClippedConfig):
    """Group relative policy optimization."""

    name: Literal["grpo"] = "grpo"


class DrGRPOConfig(ClippedConfig):
    """GRPO done right: no deviation, no length in the denominator."""

    name: Literal["dr_grpo"] = "dr_grpo"


class DAPOConfig(ClippedConfig):
    """Decoupled clip and dynamic sampling."""

    name: Literal["dapo"] = "dapo"
    clip_high: Annotated[float, Field(ge=0)] = 0.28
    """Clips the ratio from above at 1 + clip_high, where the advantage is positive."""
    max_draws: Positive = 3
    """Limits the rounds of drawing until prompts_per_step groups have unequal
    rewards."""
    overlong_cache: Annotated[int, Field(ge=0)] = 0
    """Sets the width, in tokens, of the penalty's ramp before the budget; 0 penalises
    nothing."""
    overlong_factor: Share = 1.0
    """Sets the full overlong penalty, in reward units."""
    overlong_applies_to: Literal["all", "successes"] = "all"
    """Penalises every rollout, as in the paper, or only those with a reward above 0, so
    that a failure gains nothing by being short."""

    def check_budget(self, max_new_tokens: int) -> None:
        """The ramp lies inside the budget."""
        if self.overlong_cache > max_new_tokens:
            raise ValueError(
                "algorithm.overlong_cache must not exceed the budget of "
                f"{max_new_tokens} tokens (sampling.max_new_tokens), got "
                f"{self.overlong_cache}"
            )


class RLOOConfig(GroupConfig):
    """REINFORCE leave-one-out."""

    name: Literal["rloo"] = "rloo"
    kl_coefficient: Share = 0.0
    """Weighs the KL to the start model, subtracted from the reward before the
    baseline."""


class ReinforcePPConfig(OutcomeConfig):
    """REINFORCE++: no group, advantages whitened over the batch."""

    name: Literal["reinforce_pp"] = "reinforce_pp"
    group_size: Positive = 1
    """Samples this many rollouts of each problem; they are not compared with one
    another."""
    kl_coefficient: Share = 0.01
    """Weighs the KL to the start model, subtracted from each token's reward."""
    clip_low: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Clips the ratio from below at 1 - clip_low, where the advantage is negative."""
    clip_high: Annotated[float, Field(ge=0)] = 0.2
    """Clips the ratio from above at 1 + clip_high, where the advantage is positive."""


class GSPOConfig(GroupConfig):
    """Group sequence policy optimization."""

    name: Literal["gspo"] = "gspo"
    clip_low: Annotated[float, Field(ge=0, le=1)] = 3e-4
    """Clips the sequence's geometric mean ratio from below at 1 - clip_low."""
    clip_high: Annotated[float, Field(ge=0)] = 4e-4
    """Clips the sequence's geometric mean ratio from above at 1 + clip_high."""


class CISPOConfig(GroupConfig):
    """Clipped importance-sampling weights."""

    name: Literal["cispo"] = "cispo"
    clip_low: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Clips weights from below at 1 - clip_low; 1 sets no lower bound."""
    clip_high: Annotated[float, Field(ge=0)] = 0.28
    """Clips weights from above at 1 + clip_high."""


class OPDConfig(OutcomeConfig):
    """On-policy distillation."""

    name: Literal["opd"] = "opd"
    group_size: Positive = 1
    """Samples this many rollouts of each problem."""
    teacher: str = "self"
    """Names the teacher: a Hugging Face model directory with the policy's vocabulary; a
    run, whose newest checkpoint at the start is kept, also after a resume; or `self`,
    the policy as it is, shown a reference."""
    template: str = ""
    """Shows the teacher its own prompt, a text with {prompt} and {answer}. Empty shows
    the policy's prompt, and cannot go with `self`."""
    clip_low: UnitShare = 0.2
    """Clips the ratio from below at 1 - clip_low, where the advantage is negative."""
    clip_high: Share = 0.2
    """Clips the ratio from above at 1 + clip_high, where the advantage is positive."""

    @property
    def needs_teacher(self) -> bool:
        """Always."""
        return True

    @model_validator(mode="after")
    def _self_is_shown_something(self) -> "OPDConfig":
        require_placeholders("algorithm.template", self.template)
        if self.teacher == "self" and self.template in ("", "{prompt}"):
            raise ValueError(
                "algorithm.template must show a teacher that is the policy itself "
                f"something more, got {self.template!r}; e.g. "
                "'{prompt} Answer: {answer}'"
            )
        return self


class VineConfig(OutcomeConfig):
    """VinePPO: values from fresh rollouts."""

    name: Literal["vine"] = "vine"
    group_size: Positive = 1
    """Samples this many rollouts of each problem; they are not compared with one
    another."""
    num_continuations: Positive = 9
    """Samples this many fresh rollouts from each chosen prefix."""
    chunk_length: Positive | None = None
    """Sets the sampled tokens between chosen prefixes; none takes a fifth of the
    budget."""
    clip_low: UnitShare = 0.2
    """Clips the ratio from below at 1 - clip_low, where the advantage is negative."""
    clip_high: Share = 0.2
    """Clips the ratio from above at 1 + clip_high, where the advantage is positive."""


AlgorithmConfig = Annotated[
    GRPOConfig
    | DrGRPOConfig
    | DAPOConfig
    | RLOOConfig
    | ReinforcePPConfig
    | GSPOConfig
    | CISPOConfig
    | PPOConfig
    | SAOConfig
    | PACTConfig
    | OPDConfig
    | VineConfig
    | PrefixGRPOConfig
    | AC2Config
    | AC2PlusConfig,
    Field(discriminator="name"),
]
