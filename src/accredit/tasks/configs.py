"""What can be set about each task. Loads no torch."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from accredit.base_config import BaseConfig


class BaseTaskConfig(BaseConfig):
    """What every task says of itself."""

    @property
    def completion_tokens(self) -> int:
        """Budget of a completion where a recipe sets none."""
        return 256


class WalkConfig(BaseTaskConfig):
    """Find a goal on a small map, writing every cell reached (packaged)."""

    name: Literal["walk"] = "walk"
    split: Literal["easy", "hard", "very_hard"] = "hard"
    """Start success 20-35%, 5-8% or about 1%."""
    reward: Literal["success", "progress"] = "success"
    """1 for the goal, or the share of the way made good."""
    num_moves: Annotated[int, Field(ge=1, le=40)] = 20
    """Budget of moves; a move is three tokens."""

    @property
    def completion_tokens(self) -> int:
        """As many as the moves take."""
        return 3 * self.num_moves


class ChainConfig(BaseTaskConfig):
    """A long chain of arithmetic facts modulo 10, boxed trail at the end (packaged)."""

    name: Literal["chain"] = "chain"
    split: Literal["easy", "hard", "very_hard"] = "hard"
    """Start success 20-35%, 5-8% or about 1%."""
    num_steps: Annotated[int, Field(ge=4, le=24)] = 12
    """Operations in a chain; a step is seven tokens."""

    @property
    def completion_tokens(self) -> int:
        """Every step, the box with its trail, and the stop token."""
        return 8 * self.num_steps + 9


class VerifierConfig(BaseTaskConfig):
    """How completions to a user's own problems are scored."""

    verifier: Literal["exact", "math", "function"] = "math"
    """The answer as text, the answer as mathematics, or `reward_function`."""
    answer_in: Literal["box", "box_or_label", "box_or_text"] | None = None
    """Where a completion says its answer: in the last `\\boxed{}`; there, or after the
    last `answer:`; or, without a box, in the whole completion. None takes `box` for
    `math` and `box_or_text` for `exact`."""
    answer_tag: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$|^$")] = ""
    """A completion with a whole `<tag>...</tag>` behind its thinking has answered, and
    is judged wherever it is stopped; empty takes a `\\boxed{}`."""
    reward_function: str = ""
    """`module:function`, called as reward(completion, problem) -> float | None."""
    reward_environment: tuple[str, ...] = ()
    """Names of environment variables that the reward function may read, such as the key
    of a judge; of the others it sees only plain ones such as PATH."""
    verifier_timeout_s: Annotated[float, Field(gt=0)] = 5.0
    """Seconds that one completion may take."""
    verifier_workers: Annotated[int, Field(ge=1)] = 2
    """Processes that verify side by side."""

    @model_validator(mode="after")
    def _function_is_named_where_it_is_used(self) -> "VerifierConfig":
        if bool(self.reward_function) != (self.verifier == "function"):
            raise ValueError(
                "task.reward_function = 'module:function' and task.verifier = "
                f"'function' go together, got {self.reward_function!r} with the "
                f"verifier {self.verifier!r}"
            )
        return self


class RowsConfig(VerifierConfig):
    """What data sets with columns have in common."""

    prompt_column: str | None = None
    """Column with the question as text; by default `prompt`."""
    messages_column: str | None = None
    """Column with a list of {role, content}, in place of a prompt."""
    answer_column: str | None = None
    """Column with the gold answer; by default `answer` where there is one."""
    id_column: str | None = None
    """Column with a unique id; by default `id`, else the row number."""
    metadata_columns: tuple[str, ...] = ()
    """Columns that a reward function reads from `problem.metadata`; an empty list keeps
    all that have no other meaning."""
    on_bad_row: Literal["stop", "skip"] = "stop"
    """A malformed row ends the run with its number and reason, or is counted."""
    held_out: Annotated[int, Field(ge=1)] | None = 64
    """Problems kept for evaluation where no split is named for it, the last ones; none
    evaluates on all and trains on all."""
    train_split: str | None = None
    """Rows to train on, by the data's split; none takes the split `train` of a hub data
    set, and of a file all that are not evaluated on."""
    evaluation_split: str | None = None
    """Rows to evaluate on, by the data's split; none holds some out."""


class JsonlConfig(RowsConfig):
    """A file of one's own: .jsonl, .json or .csv."""

    name: Literal["jsonl"] = "jsonl"
    path: Path
    """The file; a relative path starts at the working directory."""
    split_column: str | None = None
    """Column that says which split a row belongs to."""


class HubConfig(RowsConfig):
    """A data set of the `datasets` library, by local path or name (extra `tasks`)."""

    name: Literal["hub"] = "hub"
    path: str
    """A folder, a parquet file, or a name of the hub."""
    subset: str | None = None
    """Configuration of a data set that has several, e.g. `main`."""


class ReasoningGymConfig(BaseTaskConfig):
    """A reasoning-gym data set with its own scorer (extra `tasks`)."""

    name: Literal["reasoning_gym"] = "reasoning_gym"
    data_set: str
    """Its name there, e.g. `leg_counting`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Passed to the data set, e.g. difficulty."""
    num_problems: Annotated[int, Field(ge=2)] = 512
    """Generated, the held-out ones included."""
    held_out: Annotated[int, Field(ge=1)] = 64
    """Problems kept for evaluation."""
    data_seed: int = 0
    """Of the generated problems."""


class ImoAnswerBenchConfig(VerifierConfig):
    """IMO-AnswerBench: olympiad problems with short answers, from its CSV file."""

    name: Literal["imo_answerbench"] = "imo_answerbench"
    path: Path
    """The CSV file."""
    held_out: Annotated[int, Field(ge=1)] | None = None
    """Problems kept for evaluation; none evaluates on all and trains on all."""


TaskConfig = Annotated[
    WalkConfig
    | ChainConfig
    | JsonlConfig
    | HubConfig
    | ReasoningGymConfig
    | ImoAnswerBenchConfig,
    Field(discriminator="name"),
]
