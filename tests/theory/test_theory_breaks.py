"""The script that breaks the theory: its table is up to date, its words are true."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
TABLE = SCRIPTS / "theory_breaks.txt"


@pytest.fixture
def breaks(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from mutate import table

    return list(table(TABLE.read_text()))


def test_every_break_is_an_edit_of_what_is_there(breaks):
    assert len(breaks) > 100
    for one in breaks:
        source = (SCRIPTS.parent / "src" / "accredit" / one.module).read_text()
        assert one.mutated() != source
        compile(one.mutated(), one.module, "exec")


def test_the_breaks_reach_every_formula(breaks):
    modules = {one.module for one in breaks}
    assert {
        "credit.py",
        "functional/advantages.py",
        "functional/baselines.py",
        "functional/policy_losses.py",
        "functional/value_losses.py",
        "functional/value_targets.py",
    } <= modules
    own = {
        path.name
        for path in (SCRIPTS.parent / "src" / "accredit" / "theory").glob("*.py")
        if "def " in path.read_text() and "Generator) -> float" in path.read_text()
    }
    assert own - {"lab.py"} <= {name.removeprefix("theory/") for name in modules}


@pytest.mark.slow
def test_caught_missed_and_crashed_are_told_apart(tmp_path):
    table = tmp_path / "table.txt"
    table.write_text(
        "# theory/axioms.py\n"
        "return largest(highest - lowest) => return largest(highest)\n"
        "return max(0.0, bound - gap) => return max(0, bound - gap)\n"
        "return int(torch.linalg.matrix_rank(equations)) => raise TypeError\n"
    )
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "break_theory.py"), "--table", str(table)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    words = [line.split()[0] for line in done.stdout.splitlines() if line[0] != " "]
    assert words == ["CAUGHT", "MISSED", "CRASHED", "1"], done.stdout + done.stderr
    assert "theorem 1 / all axioms" in done.stdout
    assert done.returncode == 1
