"""The words of every command: what may be given, and what each does with it.

A command is a frozen dataclass that `cli` fills and calls; heavy imports live inside.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from tyro.conf import FlagCreatePairsOff, Positional, arg, subcommand


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
        from accredit.command.commands import train

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
        from accredit.command.commands import evaluate

        return evaluate(self.model, self.task, self.recipe, self.json, overrides)


@dataclass(frozen=True)
class Verify:
    """Says what completions are paid, by the verifier that training uses."""

    pairs: Annotated[Positional[Path], arg(metavar="PAIRS")]
    """Names a .jsonl, .json or .csv file of {"answer": gold, "completion": text}."""
    verifier: str = "math"
    """Selects math, exact or function."""
    answer_in: Annotated[str | None, shown("PLACE")] = None
    """Says where the answer stands: box, box_or_label or box_or_text."""
    answer_tag: Annotated[str | None, shown("TAG")] = None
    """Names the block that is the answer, in place of --answer-in."""
    reward_function: Annotated[str | None, shown("MODULE:FUNCTION")] = None
    """Names the function of --verifier function; its file lies in this folder."""
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
        from accredit.command.commands import report

        return report(self.runs, overrides)


@dataclass(frozen=True)
class Show:
    """Shows saved rollouts of a run: siblings together, with reasons and credit."""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """Names the folder of a run."""
    step: Annotated[int | None, shown("STEP", "(default: the newest kept)")] = None
    """Shows this step, of those whose rollouts were kept."""
    problem: Annotated[str | None, shown("ID")] = None
    """Shows this problem alone."""
    sort: Literal["order", "problem", "reward", "worst", "credit", "length"] = "order"
    """Sorts as drawn, by id, by the highest or the lowest reward, by the largest
    advantage, or by length."""
    num: int = 2
    """Shows this many problems, each with all its siblings."""
    search: Annotated[str | None, shown("TEXT")] = None
    """Shows what holds this text in completion, prompt, reason, answer or id."""
    colour: Annotated[str | None, shown("NAME")] = None
    """Colours tokens on a terminal by credit, paid, value, logprob, ratio, engine,
    entropy, target, baseline or nothing. The default is what tells tokens apart."""

    def __call__(self, overrides: Sequence[str]) -> int:
        """Runs the command."""
        from accredit.command.commands import refuse
        from accredit.command.show import Wanted, show

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
        from accredit.command.commands import calibrate

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
class New:
    """Writes an algorithm of your own to begin with: its file, a recipe, a test."""

    kind: Annotated[Positional[str], shown("KIND")]
    """Says what to write: `algorithm`."""
    name: Annotated[Positional[str], shown("NAME")]
    """Names it, as a Python module is named."""

    def __call__(self, overrides: Sequence[str]) -> int:
        """Runs the command."""
        from accredit.command.algorithms import new

        return new(self.kind, self.name, overrides)


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
        from accredit.command.commands import lab

        return lab(self.seed, self.trees, self.json, self.plots, overrides)


@dataclass(frozen=True)
class Doctor:
    """Checks this machine: versions, threads, accelerator, extras, packaged model."""

    def __call__(self, overrides: Sequence[str]) -> int:
        """Runs the command."""
        from accredit.command.commands import doctor

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
    Annotated[New, subcommand("new")],
    Annotated[Recipes, subcommand("recipes")],
    Annotated[Lab, subcommand("lab")],
    Annotated[Doctor, subcommand("doctor")],
]
