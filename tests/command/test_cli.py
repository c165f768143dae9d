"""The command from outside: what it prints, what it returns, what it refuses."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from accredit import __version__
from accredit.command.cli import main
from accredit.recipe.config import recipe_from
from accredit.storage.checkpoint import latest_checkpoint
from accredit.storage.run_directory import RunDirectory
from commanding import DONE, FAILED, INTERRUPTED, MISTAKE, SHORT
from tiny_models import tiny_gpt2

pytestmark = pytest.mark.whole_run(pages=True)

COMMANDS = [
    "train",
    "eval",
    "verify",
    "report",
    "show",
    "calibrate",
    "tasks",
    "algorithms",
    "lab",
    "doctor",
]


@pytest.fixture(scope="module")
def finished_run(folder, recipe):
    before = Path.cwd()
    os.chdir(folder)
    with pytest.raises(SystemExit) as ended:
        main(["train", str(recipe), "--name", "finished", *SHORT])
    os.chdir(before)
    assert ended.value.code == DONE
    return folder / "runs" / "finished"


# What can be asked


def test_help_names_every_command(accredit):
    code, printed, _ = accredit("--help")
    assert code == DONE
    assert all(command in printed for command in COMMANDS)
    assert "Exit codes" in printed


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, accredit):
    code, printed, _ = accredit(command, "--help")
    assert "(default: )" not in printed and "(default: None)" not in printed
    assert code == DONE
    assert f"accredit {command}" in printed


def test_the_version_is_printed(accredit):
    assert accredit("--version") == (DONE, f"accredit {__version__}\n", "")


def test_tasks_lists_every_task_with_its_keys(accredit):
    code, printed, _ = accredit("tasks")
    assert code == DONE
    for name in ("walk", "chain", "jsonl", "hub", "reasoning_gym", "imo_answerbench"):
        assert name in printed
    assert "prompt_column" in printed
    assert "required" in printed


def test_algorithms_lists_every_algorithm_with_its_paper(accredit):
    code, printed, _ = accredit("algorithms")
    assert code == DONE
    papers = {"grpo": "2402.03300", "dapo": "2503.14476", "gspo": "2507.18071"}
    for name, paper in papers.items():
        (line,) = [line for line in printed.splitlines() if f" {name} " in f" {line} "]
        assert f"arXiv:{paper}" in line


def test_doctor_fails_where_a_check_fails(accredit):
    code, printed, _ = accredit("doctor")
    assert "torch" in printed and "packaged model" in printed
    marks = [line.split() for line in printed.splitlines()]
    assert code == (FAILED if any("no" in words[1:4] for words in marks) else DONE)


# Training


def test_overrides_may_stand_anywhere(accredit, recipe):
    words = ["train", "--steps", "3", "--dry-run", "--seed=5", recipe, "--name", "x"]
    code, printed, _ = accredit(*words)
    assert code == DONE
    resolved = json.loads(printed)
    assert [resolved[key] for key in ("steps", "seed", "name")] == [3, 5, "x"]


def test_a_dry_run_prints_the_resolved_recipe_and_touches_nothing(
    accredit, recipe, folder
):
    name = ["--name", "dry", "--algorithm.clip_high", "0.3"]
    code, printed, _ = accredit("train", recipe, "--dry-run", *name)
    assert code == DONE
    resolved = recipe_from(json.loads(printed), "printed")
    assert (resolved.name, resolved.algorithm.clip_high) == ("dry", 0.3)
    assert not (folder / "runs" / "dry").exists()


def test_a_run_ends_with_a_table_and_where_its_report_is(
    accredit, recipe, finished_run
):
    assert RunDirectory(finished_run).report.is_file()
    code, printed, _ = accredit("train", "--resume", finished_run, "--steps", "2")
    assert code == DONE
    assert "reward" in printed
    assert f"report: {finished_run / 'report.html'}" in printed.replace("\n", "")
    assert [row["step"] for row in RunDirectory(finished_run).metrics()] == [1, 2]


def test_report_writes_the_page_anew(accredit, finished_run):
    page = RunDirectory(finished_run).report
    page.unlink()
    code, printed, _ = accredit("report", finished_run)
    assert code == DONE
    assert page.is_file()
    assert "report: " in printed


def test_a_micro_batch_larger_than_the_batch_is_fine(accredit, recipe):
    words = ["--name", "wide", "--learner.micro_batch_tokens", "1000000"]
    assert accredit("train", recipe, *words, *SHORT)[0] == DONE


def test_a_run_that_fails_is_no_mistake_of_the_user(accredit, recipe, folder):
    # Its trial on gold answers does not show it.
    (folder / "broken.py").write_text(
        "def reward(completion, problem):\n"
        "    return 1.0 if completion == problem.answer else 1 / 0\n"
    )
    words = ["--name", "broken", "--task.reward_function", "broken:reward"]
    code, _, told = accredit("train", recipe, *words, "--steps", "20")
    assert code == FAILED
    (line,) = [line for line in told.splitlines() if line.startswith("accredit: ")]
    assert line.startswith("accredit: the run failed: at most 10% of the judged ")
    assert "ZeroDivisionError" in line
    assert "Traceback" not in told


COMMAND = [sys.executable, "-c", "from accredit.command.cli import main; main()"]


def test_ctrl_c_saves_says_how_to_go_on_and_returns_130(recipe, folder, accredit):
    words = ["train", recipe, "--name", "stopped", "--steps", "100000"]
    never = ["--checkpoint.every", "0", "--evaluation.every", "0"]
    run = RunDirectory(folder / "runs" / "stopped")
    process = subprocess.Popen(
        [*COMMAND, *words, *never],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not (run.exists and run.metrics()):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        printed, told = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == INTERRUPTED, told
    assert "Traceback" not in told
    saved = latest_checkpoint(run.checkpoints)
    assert saved is not None
    assert f"continue with: accredit train --resume {run.path}" in printed
    num_done = len(run.metrics())
    words = ["train", "--resume", run.path, "--steps", str(num_done + 1)]
    assert accredit(*words)[0] == DONE
    assert [row["step"] for row in run.metrics()] == list(range(1, num_done + 2))


def test_a_mistake_in_a_process_of_its_own(folder):
    """Nothing but the line reaches the terminal; it does not wait for torch."""
    quick = (
        "import sys; from accredit.command.cli import main\n"
        "try: main()\nfinally: assert 'torch' not in sys.modules"
    )
    ended = subprocess.run(
        [sys.executable, "-c", quick, "train", "absent.toml"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (MISTAKE, "")
    assert ended.stderr == (
        "accredit: a recipe must be a readable file, got absent.toml: "
        "No such file or directory\n"
    )


# Evaluating


def test_eval_of_a_packaged_task_prints_a_table(accredit, folder):
    few = ["--evaluation.max_problems", "3", "--evaluation.samples", "2"]
    code, printed, _ = accredit(
        "eval", folder / "model", "--task", "walk", *few, "--task.split", "easy"
    )
    assert code == DONE
    for score in ("mean", "pass@1", "pass@2", "best@2", "95% interval"):
        assert score in printed


def test_eval_of_own_rows_scores_all_of_them_as_json(accredit, folder):
    """Case B169: 48 samples in batches of 5; none is dropped, none counted twice."""
    code, printed, _ = accredit(
        "eval",
        folder / "model",
        "--json",
        "--task=jsonl",
        "--task.path",
        "rows.jsonl",
        "--task.verifier=function",
        "--task.reward_function=letters:share_of_vowels",
        "--sampling.max_new_tokens=4",
        "--evaluation.samples=2",
        "--engine.max_batch_rows=5",
    )
    assert code == DONE
    row = json.loads(printed)
    assert row["eval/num_problems"] == 24
    assert row["eval/num_rollouts"] == 48
    scores = {f"eval/{s}" for s in ("mean", "pass@1", "pass@2", "best@1", "best@2")}
    scores |= {f"{score}_all" for score in scores}
    ends = {f"{score}{end}" for score in scores for end in ("_low", "_high")}
    counts = {
        f"eval/{name}"
        for name in (
            "num_problems",
            "num_rollouts",
            "num_dropped",
            "num_bad_rows",
            "invalid_share",
            "length_mean",
            "truncated_share",
        )
    }
    assert row.keys() == scores | ends | counts
    assert row["eval/mean_low"] <= row["eval/mean"] <= row["eval/mean_high"]


def test_eval_of_a_run_takes_its_newest_checkpoint_and_its_recipe(
    accredit, finished_run, folder
):
    words = ["--recipe", finished_run / "recipe.json", "--json"]
    code, printed, _ = accredit("eval", finished_run, *words)
    assert code == DONE
    assert json.loads(printed)["eval/num_problems"] == 2
    newest = latest_checkpoint(RunDirectory(finished_run).checkpoints)
    again = accredit("eval", newest / "model", *words)
    assert again[1] == printed
    start = accredit("eval", folder / "model", *words)
    assert json.loads(start[1])["eval/num_problems"] == 2


def test_any_causal_model_of_transformers_will_do(accredit, folder):
    tiny_gpt2(folder / "gpt2")
    few = ["--evaluation.max_problems", "2", "--evaluation.samples", "1"]
    code, printed, told = accredit("eval", "gpt2", "--task", "chain", "--json", *few)
    assert code == DONE, told
    assert json.loads(printed)["eval/num_problems"] == 2


def test_a_run_is_never_begun_twice(accredit, recipe, finished_run):
    before = RunDirectory(finished_run).recipe()
    assert accredit("train", recipe, "--name", "finished", *SHORT)[0] == DONE
    assert RunDirectory(finished_run).recipe() == before
    assert RunDirectory(finished_run.with_name("finished-2")).metrics()
