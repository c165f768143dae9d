"""What can be set about a critic with parameters. Loads no torch."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from accredit.base_config import BaseConfig, require_placeholders, require_used

Positive = Annotated[int, Field(ge=1)]


class ValueHeadConfig(BaseConfig):
    """A value head on a backbone, and how it is trained."""

    path: str = "policy"
    """Where it starts: `policy` is the policy's own model with a fresh head; else a
    Hugging Face model directory, a saved critic, or a run with a critic."""
    trunk: Literal["own", "shared", "lora"] = "own"
    """Whose backbone the head reads: one of its own, the policy's, which it then trains
    along, or adapters on the policy's, which stays as it is (extra `lora`)."""
    output: Literal["sigmoid", "linear", "categorical"] = "sigmoid"
    """Bounded with soft cross-entropy, unbounded with squared error, or bins over the
    range of rewards with cross-entropy to a smoothed target (HL-Gauss)."""
    num_bins: Annotated[int, Field(ge=2)] = 51
    """Bins of the categorical output."""
    bin_sigma: Annotated[float, Field(gt=0)] = 0.75
    """Deviation of the categorical target, in bins."""
    value_clip: Annotated[float, Field(gt=0)] | None = None
    """Largest move of a linear output that its loss counts, reward units."""
    initial_value: float | None = None
    """What a fresh head says of everything; none is the middle of the rewards."""
    reward_low: float = 0.0
    """Smallest reward; with `reward_high` it rescales what the critic learns."""
    reward_high: float = 1.0
    """Largest reward."""
    template: str = ""
    """The critic's own prompt, which may show what the policy is not shown: a text with
    {prompt} and {answer}. Empty shows the policy's prompt."""
    learning_rate: Annotated[float, Field(gt=0)] = 5e-6
    """Of its AdamW."""
    follows_schedule: bool = False
    """Whether its rate takes the shape of `learner.schedule` over all steps of the run,
    warm-up included; else it stays as it is."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled, per unit of learning rate."""
    max_gradient_norm: Annotated[float, Field(gt=0)] | None = 1.0
    """L2 norm that its gradients are clipped to."""
    warmup_steps: Annotated[int, Field(ge=0)] = 10
    """First steps of the run in which the critic alone learns (value pretraining under
    the frozen policy); of a shared trunk, its head alone."""
    warmup_epochs: Positive = 1
    """Passes over the batch in each of those."""
    num_epochs: Positive = 1
    """Passes over the batch in every later step."""
    num_minibatches: Positive = 1
    """Optimizer steps a pass; must not exceed the rollouts of a step."""
    freeze_attention: bool = False
    """Trains everything but the attention of the critic's backbone."""
    max_prefixes: Positive | None = None
    """Prefixes of a rollout that are trained on, well apart; none takes all."""
    deviation_floor: Annotated[float, Field(gt=0)] | None = None
    """Weighs a prompt's loss by 1 / max(deviation of its rewards, this); none weighs
    all alike."""
    lora_rank: Positive = 8
    """Rank of the adapters."""
    lora_alpha: Annotated[float, Field(gt=0)] = 16.0
    """Scale of the adapters, over their rank."""

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
