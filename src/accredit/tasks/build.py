"""A recipe's task: problems to train on, problems held out, and who scores them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from accredit.protocols import Verifier
from accredit.recipe.plugins import built, is_plugin
from accredit.tasks import chain, walk
from accredit.tasks.configs import (
    ChainConfig,
    HeldOut,
    HubConfig,
    ImoAnswerBenchConfig,
    JsonlConfig,
    ReasoningGymConfig,
    RowsConfig,
    VerifierConfig,
    WalkConfig,
)
from accredit.tasks.golds import golds_read
from accredit.tasks.problems import BadRow, ColumnMapping, LoadedProblems, shortened
from accredit.types import Problem
from accredit.verification.answered import (
    AnswerReader,
    HasAnswer,
    Turns,
    TurnVerifier,
    answer_reader,
)

LARGEST_HELD_OUT = 64
HELD_OUT_SHARE = 5
"""Unless told otherwise one problem of so many is kept for evaluation."""


@dataclass(frozen=True)
class Task:
    """What a run trains on and is judged by."""

    train: tuple[Problem, ...]
    evaluation: tuple[Problem, ...]
    verifier: Verifier
    bad_rows: tuple[BadRow, ...] = field(default=())
    has_answer: HasAnswer = answer_reader().has_answer
    """Whether a completion that goes on has said its whole answer already."""
    rows: VerifierConfig | None = None
    """How completions to a user's own rows are scored, where there are such."""
    columns: tuple[str, ...] = ()
    """Names of what those rows hold."""
    notes: tuple[str, ...] = ()
    """What to say of the problems before a run."""
    reads_turn: bool = True
    """Whether the verifier reads an answer off the whole turn; a function of the user
    is shown what was sampled, and nothing else."""

    def __post_init__(self) -> None:
        for purpose, problems in (("train", self.train), ("evaluate", self.evaluation)):
            if not problems:
                raise ValueError(
                    f"a task needs problems to {purpose} on, got none; lower held_out "
                    "or check the splits"
                )

    def seen_by(self, turns: Turns) -> Verifier:
        """The verifier, for completions alone."""
        return TurnVerifier(self.verifier, turns) if self.reads_turn else self.verifier


def build_task(config: Any) -> Task:
    """The task that a section `[task]` describes.

    Raises:
        ValueError: the data are missing or malformed.
    """
    if is_plugin(config.name):
        return built(config, Task)
    builders = {
        "walk": walk_task,
        "chain": chain_task,
        "jsonl": jsonl_task,
        "hub": hub_task,
        "reasoning_gym": reasoning_gym_task,
        "imo_answerbench": imo_answerbench_task,
    }
    return builders[config.name](config)


def walk_task(config: WalkConfig) -> Task:
    """Navigation on the packaged map."""
    problems = walk.walk_problems(config.split, config.num_moves)
    rewards = {"success": walk.success_reward, "progress": walk.progress_reward}
    verifier = walk.WalkVerifier(rewards[config.reward], config.num_moves)
    return Task(
        problems.train, problems.evaluation, verifier, has_answer=walk.has_arrived
    )


def chain_task(config: ChainConfig) -> Task:
    """Chains of arithmetic facts."""
    problems = chain.chain_problems(config.split, config.num_steps)
    return Task(problems.train, problems.evaluation, chain.ChainVerifier())


def jsonl_task(config: JsonlConfig) -> Task:
    """A user's own file."""
    from accredit.tasks.jsonl import load_jsonl

    load = partial(
        load_jsonl,
        config.path,
        columns=columns(config, config.split_column),
        on_bad_row=config.on_bad_row,
    )
    if config.evaluation_split is None:
        loaded = load(split=config.train_split)
        return own_task(
            config, *held_out_parts(config.held_out, loaded.problems), loaded
        )
    evaluation = load(split=config.evaluation_split)
    train = load(split=config.train_split)
    problems = train.problems
    if config.train_split is None:
        problems = without(problems, evaluation.problems)
    return own_task(config, problems, evaluation.problems, train)


def hub_task(config: HubConfig) -> Task:
    """A data set of the `datasets` library."""
    from accredit.tasks.hub import load_hub

    load = partial(
        load_hub,
        config.path,
        subset=config.subset,
        columns=columns(config),
        on_bad_row=config.on_bad_row,
    )
    train = load(split=config.train_split or "train")
    if config.evaluation_split is None:
        return own_task(config, *held_out_parts(config.held_out, train.problems), train)
    evaluation = load(split=config.evaluation_split)
    return own_task(config, train.problems, evaluation.problems, train, evaluation)


