"""What each command does, once its arguments are known."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accredit.recipe.config import (
    RecipeError,
    RunConfig,
    load_recipe,
    nearest,
    union_members,
)
from accredit.screen import console, say

if TYPE_CHECKING:
    from rich.table import Table

DONE, FAILED, INTERRUPTED = 0, 1, 130


def train(
    recipe: Path | None,
    resume: Path | None,
    dry_run: bool,
    overrides: Sequence[str],
    accept_changes: bool = False,
) -> int:
    """Trains from a recipe, or resumes a run."""
    if (recipe is None) == (resume is None):
        raise RecipeError(
            "train needs a recipe or --resume RUN, got "
            f"{'neither' if recipe is None else 'both'}"
        )
    if dry_run and recipe is None:
        raise RecipeError("--dry-run needs a recipe, got --resume")
    from accredit.command.recipes import recipe_path

    if accept_changes and resume is None:
        raise RecipeError("--accept-changes goes with --resume, got a recipe")
    config = None if recipe is None else load_recipe(recipe_path(recipe), overrides)
    if config is not None and dry_run:
        from accredit.command.dry_run import dry_run as tried

        return tried(config)
    from accredit.runs.session import resume_training, start_training

    if config is not None:
        run, finished = start_training(config)
    else:
        assert resume is not None
        run, finished = resume_training(
            resume, overrides, accept_changes=accept_changes
        )
    say(f"report: {run.report}")
    if finished:
        return DONE
    say(f"stopped; continue with: accredit train --resume {run.path}")
    return INTERRUPTED


def evaluate(
    model: str,
    task: str | None,
    recipe: Path | None,
    as_json: bool,
    overrides: Sequence[str],
) -> int:
    """Evaluates one model and prints the scores."""
    from accredit.command.evaluation import asked_evaluation

    asked = asked_evaluation(model, task, recipe, overrides)
    config = asked.config
    from accredit.algorithms.configs import RLOOConfig
    from accredit.reports.activity import shown_activity
    from accredit.runs.assembly import assemble
    from accredit.runs.session import evaluate as evaluated

    # Neither a critic nor a teacher is asked, so none is loaded or missed.
    assembly = assemble(config.model_copy(update={"algorithm": RLOOConfig()}))
    # Beside the scores, so that they can be piped.
    beside = console(error=True)
    try:
        with shown_activity(beside) as activity, activity.evaluating():
            assembly.world.clock.watcher = activity
            result, _ = evaluated(assembly)
    finally:
        assembly.close()
    row = {
        **result.metrics(),
        "eval/num_dropped": len(assembly.dropped),
        "eval/num_bad_rows": len(assembly.task.bad_rows),
    }
    if as_json:
        print(json.dumps(row))
        return DONE
    screen = console()
    screen.print(score_table(row, asked.title))
    from accredit.reports.alarms.alarms import warnings_of

    for warned in warnings_of([row]):
        screen.print(f"warning: {warned.text}", style="yellow", markup=False)
    return DONE


def report(runs: Sequence[Path], overrides: Sequence[str]) -> int:
    """Writes each run's page and prints its table."""
    refuse(overrides)
    from accredit.algorithms.build import alarms_of
    from accredit.recipe.config import PLACES
    from accredit.recipe.plugins import config_class, is_plugin
    from accredit.reports.page import named_part, write_report
    from accredit.reports.progress import final_table
    from accredit.storage.run_directory import RunDirectory

    if not runs:
        raise RecipeError("report needs the folder of a run, got none")
    for path in runs:
        run = RunDirectory(path)
        if not run.exists:
            held = "no recipe.json there" if path.is_dir() else "no folder there"
            raise RecipeError(f"report needs the folder of a run, got {path}: {held}")
        for line in run.odd_rows():
            print(f"warning: {line}")
        try:
            name = named_part(run.recipe(), "algorithm")
            own = config_class(name, PLACES["algorithm"]) if is_plugin(name) else None
            alarms = alarms_of(name, own)
        except RecipeError as error:
            say(f"warning: {error}")
            alarms = ()
        page = write_report(run, alarms)
        console().print(final_table(run.metrics(), run.evaluations(), alarms))
        say(f"report: {page}")
    return DONE


