"""Gold answers are read and tried before a training, and so is a reward function."""

import json
from dataclasses import replace
from functools import partial

import pytest

from accredit.recipe.config import recipe_from
from accredit.tasks.build import build_task, reader_of
from accredit.tasks.golds import bad_golds, read_gold
from accredit.tasks.trials import defined_at, tried
from accredit.verification.math import MathVerifier

LONG = "We add the numbers of both and find that there is nothing more to say of it"


def config_of(**section):
    keys = {"name": "jsonl", "path": "x.jsonl"} | section
    return recipe_from({"task": keys}, "test").task


@pytest.mark.parametrize(
    ("gold", "verifier", "read"),
    [
        ("42", "math", "42"),
        ("It is 40+2=<<40+2=42>>42.\n#### 42", "math", "42"),
        ("It is 40+2=<<40+2=42>>42.\n#### 42", "exact", "42"),
        ("#### 1,000", "math", "1,000"),
        (r"First \boxed{1}, so it is $\boxed{\frac{1}{2}}$.", "math", r"\frac{1}{2}"),
        (r"First \boxed{1}, so it is $\boxed{\frac{1}{2}}$.", "exact", r"\frac{1}{2}"),
        (r"\boxed{7} or \boxed{}", "math", "7"),
        ("We add.\nThe final answer is $28$. I hope it is correct.", "math", "28"),
        ("<think>1, no: 2</think><answer>2</answer>", "math", "2"),
        # Text is compared as it stands: a label is part of it.
        ("Answer: 4", "exact", "Answer: 4"),
        ("Answer: 4", "math", "4"),
        ("x = 3, y = 4", "math", "x = 3, y = 4"),
        (LONG, "math", LONG),
        ("two\nlines", "exact", "two\nlines"),
    ],
)
def test_the_answer_of_a_whole_solution_is_read(gold, verifier, read):
    reader = reader_of(config_of(verifier=verifier))
    assert read_gold(gold, reader, verifier) == read


def test_a_gold_answer_may_stand_in_the_block_of_the_recipe():
    config = config_of(answer_tag="final")
    reader = reader_of(config)
    assert read_gold("so <final> 5 </final>", reader, "math") == "5"
    assert read_gold("5", reader, "math") == "5"


@pytest.fixture(scope="module")
def mathematics():
    """One worker for all: it takes seconds to start."""
    verifier = MathVerifier(num_workers=1)
    yield verifier
    verifier.close()


@pytest.fixture
def own(tmp_path, mathematics):
    return partial(own_task, tmp_path, mathematics)


