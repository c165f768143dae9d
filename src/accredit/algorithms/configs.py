"""What can be set about each algorithm. Loads no torch.

The defaults of a class are its paper's setting where the paper gives one; the file of
the same name says where each comes from.
"""

from typing import Annotated, Literal

from pydantic import Field

from accredit.base_config import BaseConfig

Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0)]


class OutcomeConfig(BaseConfig):
    """What every outcome algorithm has."""

    prompts_per_step: Positive = 16
    """Problems drawn at each step."""
    num_minibatches: Positive = 1
    """Optimizer steps a pass over the batch; must not exceed its rollouts."""
    num_epochs: Positive = 1
    """Passes over the batch."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus, reward units per nat."""
    engine_correction: Literal[
        "none",
        "truncated_importance",
        "sequence_truncated_importance",
        "geometric_truncated_importance",
    ] = "none"
    """Weight for the gap between engine and trainer: tis, by token, by the whole
    sequence, or by its geometric mean. Wanted where another engine samples."""
    engine_correction_cap: Annotated[float, Field(gt=0)] = 2.0
    """Largest weight of that correction."""

    def check_budget(self, max_new_tokens: int) -> None:
        """Nothing, where the algorithm can work with completions of that length.

        Raises:
            ValueError: one of its keys does not fit.
        """


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


AlgorithmConfig = Annotated[
    GRPOConfig
    | DrGRPOConfig
    | DAPOConfig
    | RLOOConfig
    | ReinforcePPConfig
    | GSPOConfig
    | CISPOConfig,
    Field(discriminator="name"),
]
