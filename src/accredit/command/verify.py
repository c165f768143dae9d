"""`accredit verify PAIRS`: what completions are paid, by the verifier of training.

Rows are {"answer": gold, "completion": text}; other columns are the problem's, for a
reward function that reads them. A row that is none is named by its line, counted and
left out. Content is printed as plain text, whatever it holds.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from accredit.recipe.config import recipe_from, with_overrides

if TYPE_CHECKING:
    from rich.table import Table

    from accredit.tasks.configs import JsonlConfig
    from accredit.tasks.problems import LoadedProblems, RawRow
    from accredit.types import Problem

DONE = 0
SLICE = 256
"""Rows verified together."""
NUM_SHOWN, WIDTH = 200, 60
"""Rows of the table, and characters of a text in it."""


@dataclass(frozen=True)
class Paid:
    """What one completion is paid, and for what."""

    line: int
    reward: float | None
    reason: str
    read: str | None
    """What was taken as the answer; None without one, and for a reward function."""

    def as_json(self) -> dict[str, Any]:
        """One object."""
        row = {"line": self.line, "reward": self.reward, "reason": self.reason}
        return {**row, "read": self.read}


def verify(
    pairs: Path, keys: dict[str, Any], as_json: bool, overrides: Sequence[str]
) -> int:
    """Prints reward, reason and answer of each row, then totals.

    `keys` are those of a section `[task]`; one that is None was not given.

    Raises:
        ValueError: a key is unknown, or the file holds no pair.
    """
    given = {key: value for key, value in keys.items() if value is not None}
    section = {"name": "jsonl", "path": str(pairs), **given}
    content = with_overrides({"task": section}, overrides)
    config = recipe_from(content, "command line").task
    loaded = pairs_of(pairs)
    for bad in loaded.bad_rows:
        detail = f" ({bad.detail})" if bad.detail else ""
        print(f"line {bad.number}: {bad.reason}{detail}; left out", file=sys.stderr)
    rows = []
    for row in paid(config, loaded.problems):  # pyright: ignore[reportArgumentType]
        rows.append(row)
        if as_json:
            print(json.dumps(row.as_json()))
    totals = totals_of(rows, len(loaded.bad_rows))
    if as_json:
        print(json.dumps({"totals": totals}))
        return DONE
    from accredit.command.commands import console

    console().print(table_of(rows))
    if len(rows) > NUM_SHOWN:
        print(f"and {len(rows) - NUM_SHOWN} more rows; --json prints all")
    print(", ".join(f"{key} {value}" for key, value in totals.items()))
    return DONE


def pairs_of(path: Path) -> "LoadedProblems":
    """The rows as problems, whose metadata hold the completions.

    Raises:
        ValueError: there is no such file, or no good row.
    """
    from accredit.tasks.jsonl import numbered_rows
    from accredit.tasks.problems import ColumnMapping, load_problems

    rows, unit = numbered_rows(path)
    columns = ColumnMapping(prompt="prompt")
    pairs = (pair_of(row) for row in rows)
    return load_problems(pairs, str(path), columns, None, "skip", unit)


def pair_of(row: "RawRow") -> "RawRow":
    """The row as one of a data set: its line is its id, and it may lack a prompt."""
    from accredit.tasks.problems import BadRow, shortened

    if isinstance(row, BadRow) or not isinstance(row[1], dict):
        return row
    number, content = row[0], cast("dict[str, object]", row[1])
    completion = content.get("completion")
    if not isinstance(completion, str):
        detail = f"must be text, got {shortened(completion)}"
        return BadRow(number, "malformed completion", detail)
    prompt = content.get("prompt") or "?"
    own = {key: value for key, value in content.items() if key not in ("id", "split")}
    return number, {**own, "prompt": prompt, "id": str(number)}


def paid(config: "JsonlConfig", problems: Sequence["Problem"]) -> Iterator[Paid]:
    """Each row's reward, by the verifier that a training with these keys builds."""
    from accredit.tasks.build import build_verifier, reader_of
    from accredit.tasks.golds import golds_read, rollout_of

    reader = reader_of(config)
    is_function = config.verifier == "function"
    problems = golds_read(problems, reader, config.verifier)
    with closing(build_verifier(config)) as verifier:
        for start in range(0, len(problems), SLICE):
            part = problems[start : start + SLICE]
            texts = [str(problem.metadata["completion"]) for problem in part]
            shown = [replace(p, metadata=other_columns(p)) for p in part]
            verdicts = verifier.verify(
                [(p, text, rollout_of(p)) for p, text in zip(shown, texts, strict=True)]
            )
            for problem, text, verdict in zip(part, texts, verdicts, strict=True):
                read = None if is_function else reader.answer(text)
                yield Paid(int(problem.id), verdict.reward, verdict.reason, read)


def other_columns(problem: "Problem") -> dict[str, Any]:
    """The row without its completion, as a reward function sees it in training."""
    items = problem.metadata.items()
    return {key: value for key, value in items if key != "completion"}


def totals_of(rows: Sequence[Paid], num_bad: int) -> dict[str, float | int | None]:
    """Counts, and the mean reward: with those that have none as 0, and without."""
    rewards = [row.reward for row in rows if row.reward is not None]
    return {
        "num_rows": len(rows),
        "num_bad_rows": num_bad,
        "num_without_reward": len(rows) - len(rewards),
        "mean_reward": sum(rewards) / len(rows),
        "mean_reward_where_known": sum(rewards) / len(rewards) if rewards else None,
    }


def table_of(rows: Sequence[Paid]) -> "Table":
    """The first rows; what completions and reasons hold is never markup."""
    from rich.table import Table
    from rich.text import Text

    table = Table("line", "reward", "read", "reason", box=None)
    for row in rows[:NUM_SHOWN]:
        reward = "none" if row.reward is None else f"{row.reward:g}"
        read = "-" if row.read is None else visible(row.read)
        reason = visible(row.reason)
        table.add_row(str(row.line), reward, Text(read), Text(reason))
    return table


def visible(text: str) -> str:
    """In one line, shortened, with control and bidi characters escaped."""
    shown = text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in shown)
