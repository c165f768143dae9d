"""`accredit algorithms` and `accredit tasks`: what there is, and what can be set."""

import ast
import inspect
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel

from accredit.command.commands import DONE, console, refuse, require_task
from accredit.command.keys import key_lines
from accredit.recipe.config import (
    PLACES,
    RecipeError,
    RunConfig,
    choices_of,
    nearest,
)
from accredit.recipe.plugins import config_class, is_plugin
from accredit.screen import say

SOURCE = Path(__file__).parents[1] / "algorithms"
TEMPLATES = Path(__file__).parent / "templates"
"""Of the files that `accredit new` writes."""


def algorithms(name: str | None, overrides: Sequence[str]) -> int:
    """Prints the algorithms with their papers, or the rule and all keys of one."""
    refuse(overrides)
    members = choices_of(RunConfig.model_fields["algorithm"])
    if name is None:
        return listed(members)
    if is_plugin(name):
        return explained_plugin(name)
    if name not in members:
        raise RecipeError(f"algorithm {name!r} is unknown{nearest(name, [*members])}")
    print(header(name), end="\n\n")
    print(*key_lines("algorithm", members[name]), sep="\n")
    return DONE


def explained_plugin(name: str) -> int:
    """Prints what the file of somebody's own algorithm says, and its keys."""
    model = config_class(name, PLACES["algorithm"])
    module = sys.modules[name.partition(":")[0]]
    print(inspect.getdoc(module) or inspect.getdoc(model) or "", end="\n\n")
    print(*key_lines("algorithm", model), sep="\n")
    return DONE


def new(kind: str, name: str, overrides: Sequence[str]) -> int:
    """Writes the file of an algorithm of one's own, a recipe and its test."""
    refuse(overrides)
    if kind != "algorithm":
        raise RecipeError(f"new makes an algorithm, got {kind!r:.40}")
    if not name.isidentifier() or name != name.lower():
        raise RecipeError(
            "an algorithm's name must be that of a Python module in lower case, got "
            f"{name!r:.40}"
        )
    title = "".join(part.title() for part in name.split("_"))
    files = {
        Path(f"{name}.py"): TEMPLATES / "algorithm.py.txt",
        Path(f"{name}.toml"): TEMPLATES / "recipe.toml.txt",
        Path(f"test_{name}.py"): TEMPLATES / "test.py.txt",
    }
    for file in files:
        if file.exists():
            raise RecipeError(f"{file} must not exist yet, got a file; move it away")
    for file, template in files.items():
        text = template.read_text(encoding="utf-8")
        text = text.replace("NAME", name).replace("TITLE", title)
        file.write_text(text, encoding="utf-8")
        say(f"written: {file}")
    say(f"try it: accredit train {name}.toml")
    say(f"its keys: accredit algorithms {name}:{title}Config")
    return DONE


def listed(members: dict[str, type[BaseModel]]) -> int:
    """Prints a line for each algorithm."""
    from rich.table import Table
    from rich.text import Text

    table = Table("name", "", "paper", box=None)
    for name in members:
        text = header(name)
        papers = re.findall(r"arXiv:(\d{4}\.\d{5})", text)
        paper = f"arXiv:{papers[0]}" if papers else ""
        table.add_row(Text(name, style="bold"), text.partition("\n")[0], paper)
    console().print(table)
    print("accredit algorithms NAME prints the rule and every key of one")
    return DONE


def header(name: str) -> str:
    """The head of an algorithm's file, which is not imported: rule, paper, limits."""
    (file,) = SOURCE.rglob(f"{name}.py")
    return ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""


def tasks(name: str | None, overrides: Sequence[str]) -> int:
    """Prints the tasks with their keys, or those of one."""
    refuse(overrides)
    if name is not None:
        require_task(name)
    for task, member in choices_of(RunConfig.model_fields["task"]).items():
        if name in (None, task):
            print(*key_lines("task", member), sep="\n")
    return DONE
