"""A recipe's task: problems to train on, problems held out, and who scores them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

from accredit.protocols import Verifier
from accredit.tasks import chain, walk
from accredit.tasks.configs import (
    ChainConfig,
    HubConfig,
    ImoAnswerBenchConfig,
    JsonlConfig,
    ReasoningGymConfig,
    RowsConfig,
    VerifierConfig,
    WalkConfig,
)
from accredit.tasks.problems import BadRow, ColumnMapping, LoadedProblems
from accredit.types import Problem
from accredit.verification.answered import HasAnswer, answer_finder, has_box
from accredit.verification.boxed import EXTRACTIONS


@dataclass(frozen=True)
class Task:
    """What a run trains on and is judged by."""

    train: tuple[Problem, ...]
    evaluation: tuple[Problem, ...]
    verifier: Verifier
    bad_rows: tuple[BadRow, ...] = field(default=())
    has_answer: HasAnswer = has_box
    """Whether a completion that goes on has said its whole answer already."""

    def __post_init__(self) -> None:
        for purpose, problems in (("train", self.train), ("evaluate", self.evaluation)):
            if not problems:
                raise ValueError(
                    f"a task needs problems to {purpose} on, got none; lower held_out "
                    "or check the splits"
                )


def build_task(config: Any) -> Task:
    """The task that a section `[task]` describes.

    Raises:
        ValueError: the data are missing or malformed.
    """
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
        return held_out_task(config, loaded, lambda: build_verifier(config))
    evaluation = load(split=config.evaluation_split).problems
    train = load(split=config.train_split)
    if config.train_split is None:
        train = without(train, evaluation)
    return Task(
        train.problems,
        evaluation,
        build_verifier(config),
        train.bad_rows,
        answer_finder(config.answer_tag),
    )


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
        return held_out_task(config, train, lambda: build_verifier(config))
    evaluation = load(split=config.evaluation_split)
    return Task(
        train.problems,
        evaluation.problems,
        build_verifier(config),
        (*train.bad_rows, *evaluation.bad_rows),
        answer_finder(config.answer_tag),
    )


def reasoning_gym_task(config: ReasoningGymConfig) -> Task:
    """A generated data set with its own scorer."""
    from accredit.tasks.reasoning_gym import ReasoningGymVerifier, load_reasoning_gym

    loaded = load_reasoning_gym(
        config.data_set, config.num_problems, config.data_seed, config=config.options
    )
    return held_out_task(config, loaded, ReasoningGymVerifier)


def imo_answerbench_task(config: ImoAnswerBenchConfig) -> Task:
    """Olympiad problems with short answers."""
    from accredit.tasks.imo_bench import load_imo_answerbench

    loaded = load_imo_answerbench(config.path)
    return held_out_task(config, loaded, lambda: build_verifier(config))


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
    if config.verifier == "exact":
        from accredit.verification.exact import ExactVerifier

        return ExactVerifier(EXTRACTIONS[config.answer_in or "box_or_text"])
    from accredit.verification.math import MathVerifier

    if find_spec("math_verify") is None:
        raise ValueError(
            "task.verifier = 'math' needs the math-verify library, got none installed; "
            "install accredit[math], or take 'exact' or a function of your own"
        )
    return MathVerifier(
        timeout_s=config.verifier_timeout_s,
        num_workers=config.verifier_workers,
        extract=EXTRACTIONS[config.answer_in or "box"],
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


def held_out_task(
    config: RowsConfig | ReasoningGymConfig | ImoAnswerBenchConfig,
    loaded: LoadedProblems,
    verifier: Callable[[], Verifier],
) -> Task:
    """The last `held_out` problems for evaluation, the others for training.

    The verifier is built last, once the problems are known to be good.
    """
    problems, held_out = loaded.problems, config.held_out
    has_answer = answer_finder(getattr(config, "answer_tag", ""))
    if held_out is None:
        return Task(problems, problems, verifier(), loaded.bad_rows, has_answer)
    if held_out >= len(problems):
        raise ValueError(
            f"task.held_out must leave problems to train on, got {held_out} of "
            f"{len(problems)}; lower it, or set it to none to use all for both"
        )
    cut = len(problems) - held_out
    train, evaluation = problems[:cut], problems[cut:]
    return Task(train, evaluation, verifier(), loaded.bad_rows, has_answer)


def without(loaded: LoadedProblems, others: Sequence[Problem]) -> LoadedProblems:
    """The same less some of its problems."""
    ids = {problem.id for problem in others}
    kept = tuple(problem for problem in loaded.problems if problem.id not in ids)
    return LoadedProblems(kept, loaded.bad_rows)
