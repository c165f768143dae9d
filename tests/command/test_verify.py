"""`accredit verify`: what completions are paid, and for what."""

import json

import pytest

from accredit.command.verify import visible
from commanding import DONE, MISTAKE

PAIRS = [
    {"answer": "42", "completion": r"so \boxed{42}"},
    {"answer": "1/2", "completion": r"[bold]\boxed{0.5}[/x]"},
    {"answer": "7", "completion": r"<think>\boxed{7}"},
    {"answer": "It is 3.\n#### 3", "completion": r"\boxed{3}"},
    {"answer": 4, "completion": "[/red]4", "id": "x", "split": 3},
    {"answer": "5", "completion": "no", "id": "x"},
]
"""Boxes, mathematics, a thought, a gold solution, text, and a wrong one."""
BAD = ["no json", '{"answer": "1"}', '{"answer": "1", "completion": 3}', "[1]"]


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.jsonl"
    lines = [json.dumps(pair) for pair in PAIRS]
    path.write_text("\n".join([*lines[:2], *BAD, *lines[2:]]) + "\n")
    return path


def rows_of(printed):
    return [json.loads(line) for line in printed.splitlines()]


@pytest.mark.parametrize(
    ("words", "rewards", "read"),
    [
        (
            ["--verifier", "math"],
            [1, 1, 0, 1, 0, 0],
            ["42", "0.5", None, "3", None, None],
        ),
        (
            ["--verifier", "exact"],
            [1, 0, 0, 1, 0, 0],
            ["42", "0.5", None, "3", "[/red]4", "no"],
        ),
        (
            ["--verifier", "exact", "--answer-tag", "think"],
            [0] * 6,
            [None] * 6,
        ),
    ],
)
def test_rows_are_paid_as_in_training(accredit, pairs, words, rewards, read):
    code, printed, told = accredit("verify", pairs, "--json", *words)
    *rows, last = rows_of(printed)
    assert code == DONE
    assert [row["line"] for row in rows] == [1, 2, 7, 8, 9, 10]
    assert [row["reward"] for row in rows] == rewards
    assert [row["read"] for row in rows] == read
    assert all((row["reason"] == "") == (row["reward"] == 1) for row in rows)
    mean = sum(rewards) / 6
    assert last == {
        "totals": {
            "num_rows": 6,
            "num_bad_rows": 4,
            "num_without_reward": 0,
            "mean_reward": mean,
            "mean_reward_where_known": mean,
        }
    }
    assert [line.partition(":")[0] for line in told.splitlines()] == [
        "line 3",
        "line 4",
        "line 5",
        "line 6",
    ]


def test_a_function_of_the_users_own_is_one_too(accredit, pairs, folder):
    (folder / "own_pay.py").write_text(
        "def pay(completion, problem):\n"
        "    assert 'completion' not in problem.metadata\n"
        "    return 0.5 if problem.answer == '5' else problem.metadata['nothing']\n"
    )
    words = ["--verifier", "function", "--reward-function", "own_pay:pay", "--json"]
    code, printed, _ = accredit("verify", pairs, *words)
    *rows, last = rows_of(printed)
    assert code == DONE
    assert [row["reward"] for row in rows] == [None] * 5 + [0.5]
    assert "KeyError: 'nothing' (" in rows[0]["reason"]
    assert "own_pay.py:3)" in rows[0]["reason"]
    assert {row["read"] for row in rows} == {None}
    totals = last["totals"]
    assert totals["num_without_reward"] == 5
    assert totals["mean_reward"] == pytest.approx(0.5 / 6)
    assert totals["mean_reward_where_known"] == 0.5


def test_the_table_shows_content_as_text(accredit, pairs):
    code, printed, _ = accredit("verify", pairs, "--verifier", "exact")
    assert code == DONE
    assert "[/red]4" in printed
    assert "num_rows 6, num_bad_rows 4" in printed


def test_what_moves_a_cursor_or_turns_text_around_is_escaped():
    assert visible("a\x1b[2Jb\u202ec\n") == r"a\x1b[2Jb\u202ec\n"
    assert visible("√2 [/x]") == "√2 [/x]"
    assert len(visible("x" * 99)) == 60


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--verifier", "maths"],
            "task.verifier must be 'exact', 'math' or 'function'",
        ),
        (["--answer-in", "bag"], "task.answer_in must be"),
        (["--answer-in", "box", "--answer-tag", "a"], "each say where the answer is"),
        (["--verifier", "function"], "task.reward_function = 'module:function'"),
        (["--task.nothing", "1"], "task.nothing is not a key"),
    ],
)
def test_a_mistake_is_one_line(accredit, pairs, words, message):
    code, printed, told = accredit("verify", pairs, *words)
    assert (code, printed) == (MISTAKE, "")
    assert message in told and told.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.jsonl", "", "must hold at least one problem, got an empty file"),
        ("none.jsonl", '{"answer": 1}\n', "got 1 bad rows, the first being line 1"),
        ("pairs.txt", "x", "must end in .jsonl"),
        ("absent.jsonl", None, "must exist, got nothing there"),
    ],
)
def test_a_file_without_pairs_is_refused(accredit, tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    code, _, told = accredit("verify", path)
    assert code == MISTAKE
    assert message in told
