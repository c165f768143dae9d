"""What each command does, once its arguments are known."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from pydantic import BaseModel

from accredit.config import (
    RecipeError,
    RunConfig,
    load_recipe,
    nearest,
    recipe_from,
    union_members,
    with_overrides,
)
from accredit.folders import CHECKPOINTS, MODEL_FOLDER

if TYPE_CHECKING:
    from rich.table import Table

DONE, FAILED, INTERRUPTED = 0, 1, 130


def train(
    recipe: Path | None, resume: Path | None, dry_run: bool, overrides: Sequence[str]
) -> int:
    """Trains from a recipe, or resumes a run."""
    if (recipe is None) == (resume is None):
        raise RecipeError(
            "train needs a recipe or --resume RUN, got "
            f"{'neither' if recipe is None else 'both'}"
        )
    if dry_run and recipe is None:
        raise RecipeError("--dry-run needs a recipe, got --resume")
    config = None if recipe is None else load_recipe(recipe, overrides)
    if config is not None and dry_run:
        print(json.dumps(config.model_dump(mode="json"), indent=2))
        return DONE
    from accredit.session import resume_training, start_training

    if config is not None:
        run, finished = start_training(config)
    else:
        assert resume is not None
        run, finished = resume_training(resume, overrides)
    print(f"report: {run.report}")
    if finished:
        return DONE
    print(f"stopped; continue with: accredit train --resume {run.path}")
    return INTERRUPTED


def evaluate(
    model: str,
    task: str | None,
    recipe: Path | None,
    as_json: bool,
    overrides: Sequence[str],
) -> int:
    """Evaluates one model and prints the scores."""
    config = evaluation_recipe(model, task, recipe, overrides)
    from rich.console import Console

    from accredit.algorithms.configs import RLOOConfig
    from accredit.assembly import assemble
    from accredit.reports.activity import shown_activity
    from accredit.session import evaluate as evaluated

    # Neither a critic nor a teacher is asked, so none is loaded or missed.
    assembly = assemble(config.model_copy(update={"algorithm": RLOOConfig()}))
    # Beside the scores, so that they can be piped.
    beside = Console(stderr=True)
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
    console().print(score_table(row, f"{model} on {config.task.name}"))
    return DONE


def evaluation_recipe(
    model: str, task: str | None, recipe: Path | None, overrides: Sequence[str]
) -> RunConfig:
    """The recipe of an evaluation: all problems, unless told otherwise.

    A user's own rows are then all evaluated, none held back for a training.
    """
    if (task is None) == (recipe is None):
        raise RecipeError(
            "eval needs --task NAME or --recipe FILE, got "
            f"{'neither' if task is None else 'both'}"
        )
    # Quoted, so that a folder called 2024 or none stays text.
    words = ["--model.path", json.dumps(model_folder(model)), *overrides]
    if recipe is not None:
        return load_recipe(recipe, words)
    require_task(str(task))
    section: dict[str, Any] = {"name": task}
    if task in ("jsonl", "hub"):
        section["held_out"] = None
    content = {"task": section, "evaluation": {"max_problems": 1_000_000}}
    return recipe_from(with_overrides(content, words), "command line")


def model_folder(model: str) -> str:
    """A run's newest checkpoint stands for the run."""
    if not (Path(model) / "recipe.json").is_file():
        return model
    checkpoints = Path(model) / CHECKPOINTS
    from accredit.learner.checkpoint import latest_checkpoint

    newest = latest_checkpoint(checkpoints)
    if newest is None:
        raise RecipeError(f"a run needs a whole checkpoint, got none in {checkpoints}")
    return str(newest / MODEL_FOLDER)


def report(runs: Sequence[Path], overrides: Sequence[str]) -> int:
    """Writes each run's page and prints its table."""
    refuse(overrides)
    from accredit.reports.page import write_report
    from accredit.reports.progress import final_table
    from accredit.reports.run_directory import RunDirectory

    if not runs:
        raise RecipeError("report needs the folder of a run, got none")
    for path in runs:
        run = RunDirectory(path)
        if not run.exists:
            raise RecipeError(f"report needs the folder of a run, got {path}")
        page = write_report(run)
        console().print(final_table(run.metrics(), run.evaluations()))
        print(f"report: {page}")
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
    from accredit.reports.calibration import group_figures
    from accredit.reports.calibration_plots import require_picture, save_calibration
    from accredit.reports.calibration_sources import read_source
    from accredit.reports.calibration_tables import calibration_tables

    if plot is not None:
        require_picture(plot)
    if fresh:
        from accredit.calibrating import fresh_calibration

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
        print(f"plot: {plot}")
    return DONE


