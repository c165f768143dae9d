"""What is written stays; what is torn or too late goes; what is damaged is named."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from synthetic_run import RECIPE, decode, synthetic_record

from accredit.records import Credit
from accredit.reports.environment import environment
from accredit.reports.rollouts import rollout_rows
from accredit.reports.run_directory import (
    RunDirectory,
)
from accredit.text import without_lone_surrogates


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.start(RECIPE, environment())
    return run


def write_steps(run: RunDirectory, first: int, last: int) -> None:
    for step in range(first, last + 1):
        run.append_metrics({"step": step, "reward/mean": step / 10})
        if step % 2 == 0:
            run.append_evaluation({"step": step, "eval/mean": step / 20})
            run.write_rollouts(step, [{"step": step, "reward": 1.0}])


def test_rows_come_back_as_written(run):
    write_steps(run, 1, 3)
    assert run.recipe() == RECIPE
    assert run.metrics()[1] == {"step": 2, "reward/mean": 0.2}
    assert run.evaluations() == [{"step": 2, "eval/mean": 0.1}]
    assert list(run.rollouts(2)) == [{"step": 2, "reward": 1.0}]
    assert run.latest_step == 3


def test_a_folder_without_a_run_is_empty_and_says_what_it_should_hold(tmp_path):
    run = RunDirectory(tmp_path / "none")
    assert not run.exists
    assert (run.metrics(), run.rollout_steps(), run.latest_step) == ([], [], 0)
    with pytest.raises(FileNotFoundError, match=r"must be a run with recipe\.json"):
        run.recipe()
    with pytest.raises(FileNotFoundError, match=r"rollouts of step 3, got steps \[\]"):
        list(run.rollouts(3))


def test_a_second_run_never_overwrites_the_first(run):
    with pytest.raises(FileExistsError, match="--resume"):
        run.start({}, {})
    assert run.recipe() == RECIPE


def test_numbers_that_are_not_finite_become_null(run):
    run.append_metrics({"step": 1, "a": float("nan"), "b": [1.0, float("inf")]})
    assert run.metrics() == [{"step": 1, "a": None, "b": [1.0, None]}]
    assert b"NaN" not in (run.path / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize("tail", [b'{"step": 4, "re', b"\x00\x00", b"{}\n", b"\n"])
def test_a_torn_last_line_is_never_read(run, tail):
    write_steps(run, 1, 3)
    with open(run.path / "metrics.jsonl", "ab") as file:
        file.write(tail)
    assert run.latest_step == 3


def test_the_next_row_replaces_a_torn_one(run):
    write_steps(run, 1, 3)
    with open(run.path / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 4, "rewa')
    run.append_metrics({"step": 4})
    assert [row["step"] for row in run.metrics()] == [1, 2, 3, 4]


def test_a_resumed_run_has_the_files_of_the_uninterrupted_one(run, tmp_path):
    write_steps(run, 1, 8)
    broken = RunDirectory(tmp_path / "broken")
    broken.start(RECIPE, environment())
    write_steps(broken, 1, 7)
    with open(broken.path / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 8, "rew')
    broken.truncate(5)
    assert broken.latest_step == 5
    assert broken.rollout_steps() == [2, 4]
    write_steps(broken, 6, 8)
    for name in ("metrics.jsonl", "evals.jsonl"):
        assert (broken.path / name).read_bytes() == (run.path / name).read_bytes()
    assert broken.rollout_steps() == run.rollout_steps()


def test_truncating_to_step_0_starts_over(run):
    write_steps(run, 1, 4)
    run.truncate(0)
    assert (run.metrics(), run.evaluations(), run.rollout_steps()) == ([], [], [])


def test_damage_inside_a_file_is_named_by_line(run):
    write_steps(run, 1, 3)
    path = run.path / "metrics.jsonl"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], b"garbage", *lines[2:]]))
    with pytest.raises(ValueError, match=r"got b'garbage' in line 2; restore"):
        run.metrics()


def test_a_damaged_recipe_is_named(run):
    (run.path / "recipe.json").write_text('{"seed":')
    with pytest.raises(ValueError, match=r"recipe\.json must hold JSON"):
        run.recipe()
    (run.path / "recipe.json").write_text("[1]")
    with pytest.raises(ValueError, match="a JSON object, got list"):
        run.recipe()


@pytest.mark.parametrize("keep", [4, -20])
def test_a_damaged_rollout_file_is_named(run, keep, record):
    run.write_rollouts(1, rollout_rows(record, 1, decode))
    path = run.path / "rollouts" / "step-000001.jsonl.zst"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"step-000001.*got damage"):
        list(run.rollouts(1))


def test_a_row_needs_its_step(run):
    with pytest.raises(ValueError, match=r"evals\.jsonl needs an integer 'step'"):
        run.append_evaluation({"eval/mean": 0.5})


def test_two_processes_never_write_one_run(run):
    program = (
        "import sys, time; from pathlib import Path; "
        "from accredit.reports.run_directory import RunDirectory\n"
        "with RunDirectory(Path(sys.argv[1])).lock():\n"
        "    print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(run.path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        message = f"held by process {holder.pid}"
        with pytest.raises(BlockingIOError, match=message), run.lock():
            pass
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    with run.lock():
        pass
    with run.lock():
        pass


def test_rollout_rows_align_with_their_tokens(run, record):
    run.write_rollouts(7, rollout_rows(record, 7, decode))
    rows = list(run.rollouts(7))
    rollouts = [r for group in record.groups for r in group.rollouts]
    assert len(rows) == len(rollouts) == 64
    for index, (row, rollout) in enumerate(zip(rows, rollouts, strict=True)):
        length = len(rollout.token_ids)
        assert row["token_ids"] == rollout.token_ids.tolist()
        assert "".join(row["tokens"]) == row["prompt"] + row["completion"]
        assert len(row["values"]) == length + 1
        for key in ("advantages", "logprobs", "old_logprobs", "sampling_logprobs"):
            assert len(row[key]) == length
        kept = record.credit.advantages[index, :length].tolist()
        np.testing.assert_allclose(row["advantages"], kept, atol=1e-6)
    none = [row for row in rows if row["reward"] is None]
    assert all(row["reason"] == "verifier timed out after 5 s" for row in none)


def test_rollout_rows_hold_what_the_critic_was_taught(run, record):
    run.write_rollouts(7, rollout_rows(record, 7, decode))
    change, targets = record.change, record.credit.value_targets
    for index, row in enumerate(run.rollouts(7)):
        length = len(row["token_ids"])
        for key, tensor in (
            ("new_logprobs", change.new_logprobs[index, :length]),
            ("ratios", change.ratios[index, :length]),
            ("value_targets", targets[index, : length + 1]),
        ):
            np.testing.assert_allclose(row[key], tensor.tolist(), atol=1e-6)
        assert row["accepted"] == change.accepted[index, :length].int().tolist()
        if row["reward"]:
            start = row["num_prompt_tokens"]
            wanted = row["reward"] * np.array(row["ratios"][start:])
            np.testing.assert_allclose(row["value_targets"][start:-1], wanted, 1e-5)
    assert {0, 1} == {a for row in run.rollouts(7) for a in row["accepted"]}


def test_a_critic_without_parameters_taught_nothing(run, record):
    from dataclasses import replace

    bare = replace(record, change=None, credit=Credit(record.credit.advantages))
    run.write_rollouts(7, rollout_rows(bare, 7, decode))
    keys = ("value_targets", "new_logprobs", "ratios", "accepted")
    assert all(row[key] is None for row in run.rollouts(7) for key in keys)


def test_rollout_rows_refuse_a_batch_of_other_rollouts(record):
    from dataclasses import replace

    partial = replace(record, groups=record.groups[:-1])
    with pytest.raises(ValueError, match="got 64 rows and 56 rollouts"):
        next(rollout_rows(partial, 1, decode))


def test_b168_lone_surrogates_are_replaced_and_emoji_kept(run):
    assert without_lone_surrogates("a\ud835b") == "a\ufffdb"
    assert without_lone_surrogates("a😀b") == "a😀b"
    assert without_lone_surrogates("a\ud83d\ude00b") == "a😀b"
    run.write_rollouts(1, [{"step": 1, "completion": "a\ud835b 😀"}])
    assert list(run.rollouts(1)) == [{"step": 1, "completion": "a\ufffdb 😀"}]


def test_text_with_line_separators_stays_one_row(run):
    text = "a\nb\u2028c\r\x0bd\x1e"
    run.write_rollouts(1, [{"step": 1, "completion": text}] * 2)
    assert [row["completion"] for row in run.rollouts(1)] == [text] * 2
    run.append_metrics({"step": 1, "note": text})
    assert run.metrics() == [{"step": 1, "note": text}]


def test_reading_rollouts_is_lazy(run):
    rng = np.random.default_rng(0)
    record = synthetic_record(rng, 0.5)
    run.write_rollouts(1, rollout_rows(record, 1, decode))
    assert next(run.rollouts(1))["sample"] == 0


def test_the_environment_names_versions_and_no_secret(monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2-hunter2")
    text = json.dumps(environment())
    assert "hunter2" not in text
    assert environment()["versions"]["torch"]
    assert environment()["num_cores"] >= 1
