"""The command `accredit`. Parses, dispatches, and turns errors into one line.

Heavy imports live inside the commands, so that help and mistakes are instant.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, Union, cast

import tyro
from tyro.conf import FlagCreatePairsOff, Positional, arg, subcommand

DONE, FAILED, MISTAKE, INTERRUPTED = 0, 1, 2, 130
DESCRIPTION = """\
Critic-first reinforcement learning of language models.

docs/recipes.md lists every key that --dotted.words can override.

Exit codes: 0 done, 1 the run failed, 2 a mistake in what was asked,
130 stopped by Ctrl-C, with a checkpoint written once a step is done."""


def shown(metavar: str, hint: str = "(optional)") -> Any:
    """How help shows an argument; by itself it would say `(default: None)`."""
    return arg(metavar=metavar, help_behavior_hint=hint)


@dataclass(frozen=True)
class Train:
    """Trains a policy from a recipe, or continues a run exactly."""

    recipe: Annotated[Positional[Path | None], shown("RECIPE")] = None
    """A TOML recipe. Further words override keys: --learner.learning_rate 1e-4."""
    resume: Annotated[Path | None, shown("RUN")] = None
    """Folder of a run to continue from its newest whole checkpoint."""
    dry_run: Annotated[bool, FlagCreatePairsOff] = False
    """Checks the recipe's keys and values, not its files, and prints it resolved."""

    def __call__(self, overrides: Sequence[str]) -> int:
        """Runs the command."""
        from accredit.commands import train

        return train(self.recipe, self.resume, self.dry_run, overrides)


@dataclass(frozen=True)
class Eval:
    """Evaluates a model: mean@k, pass@k and best@k with 95% intervals."""

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """A model directory, a run, or `packaged`. Keys may follow: --task.split easy."""
    task: Annotated[str | None, shown("TASK")] = None
    """Name of a task, as `accredit tasks` lists them."""
    recipe: Annotated[Path | None, shown("RECIPE")] = None
    """Takes task and settings from this recipe."""
    json: Annotated[bool, FlagCreatePairsOff] = False
    """Prints one JSON object in place of a table."""

    def __call__(self, overrides: Sequence[str]) -> int:
        """Runs the command."""
        from accredit.commands import evaluate

        return evaluate(self.model, self.task, self.recipe, self.json, overrides)


@dataclass(frozen=True)
class Report:
    """Writes report.html of runs anew and prints their final tables."""

    runs: Annotated[Positional[tuple[Path, ...]], shown("RUN...", "(required)")]
    """Folders of runs."""

    def __call__(self, overrides: Sequence[str]) -> int:
        """Runs the command."""
        from accredit.commands import report

        return report(self.runs, overrides)


