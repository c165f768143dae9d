"""What each key of `[task]` changes: problems, verdicts, or an error.

Tasks are built from a recipe's section, so that a key that is read and not passed on
fails as one that does nothing.
"""

import csv
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from accredit.recipe.config import recipe_from
from accredit.tasks.build import Task, build_task
from accredit.tasks.imo_bench import ANSWERBENCH_COLUMNS
from accredit.tasks.problems import LoadedProblems
from accredit.tasks.rendering import decoder
from accredit.tasks.trials import tried
from accredit.tasks.walk import shortest_walk
from accredit.types import Message, Problem, Prompt
from asked_tokenizers import bytes_with
from key_cases_runs import Bench
from worlds import answered

ROWS = [
    {
        "prompt": f"say {n}",
        "question": f"ask {n}",
        "turns": [{"role": "user", "content": f"turn {n}"}],
        "answer": str(n),
        "gold": str(-n),
        "id": f"row {n}",
        "key": f"key {n}",
        "level": n,
        "split": "test" if n % 3 == 0 else "train",
        "part": "dev" if n % 2 else "train",
    }
    for n in range(12)
]
REWARD = """
import os, time

def slow(completion, problem):
    time.sleep(0.3)
    return 0.25

def sees(completion, problem):
    return float(completion in os.environ)
"""


def built(**section: Any) -> Task:
    return build_task(recipe_from({"task": section}, "test").task)


def asked(task: Task) -> list[Any]:
    """Everything about the problems that a run can see."""
    return [
        [(p.id, p.messages, p.answer, dict(p.metadata)) for p in part]
        for part in (task.train, task.evaluation)
    ]


def rewards(task: Task, problem: Problem, *texts: str) -> list[float | None]:
    """What the task's verifier says of some completions."""
    group = answered(Prompt(problem, (1,)), [((2,), 0.0) for _ in texts])
    items = [
        (problem, text, rollout)
        for text, rollout in zip(texts, group.rollouts, strict=True)
    ]
    try:
        return [verdict.reward for verdict in task.verifier.verify(items)]
    finally:
        task.verifier.close()


# The packaged tasks


@cache
def packaged(name: str, key: str = "", value: object = None) -> list[Any]:
    """Problems of a packaged task, made once."""
    return asked(built(name=name, **({key: value} if key else {})))


def changes_packaged(name: str, key: str, value: object, *_: Bench) -> None:
    assert packaged(name) != packaged(name, key, value)


def changes_problems(
    section: dict[str, Any], key: str, value: object, *_: Bench
) -> None:
    before, same = built(**section), built(**section)
    after = built(**section | {key: value})
    assert asked(before) == asked(same)
    assert asked(before) != asked(after)
    for task in (before, same, after):
        task.verifier.close()


def walk_reward(*_: Bench) -> None:
    """The first move of a walk that needs several."""
    task = built(name="walk", split="hard")
    problem = task.train[0]
    halfway = solution(problem)[:3]
    assert rewards(task, problem, halfway) == [0.0]
    (progress,) = rewards(built(name="walk", reward="progress"), problem, halfway)
    assert 0 < progress < 1


def walk_num_moves(*_: Bench) -> None:
    """The goal comes with the last move of a budget, and one move too late for less."""
    task = built(name="walk", split="easy")
    problem = max(task.train, key=lambda p: len(solution(p)))
    text = solution(problem)
    needed = len(text) // 3
    for num_moves, reward in ((needed, 1.0), (needed - 1, 0.0)):
        short = built(name="walk", split="easy", num_moves=num_moves)
        assert rewards(short, problem, text) == [reward]
    config = recipe_from({"task": {"name": "walk", "num_moves": 19}}, "test")
    assert config.max_new_tokens == 57


def solution(problem: Problem) -> str:
    return shortest_walk(problem.metadata["start"], problem.metadata["goal"])


def task_name(*_: Bench) -> None:
    assert packaged("walk") != packaged("chain")


# A user's own rows


def own_rows(folder: Path) -> dict[str, Any]:
    path = folder / "own.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder / "slowly.py").write_text(REWARD)
    return {"name": "jsonl", "path": str(path), "held_out": 3, "verifier": "exact"}


def own_hub(folder: Path) -> dict[str, Any]:
    """The same rows as a data set with the splits train and test."""
    from datasets import Dataset, DatasetDict

    path = folder / "own-hub"
    if not path.exists():
        splits = {
            split: Dataset.from_list([r for r in ROWS if r["split"] == split])
            for split in ("train", "test")
        }
        DatasetDict(splits).save_to_disk(path)
    own_rows(folder)
    return {"name": "hub", "path": str(path), "held_out": 3, "verifier": "exact"}


def own_table(folder: Path) -> dict[str, Any]:
    path = folder / "own.csv"
    rows = [[f"id-{n}", f"Find {n}", str(n), "A", "B", "C"] for n in range(6)]
    with path.open("w", newline="") as out:
        csv.writer(out).writerows([list(ANSWERBENCH_COLUMNS), *rows])
    (folder / "slowly.py").write_text(REWARD)
    return {"name": "imo_answerbench", "path": str(path), "verifier": "exact"}


