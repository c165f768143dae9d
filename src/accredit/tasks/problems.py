"""From the rows of somebody's data set to problems, with every bad row accounted for.

Readers (`jsonl`, `hub`, `reasoning_gym`, `imo_bench`) yield numbered rows and know the
file format; this module knows what a row must hold and nothing of files. Rows are
untrusted: each becomes a `Problem` or a `BadRow`, never an exception of its own.
"""

import difflib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from accredit.text import without_lone_surrogates
from accredit.types import Message, Problem

OnBadRow = Literal["stop", "skip"]
ROLES = ("system", "developer", "user", "assistant", "tool")
DEFAULT_SPLIT = "train"


@dataclass(frozen=True)
class ColumnMapping:
    """Which column of a row holds what.

    A field left at None takes the column of its own name where the data have one; a
    column that is named must exist. Of `prompt` and `messages` one is used: the named
    one, else `messages` where the data have it.
    """

    prompt: str | None = None
    """Text of one user turn, or a list of messages."""
    messages: str | None = None
    """List of {"role", "content"} that ends with a turn to be answered."""
    answer: str | None = None
    """Text or number a verifier compares with; an empty one is None."""
    id: str | None = None
    """Unique; without such a column a problem is named after its row, `row-17`."""
    split: str | None = None
    metadata: tuple[str, ...] | None = None
    """Columns a reward function may read; None keeps every other column."""

    def __post_init__(self) -> None:
        if self.prompt is not None and self.messages is not None:
            raise ValueError(
                "a problem needs one of the columns `prompt` and `messages`, got both "
                f"({self.prompt!r} and {self.messages!r}); leave one out"
            )


@dataclass(frozen=True)
class BadRow:
    """A row that is no problem, and why."""

    number: int
    """Line or row of the file, counted from 1."""
    reason: str
    """One of few, so that it can be counted."""
    detail: str = ""


RawRow = tuple[int, object] | BadRow
"""A numbered row as read, not yet looked at; or what the reader could not read."""


@dataclass(frozen=True)
class LoadedProblems:
    """What a data set gave."""

    problems: tuple[Problem, ...]
    bad_rows: tuple[BadRow, ...] = ()
    columns: tuple[str, ...] = ()
    """Names of what the rows hold."""

    @property
    def bad_row_counts(self) -> dict[str, int]:
        """Number of rows left out, by reason."""
        return dict(Counter(row.reason for row in self.bad_rows))


class _RowFault(Exception):
    """Raised and caught inside this module only."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason = reason
        self.detail = detail


def load_problems(
    rows: Iterable[RawRow],
    source: str,
    columns: ColumnMapping | None = None,
    split: str | None = None,
    on_bad_row: OnBadRow = "stop",
    unit: str = "line",
) -> LoadedProblems:
    """Problems of one split from numbered rows.

    Args:
        rows: Numbered rows in order. Bad rows of every split are reported.
        source: How messages call the data.
        columns: Where to look; None takes the columns' own names.
        split: Keeps the problems of this split; None keeps all. Rows without a split
            belong to "train".
        on_bad_row: "stop" raises at bad rows, "skip" counts them.
        unit: What a row number counts, for messages.

    Raises:
        ValueError: there are no rows, no valid ones, no such column or split, or a bad
            row under "stop".
    """
    kept = list(rows)
    readable = [row for row in kept if not isinstance(row, BadRow)]
    objects = [row for _, row in readable if isinstance(row, Mapping)]
    if not kept:
        raise ValueError(f"{source} must hold at least one problem, got an empty file")
    if not objects:
        bad_rows = _sorted_out(kept, ColumnMapping())[1]
        raise _no_problem(source, bad_rows, unit)
    known = tuple(dict.fromkeys(str(name) for row in objects for name in row))
    resolved = _resolved(columns or ColumnMapping(), known, source)
    problems, bad_rows = _sorted_out(kept, resolved)
    if bad_rows and on_bad_row == "stop":
        raise _bad_rows_error(source, bad_rows, unit)
    if not problems:
        raise _no_problem(source, bad_rows, unit)
    chosen = [p for p in problems if split is None or p.split == split]
    if not chosen:
        splits = sorted({problem.split for problem in problems})
        raise ValueError(unknown_name("split", str(split), splits, source))
    return LoadedProblems(tuple(chosen), tuple(bad_rows), known)


def unknown_name(kind: str, name: str, known: Sequence[str], source: str) -> str:
    """The message for a name that does not exist: the nearest one and all others."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    listed = ", ".join(known) or "none"
    return (
        f"a {kind} of {source} must be one of its own, got {name!r}; "
        f"{hint}known: {listed}"
    )


