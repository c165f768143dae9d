"""A dry run refuses what a run would; the README's recipe runs on twenty rows."""

import json
import re
from pathlib import Path

import pytest

from accredit.command.cli import main
from accredit.recipe.config import load_recipe
from accredit.storage.run_directory import RunDirectory
from commanding import DONE, MISTAKE

pytestmark = pytest.mark.whole_run

README = Path(__file__).parents[2] / "README.md"


def ten_lines() -> str:
    """The recipe of the README, for the packaged model."""
    (found,) = [
        block
        for block in re.findall(r"```toml\n(.*?)```", README.read_text(), re.S)
        if 'path = "problems.jsonl"' in block
    ]
    recipe = re.sub(r'(\[model\]\npath = )"[^"]*"', r'\1"packaged"', found)
    assert recipe != found
    return recipe


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The recipe and its twenty rows, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.toml"
    path.write_text(ten_lines())
    rows = [{"prompt": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(20)]
    (tmp_path / "problems.jsonl").write_text(
        "".join(json.dumps(r) + "\n" for r in rows)
    )
    return path


def test_the_ten_line_recipe_runs_on_twenty_rows(accredit, mine, capsys):
    """A fifth is held out; what was left to defaults is said."""
    small = ["--steps", "1", "--sampling.max_new_tokens", "8"]
    small += ["--evaluation.samples", "1", "--algorithm.prompts_per_step", "2"]
    with pytest.raises(SystemExit) as ended:
        main(["train", str(mine), *small])
    printed = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == DONE
    assert (
        "plan: grpo, 1 steps of 2 prompts x 8 rollouts, learning rate 1e-06; 16 "
        "problems to train on, 4 to evaluate on"
    ) in printed
    assert [row["step"] for row in RunDirectory(Path("runs/mine")).metrics()] == [1]


def test_a_dry_run_prints_the_recipe_and_makes_nothing(accredit, mine, tmp_path):
    before = sorted(tmp_path.iterdir())
    code, printed, told = accredit("train", mine, "--dry-run")
    assert code == DONE
    assert json.loads(printed) == load_recipe(mine).model_dump(mode="json")
    assert told.startswith("plan: grpo, 100 steps of 8 prompts x 8 rollouts")
    assert sorted(tmp_path.iterdir()) == before


PROSE = (
    "We see that it is what it is, and no more can be said of it\nby anybody at all."
)
QUESTION = ["--task.path", "other.jsonl", "--task.prompt_column", "question"]
REWARD = "def broken(completion, problem):\n    return problem.metadata['nothing']\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--task.held_out", "64"], "task.held_out must leave problems to train on"),
        (["--task.path", "absent.jsonl"], "must exist, got nothing there"),
        (
            ["--task.prompt_column", "promt"],
            "task.prompt_column must name a column of problems.jsonl, got 'promt'; did "
            "you mean 'prompt'? it has the columns prompt, answer",
        ),
        (
            ["--task.answer_column", "gold"],
            "task.answer_column must name a column of problems.jsonl, got 'gold'",
        ),
        (
            ["--task.metadata_columns", '["level"]'],
            "task.metadata_columns must name a column",
        ),
        (
            ["--task.path", "other.jsonl"],
            "task.prompt_column must name a column of other.jsonl, got 'prompt'; it "
            "has the columns question, solution",
        ),
        (
            QUESTION,
            "task.answer_column must name the column of the gold answers",
        ),
        (
            [*QUESTION, "--task.answer_column", "solution"],
            "20 of 20 gold answers tried (100.0%) do not verify against themselves",
        ),
        (
            ["--task.verifier", "function", "--task.reward_function", "own_pay:broken"],
            "own_pay.py:1) must return a number or None, got in all of 6 trials",
        ),
        (["--model.path", "absent"], "the model must be a directory, got absent"),
        (["--sampling.max_prompt_tokens", "1"], "must fit as a prompt, got none"),
        (
            ["--algorithm.name", "ac2", "--algorithm.critic.template", "absent.toml"],
            "absent.toml",
        ),
        (["--algorithm.name", "opd", "--algorithm.teacher", "absent"], "absent"),
    ],
    ids=lambda part: " ".join(part)[:60] if isinstance(part, list) else "",
)
def test_a_dry_run_refuses_what_a_run_refuses(accredit, mine, tmp_path, words, message):
    rows = [{"question": f"Why {n}?", "solution": PROSE} for n in range(20)]
    (tmp_path / "other.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (tmp_path / "own_pay.py").write_text(REWARD)
    code, printed, told = accredit("train", mine, "--dry-run", *words)
    assert (code, printed) == (MISTAKE, "")
    assert message in told
    assert told.count("\n") == 1
    assert not Path("runs").exists()
