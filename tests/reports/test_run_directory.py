"""What is written stays; what is torn or too late goes; what is damaged is named."""

import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import zstandard
from synthetic_run import RECIPE, decode, synthetic_record

from accredit.records import Credit
from accredit.reports.environment import environment
from accredit.reports.rollouts import is_sound, rollout_rows
from accredit.storage.run_directory import NotWritten, RunDirectory
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


ODD_LINES = (
    b"garbage",
    b"null",
    b"[1]",
    b"",
    b"\xff\xfe",
    b"{}",
    b'{"step": "2"}',
    b'{"step": true}',
    b'{"step": -1}',
    b'{"step": 2.0}',
    b'{"step": null}',
    b'{"step": 1e400}',
    b'{"step": 10000000000000}',
    b'{"step": 2, "reward/mean": "high"}',
    b'{"step": 2, "reward/mean": [1]}',
    b'{"step": 2, "reward/mean": 1' + b"0" * 400 + b"}",
    b"[" * 100_000,
)


@pytest.mark.parametrize("line", ODD_LINES, ids=range(len(ODD_LINES)))
def test_an_odd_row_is_left_out_and_counted(run, line):
    write_steps(run, 1, 4)
    for name in ("metrics.jsonl", "evals.jsonl"):
        path = run.path / name
        first, *rest = path.read_bytes().split(b"\n")
        path.write_bytes(b"\n".join([line, first, line, *rest]))
    assert [row["step"] for row in run.metrics()] == [1, 2, 3, 4]
    assert [row["step"] for row in run.evaluations()] == [2, 4]
    told = run.odd_rows()
    assert [text[:40] for text in told] == [
        "2 rows of metrics.jsonl left out, the fi",
        "2 rows of evals.jsonl left out, the firs",
    ]
    assert all("in line 1:" in text for text in told)
    run.truncate(3)
    assert run.odd_rows() == []
    assert [row["step"] for row in run.metrics()] == [1, 2, 3]


@pytest.mark.parametrize("number", ["null", "NaN", "Infinity", "-Infinity"])
def test_a_number_that_is_none_is_not_there(run, number):
    text = f'{{"step": 1, "reward/mean": {number}, "length/mean": 2.0}}\n'
    (run.path / "metrics.jsonl").write_text(text)
    assert run.metrics() == [{"step": 1, "length/mean": 2.0}]
    assert run.odd_rows() == []


def test_a_damaged_recipe_is_named(run):
    (run.path / "recipe.json").write_text('{"seed":')
    with pytest.raises(ValueError, match=r"recipe\.json must hold JSON"):
        run.recipe()
    (run.path / "recipe.json").write_text("[1]")
    with pytest.raises(ValueError, match="a JSON object, got list"):
        run.recipe()


def test_a_rollout_that_is_no_object_is_named(run):
    run.write_rollouts(1, [{"step": 1}])
    path = run.path / "rollouts" / "step-000001.jsonl.zst"
    path.write_bytes(zstandard.compress(b'{"step": 1}\nnull\n'))
    with pytest.raises(ValueError, match=r"step-000001.*got damage.*b'null'"):
        list(run.rollouts(1))


PLACES = (
    "recipe.json",
    "environment.json",
    "metrics.jsonl",
    "evals.jsonl",
    "rollouts",
    "checkpoints",
    ".lock",
    "sources.json",
    "report.html",
    "recipe.json.partial",
    "rollouts/step-000002.jsonl.zst.partial",
    "rollouts/step-000002.jsonl.zst",
    "checkpoints/.step-000002.partial",
    "checkpoints/step-000002",
)


def put(path, kind, target):
    """A link, a dangling link or a pipe in the place of `path`."""
    path.parent.mkdir(exist_ok=True)
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(target if kind == "link" else target / "nowhere")


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe"])
@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_written_through_a_link(run, tmp_path, place, kind):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "step-000002").mkdir()
    write_steps(run, 1, 1)
    put(run.path / place, kind, outside)
    with (
        pytest.raises(ValueError, match=f"{place} must be an ordinary file"),
        run.lock(),
    ):
        pass
    assert [path.name for path in outside.iterdir()] == ["step-000002"]