def unknown_column(key: str, name: str, known: Sequence[str], source: str) -> str:
    """The same for a column that a key of the recipe names."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return (
        f"{key} must name a column of {source}, got {name!r}; {hint}it has the columns "
        f"{', '.join(known)}"
    )


def shortened(value: object, limit: int = 60) -> str:
    """The beginning of `repr(value)`, for messages."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _resolved(
    columns: ColumnMapping, known: tuple[str, ...], source: str
) -> ColumnMapping:
    """`columns` with every default settled and every name checked."""
    single = ("prompt", "messages", "answer", "id", "split")
    chosen = {field: getattr(columns, field) for field in single}
    wanted = [(f"task.{field}_column", name) for field, name in chosen.items()]
    wanted += [("task.metadata_columns", name) for name in columns.metadata or ()]
    for key, name in wanted:
        if name is not None and name not in known:
            raise ValueError(unknown_column(key, name, known, source))
    for field in ("answer", "id", "split"):
        if chosen[field] is None and field in known:
            chosen[field] = field
    if chosen["prompt"] is None and chosen["messages"] is None:
        default = next((name for name in ("messages", "prompt") if name in known), None)
        if default is None:
            raise ValueError(
                unknown_column("task.prompt_column", "prompt", known, source)
                + "; name the one with the question, or task.messages_column"
            )
        chosen[default] = default
    used = {name for name in chosen.values() if name is not None}
    rest = tuple(name for name in known if name not in used)
    metadata = rest if columns.metadata is None else columns.metadata
    return ColumnMapping(**chosen, metadata=metadata)


def _sorted_out(
    rows: Sequence[RawRow], columns: ColumnMapping
) -> tuple[list[Problem], list[BadRow]]:
    problems: list[Problem] = []
    bad_rows: list[BadRow] = []
    numbers: dict[str, int] = {}
    for row in rows:
        if isinstance(row, BadRow):
            bad_rows.append(row)
            continue
        number, content = row
        try:
            problem = _problem(number, content, columns)
            if problem.id in numbers:
                first = numbers[problem.id]
                raise _RowFault("duplicate id", f"{problem.id!r}, first at {first}")
        except _RowFault as fault:
            bad_rows.append(BadRow(number, fault.reason, fault.detail))
        except RecursionError:
            bad_rows.append(BadRow(number, "nested too deeply"))
        else:
            numbers[problem.id] = number
            problems.append(problem)
    return problems, bad_rows


def _problem(number: int, row: object, columns: ColumnMapping) -> Problem:
    if not isinstance(row, Mapping):
        raise _RowFault("not an object", shortened(row))
    split = _text(row, columns.split, "split")
    return Problem(
        id=_id(number, row, columns.id),
        messages=_messages(row, columns),
        answer=_text(row, columns.answer, "answer"),
        split=DEFAULT_SPLIT if split is None else split,
        metadata={
            without_lone_surrogates(name): _json_value(name, row[name])
            for name in columns.metadata or ()
            if name in row
        },
    )


