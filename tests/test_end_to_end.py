"""What a user brings: another model, an own file, a data set of a library."""

import json
from pathlib import Path

import pytest

from accredit.command.cli import main
from accredit.storage.run_directory import RunDirectory
from tiny_models import tiny_llama, tiny_qwen3

pytestmark = pytest.mark.whole_run

SHARED = Path(__file__).parent.parent.parent / "shared" / "data"
SMALL = [
    "--algorithm.prompts_per_step", "4",
    "--algorithm.group_size", "4",
    "--steps", "3",
    "--evaluation.samples", "1",
    "--evaluation.max_problems", "4",
    "--learner.learning_rate", "1e-3",
]  # fmt: skip


def run_command(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, words)))
    return ended.value.code


@pytest.mark.parametrize("build", [tiny_qwen3, tiny_llama])
def test_two_hundred_rows_of_ones_own_train_a_model_of_ones_own(
    build, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    build(tmp_path / "model")
    rows = [{"question": f"What is {n} + 1?", "gold": str(n + 1)} for n in range(200)]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (tmp_path / "my_reward.py").write_text(
        "def digits(completion, problem):\n"
        "    return sum(c.isdigit() for c in completion) / 8\n"
    )
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\n'
        '[model]\npath = "model"\n'
        '[task]\nname = "jsonl"\npath = "mine.jsonl"\n'
        'prompt_column = "question"\nanswer_column = "gold"\n'
        'verifier = "function"\nreward_function = "my_reward:digits"\n'
        "[sampling]\nmax_new_tokens = 8\n"
    )
    assert run_command("train", "mine.toml", *SMALL) == 0
    metrics = RunDirectory(tmp_path / "runs" / "mine").metrics()
    assert [row["step"] for row in metrics] == [1, 2, 3]
    assert all(row["reward/invalid_share"] == 0 for row in metrics)
    assert any(row["reward/mean"] > 0 for row in metrics)


def test_a_reasoning_gym_data_set_trains(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny_qwen3(tmp_path / "model", max_position_embeddings=1024)
    (tmp_path / "gym.toml").write_text(
        'name = "gym"\n[model]\npath = "model"\n'
        '[task]\nname = "reasoning_gym"\ndata_set = "leg_counting"\n'
        "num_problems = 40\nheld_out = 4\n"
        "[sampling]\nmax_new_tokens = 8\n"
    )
    assert run_command("train", "gym.toml", *SMALL) == 0
    metrics = RunDirectory(tmp_path / "runs" / "gym").metrics()
    assert len(metrics) == 3 and metrics[-1]["reward/invalid_share"] == 0


@pytest.mark.skipif(
    not (SHARED / "imo_answerbench_v2.csv").exists(),
    reason="the olympiad problems are not beside this checkout (../shared/data)",
)
def test_all_four_hundred_olympiad_problems_are_evaluated(tmp_path, capsys):
    tiny_qwen3(tmp_path / "model", max_position_embeddings=4096)
    code = run_command(
        "eval", tmp_path / "model", "--task", "imo_answerbench",
        "--task.path", SHARED / "imo_answerbench_v2.csv",
        "--evaluation.samples", "1",
        "--sampling.max_new_tokens", "8",
        "--sampling.max_prompt_tokens", "4000",
        "--json",
    )  # fmt: skip
    assert code == 0
    scores = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert scores["eval/num_problems"] == 400
    assert scores["eval/num_dropped"] == 0
    assert scores["eval/mean"] == 0.0


RECIPES = Path(__file__).parents[1] / "recipes"


@pytest.mark.parametrize("name", ["ppo", "sao", "pact", "vine", "opd"])
def test_the_recipe_of_an_algorithm_trains_on_walk(name, tmp_path, capsys):
    keys = ["--steps", "2", "--algorithm.prompts_per_step", "8"]
    keys += ["--evaluation.samples", "1", "--evaluation.max_problems", "2"]
    if name in ("ppo", "sao", "pact"):
        keys += ["--algorithm.critic.warmup_steps", "1"]
    if name == "opd":
        keys += ["--algorithm.teacher", "packaged"]
    recipe, folder = str(RECIPES / f"walk_{name}.toml"), str(tmp_path)
    assert run_command("train", recipe, "--runs_folder", folder, *keys) == 0
    said = capsys.readouterr()
    assert ("teacher: packaged" in said.out + said.err) == (name == "opd")
    run = RunDirectory(tmp_path / f"walk-{name}")
    assert [row["step"] for row in run.metrics()] == [1, 2]
    assert "policy/loss" in run.metrics()[1]
