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
from accredit.base_config import require_placeholders


class GroupConfig(OutcomeConfig):
    """What every algorithm with siblings as critics has."""

    group_size: Annotated[int, Field(ge=2)] = 8
    """Rollouts a problem; one alone would have nobody to be compared with."""


class ClippedConfig(GroupConfig):
    """Group algorithms with a clipped surrogate and a KL loss to the start model."""

    clip_low: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Ratios below 1 - clip_low earn nothing more for a bad token."""
    clip_high: Annotated[float, Field(ge=0)] = 0.2
    """Ratios above 1 + clip_high earn nothing more for a good token."""
    dual_clip: Annotated[float, Field(gt=1)] | None = None
    """Largest ratio that a bad token's loss counts; none bounds nothing."""
    kl_coefficient: Share = 0.0
    """Weight of the KL loss; 0 leaves the reference model unloaded."""
    kl_estimator: Literal["kl_k1", "kl_k2", "kl_k3"] = "kl_k3"
    """Which estimator the KL loss differentiates; k1 has no expected gradient."""


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
    """Ratios above 1 + clip_high earn nothing more for a good token."""
    max_draws: Positive = 3
    """Rounds of drawing until prompts_per_step groups disagree within themselves."""
    overlong_cache: Annotated[int, Field(ge=0)] = 0
    """Width in tokens of the penalty's ramp before the budget; 0 penalises nothing."""
    overlong_factor: Share = 1.0
    """Size of the full overlong penalty, reward units."""
    overlong_applies_to: Literal["all", "successes"] = "all"
    """Whom the penalty hits: every rollout, as in the paper, or only those with a
    reward above 0, so that a failure gains nothing by being short."""

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
    """KL to the start model, charged to the reward before the baseline."""


class ReinforcePPConfig(OutcomeConfig):
    """REINFORCE++: no group, advantages whitened over the batch."""

    name: Literal["reinforce_pp"] = "reinforce_pp"
    group_size: Positive = 1
    """Rollouts a problem; they are not compared with one another."""
    kl_coefficient: Share = 0.01
    """KL to the start model, charged to each token's reward."""
    clip_low: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Ratios below 1 - clip_low earn nothing more for a bad token."""
    clip_high: Annotated[float, Field(ge=0)] = 0.2
    """Ratios above 1 + clip_high earn nothing more for a good token."""


class GSPOConfig(GroupConfig):
    """Group sequence policy optimization."""

    name: Literal["gspo"] = "gspo"
    clip_low: Annotated[float, Field(ge=0, le=1)] = 3e-4
    """Of the sequence's geometric mean ratio."""
    clip_high: Annotated[float, Field(ge=0)] = 4e-4
    """Of the sequence's geometric mean ratio."""


class CISPOConfig(GroupConfig):
    """Clipped importance-sampling weights."""

    name: Literal["cispo"] = "cispo"
    clip_low: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Weights are at least 1 - clip_low; 1 sets no lower bound."""
    clip_high: Annotated[float, Field(ge=0)] = 0.28
    """Weights are at most 1 + clip_high."""


class OPDConfig(OutcomeConfig):
    """On-policy distillation."""

    name: Literal["opd"] = "opd"
    group_size: Positive = 1
    """Rollouts a problem."""
    teacher: str = "self"
    """A Hugging Face model directory with the policy's vocabulary; a run, whose newest
    checkpoint at the start it is and stays, also after a resume; or `self`: the policy
    as it is, shown a reference."""
    template: str = ""
    """The teacher's own prompt: a text with {prompt} and {answer}. Empty shows the
    policy's prompt, and cannot go with `self`."""
    clip_low: UnitShare = 0.2
    """Ratios below 1 - clip_low earn nothing more for a bad token."""
    clip_high: Share = 0.2
    """Ratios above 1 + clip_high earn nothing more for a good token."""

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
    """Rollouts a problem; they are not compared with one another."""
    num_continuations: Positive = 9
    """Fresh rollouts from each chosen prefix."""
    chunk_length: Positive | None = None
    """Sampled tokens between chosen prefixes; none takes a fifth of the budget."""
    clip_low: UnitShare = 0.2
    """Ratios below 1 - clip_low earn nothing more for a bad token."""
    clip_high: Share = 0.2
    """Ratios above 1 + clip_high earn nothing more for a good token."""


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
