"""Texts of the questions to a prompted critic: the built-in ones, and those of files."""

import difflib
import stat
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

MAX_BYTES = 65_536
"""Of a template's file."""

COMPACT = {
    "question": "?{left}",
    "question_with_reference": "?{left}={reference}",
    "stem": "v",
}
"""How much success the packaged model was taught to see in an attempt."""

COMPACT_PROGRESS = {
    "question": "%{left}",
    "question_with_reference": "%{left}={reference}",
    "stem": "v",
}
"""How much progress it was taught to see there."""

INSTRUCTION = {
    "question": """\
Stop here and judge the attempt above, which may be unfinished. Suppose that its \
author simply continues it to the end, with at most {left} more tokens to write. How \
much credit should we expect the finished attempt to earn?

Credit is a number between 0 and 1: 0 means no credit, 1 means full credit, and \
anything in between means partial credit. It is the grader's mark for what is handed \
in, averaged over the ways in which the attempt may go on. It is not the probability \
that everything in it is right. An attempt that will not be done within its remaining \
{left} tokens earns only what it holds by then.

Answer with one line and nothing else:
Expected credit: <a number from 0.0 to 1.0 with one decimal>""",
    "question_with_reference": """\
Stop here and judge the attempt above, which may be unfinished. Suppose that its \
author simply continues it to the end, with at most {left} more tokens to write. How \
much credit should we expect the finished attempt to earn?

For your judgement only, here is a reference solution that the grader accepted. The \
author of the attempt has not seen it, and a different route can be worth as much.

--- Reference solution ---
{reference}
--- End of the reference solution ---

Credit is a number between 0 and 1: 0 means no credit, 1 means full credit, and \
anything in between means partial credit. It is the grader's mark for what is handed \
in, averaged over the ways in which the attempt may go on. It is not the probability \
that everything in it is right. An attempt that will not be done within its remaining \
{left} tokens earns only what it holds by then.

Answer with one line and nothing else:
Expected credit: <a number from 0.0 to 1.0 with one decimal>""",
    "stem": "<think>\n\n</think>\n\nExpected credit: ",
    "thinking_close": "\n</think>\n",
}
"""In words, for chat models that may think before they answer."""

BUILT_IN = {
    "compact": COMPACT,
    "compact_progress": COMPACT_PROGRESS,
    "instruction": INSTRUCTION,
}


def texts_named(name: str) -> dict[str, Any]:
    """Keys of a built-in template, or of a TOML file as they are written there.

    Raises:
        ValueError: there is neither, or the file is no TOML of at most 64 KiB.
    """
    if name in BUILT_IN:
        return dict(BUILT_IN[name])
    try:
        content = _read(name).decode("utf-8-sig")
        return tomllib.loads(content)
    except RecursionError as error:
        raise ValueError(f"{name} must be a flat TOML file, got a nested one") from error
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{name} must be a TOML file, got {error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name} must be a TOML file in UTF-8, got a byte that is not, at "
            f"{error.start}; save it as UTF-8"
        ) from error
    except _NoTemplate:
        raise
    except ValueError as error:
        # Of an integer with more digits than Python reads.
        raise ValueError(f"{name} must hold texts, got {error}; quote it") from error


class _NoTemplate(ValueError):
    """There is no file that could be read."""


def _read(name: str) -> bytes:
    try:
        status = Path(name).stat()
        if not stat.S_ISREG(status.st_mode):
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "no plain file"
            raise _no_template(name, f"which is {kind}")
        if status.st_size > MAX_BYTES:
            raise _no_template(name, f"which has {status.st_size} bytes")
        return Path(name).read_bytes()
    except FileNotFoundError as error:
        why = f"which does not exist{nearest(name, BUILT_IN)}"
        raise _no_template(name, why) from error
    except OSError as error:
        why = f"which cannot be read: {error.strerror}"
        raise _no_template(name, why) from error


def _no_template(name: str, why: str) -> _NoTemplate:
    return _NoTemplate(
        f"a template must be {', '.join(BUILT_IN)} or a TOML file of at most "
        f"{MAX_BYTES // 1024} KiB, got {name!r}, {why}"
    )


def nearest(name: str, known: Collection[str]) -> str:
    """The name that was meant, as the end of a message; empty where none is near."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""
