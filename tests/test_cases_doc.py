"""The page of cases names every entry once, and only tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "cases.md"
IDS = [f"P{n:02}" for n in range(1, 21)] + [f"B{n:03}" for n in range(1, 185)]
SECTIONS = {"A": 9, "B": 6, "C": 7, "D": 7, "E": 11}
"""Sections of the report of new users, and their items."""
IDS += [f"S-{name}{n}" for name, count in SECTIONS.items() for n in range(1, count + 1)]
IDS += ["S-FUZZ"]
REASON = re.compile(r"not applicable because \w.{9,}")
NODE = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def table_rows() -> list[list[str]]:
    """Cells of every row below a table's head."""
    lines = PAGE.read_text("utf-8").splitlines()
    cells = [[c.strip() for c in ln.strip("|").split("|")] for ln in lines if "|" in ln]
    heads = [n for n, row in enumerate(cells) if set(row[0]) == {"-"}]
    return [row for n, row in enumerate(cells) if n not in heads and n + 1 not in heads]


ROWS = table_rows()


@cache
def functions_of(path: str) -> set[str]:
    """Names of the test functions that the file defines at its top."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {name for name in functions if name.startswith("test_")}


def test_every_entry_has_one_row_in_order():
    assert [row[0].split(" ")[0] for row in ROWS] == IDS


def test_every_star_stands_at_an_entry():
    stars = {star for row in ROWS for star in re.findall(r"\((P\d\d)\)", row[0])}
    assert stars == set(IDS[:20])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].split(" ")[0])
def test_a_row_has_a_symptom_and_either_tests_or_a_reason(row):
    _, symptom, answer = row
    assert len(symptom) > 10
    if REASON.fullmatch(answer):
        return
    nodes = [NODE.fullmatch(node) for node in answer.split("<br>")]
    assert nodes and all(nodes), f"neither tests nor a reason: {answer}"
    for path, name in (node.groups() for node in nodes if node):
        assert name in functions_of(path), f"{path} has no {name}"


def test_a_starred_entry_and_its_case_are_both_tested_or_neither():
    untested = {row[0] for row in ROWS if REASON.fullmatch(row[2])}
    starred = [(row[0], row[0][-4:-1]) for row in ROWS if row[0].endswith(")")]
    for entry, star in starred:
        assert (entry in untested) == (star in untested)
