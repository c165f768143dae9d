"""`accredit recipes`: the recipes that come with the library, by their names."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accredit.command.commands import DONE, refuse
from accredit.command.keys import wrapped
from accredit.recipe.config import (
    RecipeError,
    RunConfig,
    load_recipe,
    nearest,
    recipe_from,
)
from accredit.recipe.overrides import with_overrides

if TYPE_CHECKING:
    from accredit.storage.run_directory import RunDirectory

PACKAGE = Path(__file__).parents[1]
HEAD = re.compile(r"\A(?:#[^\n]*\n)+")


def recipes_folder() -> Path:
    """In the package where it was installed from a wheel, else in the repository."""
    inside = PACKAGE / "recipes"
    return inside if inside.is_dir() else PACKAGE.parents[1] / "recipes"


def named_recipes() -> dict[str, Path]:
    """The files by name, those in a folder of their own behind its name."""
    folder = recipes_folder()
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in sorted(folder.rglob("*.toml"), key=lambda p: (len(p.parts), p))
    }


def recipe_path(word: Path | str) -> Path:
    """The file of a recipe: a path, or a name that `accredit recipes` lists.

    Raises:
        RecipeError: it is neither.
    """
    path = Path(word)
    known = named_recipes()
    name = path.as_posix().replace("-", "_")
    if path.is_file() or (name not in known and (path.exists() or path.suffix)):
        if not path.exists() and path.stem in known:
            raise RecipeError(
                f"a recipe must be a readable TOML file, got {path}, which does not "
                f"exist; accredit train {path.stem} runs the one of the library"
            )
        return path
    if name not in known:
        raise RecipeError(
            "a recipe must be a TOML file or a name that `accredit recipes` lists, got "
            f"{str(path)!r}{nearest(name, [*known])}"
        )
    return known[name]


def recipes(name: str | None, overrides: Sequence[str]) -> int:
    """Prints a line for each recipe, or one recipe as it stands in its file."""
    refuse(overrides)
    known = named_recipes()
    if name is not None:
        if name.replace("-", "_") not in known:
            raise RecipeError(f"recipe {name!r} is unknown{nearest(name, [*known])}")
        print(known[name.replace("-", "_")].read_text(encoding="utf-8"), end="")
        return DONE
    for one, path in known.items():
        print(one)
        for line in summary(path.read_text(encoding="utf-8")):
            print(*wrapped(line), sep="\n")
    print("\naccredit train NAME runs one; accredit recipes NAME prints one to copy")
    return DONE


def summary(text: str) -> tuple[str, str]:
    """The first sentence of a recipe's head, and what its line `Size:` says."""
    head = HEAD.match(text)
    lines = [line.lstrip("# ") for line in head[0].splitlines()] if head else []
    size = [line.removeprefix("Size: ") for line in lines if line.startswith("Size: ")]
    words = " ".join(line for line in lines if not line.startswith("Size: "))
    return re.split(r"(?<=\.) (?=[A-Z])", words)[0], " ".join(size)


def train(recipe: str | Path | RunConfig, **keys: Any) -> "RunDirectory":
    """Trains from a recipe, and returns the finished run.

        run = accredit.train("walk_grpo", steps=20, learner={"learning_rate": 1e-3})
        print(run.path, run.evaluations()[-1]["eval/mean"])

    Args:
        recipe: A name that `accredit recipes` lists, a file, or a checked recipe.
        keys: Override the recipe's; a dictionary overrides keys of a section, and None
            is the word `none`.

    Raises:
        RecipeError: a key, its value or the recipe is not known.
        KeyboardInterrupt: the run was stopped, with a checkpoint written.
    """
    overrides = [f"--{key}={value}" for key, value in dotted(keys)]
    if isinstance(recipe, RunConfig):
        content = recipe.model_dump(mode="json")
        config = recipe_from(with_overrides(content, overrides), "recipe")
    else:
        config = load_recipe(recipe_path(recipe), overrides)
    from accredit.runs.session import start_training

    run, finished = start_training(config)
    if not finished:
        raise KeyboardInterrupt(f"stopped; accredit train --resume {run.path}")
    return run


def dotted(keys: Mapping[str, Any], section: str = "") -> list[tuple[str, str]]:
    """Keys of sections by their dotted names, with values as TOML writes them."""
    found = []
    for key, value in keys.items():
        if isinstance(value, Mapping):
            found += dotted(value, f"{section}{key}.")
        else:
            text = json.dumps(value, default=str, ensure_ascii=False)
            found.append((f"{section}{key}", "none" if value is None else text))
    return found
