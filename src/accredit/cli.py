"""The command `accredit`. Parses, dispatches, and turns errors into one line.

Heavy imports live inside the commands, so that help and mistakes are instant.
"""

import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, fields
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Annotated, Any, Literal, Union, cast

import tyro
from tyro.conf import FlagCreatePairsOff, Positional, arg, subcommand

from accredit.screen import fault_line, guarded_streams, say
from accredit.text import printable, within

DONE, FAILED, MISTAKE, INTERRUPTED = 0, 1, 2, 130
LINE = 400
"""Characters that a mistake is told in, at most."""
DESCRIPTION = """\
Reinforcement learning of language models with critics that are measured.

--dotted.words override the keys of a recipe: see accredit algorithms NAME,
accredit tasks NAME and docs/recipes.md.

Exit codes: 0 done, 1 the run failed, 2 a mistake in what was asked,
130 stopped by Ctrl-C, with a checkpoint written once a step is done."""


def shown(metavar: str, hint: str = "(optional)") -> Any:
    """How help shows an argument; by itself it would say `(default: None)`."""
    return arg(metavar=metavar, help_behavior_hint=hint)


@dataclass(frozen=True)
class Train:
    """Trains a policy from a recipe, or continues a run exactly."""

    recipe: Annotated[Positional[Path | None], shown("RECIPE")] = None
    """Names a TOML file, or a recipe that `accredit recipes` lists. Further words
    override keys: --learner.learning_rate 1e-4."""
    resume: Annotated[Path | None, shown("RUN")] = None
    """Continues this run from its newest whole checkpoint."""
    dry_run: Annotated[bool, FlagCreatePairsOff] = False
    """Tries all that a run would refuse (data, gold answers, reward function, model,
    critic), prints the recipe resolved, and samples nothing."""
    accept_changes: Annotated[bool, FlagCreatePairsOff] = False
    """Resumes although data, reward function or parts are not what they were."""

    def __call__(self, overrides: Sequence[str]) -> int:
        """Runs the command."""
        from accredit.commands import train

        return train(
            self.recipe, self.resume, self.dry_run, overrides, self.accept_changes
        )


@dataclass(frozen=True)
class Eval:
    """Evaluates a model: mean@k, pass@k and best@k with 95% intervals."""

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """Names a model directory, a run, or `packaged`. Keys may follow, as
    --task.split easy."""
    task: Annotated[str | None, shown("TASK")] = None
    """Names a task, as `accredit tasks` lists them; a run without it is evaluated on
    its own, as during its training."""
    recipe: Annotated[Path | None, shown("RECIPE")] = None
    """Takes task and settings from this recipe."""
    json: Annotated[bool, FlagCreatePairsOff] = False
    """Prints one JSON object in place of a table."""

    def __call__(self, overrides: Sequence[str]) -> int:
        """Runs the command."""
        from accredit.commands import evaluate

        return evaluate(self.model, self.task, self.recipe, self.json, overrides)


@dataclass(frozen=True)
class Verify:
    """Says what completions are paid, by the verifier that training uses."""

    pairs: Annotated[Positional[Path], arg(metavar="PAIRS")]
    """A .jsonl, .json or .csv file of rows {"answer": gold, "completion": text}."""
    verifier: str = "math"
    """One of math, exact and function."""
    answer_in: Annotated[str | None, shown("PLACE")] = None
    """Where the answer stands: box, box_or_label or box_or_text."""
    answer_tag: Annotated[str | None, shown("TAG")] = None
    """Name of the block that is the answer, in place of --answer-in."""
    reward_function: Annotated[str | None, shown("MODULE:FUNCTION")] = None
    """The function, for --verifier function; its file lies in this folder."""
    json: Annotated[bool, FlagCreatePairsOff] = False
    """Prints one JSON object a row, and one with the totals."""

    def __call__(self, overrides: Sequence[str]) -> int:
        """Runs the command."""
        from accredit.command.verify import verify

        keys = {
            "verifier": self.verifier,
            "answer_in": self.answer_in,
            "answer_tag": self.answer_tag,
            "reward_function": self.reward_function,
        }
        return verify(self.pairs, keys, self.json, overrides)


@dataclass(frozen=True)
class Report:
    """Writes report.html of runs anew and prints their final tables."""

    runs: Annotated[Positional[tuple[Path, ...]], shown("RUN...", "(required)")]
    """Names the folders of runs."""

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
    """Names the folder of a run, or a CSV file with the columns mean_reward,
    mean_value, share_f and reference_shown."""
    json: Annotated[bool, FlagCreatePairsOff] = False
    """Prints one JSON object in place of tables."""
    plot: Annotated[Path | None, shown("FILE")] = None
    """Draws the reliability diagram into this .png or .svg file."""
    seed: int = 0
    """Seeds the bootstrap of the intervals."""
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
    """Prints the keys of this task alone."""

    def __call__(self, overrides: Sequence[str]) -> int:
        """Runs the command."""
        from accredit.command.algorithms import tasks

        return tasks(self.task, overrides)


