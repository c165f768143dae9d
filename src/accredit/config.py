"""A recipe: everything a run can be told, validated. Loads no torch.

Recipes are TOML files; the command line overrides them by dotted names. An unknown key
is an error that names the nearest known one.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from accredit.algorithms.configs import AlgorithmConfig, GRPOConfig
from accredit.base_config import BaseConfig
from accredit.critics.configs import ValueHeadConfig
from accredit.named_files import small_file
from accredit.overrides import (
    RecipeError,
    read_json,
    read_toml,
    require_plain,
    with_overrides,
)
from accredit.recipe_faults import choices_of as choices_of
from accredit.recipe_faults import explained
from accredit.recipe_faults import nearest as nearest
from accredit.recipe_faults import union_members as union_members
from accredit.tasks.configs import TaskConfig, WalkConfig
from accredit.text import shortened

Positive = Annotated[int, Field(ge=1)]


class ModelConfig(BaseConfig):
    """Which policy, and where it lives."""

    path: str = "packaged"
    """A Hugging Face model directory, or `packaged`: the model inside this library."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto takes CUDA where there is one."""
    gradient_checkpointing: bool = False
    """Less memory for a second forward pass; the gradient stays the same."""


class SamplingConfig(BaseConfig):
    """How rollouts are sampled for training."""

    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divides the logits, in the engine and in the learner alike."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Smallest mass of likeliest tokens to sample from; below 1 the engine's ratios to
    the learner, which scores the whole distribution, are biased."""
    top_k: Annotated[int, Field(ge=0)] = 0
    """Number of likeliest tokens to sample from; 0 takes all. Biased as `top_p`."""
    max_new_tokens: Positive | None = None
    """Budget of a completion, in tokens; none takes the task's own."""
    max_prompt_tokens: Positive = 1024
    """Longer prompts are left out, counted, before anything is sampled."""
    system: str = ""
    """Opens every conversation that brings no system turn of its own."""
    chat: Literal["auto", "template", "plain"] = "auto"
    """Through the chat template where there is one, only so, or as plain text."""


class EngineConfig(BaseConfig):
    """Who samples."""

    max_batch_tokens: Positive = 131_072
    """Tokens of key-value cache held at once; results change by rounding only."""
    max_batch_rows: Positive = 256
    """Rollouts sampled side by side; results change by rounding only."""


class LearnerConfig(BaseConfig):
    """How gradient steps are taken."""

    learning_rate: Annotated[float, Field(gt=0)] = 1e-6
    """Of AdamW, at the end of warm-up."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """What the rate does after warm-up, over the run's steps."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Steps of linear warm-up."""
    final_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the rate that a decaying schedule ends at."""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Decay of AdamW's first moment."""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """Decay of AdamW's second moment."""
    epsilon: Annotated[float, Field(gt=0)] = 1e-8
    """Added to the root of the second moment."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled, per unit of learning rate."""
    max_gradient_norm: Annotated[float, Field(gt=0)] | None = 1.0
    """L2 norm that gradients are clipped to."""
    micro_batch_tokens: Positive = 4096
    """Padded tokens run at once: memory, not the result."""
    max_consecutive_skips: Positive = 10
    """Updates in a row with a loss or gradient that is not finite, before giving up."""


class EvaluationConfig(BaseConfig):
    """How the policy is evaluated on held-out problems."""

    every: Annotated[int, Field(ge=0)] = 20
    """Steps between evaluations; 0 evaluates at the start and the end only."""
    samples: Positive = 8
    """Completions a problem."""
    max_problems: Positive = 256
    """Problems, the first ones of the held-out part."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    """0 is greedy."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Smallest mass of likeliest tokens to sample from."""
    top_k: Annotated[int, Field(ge=0)] = 0
    """Number of likeliest tokens to sample from; 0 takes all."""
    success_at: float = 1.0
    """The reward from which a completion counts as a success for pass@k."""


class CheckpointConfig(BaseConfig):
    """What is kept of the run."""

    every: Annotated[int, Field(ge=0)] = 20
    """Steps between checkpoints; 0 saves at the end only."""
    keep_last: Positive = 2
    """Newest checkpoints kept, beside the best one by eval/mean."""
    rollouts_every: Annotated[int, Field(ge=0)] = 10
    """Steps between rollouts kept for the report, beside those of step 1; 0 keeps
    none."""


