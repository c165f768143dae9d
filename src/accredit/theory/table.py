"""What the lab found, as a table, as JSON, and as the magnitudes below the table."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from accredit.theory.lab import Result
from accredit.theory.magnitudes import Magnitudes

if TYPE_CHECKING:
    from rich.table import Table


def as_json_object(results: Sequence[Result]) -> dict[str, Any]:
    """Errors for a program; an error that is no number is null."""
    rows = [
        {"name": r.name, "error": r.error, "tolerance": r.tolerance} for r in results
    ]
    return {"identities": rows, "ok": all(r.ok for r in results)}


def result_table(results: Sequence[Result], num_trees: int) -> "Table":
    """Every statement in words, with its error."""
    from rich.table import Table
    from rich.text import Text

    trees = f"{num_trees} random trees" if num_trees > 1 else "one random tree"
    title = f"largest error of each statement over {trees}"
    table = Table("name", "statement", box=None, title=title)
    table.add_column("error", justify="right")
    table.add_column("at most", justify="right")
    table.add_column("")
    subject = ""
    for result in results:
        begun, _, name = result.name.partition(" / ")
        if begun != subject:
            subject = begun
            table.add_row(Text(subject, style="bold"))
        table.add_row(
            f"  {name}",
            result.statement,
            _shown(result.error),
            f"{result.tolerance:.0e}",
            Text("ok", "green") if result.ok else Text("NO", "red"),
        )
    return table


def magnitude_table(found: Sequence[Magnitudes]) -> "Table":
    """Mean absolute error of each target's expectation, by size of policy change."""
    from rich.table import Table

    title = "mean |E[target] - V^new| on trees of length 4, by largest |ratio - 1|"
    table = Table("target", box=None, title=title, min_width=len(title))
    for row in found:
        table.add_column(f"{row.size:g}", justify="right")
    for name in found[0].errors:
        table.add_row(name, *(f"{row.errors[name]:.2g}" for row in found))
    return table


def _shown(error: float | None) -> str:
    if error is None:
        return "no number"
    return f"{error:.0e}" if error else "0"
