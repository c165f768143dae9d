"""A user's own file of problems: .jsonl, .json (a list of objects) or .csv.

Files are read as UTF-8 with or without a byte order mark, .jsonl line by line. What
cannot be read becomes a `BadRow` with its line; what a row must hold is `problems`'
business.
"""

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from accredit.tasks.problems import (
    BadRow,
    ColumnMapping,
    LoadedProblems,
    OnBadRow,
    RawRow,
    load_problems,
    shortened,
)

MAX_FIELD_BYTES = 1 << 27


def load_jsonl(
    path: str | Path,
    columns: ColumnMapping | None = None,
    split: str | None = None,
    on_bad_row: OnBadRow = "stop",
) -> LoadedProblems:
    """Problems of a file whose name ends in .jsonl, .ndjson, .json or .csv.

    Raises:
        ValueError: the file is missing, of another kind, or as `load_problems` says.
    """
    rows, unit = numbered_rows(Path(path))
    return load_problems(rows, str(path), columns, split, on_bad_row, unit)


def numbered_rows(path: Path) -> tuple[Iterator[RawRow], str]:
    """The rows of a file, and what their numbers count.

    Raises:
        ValueError: the file is missing or of another kind.
    """
    readers = {
        ".jsonl": (jsonl_rows, "line"),
        ".ndjson": (jsonl_rows, "line"),
        ".json": (json_rows, "item"),
        ".csv": (csv_rows, "line"),
    }
    if path.suffix.lower() not in readers:
        raise ValueError(
            f"a file of problems must end in {', '.join(readers)}, got {str(path)!r}; "
            "convert it, or read parquet files with the task `hub`"
        )
    reader, unit = readers[path.suffix.lower()]
    return reader(existing_file(path)), unit


def existing_file(path: str | Path) -> Path:
    """`path` if it is a file.

    Raises:
        ValueError: it is not.
    """
    path = Path(path)
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "nothing there"
        raise ValueError(
            f"a file of problems must exist, got {kind} at {str(path)!r}; "
            "check the path, which counts from the working directory"
        )
    return path


def jsonl_rows(path: Path) -> Iterator[RawRow]:
    """One object a line; blank lines are passed over."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if line.strip():
                yield _json_row(number, line)


def json_rows(path: Path) -> Iterator[RawRow]:
    """The items of one JSON list."""
    row = _json_row(1, path.read_bytes().removeprefix(b"\xef\xbb\xbf") or b"[]")
    if isinstance(row, BadRow):
        raise ValueError(
            f"{path} must be JSON, got {row.detail or row.reason}; "
            "for one object a line, name the file .jsonl"
        )
    if not isinstance(row[1], list):
        raise ValueError(
            f"{path} must hold a list of objects, got {shortened(row[1])}; "
            "for one object a line, name the file .jsonl"
        )
    yield from enumerate(row[1], start=1)


def csv_rows(path: Path) -> Iterator[RawRow]:
    """The records of a table with a header; an empty field is a missing one.

    Text after a closing quote is kept, as tables in the wild have it.
    """
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        yield from table_rows(lines, str(path))


def table_rows(lines: Iterable[str], source: str) -> Iterator[RawRow]:
    """`csv_rows` of lines, line ends included."""
    records = _numbered_records(lines)
    header = next(records, None)
    if header is None:
        return
    if isinstance(header, BadRow):
        raise ValueError(f"{source} must begin with a header, got {header.detail}")
    names = header[1]
    if len(set(names)) != len(names):
        raise ValueError(f"columns of {source} must have distinct names, got {names}")
    for record in records:
        yield record if isinstance(record, BadRow) else _table_row(record, names)


def _json_row(number: int, text: bytes) -> RawRow:
    try:
        return number, json.loads(text.decode("utf-8"), parse_constant=_refused)
    except UnicodeDecodeError as error:
        return BadRow(number, "not UTF-8", f"byte {error.start}")
    except RecursionError:
        return BadRow(number, "nested too deeply")
    except json.JSONDecodeError as error:
        return BadRow(number, "not JSON", f"{error.msg} at character {error.pos}")
    except ValueError as error:
        return BadRow(number, "not JSON", str(error))


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON; write null for nothing")


def _numbered_records(
    lines: Iterable[str],
) -> Iterator[tuple[int, list[str]] | BadRow]:
    """Records with the line each begins at."""
    limit = csv.field_size_limit(MAX_FIELD_BYTES)
    try:
        reader = csv.reader(lines)
        while True:
            number = reader.line_num + 1
            try:
                record = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield BadRow(number, "not CSV", str(error))
                continue
            if record:
                yield number, record
    finally:
        csv.field_size_limit(limit)


def _table_row(record: tuple[int, list[str]], names: list[str]) -> RawRow:
    number, fields = record
    if len(fields) != len(names):
        detail = f"the header has {len(names)} fields, the row {len(fields)}"
        return BadRow(number, "wrong number of fields", detail)
    try:
        "".join(fields).encode("utf-8")
    except UnicodeEncodeError:
        return BadRow(number, "not UTF-8")
    return number, {
        name: field or None for name, field in zip(names, fields, strict=True)
    }