OWN: dict[str, Callable[[Path], dict[str, Any]]] = {
    "jsonl": own_rows,
    "hub": own_hub,
    "imo_answerbench": own_table,
}


def changes_own(task: str, key: str, value: object, bench: Bench) -> None:
    changes_problems(OWN[task](bench.folder), key, value)


def path(task: str, bench: Bench) -> None:
    section = OWN[task](bench.folder)
    suffix = ".parquet" if task == "hub" else ".csv"
    with pytest.raises(ValueError, match="absent"):
        built(**section | {"path": f"absent{suffix}"})
    assert built(**section).train


def on_bad_row(task: str, bench: Bench) -> None:
    """Every second row lacks what the recipe takes as the prompt."""
    section = OWN[task](bench.folder)
    rows = [{**row, "hint": "x" if row["level"] % 2 else ""} for row in ROWS]
    torn = bench.folder / f"torn-{task}.jsonl"
    torn.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if task == "hub":
        from datasets import Dataset

        torn = bench.folder / "torn-hub"
        Dataset.from_list(rows).save_to_disk(torn)
    section |= {"path": str(torn), "prompt_column": "hint"}
    with pytest.raises(ValueError, match="empty prompt"):
        built(**section)
    task_built = built(**section, on_bad_row="skip")
    assert len(task_built.bad_rows) == 6
    assert len(task_built.train) + len(task_built.evaluation) == 6


def verifier(task: str, bench: Bench) -> None:
    """1/2 is .5 as mathematics and not as text."""
    section = OWN[task](bench.folder)
    problem = Problem("x", (Message("user", "?"),), answer="0.5")
    half = r"\boxed{\frac{1}{2}}"
    assert rewards(built(**section), problem, half) == [0.0]
    assert rewards(built(**section | {"verifier": "math"}), problem, half) == [1.0]


def answer_tag(task: str, bench: Bench) -> None:
    """What is judged wherever it is stopped, and paid: a box, or a block."""
    section = OWN[task](bench.folder)
    boxed, block = r"\boxed{1}", "<proof>1</proof>"
    by_box, by_block = built(**section), built(**section, answer_tag="proof")
    problem = by_box.train[0]
    assert by_box.has_answer(problem, boxed) and by_block.has_answer(problem, block)
    assert not by_box.has_answer(problem, block)
    assert not by_block.has_answer(problem, boxed)
    one = Problem("x", (Message("user", "?"),), answer="1")
    assert rewards(by_box, one, boxed, block) == [1.0, 0.0]
    assert rewards(by_block, one, boxed, block) == [0.0, 1.0]


def answer_in(task: str, bench: Bench) -> None:
    """A bare .5 is an answer by default, and none where a box is demanded."""
    section = OWN[task](bench.folder)
    problem = Problem("x", (Message("user", "?"),), answer="0.5")
    assert rewards(built(**section), problem, "0.5") == [1.0]
    assert rewards(built(**section, answer_in="box"), problem, "0.5") == [0.0]


def max_bad_gold_share(task: str, bench: Bench) -> None:
    """One gold answer of two cannot stand in a box."""
    section = OWN[task](bench.folder) | {"answer_in": "box"}
    golds = ("1", "}{")
    rows = tuple(Problem(g, (Message("user", "?"),), answer=g) for g in golds)
    for share, stops in ((0.49, True), (0.5, False)):
        found = replace(built(**section, max_bad_gold_share=share), train=rows)
        found = replace(found, evaluation=rows)
        if stops:
            with pytest.raises(ValueError, match="1 of 2 gold answers tried"):
                tried(found, seed=0)
        else:
            (line,) = tried(found, seed=0)
            assert "1 of 2 gold answers tried (50.0%)" in line


def reward_reads(section: dict[str, Any], *_: Bench) -> None:
    """A special token within a completion, and the stop token at its end."""
    tokenizer = bytes_with(control=("<|end|>", "<think>"))
    ids = [*tokenizer("a<think>b<|end|>").input_ids]
    shown = []
    for keys in ({}, {"reward_reads": "sampled"}, {"reward_reads": "clean"}):
        config = recipe_from({"task": section | keys}, "test").task
        stops = [tokenizer.eos_token_id]
        shown += decoder(tokenizer, stops, config.reads)([ids])
    assert shown == ["a<think>b", "a<think>b", "ab"]


def own_reads(task: str, bench: Bench) -> None:
    reward_reads(OWN[task](bench.folder))


def subset(bench: Bench) -> None:
    """The data set's configuration, as the `datasets` library is asked for it."""
    asked_for: list[str | None] = []

    def load(path: str, *, subset: str | None, **_: Any) -> LoadedProblems:
        asked_for.append(subset)
        messages = (Message("user", "?"),)
        return LoadedProblems(tuple(Problem(f"p{n}", messages) for n in range(4)))

    bench.monkeypatch.setattr("accredit.tasks.hub.load_hub", load)
    section = {"name": "hub", "path": "x", "held_out": 1, "verifier": "exact"}
    for value in (None, "main"):
        built(**section, subset=value)
    assert asked_for == [None, "main"]


