"""A recipe: everything a run can be told, validated. Loads no torch.

Recipes are TOML files; the command line overrides them by dotted names. An unknown key
is an error that names the nearest known one.
"""

import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError, model_validator

from accredit.algorithms.configs import AlgorithmConfig, GRPOConfig
from accredit.base_config import BaseConfig, TemplateArguments
from accredit.critics.configs import ValueHeadConfig
from accredit.overrides import RecipeError, with_overrides
from accredit.tasks.configs import TaskConfig, WalkConfig

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
    """Smallest mass of likeliest tokens to sample from. The learner scores the whole
    distribution: below 1, algorithms with ratios to the engine are refused, others
    learn with ratios of the whole."""
    top_k: Annotated[int, Field(ge=0)] = 0
    """Number of likeliest tokens to sample from; 0 takes all. Refused as `top_p` is."""
    max_new_tokens: Positive | None = None
    """Budget of a completion, in tokens; none takes the task's own."""
    max_prompt_tokens: Positive = 1024
    """Longer prompts are left out, counted, before anything is sampled."""
    system: str = ""
    """Opens every conversation that brings no system turn of its own."""
    chat: Literal["auto", "template", "plain"] = "auto"
    """Through the chat template where there is one, only so, or as plain text."""
    template_arguments: TemplateArguments = Field(default={})
    """A table of what the chat template reads besides the messages, such as
    `enable_thinking = false`; given whenever it is applied."""


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
    epsilon: Annotated[float, Field(ge=1.18e-38, le=3.4e38)] = 1e-8
    """Added to the root of the second moment; a normal number of float32."""
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

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = "run"
    """Of the run's folder under `runs_folder`."""
    runs_folder: Path = Path("runs")
    """Where runs go."""
    seed: int = 0
    """Of everything random."""
    steps: Positive = 100
    """Steps of the run: roll out, then learn; in the first ones a critic may learn
    alone."""
    threads: Positive | None = None
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
    def max_new_tokens(self) -> int:
        """Budget of a completion: the recipe's, else the task's own."""
        return self.sampling.max_new_tokens or self.task.completion_tokens


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """A recipe file with `--dotted.name value` overrides.

    Raises:
        RecipeError: the file is missing or malformed, or a key or value is not known.
    """
    try:
        written = path.read_bytes()
    except OSError as error:
        raise RecipeError(
            f"a recipe must be a readable TOML file, got {path}: {error.strerror}"
        ) from error
    reads = json.loads if path.suffix == ".json" else tomllib.loads
    try:
        content = reads(written.decode("utf-8-sig"))
    except ValueError as error:
        raise RecipeError(
            f"{path} must be TOML in UTF-8, or JSON if so named, got: {error}"
        ) from error
    if not isinstance(content, dict):
        raise RecipeError(f"{path} must hold keys and sections, got {content!r}")
    return recipe_from(with_overrides(content, overrides), str(path))


def recipe_from(content: Mapping[str, Any], source: str) -> RunConfig:
    """A validated recipe.

    Raises:
        RecipeError: what is wrong first, in one line.
    """
    try:
        return RunConfig.model_validate(content)
    except ValidationError as error:
        raise RecipeError(f"{source}: {explained(error)}") from error


def explained(error: ValidationError) -> str:
    """The first fault, and how many more there are, in one line."""
    first, *others = error.errors()
    more = f" (and {len(others)} more)" if others else ""
    return fault_line(first) + more


def fault_line(fault: Any) -> str:
    """What must hold of a key, and what arrived."""
    place = ".".join(map(str, dotted(fault["loc"])))
    kind, arrived = fault["type"], fault["input"]
    context = fault.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind == "extra_forbidden":
        return f"{place} is not a key" + nearest_key(fault["loc"])
    if kind == "union_tag_invalid":
        names = str(context["expected_tags"]).replace("'", "").split(", ")
        tag = str(context["tag"])
        tagged_by = str(context["discriminator"]).strip("'")
        return f"{place}.{tagged_by} {tag!r} is unknown" + nearest(tag, names)
    if kind == "union_tag_not_found":
        return f"{place} needs a name, got a section without one"
    if kind == "missing":
        return f"{place} must be given, got a section without it"
    return f"{place} must {demand(kind, fault['msg'])}, got {arrived!r}"


def demand(kind: str, message: str) -> str:
    """What pydantic asks for, as the end of a sentence about a key."""
    plain = {
        "model_type": "be a section of keys",
        "model_attributes_type": "be a section of keys",
        "tuple_type": "be a list",
        "string_pattern_mismatch": (
            "consist of letters, digits, '.', '_' and '-', and begin with one of the "
            "first two"
        ),
    }
    asked = message.partition(" should ")[2]
    if kind.endswith("_parsing") or kind == "int_from_float":
        asked = asked.partition(",")[0]
    return plain.get(kind, asked)


def nearest_key(location: Sequence[int | str]) -> str:
    """What to say after an unknown key: the like of it, here or in another section."""
    *sections, key = location
    name = str(key)
    known = known_keys(RunConfig, sections)
    homes = [
        f"{section}.{name}"
        for section in RunConfig.model_fields
        if section not in map(str, sections) and name in section_keys(section)
    ]
    if homes and not difflib.get_close_matches(name, known, n=1, cutoff=0.8):
        return f"; did you mean {homes[0]}?"
    return nearest(name, known)


def section_keys(name: str) -> list[str]:
    """Keys that a section of the recipe may have; none where it is a single key."""
    field = RunConfig.model_fields[name]
    inner: Any = field.annotation
    members = union_members(field) if field.discriminator else [inner]
    sections = [m for m in members if isinstance(m, type) and issubclass(m, BaseModel)]
    return [key for section in sections for key in section.model_fields]


def nearest(name: str, known: Sequence[str]) -> str:
    """`; did you mean X? (known: ...)`."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"{hint} (known: {', '.join(sorted(known))})"


def dotted(location: Sequence[int | str]) -> list[int | str]:
    """A location as a user writes it: without the tag of a union."""
    shown: list[int | str] = []
    fields: dict[str, Any] = dict(RunConfig.model_fields)
    choices: dict[str, type[BaseModel]] = {}
    for i, part in enumerate(location):
        if part in choices:
            fields, choices = dict(choices[str(part)].model_fields), {}
            if i < len(location) - 1:
                continue
        shown.append(part)
        field = fields.get(str(part))
        if field is not None:
            choices = choices_of(field)
            fields = section_fields(field)
    return shown


def known_keys(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """Names that may stand at a location."""
    fields = model.model_fields
    if not location:
        return list(fields)
    field = fields[str(location[0])]
    if field.discriminator:
        return known_keys(choices_of(field)[str(location[1])], location[2:])
    inner = field.annotation
    assert isinstance(inner, type) and issubclass(inner, BaseModel)
    return known_keys(inner, location[1:])


def union_members(field: Any) -> list[type[BaseModel]]:
    """The classes a field with a discriminator chooses from."""
    return list(field.annotation.__args__)


def choices_of(field: Any) -> dict[str, type[BaseModel]]:
    """By its name, or kind, each section that a field may be; none where it is one."""
    if not field.discriminator:
        return {}
    return {
        member.model_fields[field.discriminator].default: member
        for member in union_members(field)
    }


def section_fields(field: Any) -> dict[str, Any]:
    """Fields of the section that a key is; none of a plain key or a choice."""
    inner = field.annotation
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        return dict(inner.model_fields)
    return {}