class RunConfig(BaseConfig):
    """A recipe."""

    name: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
    ] = "run"
    """Of the run's folder under `runs_folder`."""
    runs_folder: Path = Path("runs")
    """Where runs go."""
    seed: int = 0
    """Of everything random."""
    steps: Positive = 100
    """Steps of the run: roll out, then learn; in the first ones a critic may learn
    alone."""
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Torch threads; none takes one for a model under 20 million parameters, for which
    more are slower, and leaves torch its own choice beyond."""
    trackers: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    """Where metrics go besides the run's folder (extra `trackers`)."""
    max_invalid_share: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of rollouts without a reward that, five steps in a row, stops the run."""
    model: ModelConfig = ModelConfig()
    task: TaskConfig = WalkConfig()
    algorithm: AlgorithmConfig = GRPOConfig()
    sampling: SamplingConfig = SamplingConfig()
    engine: EngineConfig = EngineConfig()
    learner: LearnerConfig = LearnerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()

    @model_validator(mode="before")
    @classmethod
    def _algorithm_is_grpo_unless_named(cls, content: Any) -> Any:
        section = content.get("algorithm") if isinstance(content, dict) else None
        if isinstance(section, dict) and "name" not in section:
            return {**content, "algorithm": {"name": "grpo", **section}}
        return content

    @model_validator(mode="after")
    def _minibatches_have_rollouts(self) -> "RunConfig":
        algorithm = self.algorithm
        rollouts = algorithm.prompts_per_step * algorithm.group_size
        if algorithm.num_minibatches > rollouts:
            raise ValueError(
                f"algorithm.num_minibatches must not exceed the {rollouts} rollouts of "
                f"a step, got {algorithm.num_minibatches}"
            )
        critic = self.critic
        if critic is not None and critic.num_minibatches > rollouts:
            raise ValueError(
                f"algorithm.critic.num_minibatches must not exceed the {rollouts} "
                f"rollouts of a step, got {critic.num_minibatches}"
            )
        return self

    @model_validator(mode="after")
    def _critic_leaves_steps(self) -> "RunConfig":
        if self.critic is not None and self.critic.warmup_steps > self.steps:
            raise ValueError(
                "algorithm.critic.warmup_steps must not exceed steps, got "
                f"{self.critic.warmup_steps} and {self.steps}; the policy learns after "
                "them"
            )
        return self

    @model_validator(mode="after")
    def _decay_has_steps(self) -> "RunConfig":
        learner = self.learner
        updates = self.num_policy_updates
        if learner.schedule != "constant" and learner.warmup_steps >= updates:
            raise ValueError(
                f"learner.schedule = {learner.schedule!r} needs steps beyond "
                f"learner.warmup_steps = {learner.warmup_steps}, got {updates} steps "
                "in which the policy learns"
            )
        return self

    @model_validator(mode="after")
    def _algorithm_fits_the_budget(self) -> "RunConfig":
        self.algorithm.check_budget(self.max_new_tokens)
        return self

    @property
    def critic(self) -> ValueHeadConfig | None:
        """The critic with a value head, where the algorithm has one."""
        found = getattr(self.algorithm, "critic", None)
        return found if isinstance(found, ValueHeadConfig) else None

    @property
    def importance_cap(self) -> float:
        """Ratio of trainer to engine from which a token counts as mismatched."""
        return getattr(self.algorithm, "engine_correction_cap", 2.0)

    @property
    def num_policy_updates(self) -> int:
        """Steps in which the policy learns; the first may be the critic's alone."""
        critic_only = 0 if self.critic is None else self.critic.warmup_steps
        return max(0, self.steps - critic_only)

    @property
    def max_new_tokens(self) -> int:
        """Budget of a completion: the recipe's, else the task's own."""
        return self.sampling.max_new_tokens or self.task.completion_tokens


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """A recipe file with `--dotted.name value` overrides.

    Raises:
        RecipeError: the file is missing or malformed, or a key or value is not known.
    """
    try:
        written = small_file(path, "a recipe")
    except ValueError as error:
        raise RecipeError(str(error)) from error
    reads = read_json if path.suffix == ".json" else read_toml
    try:
        content = reads(written.decode("utf-8-sig"))
    except ValueError as error:
        raise RecipeError(
            f"{path} must be TOML in UTF-8, or JSON if so named, got: {error}"
        ) from error
    if not isinstance(content, dict):
        raise RecipeError(
            f"{path} must hold keys and sections, got {shortened(content)}"
        )
    return recipe_from(with_overrides(content, overrides), str(path))


def recipe_from(content: Mapping[str, Any], source: str) -> RunConfig:
    """A validated recipe.

    Raises:
        RecipeError: what is wrong first, in one line.
    """
    require_plain(content, source)
    try:
        return RunConfig.model_validate(content)
    except ValidationError as error:
        raise RecipeError(f"{source}: {explained(error, RunConfig)}") from error
