"""`accredit eval RUN`: the run's own task, prompt, sampling and verifier."""

import contextlib
import json
import shutil

import pytest

import accredit as package
from accredit.command.evaluation import asked_evaluation
from accredit.storage.run_directory import RunDirectory
from commanding import DONE, MISTAKE, joined

pytestmark = pytest.mark.whole_run


@pytest.fixture(scope="module")
def own_run(folder, recipe):
    with contextlib.chdir(folder):
        return package.train(
            recipe,
            name="own",
            seed=5,
            steps=1,
            sampling={"system": "be brief", "max_new_tokens": 7},
            evaluation={"temperature": 0.7, "max_problems": 3, "top_k": 20},
        )


def test_it_repeats_the_runs_last_evaluation_to_the_bit(own_run, accredit):
    code, printed, told = accredit("eval", own_run.path, "--json")
    assert code == DONE, told
    row, kept = json.loads(printed), own_run.evaluations()[-1]
    shared = {key: value for key, value in kept.items() if key.startswith("eval/")}
    assert shared and {key: row[key] for key in shared} == shared
    assert row["eval/num_problems"] == 3


def test_the_table_says_whose_task_it_is(own_run, accredit):
    code, printed, _ = accredit("eval", own_run.path)
    assert code == DONE
    said = joined(printed, "")
    assert "step-000001" in said and "the run's own task" in said
    code, printed, _ = accredit(
        "eval", own_run.path, "--task", "chain", "--evaluation.max_problems", "2"
    )
    assert code == DONE
    assert "on chain (named by --task)" in joined(printed, "")


@pytest.mark.parametrize(
    ("words", "key", "expected"),
    [
        ([], "system", "be brief"),
        (["--sampling.system", "Other."], "system", "Other."),
        (["--task", "chain"], "system", "be brief"),
        ([], "max_new_tokens", 7),
        (["--sampling.max_new_tokens", "9"], "max_new_tokens", 9),
    ],
)
def test_the_prompt_is_the_runs_unless_told_otherwise(words, key, expected, own_run):
    task = words[1] if words[:1] == ["--task"] else None
    overrides = [] if task else words
    config = asked_evaluation(str(own_run.path), task, None, overrides).config
    assert getattr(config.sampling, key) == expected
    assert config.evaluation.temperature == 0.7
    assert config.seed == 5


def test_a_task_by_name_is_evaluated_whole(own_run):
    own = asked_evaluation(str(own_run.path), None, None, []).config
    assert (own.task.name, own.task.held_out) == ("jsonl", 4)
    assert own.evaluation.max_problems == 3
    words = ["--task.path", "rows.jsonl"]
    named = asked_evaluation(str(own_run.path), "jsonl", None, words).config
    assert (named.task.held_out, named.task.verifier) == (None, "math")
    assert named.evaluation.max_problems == 1_000_000
    assert named.model == own.model


def test_chunks_that_fit_only_the_runs_own_budget_do_not_matter(own_run, tmp_path):
    copy = tmp_path / "ac2"
    shutil.copytree(own_run.path, copy)
    content = RunDirectory(copy).recipe()
    content["algorithm"] = {"name": "ac2", "chunk_length": 7}
    (copy / "recipe.json").write_text(json.dumps(content))
    words = ["--sampling.max_new_tokens", "3"]
    assert asked_evaluation(str(copy), None, None, words).config.max_new_tokens == 3


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["model"], "eval needs --task NAME or --recipe FILE, got neither"),
        (["packaged"], "packaged is not the folder of a run"),
        (["no-such-run"], "no-such-run is not the folder of a run"),
        (["model", "--task", "walk", "--recipe", "small.json"], "FILE, got both"),
        (["own", "--task", "wlk"], "did you mean walk?"),
        (
            ["own", "--task.path", "gone.jsonl"],
            "must find its file gone.jsonl",
        ),
        (["own", "--task.pth", "x"], "task.pth is not a key; did you mean"),
    ],
)
def test_a_missing_task_is_one_line(words, expected, own_run, accredit, recipe):
    words = [str(own_run.path) if word == "own" else word for word in words]
    code, printed, told = accredit("eval", *words)
    assert (code, printed, told.count("\n")) == (MISTAKE, "", 1)
    assert expected in told