def calibrate(
    source: Path,
    as_json: bool,
    plot: Path | None,
    seed: int,
    last: int | None,
    fresh: bool,
    overrides: Sequence[str],
) -> int:
    """Compares a critic's values with what came, and prints or draws how far off."""
    if overrides and not fresh:
        word = overrides[0].partition("=")[0]
        raise RecipeError(
            f"calibrate takes no {word!r}; a key of the recipe goes with --fresh"
        )
    if last is not None and (fresh or last < 1):
        raise RecipeError(
            f"--last must be at least 1 and goes without --fresh, got {last}"
        )
    if seed < 0:
        raise RecipeError(f"--seed must be at least 0, got {seed}")
    from accredit.reports.calibration.measures import group_figures
    from accredit.reports.calibration.plots import require_picture, save_calibration
    from accredit.reports.calibration.sources import read_source
    from accredit.reports.calibration.tables import calibration_tables

    if plot is not None:
        require_picture(plot)
    if fresh:
        from accredit.runs.calibrating import fresh_calibration

        found = fresh_calibration(source, overrides)
    else:
        found = read_source(source, last)
    if plot is not None:
        save_calibration(found, plot, seed)
    if as_json:
        print(json.dumps(group_figures(found.groups), allow_nan=False))
        return DONE
    console().print(calibration_tables(found, seed))
    if plot is not None:
        say(f"plot: {plot}")
    return DONE


def lab(
    seed: int,
    trees: int,
    as_json: bool,
    plots: Path | None,
    overrides: Sequence[str],
) -> int:
    """Tries the theory on random trees; draws it where a folder is given."""
    refuse(overrides)
    from accredit.theory.lab import results
    from accredit.theory.magnitudes import magnitudes
    from accredit.theory.table import as_json_object, magnitude_table, result_table

    if plots is not None:
        if plots.is_file():
            raise ValueError(f"--plots needs a folder, got the file {plots}")
        plots.mkdir(parents=True, exist_ok=True)
    found = list(results(seed, trees))
    pictures: list[Path] = []
    if plots is not None:
        from accredit.theory.pictures import write_pictures

        pictures = write_pictures(plots, seed)
    if as_json:
        print(json.dumps(as_json_object(found)))
    else:
        console().print(result_table(found, trees))
        console().print(magnitude_table(magnitudes(seed)))
        for picture in pictures:
            say(f"plot: {picture}")
        say(f"{sum(result.ok for result in found)} of {len(found)} hold")
    return DONE if all(result.ok for result in found) else FAILED


def doctor(overrides: Sequence[str]) -> int:
    """Prints what this machine has, and whether the packaged model works on it."""
    refuse(overrides)
    from rich.table import Table
    from rich.text import Text

    from accredit.command.doctor import checks

    table = Table("check", "", "found", box=None)
    results = list(checks())
    marks = {True: ("ok", "green"), False: ("no", "red"), None: ("-", "dim")}
    for check in results:
        table.add_row(check.name, Text(*marks[check.ok]), check.found)
    console().print(table)
    return FAILED if any(check.ok is False for check in results) else DONE


def refuse(overrides: Sequence[str]) -> None:
    """Commands without a recipe take no further words."""
    if overrides:
        word = overrides[0].partition("=")[0]
        raise RecipeError(f"this command takes no {word!r}; see --help")


def require_task(name: str) -> None:
    """Nothing, where there is a task of that name.

    Raises:
        RecipeError: there is none.
    """
    if name not in task_names():
        raise RecipeError(f"task {name!r} is unknown{nearest(name, task_names())}")


def task_names() -> list[str]:
    """Names that --task takes."""
    members = union_members(RunConfig.model_fields["task"])
    return [member.model_fields["name"].default for member in members]


def score_table(row: dict[str, Any], title: str) -> "Table":
    """Scores with their intervals, then counts."""
    from rich.table import Table
    from rich.text import Text

    from accredit.reports.summary import shown_scores

    table = Table("", "value", "95% interval", box=None, title=Text(title))
    for key in shown_scores(row):
        value, low, high = row[key], row.get(f"{key}_low"), row.get(f"{key}_high")
        interval = "" if low is None else f"{low:.3f} .. {high:.3f}"
        shown = f"{value:.3f}" if isinstance(value, float) else str(value)
        table.add_row(key.removeprefix("eval/"), shown, interval)
    return table
