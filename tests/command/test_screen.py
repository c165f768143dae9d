"""Terminals that cannot show, readers that leave, disks that are full."""

import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from accredit import screen
from accredit.command.cli import main
from accredit.screen import Guarded, console, guarded_streams, say
from commanding import DONE, FAILED, MISTAKE, SHORT

pytestmark = pytest.mark.whole_run

ESCAPE = "\x1b[31mred\u202e[bold]x[/bold][/nothing]"


class Failing(io.RawIOBase):
    """A device that takes `room` bytes and then fails."""

    def __init__(self, number: int, room: int = 0) -> None:
        self.number, self.room, self.taken = number, room, b""

    def writable(self) -> bool:
        return True

    def write(self, content) -> int:
        if len(self.taken) + len(content) > self.room:
            raise OSError(self.number, os.strerror(self.number))
        self.taken += bytes(content)
        return len(content)


def text_stream(raw: io.RawIOBase, encoding: str = "utf-8") -> io.TextIOWrapper:
    """What the interpreter puts before a device, without a buffer of its own."""
    return io.TextIOWrapper(io.BufferedWriter(raw, 1), encoding, write_through=True)


def ended_with(monkeypatch, output, *words) -> object:
    """The exit code of a command whose standard output is `output`."""
    monkeypatch.setattr(sys, "stdout", output)
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code


def test_training_goes_on_when_its_reader_leaves(recipe, folder, monkeypatch, capsys):
    device = Failing(errno.EPIPE, room=30)
    words = ["train", recipe, "--name", "unheard", *SHORT]
    assert ended_with(monkeypatch, text_stream(device), *words) == DONE
    assert len(device.taken) <= 30
    assert (folder / "runs" / "unheard" / "report.html").is_file()
    assert list((folder / "runs" / "unheard" / "checkpoints").glob("step-*"))
    assert capsys.readouterr().err == ""


def test_training_shows_what_an_ascii_terminal_can_and_folders_as_text(
    recipe, folder, monkeypatch
):
    """Issue 10, E5 and E6: the first minus and the first bracket were tracebacks."""
    raw = io.BytesIO()
    words = ["--runs_folder", "a[/b]", "--name", "odd", *SHORT]
    stream = io.TextIOWrapper(raw, "ascii")
    assert ended_with(monkeypatch, stream, "train", recipe, *words) == DONE
    shown = raw.getvalue().decode("ascii")
    assert shown.startswith("run: a[/b]/odd\n")
    assert "step 1/1  reward " in shown
    assert "\nBrackets: 95% intervals." in shown
    assert shown.endswith("report: a[/b]/odd/report.html\n")


@pytest.mark.parametrize("words", [["tasks"], ["algorithms"], ["tasks", "jsonl"]])
@pytest.mark.parametrize(
    ("number", "code"), [(errno.EPIPE, DONE), (errno.ENOSPC, FAILED)]
)
def test_a_command_that_only_prints_ends_quietly_when_its_reader_has_left(
    number, code, words, monkeypatch, capsys
):
    assert ended_with(monkeypatch, text_stream(Failing(number, 10)), *words) == code
    told = capsys.readouterr().err
    said = "accredit: standard output must take what is printed, got: "
    assert told == ("" if code == DONE else f"{said}{os.strerror(number)}\n")


def test_a_mistake_stays_a_mistake_where_nothing_can_be_printed(monkeypatch, capsys):
    broken = text_stream(Failing(errno.EPIPE))
    assert ended_with(monkeypatch, broken, "tasks", "nowhere") == MISTAKE
    assert "task 'nowhere' is unknown" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("encoding", "text", "shown"),
    [
        ("ascii", "−1 ≤ x ≤ 2 · y…", "-1 <= x <= 2 | y..."),
        ("ascii", "日本", r"\u65e5\u672c"),
        ("latin-1", "é − 1", "é - 1"),
        ("utf-8", "half \ud83d", r"half \ud83d"),
        ("cp437", "½ ─ 𝔸", r"½ - \U0001d538"),
        ("utf-16", "− 1", "− 1"),
    ],
)
def test_characters_beyond_an_encoding_have_stand_ins(encoding, text, shown):
    raw = io.BytesIO()
    stream = Guarded(io.TextIOWrapper(raw, encoding))
    assert stream.write(text) == len(text)
    stream.flush()
    assert raw.getvalue().decode(encoding) == shown
    assert stream.fault is None


