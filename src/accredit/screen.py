"""Everything the command prints goes through here: output never ends a run.

A terminal may lack the characters, a pipe may be closed by its reader, a disk may be
full. Training goes on without its lines; text is shown as text, never obeyed.
"""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from accredit.text import printable

STAND_INS = str.maketrans(
    {
        "−": "-", "–": "-", "·": "|", "×": "x", "±": "+-", "≤": "<=", "≥": ">=",
        "…": "...", "“": '"', "”": '"', "’": "'", "→": "->", "━": "=", "╸": "-",
        "╺": "-", "─": "-", "│": "|",
    }
)  # fmt: skip
"""For what a terminal without Unicode cannot show, where plain letters come close."""


class Guarded:
    """A text stream whose writing cannot raise.

    Characters beyond its encoding are replaced. After the first failure nothing more is
    written, and `fault` says what it was.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        """None stands for a stream that was closed before the process began."""
        self.fault: OSError | ValueError | None = None

    def write(self, text: str) -> int:
        """Writes what can be written; says it was all."""
        if self.stream is not None and self.fault is None:
            with self._kept():
                self.stream.write(self._encodable(text))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        """Writes each line."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Hands on what is buffered."""
        if self.stream is not None and self.fault is None:
            with self._kept():
                self.stream.flush()

    def isatty(self) -> bool:
        """Whether a person looks on."""
        with suppress(OSError, ValueError):
            return self.stream is not None and self.stream.isatty()
        return False

    @property
    def encoding(self) -> str:
        """Of the stream; UTF-8 where it does not say."""
        return getattr(self.stream, "encoding", None) or "utf-8"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def _encodable(self, text: str) -> str:
        try:
            text.encode(self.encoding)
        except UnicodeEncodeError:
            plain = text.translate(STAND_INS)
            encoded = plain.encode(self.encoding, "backslashreplace")
            return encoded.decode(self.encoding)
        return text

    @contextmanager
    def _kept(self) -> Iterator[None]:
        try:
            yield
        except BlockingIOError:
            pass  # A reader that is slow for now: these words are lost, not the next.
        except (OSError, ValueError) as error:
            self.fault = error


@contextmanager
def guarded_streams() -> Iterator[Guarded]:
    """Standard output and standard error that cannot raise, while the block runs.

    Yields standard output. The interpreter's own last flush then has nowhere to fail
    either: a stream that broke leads into nothing.
    """
    keep_standard_descriptors()
    outer = (sys.stdout, sys.stderr)
    output, errors = Guarded(outer[0]), Guarded(outer[1])
    sys.stdout, sys.stderr = output, errors  # type: ignore[assignment]
    try:
        yield output
    finally:
        output.flush()
        errors.flush()
        sys.stdout, sys.stderr = outer
        for stream in (output, errors):
            if stream.fault is not None:
                _lead_into_nothing(stream)


def keep_standard_descriptors() -> None:
    """Descriptors 0 to 2 are open: else a file of the run would become one of them."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(opened, True)
    os.close(opened)


def _lead_into_nothing(stream: Guarded) -> None:
    with suppress(OSError, ValueError, AttributeError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
        stream.stream.flush()  # type: ignore[union-attr]


def fault_line(output: Guarded) -> str:
    """Why standard output failed; empty where it did not or where its reader left."""
    fault = output.fault
    if fault is None or getattr(fault, "errno", None) == errno.EPIPE:
        return ""
    reason = getattr(fault, "strerror", None) or str(fault)
    return f"standard output must take what is printed, got: {reason}"


def say(text: str, *, error: bool = False) -> None:
    """One line of text, whatever is in it, on standard output or standard error."""
    Guarded(sys.stderr if error else sys.stdout).write(printable(text) + "\n")


def console(error: bool = False) -> Any:
    """Standard output, or error, with colours where it is a terminal.

    Strings are text: square brackets are no markup, `:smile:` is no picture, and what
    a terminal would obey is written out. Who wants a style makes a `rich.text.Text`.
    """
    from rich.console import Console

    class Screen(Console):
        def render_str(self, text: str, **options: Any) -> Any:
            return super().render_str(printable(text, keep_layout=True), **options)

    stream = sys.stderr if error else sys.stdout
    inner = getattr(stream, "rich_proxied_file", stream)
    file: Any = inner if isinstance(inner, Guarded) else Guarded(inner)
    return Screen(file=file, markup=False, highlight=False, emoji=False)