def own_task(folder, mathematics, answers, **section):
    """A task over these gold answers."""
    path = folder / "own.jsonl"
    rows = [
        {"prompt": f"say {n}", "gold": answer, "level": n}
        for n, answer in enumerate(answers)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    keys = {"path": str(path), "answer_column": "gold", "held_out": None} | section
    task = build_task(config_of(**keys))
    if task.rows.verifier != "math":
        return task
    return replace(task, verifier=mathematics)


def said(task):
    return tried(task, seed=0)


@pytest.mark.parametrize("verifier", ["math", "exact"])
def test_sound_golds_are_passed_in_silence(own, verifier):
    answers = [f"{n}" for n in range(18)] + [r"\frac{1}{2}", "(1, 2)"]
    assert said(own(answers, verifier=verifier)) == []


def test_golds_that_hold_a_solution_are_told(own):
    answers = [f"It is {n}+1=<<{n}+1={n + 1}>>.\n#### {n + 1}" for n in range(8)]
    task = own(answers)
    assert [problem.answer for problem in task.train] == [str(n + 1) for n in range(8)]
    (line,) = said(task)
    assert line.startswith("8 of 8 gold texts hold more than an answer")
    assert "gives '1'" in line


@pytest.mark.parametrize(
    ("bad", "section"),
    [
        (LONG, {"verifier": "math"}),
        ("x" * 5000, {"verifier": "math"}),
        ("}{", {"verifier": "math"}),
        ("}{", {"verifier": "exact", "answer_in": "box"}),
        (None, {"verifier": "math"}),
        ("</a>", {"verifier": "exact", "answer_tag": "a"}),
    ],
    ids=lambda part: str(part)[:20],
)
def test_golds_that_pay_nobody_stop_a_run_unless_it_says_otherwise(own, bad, section):
    """2 of 20: a tenth."""
    answers = [bad, bad, *(str(n) for n in range(18))]
    with pytest.raises(
        ValueError, match=r"2 of 20 gold answers tried \(10\.0%\)"
    ) as told:
        said(own(answers, **section))
    assert "task.answer_column" in str(told.value)
    assert "task.max_bad_gold_share = 0.01" in str(told.value)
    assert "'row-1'" in str(told.value) and "\n" not in str(told.value)
    lines = said(own(answers, **section, max_bad_gold_share=0.1))
    assert any("2 of 20 gold answers tried" in line for line in lines)


@pytest.mark.parametrize(
    ("column", "words"),
    [(None, "no column `answer`"), ("hint", "'hint', all empty")],
)
def test_no_gold_at_all_names_the_key_and_the_columns(tmp_path, column, words):
    path = tmp_path / "own.jsonl"
    path.write_text('{"prompt": "a", "solution": "b", "hint": ""}\n' * 3)
    keys = {"path": str(path), "held_out": None, "answer_column": column}
    task = build_task(config_of(**keys))
    expected = f"task.answer_column must name .*{words}; .*prompt, solution, hint"
    with pytest.raises(ValueError, match=expected):
        said(task)


def test_a_sample_of_golds_is_bounded_in_number_and_in_time(own):
    task = own([str(n) for n in range(40)], verifier="exact")
    config = task.rows
    assert bad_golds(config, task.train, task.verifier, 0, num_tried=10)[0] == 10
    assert bad_golds(config, task.train, task.verifier, 0, seconds=0.0)[0] == 0
    asked = []

    class Listening:
        def verify(self, items):
            asked.append([problem.id for problem, _, _ in items])
            return task.verifier.verify(items)

        def close(self): ...

    for seed in (0, 0, 1):
        bad_golds(config, task.train, Listening(), seed, num_tried=8)
    assert asked[0] == asked[1] != asked[2]


REWARDS = '''
"""Rewards of a user."""


def right(completion, problem):
    return float(problem.answer in completion)


def missing(completion, problem):
    return problem.metadata["nothing"]


def deeper(completion, problem):
    def inner():
        return 1 / 0

    return inner()


def words(completion, problem):
    return "yes"


def many(completion, problem):
    return [1.0]


def nothing(completion, problem):
    float(problem.answer in completion)


def nan(completion, problem):
    return float("nan")


def sometimes(completion, problem):
    return 1.0 if problem.metadata["level"] == 1 else problem.metadata["nothing"]


def hang(completion, problem):
    while True:
        pass


def leave(completion, problem):
    import os

    os._exit(3)
'''


@pytest.fixture
def rewards(tmp_path, own, monkeypatch):
    (tmp_path / "own_rewards.py").write_text(REWARDS)
    monkeypatch.chdir(tmp_path)

    built = []

    def task(function):
        found = own(
            ["1", "2", "3"],
            verifier="function",
            reward_function=f"own_rewards:{function}",
            verifier_timeout_s=0.7,
        )
        built.append(found)
        return found

    yield task
    for found in built:
        found.verifier.close()


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("missing", r"6 trials .*raised KeyError: 'nothing' \(.*own_rewards.py:10\)"),
        ("deeper", r"6 trials .*raised ZeroDivisionError.*own_rewards.py:15\)"),
        ("words", "6 trials .*must return one number or None, got str 'yes'"),
        ("many", "6 trials .*got a list of 1 values"),
        ("nan", "6 trials .*must return a finite number or None, got nan"),
        ("hang", "2 trials .*took longer than 0.7 s"),
        ("leave", "6 trials .*ended its process"),
    ],
)
def test_a_reward_function_that_always_fails_is_refused(rewards, function, words):
    """With the place of the function, and of the line that raised."""
    with pytest.raises(ValueError, match=words) as told:
        said(rewards(function))
    (line,) = [
        number
        for number, text in enumerate(REWARDS.splitlines(), start=1)
        if text.startswith(f"def {function}(")
    ]
    assert f"task.reward_function = 'own_rewards:{function}' (" in str(told.value)
    assert f"own_rewards.py:{line})" in str(told.value)


@pytest.mark.parametrize("function", ["right", "sometimes"])
def test_a_reward_function_that_works_somewhere_is_taken(rewards, function):
    assert said(rewards(function)) == []


def test_a_reward_function_that_never_returns_is_told(rewards):
    (line,) = said(rewards("nothing"))
    assert "returned a number in none of 6 trials" in line


def test_a_function_is_found_without_its_import(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "__init__.py").write_text("1 / 0\n\n\ndef f(): ...\n")
    (tmp_path / "torn.py").write_text("def f(:\n")
    assert defined_at("inner:f") == f"{tmp_path}/inner/__init__.py:4"
    assert defined_at("inner:g") == f"{tmp_path}/inner/__init__.py"
    assert defined_at("torn:f") == f"{tmp_path}/torn.py"
    assert defined_at("not_there_at_all:f") == ""
