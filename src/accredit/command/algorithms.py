"""`accredit algorithms` and `accredit tasks`: what there is, and what can be set."""

import ast
import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel

from accredit.command.commands import DONE, console, refuse, require_task
from accredit.command.keys import key_lines
from accredit.recipe.config import RecipeError, RunConfig, choices_of, nearest

SOURCE = Path(__file__).parents[1] / "algorithms"


def algorithms(name: str | None, overrides: Sequence[str]) -> int:
    """Prints the algorithms with their papers, or the rule and all keys of one."""
    refuse(overrides)
    members = choices_of(RunConfig.model_fields["algorithm"])
    if name is None:
        return listed(members)
    if name not in members:
        raise RecipeError(f"algorithm {name!r} is unknown{nearest(name, [*members])}")
    print(header(name), end="\n\n")
    print(*key_lines("algorithm", members[name]), sep="\n")
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