def test_a_link_that_comes_later_is_not_followed(run, tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("precious")
    with run.lock():
        for name in ("metrics.jsonl", "evals.jsonl", "recipe.json.partial"):
            put(run.path / name, "link", outside)
        put(run.path / "rollouts/step-000001.jsonl.zst.partial", "link", outside)
        with pytest.raises(ValueError, match=r"metrics\.jsonl must be an ordinary"):
            run.append_metrics({"step": 1})
        with pytest.raises(ValueError, match=r"evals\.jsonl must be an ordinary"):
            run.append_evaluation({"step": 1})
        with pytest.raises(ValueError, match=r"recipe\.json\.partial must be an ord"):
            run.rewrite_recipe({})
        with pytest.raises(ValueError, match=r"zst\.partial must be an ordinary"):
            run.write_rollouts(1, [])
    assert outside.read_text() == "precious"


def test_leftovers_of_a_kill_go_when_the_run_goes_on(run):
    write_steps(run, 1, 2)
    (run.path / "recipe.json.partial").write_text("{")
    (run.path / "rollouts" / "step-000004.jsonl.zst.partial").write_bytes(b"x")
    (run.path / "old.partial").mkdir()
    with run.lock():
        pass
    assert sorted(p.name for p in run.path.rglob("*")) == [
        ".lock",
        "environment.json",
        "evals.jsonl",
        "metrics.jsonl",
        "recipe.json",
        "rollouts",
        "step-000002.jsonl.zst",
    ]


def away(run, tmp_path):
    run.path.rename(tmp_path / "moved")


def gone(run, tmp_path):
    shutil.rmtree(run.path)


def another(run, tmp_path):
    away(run, tmp_path)
    run.path.mkdir()


@pytest.mark.parametrize("change", [away, gone, another])
@pytest.mark.parametrize(
    "write",
    [
        lambda run: run.append_metrics({"step": 1}),
        lambda run: run.append_evaluation({"step": 1}),
        lambda run: run.write_rollouts(1, []),
        lambda run: run.rewrite_recipe({}),
        lambda run: run.require_in_place(),
    ],
)
def test_a_run_whose_folder_went_away_writes_nowhere(run, tmp_path, change, write):
    with run.lock():
        change(run, tmp_path)
        with pytest.raises(NotWritten, match="must stay while it is trained"):
            write(run)
        assert not run.path.exists() or not list(run.path.iterdir())


def test_a_full_disk_is_a_failed_run_and_no_mistake(run, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("accredit.storage.run_directory.append_row", full)
    with pytest.raises(NotWritten, match=r"No space.*accredit train --resume .*run"):
        run.append_metrics({"step": 1})


@pytest.mark.parametrize(
    "left",
    [
        "metrics.jsonl",
        "checkpoints",
        "evals.jsonl",
        "environment.json",
        "notes.txt",
        ".hidden",
    ],
)
def test_a_folder_that_lost_its_recipe_is_not_taken_as_empty(tmp_path, left):
    run = RunDirectory(tmp_path / "lost")
    run.require_empty()
    run.path.mkdir()
    (run.path / ".lock").write_text("1")
    run.require_empty()
    (run.path / left).mkdir()
    with pytest.raises(ValueError, match=f"'{left}' and no recipe.json; restore"):
        run.require_empty()


def test_a_folder_that_cannot_be_made_is_told_plainly(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "run", tmp_path / "file"):
        run = RunDirectory(place)
        with pytest.raises(ValueError, match="must be writable, got"), run.lock():
            pass


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
        "from accredit.storage.run_directory import RunDirectory\n"
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


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tokens", None),
        ("tokens", [1, 2]),
        ("tokens", "text"),
        ("problem_id", 7),
        ("prompt", None),
        ("reason", ["x"]),
        ("reward", "1.0"),
        ("reward", float("nan")),
        ("reward", 10**400),
        ("shaped_reward", None),
        ("step", "1"),
        ("num_prompt_tokens", -1),
        ("num_prompt_tokens", 10**6),
        ("num_replayed", 10**6),
        ("values", []),
        ("values", None),
        ("advantages", ["a"]),
        ("sampled", {}),
        ("logprobs", [1.0]),
        ("ratios", "none"),
        ("advantage_unit", 3),
    ],
)
def test_a_rollout_that_cannot_be_shown_is_told_apart(run, record, key, value):
    run.write_rollouts(7, rollout_rows(record, 7, decode))
    rows = list(run.rollouts(7))
    assert all(map(is_sound, rows))
    assert is_sound(rows[0] | {"logprobs": None, "ratios": None})
    assert not is_sound(rows[0] | {key: value})
    assert not is_sound({k: v for k, v in rows[0].items() if k != "tokens"})


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
