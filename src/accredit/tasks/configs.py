"""What can be set about each task. Loads no torch."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from accredit.recipe.base import BaseConfig
from accredit.text import shortened

Reads = Literal["sampled", "clean"]
HeldOut = Annotated[int, Field(ge=1)] | Literal["auto"] | None


class BaseTaskConfig(BaseConfig):
    """What every task says of itself."""

    @property
    def completion_tokens(self) -> int:
        """Budget of a completion where a recipe sets none."""
        return 256

    @property
    def reads(self) -> Reads:
        """What a reward sees of a completion."""
        return "clean"


class TaskVerifierConfig(BaseConfig):
    """Who scores completions in place of the task: nobody, or somebody's own part."""

    name: Literal["task"] = "task"
    """Leaves the scoring to the task; a `module:object` takes its place."""


class ReadConfig(BaseTaskConfig):
    """What tasks have whose completions may hold special tokens that mean something."""

    reward_reads: Reads = "sampled"
    """Selects what a reward sees of a completion: `sampled` is all but the tokens that
    end or pad it, `clean` is without any token that the tokenizer calls special, which
    may be `<think>` or `<answer>`."""

    @property
    def reads(self) -> Reads:
        """As the recipe says."""
        return self.reward_reads


class WalkConfig(BaseTaskConfig):
    """Find a goal on a small map, writing every cell reached (packaged)."""

    name: Literal["walk"] = "walk"
    split: Literal["easy", "hard", "very_hard"] = "hard"
    """Selects problems by their start success: 20-35%, 5-8% or about 1%."""
    reward: Literal["success", "progress"] = "success"
    """Pays 1 for reaching the goal (`success`), or the share of the way covered."""
    num_moves: Annotated[int, Field(ge=1, le=40)] = 20
    """Limits a walk, in moves; a move is three tokens."""

    @property
    def completion_tokens(self) -> int:
        """As many as the moves take."""
        return 3 * self.num_moves


class ChainConfig(BaseTaskConfig):
    """A long chain of arithmetic facts modulo 10, boxed trail at the end (packaged)."""

    name: Literal["chain"] = "chain"
    split: Literal["easy", "hard", "very_hard"] = "hard"
    """Selects problems by their start success: 20-35%, 5-8% or about 1%."""
    num_steps: Annotated[int, Field(ge=4, le=24)] = 12
    """Counts the operations of a chain; a step is seven tokens."""

    @property
    def completion_tokens(self) -> int:
        """Every step, the box with its trail, and the stop token."""
        return 8 * self.num_steps + 9


