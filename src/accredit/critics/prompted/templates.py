"""The texts of a question to a prompted critic: built-in, or of a file."""

import difflib
import re
import stat
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_BYTES = 65_536
"""Of a template's file."""
PLACEHOLDER = re.compile(r"\{(?:left|reference)\}")
FORMAT = re.compile(r"\s?\{:(?:\.[0-9])?[fg]\}")

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


@dataclass(frozen=True)
class QuestionTemplate:
    """The texts of a question."""

    question: str
    """{left} stands for the tokens that are left to the attempt."""
    question_with_reference: str
    """{reference} stands for the text of a passing completion beside it."""
    stem: str
    """How the answer begins, up to its number."""
    thinking_close: str = ""
    """Ends the attempt's thinking where it has not ended; nothing where none thinks."""
    answer_format: str = "{:.1f}"
    """Of a grid value."""

    def __post_init__(self) -> None:
        needed = {"question": "{left}", "question_with_reference": "{left}{reference}"}
        for key, names in needed.items():
            found = set(PLACEHOLDER.findall(getattr(self, key)))
            expected = set(PLACEHOLDER.findall(names))
            if found != expected:
                raise ValueError(
                    f"{key} of a template must hold {' and '.join(sorted(expected))}, "
                    f"and no other placeholder, got {sorted(found)}; the critic must "
                    "know the budget that is left, and sees a reference in the second "
                    "text alone"
                )
        if not self.stem or PLACEHOLDER.search(self.stem):
            raise ValueError(
                "stem of a template must be a text without placeholders, got "
                f"{self.stem!r}; what is asked belongs in question"
            )
        if not FORMAT.fullmatch(self.answer_format):
            raise ValueError(
                "answer_format of a template must be that of one number, as '{:.1f}', "
                f"got {self.answer_format!r}"
            )


def spaced_stems(stem: str) -> list[str]:
    """The stem as written, then with other blanks behind and before it.

    A tokenizer may join the end of a stem with the number that follows; which spacing
    it leaves apart is a matter of what it was trained on. A tag stays the first thing.
    """
    ends = (stem, stem.rstrip(), *(f"{stem.rstrip()}{blank}" for blank in (" ", "\n")))
    starts = ("",) if stem.startswith("<") else ("", " ", "\n")
    spaced = [f"{start}{end}" for start in starts for end in ends]
    return [text for text in dict.fromkeys(spaced) if text.strip()]


def texts_named(name: str) -> dict[str, Any]:
    """Keys of a built-in template, or of a TOML file as they are written there.

    Raises:
        ValueError: there is neither, or the file is no TOML of at most 64 KiB.
    """
    if name in BUILT_IN:
        return dict(BUILT_IN[name])
    content = _content(name)
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except RecursionError as error:
        raise ValueError(
            f"{name} must be a TOML file, got values that are nested too deep; it "
            "holds texts alone"
        ) from error
    except ValueError as error:
        # Not only what is no TOML or no UTF-8, but an integer too long for Python.
        fault = str(error).partition(";")[0]
        raise ValueError(f"{name} must be a TOML file, got {fault}") from error


def _content(name: str) -> bytes:
    """Of a file that is small enough."""
    try:
        status = Path(name).stat()
        if stat.S_ISDIR(status.st_mode):
            fault = "which is a directory"
        elif not stat.S_ISREG(status.st_mode):
            fault = "which is no plain file"
        elif status.st_size > MAX_BYTES:
            fault = f"which has {status.st_size} bytes"
        else:
            return Path(name).read_bytes()
    except FileNotFoundError:
        fault = f"which does not exist{nearest(name, BUILT_IN)}"
    except OSError as error:
        fault = f"which cannot be read ({error.strerror})"
    except ValueError as error:
        fault = f"which is no name of a file ({error})"
    raise ValueError(
        f"a template must be {', '.join(BUILT_IN)} or a TOML file of at most "
        f"{MAX_BYTES // 1024} KiB, got {name!r}, {fault}"
    )


def nearest(name: str, known: Collection[str]) -> str:
    """What was meant, as the end of a message; empty where nothing is near."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""
