"""A recipe's task: problems to train on, problems held out, and who scores them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

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
from accredit.types import Problem, Verifier


@dataclass(frozen=True)
class Task:
    """What a run trains on and is judged by."""

    train: tuple[Problem, ...]
    evaluation: tuple[Problem, ...]
    verifier: Verifier
    bad_rows: tuple[BadRow, ...] = field(default=())

    def __post_init__(self) -> None:
        for part in ("train", "evaluation"):
            if not getattr(self, part):
                raise ValueError(
                    f"a task needs problems to {part.replace('ation', 'ate on')}, got "
                    "none; lower held_out or check the splits"
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
    return Task(problems.train, problems.evaluation, verifier)


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
    if config.train_split is None and config.evaluation_split is None:
        return _held_out(load(), config.held_out, build_verifier(config))
    train = load(split=config.train_split)
    evaluation = load(split=config.evaluation_split)
    return _split_task(config, train, evaluation)


def hub_task(config: HubConfig) -> Task:
    """A data set of the `datasets` library."""
    from accredit.tasks.hub import load_hub

    load = partial(
        load_hub, config.path, columns=columns(config), on_bad_row=config.on_bad_row
    )
    train = load(split=config.train_split or "train")
    if config.evaluation_split is None:
        return _held_out(train, config.held_out, build_verifier(config))
    return _split_task(config, train, load(split=config.evaluation_split))


def reasoning_gym_task(config: ReasoningGymConfig) -> Task:
    """A generated data set with its own scorer."""
    from accredit.tasks.reasoning_gym import ReasoningGymVerifier, load_reasoning_gym

    loaded = load_reasoning_gym(
        config.data_set, config.num_problems, config.data_seed, config=config.options
    )
    return _held_out(loaded, config.held_out, ReasoningGymVerifier())


def imo_answerbench_task(config: ImoAnswerBenchConfig) -> Task:
    """Olympiad problems with short answers."""
    from accredit.tasks.imo_bench import load_imo_answerbench

    loaded = load_imo_answerbench(config.path)
    verifier = build_verifier(config)
    if config.held_out is None:
        return Task(loaded.problems, loaded.problems, verifier, loaded.bad_rows)
    return _held_out(loaded, config.held_out, verifier)


def build_verifier(config: VerifierConfig) -> Verifier:
    """Who scores completions to a user's own problems."""
    if config.verifier == "function":
        from accredit.verification.function import FunctionVerifier

        return FunctionVerifier(
            config.reward_function,
            timeout_s=config.verifier_timeout_s,
            num_workers=config.verifier_workers,
        )
    if config.verifier == "exact":
        from accredit.verification.exact import ExactVerifier

        return ExactVerifier()
    from accredit.verification.math import MathVerifier

    return MathVerifier(
        timeout_s=config.verifier_timeout_s, num_workers=config.verifier_workers
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


def _held_out(loaded: LoadedProblems, held_out: int, verifier: Verifier) -> Task:
    """The last `held_out` problems for evaluation, the others for training."""
    problems = loaded.problems
    if held_out >= len(problems):
        raise ValueError(
            f"held_out must leave problems to train on, got {held_out} of "
            f"{len(problems)}; lower task.held_out"
        )
    cut = len(problems) - held_out
    return Task(problems[:cut], problems[cut:], verifier, loaded.bad_rows)


def _split_task(
    config: RowsConfig, train: LoadedProblems, evaluation: LoadedProblems
) -> Task:
    known: Sequence[Problem] = train.problems
    seen = {problem.id for problem in known}
    fresh = tuple(p for p in evaluation.problems if p.id not in seen)
    return Task(
        train.problems,
        fresh or evaluation.problems,
        build_verifier(config),
        train.bad_rows,
    )
