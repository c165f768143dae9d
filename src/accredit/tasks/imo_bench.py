"""IMO-Bench: olympiad problems with short answers, and with proofs to be graded.

Reads the two tables that google-deepmind/superhuman publishes (CC BY 4.0), from the
path the user gives; the project ships none of them. Both are benchmarks, so their
problems are of the split "test". Answers stay as printed, LaTeX and all; reading them
is the verifier's business.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from accredit.tasks.jsonl import existing_file, table_rows
from accredit.tasks.problems import (
    BadRow,
    ColumnMapping,
    LoadedProblems,
    OnBadRow,
    RawRow,
    load_problems,
)

SPLIT = "test"
LOST_QUOTE = re.compile(r'^,"(?!")')
"""A line that begins so has lost the quote that closes the field before it.

Version 2 of the answer table has one (algebra-036), which would glue the answer to the
problem. No well-formed row has any: a quote within quotes is doubled, no id is empty.
"""
ANSWERBENCH_COLUMNS = {
    "Problem ID": "id",
    "Problem": "prompt",
    "Short Answer": "answer",
    "Category": "category",
    "Subcategory": "subcategory",
    "Source": "source",
}
PROOFBENCH_COLUMNS = {
    "Problem ID": "id",
    "Problem": "prompt",
    "Solution": "solution",
    "Grading guidelines": "grading_guidelines",
    "Category": "category",
    "Level": "level",
    "Short Answer": "answer",
    "Source": "source",
}


def load_imo_answerbench(
    path: str | Path, on_bad_row: OnBadRow = "stop"
) -> LoadedProblems:
    """IMO-AnswerBench: problems with a short answer and their category in metadata."""
    return _load(path, ANSWERBENCH_COLUMNS, ("prompt", "answer"), on_bad_row)


def load_imo_proofbench(
    path: str | Path, on_bad_row: OnBadRow = "stop"
) -> LoadedProblems:
    """IMO-ProofBench: problems with `solution` and `grading_guidelines` in metadata."""
    required = ("prompt", "solution", "grading_guidelines")
    return _load(path, PROOFBENCH_COLUMNS, required, on_bad_row)


def _load(
    path: str | Path,
    names: Mapping[str, str],
    required: tuple[str, ...],
    on_bad_row: OnBadRow,
) -> LoadedProblems:
    path = existing_file(path)
    rows = _rows(path, names, required)
    return load_problems(rows, str(path), ColumnMapping(), SPLIT, on_bad_row)


def _rows(
    path: Path, names: Mapping[str, str], required: tuple[str, ...]
) -> Iterator[RawRow]:
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        mended = (LOST_QUOTE.sub('","', line) for line in lines)
        yield from _named(table_rows(mended, str(path)), path, names, required)


def _named(
    rows: Iterator[RawRow],
    path: Path,
    names: Mapping[str, str],
    required: tuple[str, ...],
) -> Iterator[RawRow]:
    """Rows under this library's column names, outer blanks removed."""
    for row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        number, content = row
        assert isinstance(content, Mapping)
        missing = [name for name in names if name not in content]
        if missing:
            raise ValueError(
                f"{path} must have the columns {', '.join(names)}, got "
                f"{', '.join(content)}; is it the right table of IMO-Bench?"
            )
        cleaned = {
            names[name]: text.strip() or None if text else None
            for name, text in content.items()
            if name in names
        }
        absent = [field for field in required if cleaned[field] is None]
        if absent:
            yield BadRow(number, f"missing {absent[0]}")
        else:
            yield number, {**cleaned, "split": SPLIT}