def _messages(row: Mapping[str, object], columns: ColumnMapping) -> tuple[Message, ...]:
    column = columns.messages or columns.prompt or "prompt"
    value = row.get(column)
    if _is_missing(value):
        raise _RowFault("missing prompt", f"column {column!r} holds nothing")
    if isinstance(value, str) and columns.messages is None:
        if not value.strip():
            raise _RowFault("empty prompt", f"column {column!r} holds only blanks")
        return (Message("user", without_lone_surrogates(value)),)
    if not isinstance(value, list | tuple):
        wanted = "a list of messages" if columns.messages else "text or messages"
        raise _RowFault(
            "malformed prompt", f"{column!r} must be {wanted}, got {shortened(value)}"
        )
    turns = tuple(_message(turn) for turn in value)
    if not turns:
        raise _RowFault("empty prompt", f"column {column!r} holds no message")
    if turns[-1].role not in ("user", "tool"):
        raise _RowFault(
            "bad messages",
            f"the last turn must be a user's or a tool's, got {turns[-1].role!r}",
        )
    return turns


def _message(turn: object) -> Message:
    if not isinstance(turn, Mapping):
        raise _RowFault(
            "bad messages", f"a turn must be an object, got {shortened(turn)}"
        )
    role, content = turn.get("role"), turn.get("content")
    if not isinstance(role, str) or role not in ROLES:
        raise _RowFault(
            "bad messages", f"role must be one of {', '.join(ROLES)}, got {role!r}"
        )
    if not isinstance(content, str) or not content.strip():
        raise _RowFault(
            "bad messages", f"content must be text, got {shortened(content)}"
        )
    return Message(role, without_lone_surrogates(content))


def _id(number: int, row: Mapping[str, object], column: str | None) -> str:
    if column is None:
        return f"row-{number}"
    name = _text(row, column, "id")
    if name is None:
        raise _RowFault("missing id", f"column {column!r} holds nothing")
    return name


def _text(row: Mapping[str, object], column: str | None, what: str) -> str | None:
    """A text or a number as text; None where there is nothing."""
    value = row.get(column) if column is not None else None
    if _is_missing(value) or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, str):
        return without_lone_surrogates(value)
    finite = isinstance(value, float) and math.isfinite(value)
    if finite or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    raise _RowFault(
        f"malformed {what}", f"must be text or a number, got {shortened(value)}"
    )


def _is_missing(value: object) -> bool:
    """None, or the NaN that tables write for it."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _json_value(name: str, value: object) -> object:
    """`value` as JSON holds it, clean of surrogates, with None for NaN."""
    if isinstance(value, str):
        return without_lone_surrogates(value)
    if _is_missing(value) or isinstance(value, bool | int):
        return None if _is_missing(value) else value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list | tuple):
        return [_json_value(name, item) for item in value]
    if isinstance(value, Mapping):
        return {
            without_lone_surrogates(str(key)): _json_value(name, item)
            for key, item in value.items()
        }
    try:
        return json.loads(json.dumps(value, default=_iso_text, allow_nan=False))
    except (TypeError, ValueError):
        raise _RowFault(
            "malformed metadata", f"{name!r} must be JSON, got {shortened(value)}"
        ) from None


def _iso_text(value: object) -> str:
    """Dates, which tables hold and JSON does not, as ISO 8601."""
    written = getattr(value, "isoformat", None)
    if written is None:
        raise TypeError
    return str(written())


def _bad_rows_error(source: str, bad_rows: Sequence[BadRow], unit: str) -> ValueError:
    first, others = bad_rows[0], len(bad_rows) - 1
    more = f" (and {others} more bad rows)" if others else ""
    return ValueError(
        f"every row of {source} must be a problem, got {_described(first, unit)}{more};"
        ' mend the data, or leave such rows out with on_bad_row = "skip"'
    )


def _no_problem(source: str, bad_rows: Sequence[BadRow], unit: str) -> ValueError:
    return ValueError(
        f"{source} must hold at least one problem, got {len(bad_rows)} bad rows, "
        f"the first being {_described(bad_rows[0], unit)}"
    )


def _described(row: BadRow, unit: str) -> str:
    detail = f" ({row.detail})" if row.detail else ""
    return f"{unit} {row.number}: {row.reason}{detail}"
