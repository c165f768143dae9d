"""A recipe: everything a run can be told, validated. Loads no torch.

Recipes are TOML files; the command line overrides them by dotted names. An unknown key
is an error that names the nearest known one.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from accredit.algorithms.base_configs import UpdateConfig
from accredit.algorithms.configs import AlgorithmConfig, GRPOConfig
from accredit.critics.configs import CriticConfig, ValueHeadConfig
from accredit.environments.configs import EnvironmentConfig
from accredit.recipe.base import BaseConfig, TemplateArguments
from accredit.recipe.faults import choices_of as choices_of
from accredit.recipe.faults import explained
from accredit.recipe.faults import nearest as nearest
from accredit.recipe.faults import union_members as union_members
from accredit.recipe.overrides import (
    RecipeError,
    read_json,
    read_toml,
    require_plain,
    with_overrides,
)
from accredit.recipe.plugins import Place, plugins_of, with_plugins
from accredit.storage.named_files import small_file
from accredit.tasks.configs import (
    BaseTaskConfig,
    TaskConfig,
    TaskVerifierConfig,
    WalkConfig,
)
from accredit.text import shortened

Positive = Annotated[int, Field(ge=1)]


class ModelConfig(BaseConfig):
    """Which policy, and where it lives."""

    path: str = "packaged"
    """Names a Hugging Face model directory, or `packaged`: this library's own model."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Selects where the model runs; `auto` takes CUDA where there is one."""
    gradient_checkpointing: bool = False
    """Saves memory by a second forward pass; the gradient stays the same."""


class SamplingConfig(BaseConfig):
    """How rollouts are sampled for training."""

    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divides the logits, in the engine and in the learner alike."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Samples from the smallest set of likeliest tokens with this mass. The learner
    scores the whole distribution: below 1, algorithms with ratios to the engine are
    refused, and others learn with ratios of the whole."""
    top_k: Annotated[int, Field(ge=0)] = 0
    """Samples from this many likeliest tokens; 0 takes all. It is refused where `top_p`
    is."""
    max_new_tokens: Positive | None = None
    """Limits a completion, in tokens; none takes the task's own limit."""
    max_prompt_tokens: Positive = 1024
    """Leaves out, and counts, prompts of more tokens, before anything is sampled."""
    system: str = ""
    """Opens every conversation that brings no system turn of its own."""
    chat: Literal["auto", "template", "plain"] = "auto"
    """Takes the chat template where there is one, requires it, or uses plain text."""
    template_arguments: TemplateArguments = Field(default={})
    """Hands this table to the chat template whenever it is applied, such as
    `enable_thinking = false`."""


class EngineConfig(BaseConfig):
    """Who samples."""

    kind: Literal["local"] = "local"
    """Selects the engine: `local` is the model in this process; a `module:object` is
    somebody's own."""

    max_batch_tokens: Positive = 131_072
    """Limits the key-value cache, in tokens; results change by rounding only."""
    max_batch_rows: Positive = 256
    """Limits the rollouts sampled side by side; results change by rounding only."""


class LearnerConfig(BaseConfig):
    """How gradient steps are taken."""

    learning_rate: Annotated[float, Field(gt=0)] = 1e-6
    """Sets AdamW's learning rate at the end of the warm-up."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Selects what the rate does after the warm-up, over the run's steps."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Counts the steps in which the rate rises linearly to `learning_rate`."""
    final_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Sets the rate at the end of a decaying schedule, as a share of the full one."""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Sets the decay of AdamW's first moment per update."""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """Sets the decay of AdamW's second moment per update."""
    epsilon: Annotated[float, Field(ge=1.18e-38, le=3.4e38)] = 1e-8
    """Adds this normal number of float32 to the root of AdamW's second moment."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decays the weights, decoupled, by this share per unit of learning rate."""
    max_gradient_norm: Annotated[float, Field(gt=0)] | None = 1.0
    """Clips the gradient to this L2 norm; none clips nothing."""
    micro_batch_tokens: Positive = 4096
    """Limits the padded tokens of one pass: this changes memory, not the result."""
    max_consecutive_skips: Positive = 10
    """Stops after this many updates in a row with a non-finite loss or gradient."""


class EvaluationConfig(BaseConfig):
    """How the policy is evaluated on held-out problems."""

    every: Annotated[int, Field(ge=0)] = 20
    """Sets the steps between evaluations; 0 evaluates at the start and the end only."""
    samples: Positive = 8
    """Samples this many completions of each problem."""
    max_problems: Positive = 256
    """Limits the number of problems; the first of the held-out part are taken."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    """Divides the logits; 0 decodes greedily."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Samples from the smallest set of likeliest tokens with this probability mass."""
    top_k: Annotated[int, Field(ge=0)] = 0
    """Samples from this many likeliest tokens; 0 takes all."""
    success_at: float = 1.0
    """A completion with at least this reward counts as a success for pass@k."""


class CheckpointConfig(BaseConfig):
    """What is kept of the run."""

    every: Annotated[int, Field(ge=0)] = 20
    """Sets the steps between checkpoints; 0 saves at the end only."""
    keep_last: Positive = 2
    """Keeps this many newest checkpoints, beside the best one by eval/mean."""
    rollouts_every: Annotated[int, Field(ge=0)] = 10
    """Sets the steps between rollouts kept for the report, beside those of step 1; 0
    keeps none."""


class RunConfig(BaseConfig):
    """A recipe."""

    name: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
    ] = "run"
    """Names the run's folder under `runs_folder`."""
    runs_folder: Path = Path("runs")
    """Names the folder in which runs get a folder each."""
    seed: int = 0
    """Seeds every random draw of the run."""
    steps: Positive = 100
    """Counts the steps of the run: each samples, then learns; in the first ones a
    critic may learn alone."""
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Sets torch's threads; none takes one for a model under 20 million parameters, for
    which more are slower, and torch's own choice beyond."""
    trackers: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    """Sends metrics to these services beside the run's folder (extra `trackers`)."""
    max_invalid_share: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Stops the run after five steps with at least this share of rewards missing."""
    model: ModelConfig = ModelConfig()
    task: TaskConfig = WalkConfig()
    verifier: TaskVerifierConfig = TaskVerifierConfig()
    environment: EnvironmentConfig = EnvironmentConfig()
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
    def _algorithm_fits_the_sampling(self) -> "RunConfig":
        self.algorithm.check_budget(self.max_new_tokens)
        self.algorithm.check_support(self.sampling.top_p, self.sampling.top_k)
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
    def plugins(self) -> tuple[str, ...]:
        """Somebody's own parts, `module:object` each."""
        return plugins_of(self, PLACES)

    @property
    def max_new_tokens(self) -> int:
        """Budget of a completion: the recipe's, else the task's own."""
        return self.sampling.max_new_tokens or self.task.completion_tokens


PLACES = {
    "algorithm": Place(("algorithm",), "name", UpdateConfig),
    "critic": Place(("algorithm", "critic"), "kind", CriticConfig),
    "task": Place(("task",), "name", BaseTaskConfig),
    "verifier": Place(("verifier",), "name", TaskVerifierConfig),
    "environment": Place(("environment",), "name", EnvironmentConfig),
    "engine": Place(("engine",), "kind", EngineConfig),
}
"""Where a recipe may name somebody's own part, and what its keys are derived from."""


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
    model: Any = with_plugins(RunConfig, content, PLACES)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise RecipeError(f"{source}: {explained(error, model)}") from error