class VerifierConfig(ReadConfig):
    """How completions to a user's own problems are scored."""

    verifier: Literal["exact", "math", "function"] = "math"
    """Compares the answer as text or as mathematics, or calls `reward_function`."""
    answer_in: Literal["box", "box_or_label", "box_or_text"] | None = None
    """Says where a completion answers: in the last `\\boxed{}`; there, or in a
    labelled place (`Answer: 42`, `the answer is 42`, `<answer>42</answer>`,
    `#### 42`); or, without a box, in the whole completion. None takes `box`, and
    `box_or_text` for `exact`."""
    answer_tag: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$|^$")] = ""
    """Names the block that is the answer, in place of `answer_in`: `answer` reads
    `<answer>42</answer>` and nothing else. A completion that has answered is judged
    wherever it is stopped."""
    max_bad_gold_share: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Stops the run where the verifier fails to read, or to find equal to themselves,
    more than this share of the gold answers that are tried before a training."""
    reward_function: str = ""
    """Names a `module:function`, called as reward(completion, problem) -> float |
    None."""
    reward_environment: tuple[str, ...] = ()
    """Names environment variables that the reward function may read, such as the key of
    a judge; of the others it sees only plain ones such as PATH."""
    verifier_timeout_s: Annotated[float, Field(gt=0)] = 5.0
    """Limits the time that one completion may take, in seconds."""
    verifier_workers: Annotated[int, Field(ge=1)] = 2
    """Verifies in this many processes side by side."""

    @model_validator(mode="after")
    def _keys_fit_together(self) -> "VerifierConfig":
        if bool(self.reward_function) != (self.verifier == "function"):
            raise ValueError(
                "task.reward_function = 'module:function' and task.verifier = "
                f"'function' go together, got {shortened(self.reward_function)} with "
                f"the verifier {self.verifier!r}"
            )
        if self.answer_tag and self.answer_in is not None:
            raise ValueError(
                "task.answer_in and task.answer_tag each say where the answer is, got "
                f"{self.answer_in!r} and {self.answer_tag!r}; leave one out"
            )
        return self


class RowsConfig(VerifierConfig):
    """What data sets with columns have in common."""

    prompt_column: str | None = None
    """Names the column with the question as text; by default `prompt`."""
    messages_column: str | None = None
    """Names the column with a list of {role, content}, in place of a prompt."""
    answer_column: str | None = None
    """Names the column with the gold answer; by default `answer` where there is one."""
    id_column: str | None = None
    """Names the column with a unique id; by default `id`, else the row number."""
    metadata_columns: tuple[str, ...] = ()
    """Names the columns that a reward function reads from `problem.metadata`; an empty
    list keeps all that have no other meaning."""
    on_bad_row: Literal["stop", "skip"] = "stop"
    """Stops at a malformed row with its number and reason, or skips and counts it."""
    held_out: HeldOut = "auto"
    """Keeps this many problems, the last ones, for evaluation where no split is named
    for it; auto keeps a fifth of them and at most 64, none trains and evaluates on
    all."""
    train_split: str | None = None
    """Names the split to train on; none takes the split `train` of a hub data set, and
    of a file all rows that are not evaluated on."""
    evaluation_split: str | None = None
    """Names the split to evaluate on; none keeps `held_out` problems for it."""

    @model_validator(mode="after")
    def _prompt_or_messages(self) -> "RowsConfig":
        if self.prompt_column is not None and self.messages_column is not None:
            raise ValueError(
                "task.prompt_column and task.messages_column exclude each other, got "
                f"{shortened(self.prompt_column)} and {shortened(self.messages_column)}"
                "; leave one out"
            )
        return self


class JsonlConfig(RowsConfig):
    """A file of one's own: .jsonl, .json or .csv."""

    name: Literal["jsonl"] = "jsonl"
    path: Path
    """Names the file; a relative path starts at the working directory."""
    split_column: str | None = None
    """Names the column that says which split a row belongs to."""


class HubConfig(RowsConfig):
    """A data set of the `datasets` library, by local path or name (extra `tasks`)."""

    name: Literal["hub"] = "hub"
    path: str
    """Names a folder, a parquet file, or a data set of the hub."""
    subset: str | None = None
    """Names the configuration of a data set that has several, e.g. `main`."""


class ReasoningGymConfig(ReadConfig):
    """A reasoning-gym data set with its own scorer (extra `tasks`)."""

    name: Literal["reasoning_gym"] = "reasoning_gym"
    data_set: str
    """Names a data set of reasoning-gym, e.g. `leg_counting`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Passes these arguments to the data set, e.g. its difficulty."""
    num_problems: Annotated[int, Field(ge=2)] = 512
    """Generates this many problems, the held-out ones included."""
    held_out: Annotated[int, Field(ge=1)] = 64
    """Keeps this many problems for evaluation."""
    data_seed: int = 0
    """Seeds the generation of problems."""


class ImoAnswerBenchConfig(VerifierConfig):
    """IMO-AnswerBench: olympiad problems with short answers, from its CSV file."""

    name: Literal["imo_answerbench"] = "imo_answerbench"
    path: Path
    """Names the CSV file."""
    held_out: Annotated[int, Field(ge=1)] | None = None
    """Keeps this many problems for evaluation; none trains and evaluates on all."""


TaskConfig = Annotated[
    WalkConfig
    | ChainConfig
    | JsonlConfig
    | HubConfig
    | ReasoningGymConfig
    | ImoAnswerBenchConfig,
    Field(discriminator="name"),
]
