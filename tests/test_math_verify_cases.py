"""The script that compares verdicts with another library's published tests."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

PATH = Path(__file__).parents[1] / "scripts" / "math_verify_cases.py"
PUBLISHED = r"""
import pytest
raise SystemExit("parsed, never run")

@pytest.mark.parametrize("gold, pred, expected", [
    (r"$\frac12$", r"so it is \boxed{0.5}.", 1),
    (r"$(1,2)$", r"Final Answer: The final answer is $(2,1)$. I hope so.", 0),
    ("$3$", "first 5, and then 3", 1),
    ("1000.99", "1000,99", 1),
    EXTRA
    (f"{1+1}", "2", 1),
])
def test_them(gold, pred, expected):
    pass

@pytest.mark.parametrize("other", [1, 2])
def test_others(other):
    pass
"""


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("math_verify_cases", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("extra", "code", "line"),
    [
        ("", 0, "3 of 4 agree, 1 differ with a reason"),
        ('("7", "8", 1),', 1, "3 of 5 agree, 1 differ with a reason"),
        ('("7", "7", 0),', 1, "3 of 5 agree, 1 differ with a reason"),
        ('("7", "8", 0),', 0, "4 of 5 agree, 1 differ with a reason"),
    ],
)
def test_published_cases_are_parsed_and_differences_told(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    extra: str,
    code: int,
    line: str,
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_them.py").write_text(PUBLISHED.replace("EXTRA", extra))
    monkeypatch.setattr(sys, "argv", ["math_verify_cases.py", str(tmp_path)])
    assert script.main() == code
    assert capsys.readouterr().out.splitlines()[-1] == line