@dataclass(frozen=True)
class Algorithms:
    """Lists the algorithms and their papers, or the rule and all keys of one."""

    algorithm: Annotated[Positional[str | None], shown("ALGORITHM")] = None
    """Prints the rule and the keys of this algorithm."""

    def __call__(self, overrides: Sequence[str]) -> int:
        """Runs the command."""
        from accredit.command.algorithms import algorithms

        return algorithms(self.algorithm, overrides)


@dataclass(frozen=True)
class Recipes:
    """Lists the recipes that come with the library, or prints one to be copied."""

    recipe: Annotated[Positional[str | None], shown("RECIPE")] = None
    """Prints this recipe as it stands in its file."""

    def __call__(self, overrides: Sequence[str]) -> int:
        """Runs the command."""
        from accredit.command.recipes import recipes

        return recipes(self.recipe, overrides)


@dataclass(frozen=True)
class Lab:
    """Tries every statement of the theory of credit on random trees."""

    seed: int = 0
    """Seeds the random trees and all that is drawn on them."""
    trees: int = 12
    """Tries each statement on this many trees."""
    json: Annotated[bool, FlagCreatePairsOff] = False
    """Prints one JSON object in place of a table."""
    plots: Annotated[Path | None, shown("DIR")] = None
    """Writes a picture of each theorem into this folder as well."""

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
    Annotated[Verify, subcommand("verify")],
    Annotated[Report, subcommand("report")],
    Annotated[Show, subcommand("show")],
    Annotated[Calibrate, subcommand("calibrate")],
    Annotated[Tasks, subcommand("tasks")],
    Annotated[Algorithms, subcommand("algorithms")],
    Annotated[Recipes, subcommand("recipes")],
    Annotated[Lab, subcommand("lab")],
    Annotated[Doctor, subcommand("doctor")],
]


NAMES = (
    "train",
    "eval",
    "verify",
    "report",
    "show",
    "calibrate",
    "tasks",
    "algorithms",
    "recipes",
    "lab",
    "doctor",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point; exits with the command's code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    quiet_libraries()
    with guarded_streams() as output, warnings.catch_warnings():
        warnings.showwarning = warned
        code = called(words)
        output.flush()
        lost = fault_line(output)
        if lost:
            say(f"accredit: {lost}", error=True)
        if lost and code == DONE and words[0] != "train":
            code = FAILED  # Printing is all that the other commands are for.
    sys.exit(code)


def warned(message: Warning | str, *where: object) -> None:
    """A library's warning as one line, without the place in its source."""
    say(f"warning: {within(printable(str(message)), LINE)}", error=True)


def called(words: Sequence[str]) -> int:
    """The exit code of the command that the words ask for."""
    if words == ["--version"]:
        from accredit import __version__

        say(f"accredit {__version__}")
        return DONE
    if words and words[0] not in (*NAMES, "-h", "--help"):
        say(f"accredit: {unknown_command(words[0])}", error=True)
        return MISTAKE
    own, overrides = separated(words)
    told = io.StringIO()
    try:
        with redirect_stderr(told):
            command, strangers = tyro.cli(
                cast(Any, Command),
                prog="accredit",
                description=DESCRIPTION,
                args=own,
                return_unknown_args=True,
            )
    except SystemExit as end:
        if told.getvalue():
            say(f"accredit: {told_in_one_line(told.getvalue())}", error=True)
        return int(end.code or DONE)
    return guarded(lambda: command([*overrides, *strangers]))


def told_in_one_line(box: str) -> str:
    """What tyro says of a mistake, out of its box and without the help below it."""

    def is_rule(row: str) -> bool:
        return not row.strip("─-")

    rows = [line.strip("│ ") for line in box.splitlines()[1:]]
    said = " ".join(takewhile(lambda r: not is_rule(r), dropwhile(is_rule, rows)))
    return f"{said.rstrip('.') or box.strip()}; see accredit --help"


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
        "verify": Verify,
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
        say("accredit: interrupted", error=True)
        return INTERRUPTED
    except (ValueError, OSError, ModuleNotFoundError) as error:
        if os.environ.get("ACCREDIT_TRACEBACK"):
            raise
        say(f"accredit: {within(printable(str(error)), LINE)}", error=True)
        return MISTAKE
    except (RuntimeError, MemoryError) as error:
        if os.environ.get("ACCREDIT_TRACEBACK"):
            raise
        reason = within(printable(str(error)) or "out of memory", LINE)
        say(f"accredit: the run failed: {reason}", error=True)
        return FAILED


def quiet_libraries() -> None:
    """Nothing is fetched and no library's progress bar crosses ours."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


if __name__ == "__main__":
    main()