def reasoning_gym_task(config: ReasoningGymConfig) -> Task:
    """A generated data set with its own scorer."""
    from accredit.tasks.reasoning_gym import (
        READER,
        ReasoningGymVerifier,
        load_reasoning_gym,
    )

    loaded = load_reasoning_gym(
        config.data_set, config.num_problems, config.data_seed, config=config.options
    )
    train, evaluation = held_out_parts(config.held_out, loaded.problems)
    verifier = ReasoningGymVerifier()
    return Task(
        tuple(train),
        tuple(evaluation),
        verifier,
        loaded.bad_rows,
        READER.has_answer,
    )


def imo_answerbench_task(config: ImoAnswerBenchConfig) -> Task:
    """Olympiad problems with short answers."""
    from accredit.tasks.imo_bench import load_imo_answerbench

    loaded = load_imo_answerbench(config.path)
    return own_task(config, *held_out_parts(config.held_out, loaded.problems), loaded)


def own_task(
    config: VerifierConfig,
    train: Sequence[Problem],
    evaluation: Sequence[Problem],
    *loaded: LoadedProblems,
) -> Task:
    """Rows of a user's, with gold answers as the verifier reads them.

    The verifier is built last, once the problems are known to be good.
    """
    reader = reader_of(config)
    read = partial(golds_read, reader=reader, verifier=config.verifier)
    shorter = [
        (problem.answer, after.answer)
        for problem, after in zip(train, read(train), strict=True)
        if problem.answer != after.answer
    ]
    return Task(
        read(train),
        read(evaluation),
        build_verifier(config),
        tuple(row for part in loaded for row in part.bad_rows),
        reader.has_answer,
        config,
        tuple(dict.fromkeys(name for part in loaded for name in part.columns)),
        (solutions_note(shorter, len(train)),) if shorter else (),
        reads_turn=config.verifier != "function",
    )


def solutions_note(read: Sequence[tuple[str | None, str | None]], total: int) -> str:
    """What to say of gold texts that held more than their answers."""
    (text, answer), *_ = read
    return (
        f"{len(read)} of {total} gold texts hold more than an answer, which is read "
        f"off them: the first, {shortened(text)}, gives {shortened(answer)}"
    )


def reader_of(config: VerifierConfig) -> AnswerReader:
    """What counts as the answer of a completion, for whoever asks."""
    default = "box_or_text" if config.verifier == "exact" else "box"
    return answer_reader(config.answer_in or default, config.answer_tag)


def build_verifier(config: VerifierConfig) -> Verifier:
    """Who scores completions to a user's own problems.

    Raises:
        ValueError: it cannot be loaded; better now than after the first rollouts.
    """
    if config.verifier == "function":
        from accredit.verification.function import FunctionVerifier

        function = FunctionVerifier(
            config.reward_function,
            timeout_s=config.verifier_timeout_s,
            num_workers=config.verifier_workers,
            environment=config.reward_environment,
        )
        function.check()
        return function
    extract = reader_of(config).answer
    if config.verifier == "exact":
        from accredit.verification.exact import ExactVerifier

        return ExactVerifier(extract)
    from accredit.verification.math import MathVerifier

    return MathVerifier(
        timeout_s=config.verifier_timeout_s,
        num_workers=config.verifier_workers,
        extract=extract,
    )


def columns(config: RowsConfig, split: str | None = None) -> ColumnMapping:
    """Which column holds what."""
    return ColumnMapping(
        prompt=config.prompt_column,
        messages=config.messages_column,
        answer=config.answer_column,
        id=config.id_column,
        split=split,
        metadata=config.metadata_columns or None,
    )


def held_out_parts(
    held_out: HeldOut, problems: Sequence[Problem]
) -> tuple[Sequence[Problem], Sequence[Problem]]:
    """All but the last `held_out` problems to train on, those for evaluation.

    Raises:
        ValueError: none is left to train on.
    """
    if held_out is None:
        return problems, problems
    if held_out == "auto":
        held_out = min(LARGEST_HELD_OUT, max(1, len(problems) // HELD_OUT_SHARE))
    if held_out >= len(problems):
        raise ValueError(
            f"task.held_out must leave problems to train on, got {held_out} of "
            f"{len(problems)}; lower it, or set it to none to use all for both"
        )
    cut = len(problems) - held_out
    return problems[:cut], problems[cut:]


def without(
    problems: Sequence[Problem], others: Sequence[Problem]
) -> tuple[Problem, ...]:
    """The same less some of them."""
    ids = {problem.id for problem in others}
    return tuple(problem for problem in problems if problem.id not in ids)
