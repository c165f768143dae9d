"""The two tables of IMO-Bench, on small ones and, where present, on the real ones."""

import csv
from pathlib import Path

import pytest

from accredit.tasks.imo_bench import (
    ANSWERBENCH_COLUMNS,
    PROOFBENCH_COLUMNS,
    load_imo_answerbench,
    load_imo_proofbench,
)

DATA = Path(__file__).parents[2] / ".." / "shared" / "data"


def write(path, columns, *rows):
    with path.open("w", newline="") as out:
        csv.writer(out).writerows([list(columns), *rows])
    return path


def data(name: str) -> Path:
    if not (DATA / name).is_file():
        pytest.skip(f"needs {name} in ../shared/data, which is no part of the project")
    return DATA / name


def test_an_answer_row_becomes_a_test_problem(tmp_path):
    row = ["id-1", "Find $x$.\n", "$2^{u-2}$ ", "Algebra", "Inequality", "ISL 2021"]
    path = write(tmp_path / "a.csv", ANSWERBENCH_COLUMNS, row)
    (problem,) = load_imo_answerbench(path).problems
    assert (problem.id, problem.split, problem.answer) == ("id-1", "test", "$2^{u-2}$")
    assert problem.messages[0].content == "Find $x$."
    assert problem.metadata == {
        "category": "Algebra",
        "subcategory": "Inequality",
        "source": "ISL 2021",
    }


def test_a_proof_row_keeps_solution_and_guidelines(tmp_path):
    row = ["id-1", "Show.", "By AM-GM.", "(Partial)", "Algebra", "pre-IMO", " ", "MO"]
    path = write(tmp_path / "p.csv", PROOFBENCH_COLUMNS, row)
    (problem,) = load_imo_proofbench(path).problems
    assert problem.answer is None
    assert problem.metadata == {
        "solution": "By AM-GM.",
        "grading_guidelines": "(Partial)",
        "category": "Algebra",
        "level": "pre-IMO",
        "source": "MO",
    }


def test_a_row_without_what_the_benchmark_needs_is_a_bad_row(tmp_path):
    good = ["1", "Find.", "3", "A", "B", "C"]
    rows = [good, ["2", "Find.", " ", "A", "B", "C"], ["3", "", "4", "A", "B", "C"]]
    path = write(tmp_path / "a.csv", ANSWERBENCH_COLUMNS, *rows)
    loaded = load_imo_answerbench(path, on_bad_row="skip")
    assert [p.id for p in loaded.problems] == ["1"]
    assert [(b.number, b.reason) for b in loaded.bad_rows] == [
        (3, "missing answer"),
        (4, "missing prompt"),
    ]
    with pytest.raises(ValueError, match="line 3: missing answer"):
        load_imo_answerbench(path)
    bare = ["1", "Show.", "", "", "A", "B", "3", "D"]
    proof = write(tmp_path / "p.csv", PROOFBENCH_COLUMNS, bare)
    with pytest.raises(ValueError, match="missing solution"):
        load_imo_proofbench(proof)


def test_a_lost_closing_quote_does_not_glue_the_answer_to_the_problem(tmp_path):
    header = ",".join(ANSWERBENCH_COLUMNS)
    path = tmp_path / "a.csv"
    path.write_text(
        f"{header}\n"
        'id-1,"Find all $Y$:\n\\]\n,"$Y(x)=A$",Algebra,Functional Equation,Iran\n'
        'id-2,"Say ""so"".\n,""so"" it is\n",4,Algebra,Functional Equation,Iran\n'
    )
    first, second = load_imo_answerbench(path).problems
    assert first.messages[0].content == "Find all $Y$:\n\\]"
    assert first.answer == "$Y(x)=A$"
    assert second.messages[0].content == 'Say "so".\n,"so" it is'
    assert second.answer == "4"


def test_a_missing_table_and_another_table_are_errors(tmp_path):
    with pytest.raises(ValueError, match="must exist, got nothing there"):
        load_imo_answerbench(tmp_path / "none.csv")
    path = write(tmp_path / "a.csv", ["Problem", "Answer"], ["Find.", "3"])
    with pytest.raises(ValueError, match=r"must have the columns .*got Problem,"):
        load_imo_answerbench(path)


def test_the_real_answer_table_has_400_problems_with_answers():
    problems = load_imo_answerbench(data("imo_answerbench_v2.csv")).problems
    assert len(problems) == 400
    assert all(problem.answer for problem in problems)
    assert problems[0].id == "imo-bench-algebra-001"
    assert problems[0].answer == "3"
    repaired = next(p for p in problems if p.id == "imo-bench-algebra-036")
    assert repaired.answer == r"$Y(x)=A+\frac{B}{x}-x$"
    assert repaired.messages[0].content.endswith("\n\\]")
    assert {p.metadata["category"] for p in problems} == {
        "Algebra",
        "Combinatorics",
        "Geometry",
        "Number theory",
    }


def test_the_real_proof_table_has_60_problems_with_guidelines():
    problems = load_imo_proofbench(data("imo_proofbench_v2.csv")).problems
    assert len(problems) == 60
    assert all(problem.metadata["grading_guidelines"] for problem in problems)
    assert all(problem.metadata["solution"] for problem in problems)
    assert problems[0].answer is not None
    assert problems[1].answer is None
