"""What can be set about a critic with parameters. Loads no torch."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from accredit.recipe.base import BaseConfig, require_placeholders, require_used

Positive = Annotated[int, Field(ge=1)]


class CriticConfig(BaseConfig):
    """What every critic's keys are derived from."""


class ValueHeadConfig(CriticConfig):
    """A value head on a backbone, and how it is trained."""

    path: str = "policy"
    """Names where the critic starts: `policy` is the policy's own model with a fresh
    head; else a Hugging Face model directory, a saved critic, or a run with a
    critic."""
    trunk: Literal["own", "shared", "lora"] = "own"
    """Selects the backbone that the head reads: one of its own; the policy's, which it
    then trains along; or adapters on the policy's, which stays as it is (extra
    `lora`)."""
    output: Literal["sigmoid", "linear", "categorical"] = "sigmoid"
    """Selects the output: bounded with soft cross-entropy, unbounded with squared
    error, or bins over the range of rewards with cross-entropy to a smoothed target
    (HL-Gauss)."""
    num_bins: Annotated[int, Field(ge=2)] = 51
    """Sets the number of bins of the categorical output."""
    bin_sigma: Annotated[float, Field(gt=0)] = 0.75
    """Sets the standard deviation of the categorical target, in bins."""
    value_clip: Annotated[float, Field(gt=0)] | None = None
    """Limits the move of a linear output in its loss, in reward units; none sets no
    limit."""
    initial_value: float | None = None
    """Sets what a fresh head predicts of every prefix, in reward units; none takes the
    middle of the rewards."""
    reward_low: float = 0.0
    """Sets the smallest reward; with `reward_high` it rescales what the critic
    learns."""
    reward_high: float = 1.0
    """Sets the largest reward."""
    template: str = ""
    """Shows the critic its own prompt, which may hold what the policy is not shown: a
    text with {prompt} and {answer}. Empty shows the policy's prompt."""
    learning_rate: Annotated[float, Field(gt=0)] = 5e-6
    """Sets the learning rate of the critic's AdamW."""
    follows_schedule: bool = False
    """Gives the critic's rate the shape of `learner.schedule` over all steps of the
    run, warm-up included; else it stays constant."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decays the critic's weights, decoupled, per unit of learning rate."""
    max_gradient_norm: Annotated[float, Field(gt=0)] | None = 1.0
    """Clips the critic's gradient to this L2 norm; none clips nothing."""
    warmup_steps: Annotated[int, Field(ge=0)] = 10
    """Counts the first steps of the run, in which the critic alone learns (value
    pretraining under the frozen policy); of a shared trunk, its head alone."""
    warmup_epochs: Positive = 1
    """Goes over the batch this many times in each warm-up step."""
    num_epochs: Positive = 1
    """Goes over the batch this many times in every later step."""
    num_minibatches: Positive = 1
    """Divides a pass into this many optimizer steps; it must not exceed the rollouts of
    a step."""
    freeze_attention: bool = False
    """Trains everything but the attention of the critic's backbone."""
    max_prefixes: Positive | None = None
    """Trains on at most this many prefixes of a rollout, well apart; none takes all."""
    deviation_floor: Annotated[float, Field(gt=0)] | None = None
    """Divides a prompt's loss by max(standard deviation of its rewards, this); none
    weighs all alike."""
    lora_rank: Positive = 8
    """Sets the rank of the adapters."""
    lora_alpha: Annotated[float, Field(gt=0)] = 16.0
    """Scales the adapters by this value over their rank."""

    @model_validator(mode="after")
    def _keys_fit_one_another(self) -> "ValueHeadConfig":
        if not self.reward_low < self.reward_high:
            raise ValueError(
                "algorithm.critic.reward_low must be below reward_high, got "
                f"{self.reward_low} and {self.reward_high}"
            )
        initial = self.initial_value
        if initial is not None and not self.reward_low < initial < self.reward_high:
            raise ValueError(
                "algorithm.critic.initial_value must lie between reward_low and "
                f"reward_high, {self.reward_low} and {self.reward_high}, got {initial}"
            )
        if self.value_clip is not None and self.output != "linear":
            raise ValueError(
                "algorithm.critic.value_clip goes with output = 'linear', got "
                f"{self.output!r}; leave it out, a bounded output needs none"
            )
        require_placeholders("algorithm.critic.template", self.template)
        if self.freeze_attention and self.trunk != "own":
            raise ValueError(
                "algorithm.critic.freeze_attention needs a trunk of its own, got "
                f"trunk = {self.trunk!r}"
            )
        require_used(
            self,
            ("lora_rank", "lora_alpha"),
            self.trunk == "lora",
            "algorithm.critic.trunk = 'lora'",
        )
        require_used(
            self,
            ("num_bins", "bin_sigma"),
            self.output == "categorical",
            "algorithm.critic.output = 'categorical'",
        )
        require_used(
            self,
            ("warmup_epochs",),
            self.warmup_steps > 0,
            "algorithm.critic.warmup_steps above 0",
        )
        return self

    @property
    def first_value(self) -> float:
        """What a fresh head says: as set, or the middle of the rewards."""
        middle = (self.reward_low + self.reward_high) / 2
        return middle if self.initial_value is None else self.initial_value