@dataclass(frozen=True)
class Show:
    """Shows saved rollouts of a run: siblings together, with reasons and credit."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """Folder of a run."""
    step: Annotated[int | None, shown("STEP", "(default: the newest kept)")] = None
    """One of the steps whose rollouts were kept."""
    problem: Annotated[str | None, shown("ID")] = None
    """Shows this problem alone."""
    sort: Literal["order", "problem", "reward", "worst", "credit", "length"] = "order"
    """What comes first: as drawn, by id, the highest or the lowest reward, the largest
    advantage, or the longest."""
    num: int = 2
    """How many problems are shown, each with all its siblings."""
    search: Annotated[str | None, shown("TEXT")] = None
    """Shows what holds this text in completion, prompt, reason, answer or id."""
    colour: Annotated[str | None, shown("NAME")] = None
    """What tokens are coloured by on a terminal: credit, paid, value, logprob, ratio,
    engine, entropy, target, baseline or nothing. By default what tells tokens apart."""

    def __call__(self, overrides: Sequence[str]) -> int:
        """Runs the command."""
        from accredit.command.show import Wanted, show
        from accredit.commands import refuse

        refuse(overrides)
        wanted = Wanted(
            self.step, self.problem, self.sort, self.num, self.search, self.colour
        )
        return show(self.run, wanted)


@dataclass(frozen=True)
class Calibrate:
    """Says how far a critic can be trusted, from a run or from a table of groups."""

    source: Annotated[Positional[Path], arg(metavar="RUN_OR_CSV")]
    """Folder of a run, or a CSV file with the columns mean_reward, mean_value, share_f
    and reference_shown."""
    json: Annotated[bool, FlagCreatePairsOff] = False
    """Prints one JSON object in place of tables."""
    plot: Annotated[Path | None, shown("FILE")] = None
    """Draws the reliability diagram into this .png or .svg file."""
    seed: int = 0
    """Of the bootstrap."""
    last: Annotated[int | None, shown("N")] = None
    """Reads the newest N steps that the run kept rollouts of, in place of one."""
    fresh: Annotated[bool, FlagCreatePairsOff] = False
    """Rolls out held-out problems with the run's newest policy, and values them with
    its newest critic alone. Keys may follow it: --evaluation.max_problems 64."""

    def __call__(self, overrides: Sequence[str]) -> int:
        """Runs the command."""
        from accredit.commands import calibrate

        return calibrate(
            self.source,
            self.json,
            self.plot,
            self.seed,
            self.last,
            self.fresh,
            overrides,
        )


@dataclass(frozen=True)
class Tasks:
    """Lists the tasks and what can be set about each, or about one."""

    task: Annotated[Positional[str | None], shown("TASK")] = None
    """Name of one task."""

    def __call__(self, overrides: Sequence[str]) -> int:
        """Runs the command."""
        from accredit.commands import tasks

        return tasks(self.task, overrides)


@dataclass(frozen=True)
class Algorithms:
    """Lists the algorithms, their rule and their paper."""

    def __call__(self, overrides: Sequence[str]) -> int:
        """Runs the command."""
        from accredit.commands import algorithms

        return algorithms(overrides)


@dataclass(frozen=True)
class Lab:
    """Tries every statement of the theory of credit on random trees."""

    seed: int = 0
    """Of the trees and of all that is drawn on them."""
    trees: int = 12
    """How many each statement is tried on."""
    json: Annotated[bool, FlagCreatePairsOff] = False
    """Prints one JSON object in place of a table."""
    plots: Annotated[Path | None, shown("DIR")] = None
    """Writes a picture per theorem there as well."""

    def __call__(self, overrides: Sequence[str]) -> int:
        """Runs the command."""
        from accredit.commands import lab

        return lab(self.seed, self.trees, self.json, self.plots, overrides)


@dataclass(frozen=True)
class Doctor:
    """Checks this machine: versions, threads, accelerator, extras, packaged model."""

    def __call__(self, overrides: Sequence[str]) -> int:
        """Runs the command."""
        from accredit.commands import doctor

        return doctor(overrides)


Command = Union[  # noqa: UP007 - tyro reads subcommands from a Union
    Annotated[Train, subcommand("train")],
    Annotated[Eval, subcommand("eval")],
    Annotated[Report, subcommand("report")],
    Annotated[Show, subcommand("show")],
    Annotated[Calibrate, subcommand("calibrate")],
    Annotated[Tasks, subcommand("tasks")],
    Annotated[Algorithms, subcommand("algorithms")],
    Annotated[Lab, subcommand("lab")],
    Annotated[Doctor, subcommand("doctor")],
]


NAMES = (
    "train",
    "eval",
    "report",
    "show",
    "calibrate",
    "tasks",
    "algorithms",
    "lab",
    "doctor",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point; exits with the command's code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    quiet_libraries()
    if words == ["--version"]:
        from accredit import __version__

        print(f"accredit {__version__}")
        sys.exit(DONE)
    if words and words[0] not in (*NAMES, "-h", "--help"):
        print(f"accredit: {unknown_command(words[0])}", file=sys.stderr)
        sys.exit(MISTAKE)
    own, overrides = separated(words)
    command, strangers = tyro.cli(
        cast(Any, Command),
        prog="accredit",
        description=DESCRIPTION,
        args=own,
        return_unknown_args=True,
    )
    sys.exit(guarded(lambda: command([*overrides, *strangers])))


def unknown_command(word: str) -> str:
    """What to say of a first word that is no command."""
    from accredit.config import nearest

    return f"no command {word!r}" + nearest(word, NAMES)


def separated(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of the command itself, and the overrides of keys with their values.

    Overrides may stand anywhere, and a value is never taken for a positional word.
    """
    flags = {f"--{name}" for name in option_names(words[0] if words else "")}
    own: list[str] = []
    overrides: list[str] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        name, has_value, _ = word.partition("=")
        if not word.startswith("--") or name.replace("_", "-") in flags:
            own.append(word)
        elif has_value or not waiting or waiting[0].startswith("--"):
            overrides.append(word)
        else:
            overrides.append(f"{word}={waiting.pop(0)}")
    return own, overrides


def option_names(command: str) -> list[str]:
    """Options that a command has itself."""
    kinds = {
        "train": Train,
        "eval": Eval,
        "report": Report,
        "show": Show,
        "calibrate": Calibrate,
        "lab": Lab,
    }
    known = fields(kinds[command]) if command in kinds else ()
    names = [field.name.replace("_", "-") for field in known]
    return ["help", *names, *(f"no-{name}" for name in names)]


def guarded(command: Callable[[], int]) -> int:
    """The command's exit code; a user's mistake becomes one line and code 2."""
    try:
        return command()
    except KeyboardInterrupt:
        print("accredit: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - held until the exit
        return DONE
    except (ValueError, OSError, ModuleNotFoundError) as error:
        if os.environ.get("ACCREDIT_TRACEBACK"):
            raise
        print(f"accredit: {error}", file=sys.stderr)
        return MISTAKE
    except RuntimeError as error:
        if os.environ.get("ACCREDIT_TRACEBACK"):
            raise
        print(f"accredit: the run failed: {error}", file=sys.stderr)
        return FAILED


def quiet_libraries() -> None:
    """Nothing is fetched and no library's progress bar crosses ours."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