def tasks(task: str | None, overrides: Sequence[str]) -> int:
    """Prints the tasks and their keys, or those of one."""
    refuse(overrides)
    if task is not None:
        require_task(task)
    for member in union_members(RunConfig.model_fields["task"]):
        if task in (None, member.model_fields["name"].default):
            console().print(key_table(member))
    return DONE


def algorithms(overrides: Sequence[str]) -> int:
    """Prints the algorithms: name, first line and paper of each file."""
    refuse(overrides)
    from rich.table import Table

    table = Table("name", "", "paper", box=None)
    for member in union_members(RunConfig.model_fields["algorithm"]):
        name = member.model_fields["name"].default
        table.add_row(f"[bold]{name}[/bold]", *algorithm_header(name))
    console().print(table)
    print("rules, defaults and deviations: docs/algorithms.md")
    return DONE


def algorithm_header(name: str) -> tuple[str, str]:
    """Title and arXiv id from the head of an algorithm's file, unimported."""
    import ast
    import re

    path = Path(__file__).parent / "algorithms" / f"{name}.py"
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    papers = re.findall(r"arXiv:(\d{4}\.\d{5})", text)
    return text.partition("\n")[0], f"arXiv:{papers[0]}" if papers else ""


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
            print(f"plot: {picture}")
        print(f"{sum(result.ok for result in found)} of {len(found)} hold")
    return DONE if all(result.ok for result in found) else FAILED


def doctor(overrides: Sequence[str]) -> int:
    """Prints what this machine has, and whether the packaged model works on it."""
    refuse(overrides)
    from rich.markup import escape
    from rich.table import Table

    from accredit.checkup import checks

    table = Table("check", "", "found", box=None)
    results = list(checks())
    for check in results:
        mark = {True: "[green]ok[/green]", False: "[red]no[/red]", None: "[dim]-[/dim]"}
        table.add_row(check.name, mark[check.ok], escape(check.found))
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


def key_table(model: type[BaseModel]) -> "Table":
    """Keys of one section with defaults and meaning."""
    from rich.markup import escape
    from rich.table import Table

    fields = model.model_fields
    name = fields["name"].default
    title = f"[bold]{name}[/bold]  {(model.__doc__ or '').strip()}"
    table = Table("key", "default", "", box=None, title=title, title_justify="left")
    for key, field in fields.items():
        if key != "name":
            default = "required" if field.is_required() else default_text(field)
            meaning = choices_text(field) + (field.description or "")
            table.add_row(f"  {key}", escape(default), escape(meaning))
    return table


def choices_text(field: Any) -> str:
    """`one of easy, hard: ` where a key takes one of a few words."""
    arguments = get_args(field.annotation)
    kinds = [field.annotation, *arguments]
    words = [w for kind in kinds if get_origin(kind) is Literal for w in get_args(kind)]
    return f"one of {', '.join(map(str, words))}: " if words else ""


def default_text(field: Any) -> str:
    """A default as TOML would write it, or `none`."""
    value = field.get_default(call_default_factory=True)
    return "none" if value is None else json.dumps(value, default=str)


def score_table(row: dict[str, Any], title: str) -> "Table":
    """Scores with their intervals, then counts."""
    from rich.table import Table

    table = Table("", "value", "95% interval", box=None, title=title)
    for key in scored(row):
        value, low, high = row[key], row.get(f"{key}_low"), row.get(f"{key}_high")
        interval = "" if low is None else f"{low:.3f} .. {high:.3f}"
        shown = f"{value:.3f}" if isinstance(value, float) else str(value)
        table.add_row(key.removeprefix("eval/"), shown, interval)
    return table


def scored(row: dict[str, Any]) -> Iterable[str]:
    """Keys that are not the ends of an interval."""
    return [key for key in row if not key.endswith(("_low", "_high"))]


def console() -> Any:
    """Standard output with colours where it is a terminal."""
    from rich.console import Console

    return Console()
