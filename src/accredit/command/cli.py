"""The command `accredit`. Parses, dispatches, and turns errors into one line.

Heavy imports live inside the commands, so that help and mistakes are instant.
"""

import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import fields
from itertools import dropwhile, takewhile
from typing import Any, cast

import tyro

from accredit.command.words import (
    Calibrate,
    Command,
    Eval,
    Lab,
    Report,
    Show,
    Train,
    Verify,
)
from accredit.screen import fault_line, guarded_streams, say
from accredit.text import printable, within

DONE, FAILED, MISTAKE, INTERRUPTED = 0, 1, 2, 130
LINE = 400
"""Characters that a mistake is told in, at most."""
DESCRIPTION = """\
Reinforcement learning of language models with critics that are measured.

--dotted.words override the keys of a recipe: see accredit algorithms NAME,
accredit tasks NAME and docs/recipes.md.

Exit codes: 0 done, 1 the run failed, 2 a mistake in what was asked,
130 stopped by Ctrl-C, with a checkpoint written once a step is done."""


NAMES = (
    "train",
    "eval",
    "verify",
    "report",
    "show",
    "calibrate",
    "tasks",
    "algorithms",
    "new",
    "recipes",
    "lab",
    "doctor",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point; exits with the command's code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    quiet_libraries()
    with guarded_streams() as output, warnings.catch_warnings():
        warnings.showwarning = warned
        code = called(words)
        output.flush()
        lost = fault_line(output)
        if lost:
            say(f"accredit: {lost}", error=True)
        if lost and code == DONE and words[0] != "train":
            code = FAILED  # Printing is all that the other commands are for.
    sys.exit(code)


def warned(message: Warning | str, *where: object) -> None:
    """A library's warning as one line, without the place in its source."""
    say(f"warning: {within(printable(str(message)), LINE)}", error=True)


def called(words: Sequence[str]) -> int:
    """The exit code of the command that the words ask for."""
    if words == ["--version"]:
        from accredit import __version__

        say(f"accredit {__version__}")
        return DONE
    if words and words[0] not in (*NAMES, "-h", "--help"):
        say(f"accredit: {unknown_command(words[0])}", error=True)
        return MISTAKE
    own, overrides = separated(words)
    told = io.StringIO()
    try:
        with redirect_stderr(told):
            command, strangers = tyro.cli(
                cast(Any, Command),
                prog="accredit",
                description=DESCRIPTION,
                args=own,
                return_unknown_args=True,
            )
    except SystemExit as end:
        if told.getvalue():
            say(f"accredit: {told_in_one_line(told.getvalue())}", error=True)
        return int(end.code or DONE)
    return guarded(lambda: command([*overrides, *strangers]))


def told_in_one_line(box: str) -> str:
    """What tyro says of a mistake, out of its box and without the help below it."""

    def is_rule(row: str) -> bool:
        return not row.strip("─-")

    rows = [line.strip("│ ") for line in box.splitlines()[1:]]
    said = " ".join(takewhile(lambda r: not is_rule(r), dropwhile(is_rule, rows)))
    return f"{said.rstrip('.') or box.strip()}; see accredit --help"


def unknown_command(word: str) -> str:
    """What to say of a first word that is no command."""
    from accredit.recipe.config import nearest

    return f"no command {word!r}" + nearest(word, NAMES)


def separated(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of the command itself, and the overrides of keys with their values.

    Overrides may stand anywhere, and a value is never taken for a positional word.
    """
    flags = {f"--{name}" for name in option_names(words[0] if words else "")}
    own: list[str] = []
    overrides: list[str] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        name, has_value, _ = word.partition("=")
        if not word.startswith("--") or name.replace("_", "-") in flags:
            own.append(word)
        elif has_value or not waiting or waiting[0].startswith("--"):
            overrides.append(word)
        else:
            overrides.append(f"{word}={waiting.pop(0)}")
    return own, overrides


def option_names(command: str) -> list[str]:
    """Options that a command has itself."""
    kinds = {
        "train": Train,
        "eval": Eval,
        "verify": Verify,
        "report": Report,
        "show": Show,
        "calibrate": Calibrate,
        "lab": Lab,
    }
    known = fields(kinds[command]) if command in kinds else ()
    names = [field.name.replace("_", "-") for field in known]
    return ["help", *names, *(f"no-{name}" for name in names)]


def guarded(command: Callable[[], int]) -> int:
    """The command's exit code; a user's mistake becomes one line and code 2."""
    try:
        return command()
    except KeyboardInterrupt:
        say("accredit: interrupted", error=True)
        return INTERRUPTED
    except (ValueError, OSError, ModuleNotFoundError) as error:
        if os.environ.get("ACCREDIT_TRACEBACK"):
            raise
        say(f"accredit: {within(printable(str(error)), LINE)}", error=True)
        return MISTAKE
    except (RuntimeError, MemoryError) as error:
        if os.environ.get("ACCREDIT_TRACEBACK"):
            raise
        reason = within(printable(str(error)) or "out of memory", LINE)
        say(f"accredit: the run failed: {reason}", error=True)
        return FAILED


def quiet_libraries() -> None:
    """Nothing is fetched and no library's progress bar crosses ours."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


if __name__ == "__main__":
    main()
