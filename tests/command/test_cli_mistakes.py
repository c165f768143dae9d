"""What the command refuses: one line, code 2, and nothing has run before it."""

import json
import shutil

import pytest

from accredit.engines.local.engine import TransformersEngine
from commanding import DONE, MISTAKE, SHORT, joined
from tiny_models import character_tokenizer

pytestmark = pytest.mark.whole_run


def refused(result):
    """The one line that a mistake is told in; nothing else is printed."""
    code, printed, told = result
    assert code == MISTAKE, told
    assert told.startswith("accredit: ")
    assert told.count("\n") == 1
    assert "Traceback" not in told
    assert printed == ""
    return told.removeprefix("accredit: ").strip()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train"], "train needs a recipe or --resume RUN, got neither"),
        (
            ["train", "small.json", "--resume", "runs"],
            "train needs a recipe or --resume RUN, got both",
        ),
        (
            ["train", "small.json", "--stepz", "3"],
            "small.json: stepz is not a key; did you mean steps?",
        ),
        (
            ["train", "small.json", "--steps"],
            "override --steps needs a value, got none",
        ),
        (
            ["train", "small.json", "extra"],
            "an override reads --section.key value, got 'extra'",
        ),
        (
            ["train", "small.json", "--algorithm.group_size", "1"],
            "small.json: algorithm.group_size must be greater than or equal to 2",
        ),
        (
            ["train", "--resume", "nowhere"],
            "--resume needs the folder of a run, got no",
        ),
        (["eval", "model"], "eval needs --task NAME or --recipe FILE, got neither"),
        (
            ["eval", "model", "--task", "wlk"],
            "task 'wlk' is unknown; did you mean walk? (known: chain, hub, ",
        ),
        (
            ["eval", "nowhere", "--task", "walk"],
            "the model must be a directory, got nowhere; ",
        ),
        (
            ["train", "--resume", "runs", "--dry-run"],
            "--dry-run needs a recipe, got --resume",
        ),
        (["report", "nowhere"], "report needs the folder of a run, got nowhere"),
        (["tasks", "--all", "1"], "this command takes no '--all'; see --help"),
        (["algorithms", "grpo", "x"], "this command takes no 'x'; see --help"),
        (["doctor", "now"], "this command takes no 'now'; see --help"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line_and_code_2(words, expected, accredit, recipe):
    assert refused(accredit(*words)).startswith(expected)


def test_a_gpu_is_asked_for_where_there_is_none(accredit, recipe, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    told = refused(accredit("train", recipe, "--model.device", "cuda"))
    assert told == "model.device = 'cuda' needs a GPU, got none; use 'auto'"


@pytest.mark.parametrize("words", [[], ["frobnicate"], ["report"], ["eval"]], ids=str)
def test_words_that_are_no_command_are_refused_with_usage(words, accredit):
    code, _, told = accredit(*words)
    assert code == MISTAKE
    assert "Traceback" not in told
    assert "accredit" in told


def without(folder, name, *files):
    """A copy of the model directory that lacks some files."""
    copy = folder / name
    shutil.copytree(folder / "model", copy)
    for pattern in files:
        for path in copy.glob(pattern):
            path.unlink()
    return copy


def test_a_model_directory_without_its_parts_is_named(accredit, recipe, folder):
    parts = {
        "config.json": "a model directory must hold config.json, got ",
        "tokenizer*": "a model directory must hold a tokenizer (one of ",
        "*.safetensors": "a model directory must hold *.safetensors, got ",
    }
    for number, (pattern, expected) in enumerate(parts.items()):
        path = without(folder, f"lacking-{number}", pattern)
        told = refused(accredit("train", recipe, "--model.path", path))
        assert told.startswith(expected)
        assert str(path) in told
    told = refused(accredit("train", recipe, "--model.path", "nowhere"))
    assert told.startswith("the model must be a directory, got nowhere; ")


def test_a_tokenizer_of_another_vocabulary_is_refused(accredit, recipe, folder):
    path = without(folder, "other", "tokenizer*")
    character_tokenizer(103).save_pretrained(path)
    tokenizer = json.loads((path / "tokenizer.json").read_text())
    tokenizer["added_tokens"] += [
        {**tokenizer["added_tokens"][0], "id": 200 + n, "content": f"<extra-{n}>"}
        for n in range(4)
    ]
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    told = refused(accredit("train", recipe, "--model.path", path))
    assert "must fit the model's 104 embeddings, got 107 tokens" in told


@pytest.mark.parametrize(
    ("content", "words", "expected"),
    [
        ("", [], "must hold at least one problem, got an empty file"),
        ('{"prompt": "a"}\n' * 3, [], "task.held_out must leave problems to train on"),
        (
            '{"question": "a"}\n',
            [],
            "task.prompt_column must name a column of bad.jsonl, got 'prompt'; ",
        ),
        (
            '{"prompt": "a"}\n',
            ["--task.answer_column", "gold"],
            "task.answer_column must name a column of bad.jsonl, got 'gold'; ",
        ),
        ('{"prompt": "a"}\n{"prompt": \n{"prompt": "b"}\n', [], "line 2"),
        ('{"prompt": "a"}\n[3]\n', [], "line 2"),
        ('{"prompt": "a"}\n{"prompt": ""}\n', [], "line 2"),
    ],
    ids=str,
)
def test_bad_data_are_named_before_anything_runs(
    content, words, expected, accredit, recipe, folder, monkeypatch
):
    monkeypatch.setattr(TransformersEngine, "generate", never_called)
    (folder / "bad.jsonl").write_text(content)
    bad = ["--task.path", "bad.jsonl", "--name", "bad"]
    told = refused(accredit("train", recipe, *bad, *words))
    assert expected in told
    assert not (folder / "runs" / "bad").exists()


def never_called(*arguments):
    raise AssertionError("nothing may be sampled")


def test_a_malformed_row_is_counted_where_the_recipe_says_skip(
    accredit, recipe, folder
):
    rows = (folder / "rows.jsonl").read_text().splitlines()
    rows[4] = '{"prompt": '
    (folder / "torn.jsonl").write_text("\n".join(rows))
    words = ["--task.path", "torn.jsonl", "--name", "torn"]
    code, printed, told = accredit(
        "train", recipe, *words, "--task.on_bad_row", "skip", *SHORT
    )
    assert code == DONE
    assert "1 rows are left out, the first row 5: not JSON" in joined(printed, told)
    code, printed, _ = accredit(
        "eval", "model", "--recipe", recipe, *words[:2], "--json",
        "--task.on_bad_row=skip",
    )  # fmt: skip
    assert (code, json.loads(printed)["eval/num_bad_rows"]) == (DONE, 1)


def test_prompts_beyond_the_limit_are_left_out_and_told(accredit, recipe):
    """Cases B162, B163: `say 10` is 9 ids as sent, template included, `say 9` is 8."""
    words = ["--name", "long", "--sampling.max_prompt_tokens", "8"]
    code, printed, told = accredit(
        "train", recipe, *words, *SHORT, "--task.held_out", "none"
    )
    assert code == DONE
    said = "14 prompts are left out, the first 'row-11': 9 tokens, limit 8"
    assert said in joined(printed, told)


def test_a_limit_that_no_prompt_keeps_is_refused(accredit, recipe):
    words = ["--sampling.max_prompt_tokens", "3"]
    told = refused(accredit("train", recipe, *words))
    assert told.startswith("at least one of 20 problems must fit as a prompt, got none")


def test_text_without_tokens_is_told(accredit, recipe, folder):
    rows = [{"prompt": f"日本 {n}"} for n in range(8)]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "japanese.jsonl").write_text(lines, "utf-8")
    words = ["--task.path", "japanese.jsonl", "--name", "japanese", *SHORT]
    code, printed, told = accredit("train", recipe, *words)
    assert code == DONE
    said = "6 prompts hold text that the tokenizer has no token for"
    assert said in joined(printed, told)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("absent:reward", "needs a module 'absent', which was not found"),
        ("letters:absent", "must exist, got a module whose functions are"),
        ("letters", "must be named 'module:function', got 'letters'"),
        ("crooked:reward", "must import, got SyntaxError"),
    ],
)
def test_a_reward_function_that_cannot_be_loaded_stops_before_any_rollout(
    name, expected, accredit, recipe, folder, monkeypatch
):
    monkeypatch.setattr(TransformersEngine, "generate", never_called)
    (folder / "crooked.py").write_text("def reward(:\n")
    words = ["--task.reward_function", name, "--name", "unloadable"]
    assert expected in refused(accredit("train", recipe, *words))
    assert not (folder / "runs" / "unloadable").exists()
    assert expected in refused(
        accredit("eval", "model", "--recipe", recipe, *words[:2])
    )


