"""Three hundred broken inputs: each is told in one line, or is as good as whole."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    path = Path(__file__).parents[1] / "scripts" / "fuzz.py"
    spec = importlib.util.spec_from_file_location("fuzz", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz"] = module  # Where its dataclasses look for their names.
    spec.loader.exec_module(module)
    return module


def test_no_broken_input_is_a_traceback_or_taken_in_silence(fuzz, capsys):
    """Issue 10: the script has ten times as many, of checkpoints and runs too."""
    counts = fuzz.fuzz(range(270), ["recipe", "override", "data"])
    counts |= fuzz.fuzz(range(15), ["table"]) | fuzz.fuzz(range(15), ["model"])
    wrong = {kind: dict(found) for kind, found in counts.items()}
    assert capsys.readouterr().out == ""
    total = sum(counts.values(), Counter())
    assert total["refused"] + total["accepted"] == 300, wrong
    assert total["refused"] > 180
    assert total["accepted"] > 20
    assert all(found["refused"] > 5 for found in counts.values()), wrong


@pytest.mark.parametrize(
    ("expected", "result", "verdict"),
    [
        ("refused", "anything", "SILENT ACCEPTANCE"),
        ("either", "anything", "accepted"),
        ("same", "anything", "OTHER RESULT"),
        ("same", "whole", "accepted"),
        ("either", ValueError("short"), "refused"),
        ("either", RuntimeError("short"), "failed"),
        ("refused", OSError("short"), "refused"),
        ("same", ValueError("short"), "REFUSED WHAT IS WHOLE"),
        ("either", ValueError("x\n" * 900), "refused"),
        ("refused", KeyError("x"), "TRACEBACK"),
        ("either", AssertionError(), "TRACEBACK"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_the_script_sees_what_is_wrong(expected, result, verdict, fuzz, tmp_path):
    def call() -> object:
        if isinstance(result, Exception):
            raise result
        return result

    case = fuzz.Case("a case", expected, call, lambda: "whole")
    assert fuzz.outcome(case, tmp_path).verdict == verdict


def test_the_script_sees_a_hang_and_a_long_line(fuzz, tmp_path, monkeypatch):
    monkeypatch.setattr(fuzz, "DEADLINE_S", 0.05)

    def forever() -> None:
        while True:
            pass

    with fuzz.alarmed():
        found = fuzz.outcome(fuzz.Case("a loop", "either", forever), tmp_path)
    assert found.verdict == "HANG"
    case = fuzz.Case("a case", "refused", lambda: None)
    for said in ("no prefix\n", "accredit: two\nlines\n", "accredit: " + "x" * 999):
        assert fuzz.judged(case, 2, said, []).verdict == "NOT ONE SHORT LINE"
    assert fuzz.judged(case, 130, "accredit: x\n", []).verdict == "EXIT CODE 130"