def slow(section: dict[str, Any], **keys: Any) -> Task:
    reward = {"verifier": "function", "reward_function": "slowly:slow"}
    return built(**section | reward | keys)


def reward_function(task: str, bench: Bench) -> None:
    section = OWN[task](bench.folder)
    found = slow(section)
    assert rewards(found, found.train[0], "x") == [0.25]
    with pytest.raises(ValueError, match="must exist"):
        slow(section, reward_function="slowly:fast")


def reward_environment(task: str, bench: Bench) -> None:
    section = OWN[task](bench.folder)
    bench.monkeypatch.setenv("JUDGE_KEY", "secret")
    bench.monkeypatch.setenv("OTHER_KEY", "secret")
    sees = {"reward_function": "slowly:sees", "reward_environment": ["JUDGE_KEY"]}
    found = slow(section, **sees)
    assert rewards(found, found.train[0], "JUDGE_KEY", "OTHER_KEY") == [1.0, 0.0]


def verifier_timeout_s(task: str, bench: Bench) -> None:
    section = OWN[task](bench.folder)
    found = slow(section, verifier_timeout_s=0.1)
    assert rewards(found, found.train[0], "x") == [None]


def verifier_workers(task: str, bench: Bench) -> None:
    """Four calls of .3 s: 1.2 s one after the other, .3 s side by side."""
    section = OWN[task](bench.folder)
    spent = []
    for num_workers in (1, 4):
        found = slow(section, verifier_workers=num_workers)
        started = time.monotonic()
        assert rewards(found, found.train[0], *"abcd") == [0.25] * 4
        spent.append(time.monotonic() - started)
    assert spent[0] > 1.2


# Generated problems


def changes_what_is_generated(key: str, value: object, bench: Bench) -> None:
    """The package's own part is elsewhere tested; here: what it is asked for."""

    def load(name: str, size: int, seed: int, **named: Any) -> LoadedProblems:
        problems = [
            Problem(
                f"{name}-{seed}-{n}",
                (Message("user", "?"),),
                metadata=dict(named["config"]),
            )
            for n in range(size)
        ]
        return LoadedProblems(tuple(problems))

    bench.monkeypatch.setattr("accredit.tasks.reasoning_gym.load_reasoning_gym", load)
    section = {"name": "reasoning_gym", "data_set": "leg_counting", "num_problems": 80}
    changes_problems(section, key, value)


GENERATED: dict[str, object] = {
    "data_set": "basic_arithmetic",
    "options": {"max_animals": 3},
    "num_problems": 90,
    "held_out": 10,
    "data_seed": 1,
}
PROBLEMS: dict[str, object] = {
    "prompt_column": "question",
    "messages_column": "turns",
    "answer_column": "gold",
    "id_column": "key",
    "metadata_columns": ["level"],
    "held_out": 2,
    "train_split": "test",
    "evaluation_split": "test",
}
VERIFIERS: dict[str, Callable[..., None]] = {
    "path": path,
    "verifier": verifier,
    "answer_in": answer_in,
    "answer_tag": answer_tag,
    "max_bad_gold_share": max_bad_gold_share,
    "reward_reads": own_reads,
    "reward_function": reward_function,
    "reward_environment": reward_environment,
    "verifier_timeout_s": verifier_timeout_s,
    "verifier_workers": verifier_workers,
}


def cases() -> dict[str, Callable[[Bench], None]]:
    """Every key of every task."""
    found: dict[str, Callable[[Bench], None]] = {
        "task.name": task_name,
        "task.walk.split": partial(changes_packaged, "walk", "split", "easy"),
        "task.walk.reward": walk_reward,
        "task.walk.num_moves": walk_num_moves,
        "task.chain.split": partial(changes_packaged, "chain", "split", "easy"),
        "task.chain.num_steps": partial(changes_packaged, "chain", "num_steps", 8),
        "task.jsonl.split_column": split_column,
        "task.hub.subset": subset,
        "task.reasoning_gym.reward_reads": partial(
            reward_reads, {"name": "reasoning_gym", "data_set": "leg_counting"}
        ),
        "task.imo_answerbench.held_out": partial(
            changes_own, "imo_answerbench", "held_out", 2
        ),
    }
    for key, value in GENERATED.items():
        found[f"task.reasoning_gym.{key}"] = partial(
            changes_what_is_generated, key, value
        )
    for task in OWN:
        for key, case in VERIFIERS.items():
            found[f"task.{task}.{key}"] = partial(case, task)
    for task in ("jsonl", "hub"):
        found[f"task.{task}.on_bad_row"] = partial(on_bad_row, task)
        for key, value in PROBLEMS.items():
            found[f"task.{task}.{key}"] = partial(changes_own, task, key, value)
    return found


def split_column(bench: Bench) -> None:
    section = own_rows(bench.folder) | {"train_split": "train"}
    changes_problems(section, "split_column", "part")


CASES = cases()