PACT = [
    "--algorithm",
    '{name = "pact", prompts_per_step = 4, critic = {warmup_steps = 1}}',
]
OPD = ["--algorithm", '{name = "opd", prompts_per_step = 4, teacher = "nowhere"}']


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            [*PACT, "--algorithm.critic.path", "nowhere"],
            "algorithm.critic.path must be 'policy' or the directory of a model, a ",
        ),
        (OPD, "algorithm.teacher must be 'self' or the directory of a model or a run,"),
    ],
    ids=["critic", "teacher"],
)
def test_a_judge_that_is_nowhere_is_named_by_its_key_and_eval_needs_none(
    words, expected, accredit, recipe
):
    told = refused(accredit("train", recipe, *words))
    assert told.startswith(expected)
    assert "got 'nowhere'" in told
    found = accredit("eval", "model", "--recipe", recipe, *words, "--json")
    assert found[0] == DONE, found


def test_a_warm_up_that_takes_the_whole_run_is_told(accredit, recipe):
    words = [*PACT, "--algorithm.critic.warmup_steps", "1", "--name", "frozen"]
    code, printed, told = accredit("train", recipe, *words, *SHORT)
    assert code == DONE
    said = "algorithm.critic.warmup_steps = 1 takes all"
    assert said in joined(printed, told)