def test_a_slow_reader_loses_some_words_and_not_the_next():
    class Slow(io.StringIO):
        busy = True

        def write(self, text: str) -> int:
            if self.busy:
                raise BlockingIOError
            return super().write(text)

    slow = Slow()
    stream = Guarded(slow)
    stream.write("lost")
    slow.busy = False
    stream.write("seen")
    assert slow.getvalue() == "seen"


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC, errno.EIO, errno.EBADF])
def test_after_its_first_failure_a_stream_is_left_alone(number):
    device = Failing(number, room=4)
    stream = Guarded(text_stream(device))
    for words in ("seen", "lost", "x"):
        assert stream.write(words) == len(words)
    stream.flush()
    assert device.taken == b"seen"
    assert stream.fault.errno == number


def test_a_stream_that_was_never_there_takes_everything():
    stream = Guarded(None)
    assert stream.write("x") == 1
    stream.flush()
    assert (stream.isatty(), stream.encoding, stream.fault) == (False, "utf-8", None)


def test_a_closed_stream_is_no_error():
    inner = io.StringIO()
    stream = Guarded(inner)
    inner.close()
    stream.write("x")
    stream.flush()
    assert not stream.isatty()
    assert isinstance(stream.fault, ValueError)


def test_streams_come_back(capsys):
    before = (sys.stdout, sys.stderr)
    with guarded_streams() as output:
        assert sys.stdout is output
    assert (sys.stdout, sys.stderr) == before


@pytest.mark.parametrize("text", [ESCAPE, "a[/b]", "[red", ":smile:", "[link=x]y"])
def test_strings_are_text_wherever_they_are_printed(text, capsys):
    from rich.table import Table

    table = Table(text, title=text, box=None)
    table.add_row(text)
    console().print(text, table)
    say(text)
    shown = capsys.readouterr().out
    written = text.replace("\x1b", r"\x1b").replace("\u202e", r"\u202e")
    assert shown.count(written) == 5
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["train", "a[/b].toml"], "got a[/b].toml: "),
        (["train", ESCAPE], r"got '\x1b[31mred\u202e[bold]x[/bold"),
        (["report", "[/x]"], "got [/x]"),
        (["tasks", "w[/]\n"], r"task 'w[/]\n' is unknown"),
        ([ESCAPE], r"no command '\x1b[31mred\u202e"),
        (["eval", "packaged", "--task", "w\u200b"], r"task 'w\u200b' is unknown"),
    ],
    ids=ascii,
)
def test_a_mistake_shows_its_words_as_they_are(words, shown, accredit):
    code, printed, told = accredit(*words)
    assert (code, printed, told.count("\n")) == (MISTAKE, "", 1)
    assert shown in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["lab", "--seed", "x"], "Error parsing --seed: invalid literal for int() "),
        (["lab", "--seed"], "Missing value for argument '--seed'"),
        (["train", "--resume"], "Missing value for argument '--resume'"),
        (["eval"], "Missing from accredit eval: MODEL"),
        ([], "Expected one of {train, eval, verify, "),
        (["calibrate", "x", "--last", "3.5"], "Error parsing --last: no type "),
    ],
    ids=str,
)
def test_words_of_the_wrong_form_are_told_in_one_line(words, told, accredit):
    code, printed, said = accredit(*words)
    assert (code, printed, said.count("\n")) == (MISTAKE, "", 1)
    assert said.startswith(f"accredit: {told}")


@pytest.mark.parametrize(
    "shell", ["{} | head -n 1", "{} >&-", "{} > /dev/full", "{} 2>&- | true"]
)
def test_the_interpreters_own_last_flush_does_not_fail(shell):
    command = f"{sys.executable} -m accredit.command.cli tasks"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {shell.format(command)}"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(screen.__file__).parents[1])},
    )
    full = "/dev/full" in shell
    assert done.returncode == (FAILED if full else DONE), done.stderr
    assert done.stderr.count("\n") == full
