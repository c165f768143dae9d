"""What can be set about each algorithm. Loads no torch.

The defaults of a class are its paper's setting where the paper gives one; the file of
the same name says where each comes from.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from accredit.base_config import BaseConfig
from accredit.critics.configs import ValueHeadConfig

Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0)]
UnitShare = Annotated[float, Field(ge=0, le=1)]
EngineCorrection = Literal[
    "none",
    "truncated_importance",
    "sequence_truncated_importance",
    "geometric_truncated_importance",
]


class UpdateConfig(BaseConfig):
    """What every algorithm has."""

    prompts_per_step: Positive = 16
    """Problems drawn at each step."""
    num_minibatches: Positive = 1
    """Optimizer steps a pass over the batch; must not exceed its rollouts."""
    num_epochs: Positive = 1
    """Passes over the batch."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus, reward units per nat."""

    def check_budget(self, max_new_tokens: int) -> None:
        """Nothing, where the algorithm can work with completions of that length.

        Raises:
            ValueError: one of its keys does not fit.
        """


class OutcomeConfig(UpdateConfig):
    """What every algorithm has whose ratios are the trainer's own."""

    engine_correction: EngineCorrection = "none"
    """Weight for the gap between engine and trainer: tis, by token, by the whole
    sequence, or by its geometric mean. Wanted where another engine samples."""
    engine_correction_cap: Annotated[float, Field(gt=0)] = 2.0
    """Largest weight of that correction."""


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
    """Rollouts a problem; they are not compared with one another."""
    truncation: Literal["outcome", "bootstrap"] = "outcome"
    """What a rollout that ran out of tokens is worth: what its verifier paid for it, or
    what the critic says of its last prefix, for policy and critic alike."""
    critic: ValueHeadConfig = ValueHeadConfig()
    """Who values the prefixes; a section of its own."""


class PPOConfig(ActorCriticConfig, OutcomeConfig):
    """Proximal policy optimization, with VAPO's options."""

    name: Literal["ppo"] = "ppo"
    gamma: UnitShare = 1.0
    """Discount a sampled token."""
    lambda_policy: UnitShare = 1.0
    """Trace decay of the policy's advantages; 1 is return minus value."""
    lambda_critic: UnitShare = 1.0
    """Trace decay of the critic's targets; 1 is the return."""
    length_adaptive_alpha: Annotated[float, Field(gt=0)] | None = None
    """Takes 1 - 1 / (alpha L) as lambda_policy of a rollout with L sampled tokens."""
    clip_low: UnitShare = 0.2
    """Ratios below 1 - clip_low earn nothing more for a bad token."""
    clip_high: Share = 0.2
    """Ratios above 1 + clip_high earn nothing more for a good token."""
    dual_clip: Annotated[float, Field(gt=1)] | None = None
    """Largest ratio that a bad token's loss counts; none bounds nothing."""
    critic: PPOCriticConfig = PPOCriticConfig()
    """Who values the prefixes; a section of its own."""

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
    """Tokens whose ratio to the engine is not above it do not count."""
    ratio_high: Annotated[float, Field(ge=1)] = 6.0
    """Tokens whose ratio to the engine is not below it do not count."""
    length_adaptive_alpha: Annotated[float, Field(gt=0)] = 1.5
    """Takes 1 - 1 / (alpha L) as lambda_policy of a rollout with L sampled tokens."""
    critic: SAOCriticConfig = SAOCriticConfig()
    """Who values the prefixes; a section of its own."""


class PACTConfig(ActorCriticConfig, OutcomeConfig):
    """Policy aligned critic training."""

    name: Literal["pact"] = "pact"
    engine_correction: EngineCorrection = "truncated_importance"
    """Weight for the gap between engine and trainer, with the paper's default."""
    actor_loss: Literal["double_sided_importance", "clipped_surrogate"] = (
        "double_sided_importance"
    )
    """The paper's for agentic math (DIS), or for coding (PPO's)."""
    ratio_low: UnitShare = 0.7
    """Of the first: tokens whose ratio is not above it do not count."""
    ratio_high: Annotated[float, Field(ge=1)] = 6.0
    """Of the first: tokens whose ratio is not below it do not count."""
    clip_low: UnitShare = 0.2
    """Of the second: ratios below 1 - clip_low earn nothing more for a bad token."""
    clip_high: Share = 0.28
    """Of the second: ratios above 1 + clip_high earn nothing more for a good one."""
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
    """What the critic is taught; all but `pact` are controls or alternatives."""
    accept_low: Share = 0.0
    """Smallest ratio of a token whose prefix the critic is taught."""
    accept_high: Annotated[float, Field(gt=0)] = 6.0
    """Largest one."""
    window: Annotated[int, Field(ge=0)] = 16
    """Of `windowed`: later tokens whose ratio counts, too."""
    trace_cap: Annotated[float, Field(gt=0)] = 1.0
    """Of `vtrace`: largest ratio, of both kinds."""
    product_cap: Annotated[float, Field(gt=0)] = 6.0
    """Of `full_product`: largest product of ratios."""

    @model_validator(mode="after")
    def _ranges_are_upright(self) -> "PACTConfig":
        if not self.accept_low <= self.accept_high:
            raise ValueError(
                "algorithm.accept_low must not exceed algorithm.accept_high, got "
                f"{self.accept_low} and {self.accept_high}"
            )
        return self


class OPDConfig(OutcomeConfig):
    """On-policy distillation."""

    name: Literal["opd"] = "opd"
    group_size: Positive = 1
    """Rollouts a problem."""
    teacher: str = "self"
    """A Hugging Face model directory or a run with the policy's vocabulary, or `self`:
    the policy as it is, shown a reference."""
    template: str = ""
    """The teacher's own prompt: a text with {prompt} and {answer}. Empty shows the
    policy's prompt, and cannot go with `self`."""
    clip_low: UnitShare = 0.2
    """Ratios below 1 - clip_low earn nothing more for a bad token."""
    clip_high: Share = 0.2
    """Ratios above 1 + clip_high earn nothing more for a good token."""

    @model_validator(mode="after")
    def _self_is_shown_something(self) -> "OPDConfig":
        if self.teacher == "self" and not self.template:
            raise ValueError(
                "algorithm.template must show a teacher that is the policy itself "
                "something more, got nothing; e.g. '{prompt} Answer: {answer}'"
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
    | VineConfig,
    Field(discriminator="name"),
]
