"""The command `accredit`, called in this process."""

import pytest

from accredit.command.cli import main

DONE, FAILED, MISTAKE, INTERRUPTED = 0, 1, 2, 130
SHORT = ("--steps", "1", "--evaluation.max_problems", "2")
"""A run of one step."""


def called(
    capsys: pytest.CaptureFixture[str], *words: object
) -> tuple[object, str, str]:
    """Exit code, standard output and standard error."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code, *capsys.readouterr()


def joined(printed: str, told: str) -> str:
    """What a terminal of any width shows, in one line."""
    return " ".join((printed + told).split())
