"""What `accredit eval` is asked to evaluate: a model, or a run on its own task."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accredit.command.commands import require_task
from accredit.recipe.config import RecipeError, RunConfig, load_recipe, recipe_from
from accredit.recipe.overrides import with_overrides
from accredit.storage.folders import CHECKPOINTS, MODEL_FOLDER

RECIPE_FILE = "recipe.json"


@dataclass(frozen=True)
class Asked:
    """A recipe to be evaluated, and what the table says of it."""

    config: RunConfig
    title: str


def asked_evaluation(
    model: str, task: str | None, recipe: Path | None, overrides: Sequence[str]
) -> Asked:
    """The recipe of an evaluation.

    A run without further words is evaluated as during its training: its task, prompt,
    sampling and verifier, on the problems that it held out. `task` puts another task in
    place, with all its problems; the rest stays the run's. A model that is no run gets
    the defaults.

    Raises:
        RecipeError: it is not said on what, or the run's own data are gone.
    """
    if task is not None and recipe is not None:
        raise RecipeError("eval needs --task NAME or --recipe FILE, got both")
    own = Path(model) / RECIPE_FILE
    folder = model_folder(model)
    # Quoted, so that a folder called 2024 or none stays text.
    words = ["--model.path", json.dumps(folder), *overrides]
    evaluated = model if folder == model else f"{model}, {Path(folder).parent.name},"
    if recipe is not None:
        config = load_recipe(recipe, words)
        return Asked(config, title(evaluated, config, f"the task of {recipe}"))
    content: dict[str, Any] = {}
    if own.is_file():
        content = load_recipe(own).model_dump(mode="json")
        # Nothing is trained: another budget need not fit the algorithm's chunks.
        del content["algorithm"]
    elif task is None:
        raise RecipeError(
            "eval needs --task NAME or --recipe FILE, got neither, and "
            f"{model} is not the folder of a run"
        )
    if task is not None:
        require_task(task)
        options = {**content.get("evaluation", {}), "max_problems": 1_000_000}
        content |= {"task": whole_task(task), "evaluation": options}
    source = str(own) if own.is_file() else "command line"
    config = recipe_from(with_overrides(content, words), source)
    if task is not None:
        return Asked(config, title(evaluated, config, "named by --task"))
    require_data(model, config)
    return Asked(config, title(evaluated, config, "the run's own task"))


def whole_task(name: str) -> dict[str, Any]:
    """The section of a task all of whose problems are evaluated, none held back."""
    held_out = {"held_out": None} if name in ("jsonl", "hub") else {}
    return {"name": name, **held_out}


def title(model: str, config: RunConfig, origin: str) -> str:
    """Which model was evaluated on which task, and who named the task."""
    data = getattr(config.task, "path", None) or getattr(config.task, "data_set", None)
    return f"{model} on {config.task.name}{f' {data}' if data else ''} ({origin})"


def require_data(model: str, config: RunConfig) -> None:
    """Nothing, where the file that the run's own task reads is still there.

    Raises:
        RecipeError: it is not.
    """
    path = getattr(config.task, "path", None)
    if isinstance(path, Path) and not path.exists():
        raise RecipeError(
            f"the task of {model} must find its file {path}, got none there; say where "
            "it is with --task.path FILE, or name another task with --task NAME"
        )


def model_folder(model: str) -> str:
    """A run's newest checkpoint stands for the run.

    Raises:
        RecipeError: the run has no whole checkpoint.
    """
    if not (Path(model) / RECIPE_FILE).is_file():
        return model
    checkpoints = Path(model) / CHECKPOINTS
    from accredit.storage.checkpoint import latest_checkpoint

    newest = latest_checkpoint(checkpoints)
    if newest is None:
        raise RecipeError(f"a run needs a whole checkpoint, got none in {checkpoints}")
    return str(newest / MODEL_FOLDER)
