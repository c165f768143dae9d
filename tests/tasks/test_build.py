"""From a section `[task]` to problems and a verifier: splits, and what is held out."""

import json
from contextlib import closing
from dataclasses import replace

import pytest

from accredit.recipe.config import recipe_from
from accredit.runs.assembly import assemble
from accredit.tasks.build import build_task
from accredit.types import Prefix, Sampling
from tiny_models import TEMPLATE, tiny_qwen3

datasets = pytest.importorskip("datasets")

SPLITS = ["train"] * 5 + ["test"] * 2 + ["extra"] * 3


def built(**section):
    keys = {"verifier": "exact", "held_out": 3} | section
    return build_task(recipe_from({"task": keys}, "test").task)


def ids(problems):
    return [problem.id for problem in problems]


@pytest.fixture
def own(tmp_path):
    """Ten rows r0 .. r9: five to train on, two to test on, three of another split."""
    path = tmp_path / "own.jsonl"
    rows = [
        {"id": f"r{n}", "prompt": str(n), "answer": "0", "split": split}
        for n, split in enumerate(SPLITS)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"name": "jsonl", "path": str(path)}


ALL = [f"r{n}" for n in range(10)]


@pytest.mark.parametrize(
    ("keys", "train", "evaluation"),
    [
        ({}, ALL[:7], ALL[7:]),
        ({"held_out": None}, ALL, ALL),
        ({"train_split": "train"}, ALL[:2], ALL[2:5]),
        ({"evaluation_split": "test"}, ALL[:5] + ALL[7:], ALL[5:7]),
        ({"train_split": "extra", "evaluation_split": "test"}, ALL[7:], ALL[5:7]),
        ({"train_split": "test", "evaluation_split": "test"}, ALL[5:7], ALL[5:7]),
    ],
    ids=str,
)
def test_rows_of_a_file_are_trained_on_or_evaluated_on(keys, train, evaluation, own):
    """No row is both, unless the recipe says so in as many words."""
    task = built(**own | keys)
    assert ids(task.train) == train
    assert ids(task.evaluation) == evaluation


@pytest.fixture
def hub(tmp_path):
    """Two splits without an id column, so that both begin with `row-1`."""
    splits = {
        "train": datasets.Dataset.from_list([{"prompt": str(n)} for n in range(5)]),
        "test": datasets.Dataset.from_list([{"prompt": str(n + 9)} for n in range(7)]),
    }
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "hub")
    return {"name": "hub", "path": str(tmp_path / "hub")}


def test_a_split_of_a_data_set_is_evaluated_whole(hub):
    task = built(**hub, evaluation_split="test")
    assert len(task.train) == 5
    assert [p.messages[0].content for p in task.evaluation] == [
        str(n + 9) for n in range(7)
    ]


def test_a_data_set_without_an_evaluation_split_holds_some_of_its_own_out(hub):
    task = built(**hub)
    assert [p.messages[0].content for p in task.train] == ["0", "1"]
    assert [p.messages[0].content for p in task.evaluation] == ["2", "3", "4"]
    other = built(**hub, train_split="test")
    assert len(other.train) == 4


def test_bad_rows_of_both_splits_are_counted(tmp_path):
    splits = {
        name: datasets.Dataset.from_list([{"prompt": ""}, {"prompt": "x"}])
        for name in ("train", "test")
    }
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "torn")
    keys = {"name": "hub", "path": str(tmp_path / "torn"), "on_bad_row": "skip"}
    assert len(built(**keys, evaluation_split="test").bad_rows) == 2


def test_holding_all_out_leaves_nothing_to_train_on(own):
    expected = r"task.held_out must leave problems to train on, got 10 of 10; lower it"
    with pytest.raises(ValueError, match=expected):
        built(**own | {"held_out": 10})


def test_all_rows_in_the_evaluation_split_leave_nothing_to_train_on(own, tmp_path):
    path = tmp_path / "one.jsonl"
    path.write_text('{"prompt": "a", "split": "test"}\n')
    with pytest.raises(ValueError, match="needs problems to train on, got none"):
        built(**own | {"path": str(path), "evaluation_split": "test"})


@pytest.mark.parametrize(
    ("num_rows", "num_held_out"),
    [(2, 1), (5, 1), (9, 1), (10, 2), (20, 4), (319, 63), (320, 64), (900, 64)],
)
def test_unless_told_otherwise_a_fifth_is_held_out(tmp_path, num_rows, num_held_out):
    """And at most 64."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a", "answer": "1"}\n' * num_rows)
    section = {"name": "jsonl", "path": str(path), "verifier": "exact"}
    task = build_task(recipe_from({"task": section}, "test").task)
    assert len(task.evaluation) == num_held_out
    assert len(task.train) == num_rows - num_held_out


def test_one_row_cannot_be_both_unless_the_recipe_says_so(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a", "answer": "1"}\n')
    section = {"name": "jsonl", "path": str(path), "verifier": "exact"}
    with pytest.raises(ValueError, match="got 1 of 1; lower it, or set it to none"):
        build_task(recipe_from({"task": section}, "test").task)
    both = build_task(recipe_from({"task": section | {"held_out": "none"}}, "t").task)
    assert len(both.train) == len(both.evaluation) == 1


def test_a_run_pays_no_unfinished_thought_and_shows_a_function_what_was_sampled(
    tmp_path, monkeypatch
):
    """The template opens the thinking; the completion has but a box in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a", "answer": "1"}\n' * 4)
    (tmp_path / "shows.py").write_text(
        "def shows(completion, problem):\n    return float('<think>' in completion)\n"
    )
    tiny_qwen3(tmp_path / "model")
    with_tag = TEMPLATE.replace("'<|assistant|>'", "'<|assistant|><think>'")
    (tmp_path / "model" / "chat_template.jinja").write_text(with_tag)
    thought = r"so \boxed{1}"
    texts = (thought, f"{thought}</think>{thought}")
    for section, rewards in (
        ({"verifier": "exact"}, [0.0, 1.0]),
        ({"verifier": "function", "reward_function": "shows:shows"}, [0.0, 0.0]),
    ):
        task = {"name": "jsonl", "path": "rows.jsonl", **section}
        recipe = {"model": {"path": "model", "device": "cpu"}, "task": task}
        with closing(assemble(recipe_from(recipe, "test"))) as assembly:
            environment = assembly.world.environment
            prompt = assembly.world.problems.prompts[0]
            encode = assembly.tokenizer
            for text, reward in zip(texts, rewards, strict=True):
                ids = encode(text, add_special_tokens=False)["input_ids"]
                prefix = Prefix(prompt, tuple(ids))
                full = replace(environment, max_new_tokens=len(ids))
                (group,) = full.continue_from([prefix], 1, Sampling(), ("t",))
                assert group.verdicts[0].reward == reward
                paid = environment.has_answer(prompt, ids)
                assert paid == (text != thought)
