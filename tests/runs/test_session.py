"""Whole runs: what they leave behind, and that nothing can make them lose it."""

import json
import os
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from accredit.command.cli import main
from accredit.learner.learner import Learner
from accredit.learner.schedules import Schedule
from accredit.loops.synchronous import Plan, train
from accredit.recipe.config import RecipeError
from accredit.records import Cost, Drawn, Record, State
from accredit.reports.activity import Activity
from accredit.reports.metrics.step import is_timing
from accredit.runs.session import Session, resume_training, start_training
from accredit.storage.checkpoint import checkpoints, latest_checkpoint
from accredit.storage.run_directory import RunDirectory
from accredit.world import World
from killed_run import killed_run
from runs import small_config, small_recipe, written_files

pytestmark = pytest.mark.whole_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written_files(tmp_path_factory.mktemp("session"))


@pytest.fixture(autouse=True)
def _working_directory(folder, monkeypatch):
    monkeypatch.chdir(folder)


@pytest.fixture(scope="module")
def uninterrupted(folder):
    before = Path.cwd()
    os.chdir(folder)
    run, finished = start_training(small_config(folder, name="uninterrupted"))
    os.chdir(before)
    assert finished
    return run


def weights(run):
    newest = latest_checkpoint(run.checkpoints)
    loaded = load_file(newest / "model" / "model.safetensors")
    return {name: tensor.clone() for name, tensor in loaded.items()}


def without_times(rows):
    return [{k: v for k, v in row.items() if not is_timing(k)} for row in rows]


def assert_same_run(run, other):
    assert without_times(run.metrics()) == without_times(other.metrics())
    assert run.evaluations() == other.evaluations()
    mine, theirs = weights(run), weights(other)
    assert mine.keys() == theirs.keys()
    for name, tensor in mine.items():
        assert torch.equal(tensor, theirs[name]), name
    assert run.rollout_steps() == other.rollout_steps()
    for step in run.rollout_steps():
        assert list(run.rollouts(step)) == list(other.rollouts(step))


def test_a_run_leaves_what_its_readers_rely_on(uninterrupted, folder):
    rows, scores = uninterrupted.metrics(), uninterrupted.evaluations()
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert [row["step"] for row in scores] == [0, 2, 4]
    relied_on = {
        "step",
        "reward/mean",
        "flops/decode",
        "flops/total",
        "tokens/generated",
        "time/step_s",
        "critic/explained_variance",
        "critic/mae",
        "critic/bias",
    }
    assert relied_on <= rows[-1].keys()
    assert {"step", "flops/decode", "eval/mean"} <= scores[-1].keys()
    for key in ("flops/decode", "flops/total", "tokens/generated"):
        values = [row[key] for row in rows]
        assert values == sorted(set(values)) and values[0] > 0
    assert uninterrupted.recipe()["algorithm"]["name"] == "grpo"
    assert "versions" in uninterrupted.environment()
    assert uninterrupted.report.is_file()
    assert uninterrupted.rollout_steps() == [1, 2, 4]


def test_the_terminal_is_told_what_goes_on_within_a_step(folder, monkeypatch):
    told: list[str] = []
    monkeypatch.setattr(Activity, "_tick", lambda self: told.append(self.text))
    config = small_config(folder, name="watched", steps=1)
    assert start_training(config)[1]
    evaluating = [text for text in told if text.startswith("evaluating ")]
    assert evaluating[-1].startswith("evaluating 8/8 rollouts, ")
    rolling = [text for text in told if text.startswith("rolling out ")]
    assert rolling[-1].startswith("rolling out 12/12 rollouts, ")
    assert "updating 0/1 micro-batches" in told and "verifying" in told
    assert told[-1] == ""


def test_training_moves_the_weights_and_the_reward(uninterrupted, folder):
    start = load_file(folder / "model" / "model.safetensors")
    moved = [
        name
        for name, tensor in weights(uninterrupted).items()
        if not torch.equal(tensor, start[name])
    ]
    assert len(moved) > 5
    long, _ = start_training(small_config(folder, name="long", steps=40))
    rewards = [row["reward/mean"] for row in long.metrics()]
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.1


def test_the_checkpoint_is_a_plain_model_directory(uninterrupted):
    model = latest_checkpoint(uninterrupted.checkpoints) / "model"
    loaded = AutoModelForCausalLM.from_pretrained(model)
    assert loaded.config.model_type == "qwen3"
    AutoTokenizer.from_pretrained(model)


@pytest.mark.parametrize(
    ("place", "step"), [("generate", 4), ("update", 4), ("save", 2)]
)
def test_a_killed_run_resumes_bit_for_bit(place, step, folder, uninterrupted):
    name = f"killed-in-{place}"
    recipe = folder / f"{name}.json"
    recipe.write_text(json.dumps(small_recipe(folder, name=name)))
    assert killed_run(recipe, place, step) == -9
    path = folder / "runs" / name
    newest = latest_checkpoint(path / "checkpoints")
    assert newest is not None and newest.name == "step-000002"
    run, finished = resume_training(path, ())
    assert finished
    assert_same_run(run, uninterrupted)


def test_a_run_killed_before_its_first_checkpoint_starts_over(folder, uninterrupted):
    recipe = folder / "early.json"
    recipe.write_text(json.dumps(small_recipe(folder, name="early")))
    assert killed_run(recipe, "save", 1) == -9
    run, _ = resume_training(folder / "runs" / "early", ())
    assert_same_run(run, uninterrupted)


def test_a_stopped_run_saves_and_resumes_bit_for_bit(
    folder, uninterrupted, monkeypatch
):
    stepped = Session.stepped

    def stop_after_three(self, state, record):
        stepped(self, state, record)
        if state.step == 3:
            self.request_stop(2, None)

    monkeypatch.setattr(Session, "stepped", stop_after_three)
    run, finished = start_training(small_config(folder, name="stopped"))
    assert not finished
    assert latest_checkpoint(run.checkpoints).name == "step-000003"
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    run, finished = resume_training(run.path, ())
    assert finished
    assert_same_run(run, uninterrupted)


def test_a_torn_checkpoint_is_refused_by_name_and_the_one_before_is_used(folder):
    run, _ = start_training(small_config(folder, name="torn"))
    whole = weights(run)
    torn = run.checkpoints / "step-000004" / "model" / "model.safetensors"
    torn.write_bytes(torn.read_bytes()[:-100])
    with pytest.warns(UserWarning, match="step-000004"):
        again, finished = resume_training(run.path, ())
    assert finished
    assert all(torch.equal(t, whole[n]) for n, t in weights(again).items())


def test_a_run_of_torn_checkpoints_alone_keeps_its_files_and_is_not_resumed(folder):
    run, _ = start_training(small_config(folder, name="all-torn"))
    for checkpoint in run.checkpoints.iterdir():
        (checkpoint / "state.json").unlink()
    rows, kept = run.metrics(), run.rollout_steps()
    with (
        pytest.warns(UserWarning, match="is torn and not used"),
        pytest.raises(RecipeError, match=r"got none but torn ones in .*all-torn"),
    ):
        resume_training(run.path, ())
    assert (run.metrics(), run.rollout_steps()) == (rows, kept)


def test_a_full_disk_loses_no_checkpoint_and_is_no_success(folder, monkeypatch):
    from accredit.learner.learner import Learner

    save = Learner.save

    def full_at_the_end(self, path):
        save(self, path)
        if self.num_updates == 4:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(Learner, "save", full_at_the_end)
    with pytest.raises(RuntimeError, match=r"No space.*accredit train --resume"):
        start_training(small_config(folder, name="full"))
    run = RunDirectory(folder / "runs" / "full")
    assert latest_checkpoint(run.checkpoints).name == "step-000002"
    assert run.latest_step == 4 and run.report.exists()


def test_a_disk_that_is_full_for_a_while_ends_no_run(folder, monkeypatch):
    from accredit.learner.learner import Learner

    save = Learner.save

    def full_in_between(self, path):
        save(self, path)
        if self.num_updates == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(Learner, "save", full_in_between)
    run, finished = start_training(small_config(folder, name="full-once"))
    assert finished
    assert latest_checkpoint(run.checkpoints).name == "step-000004"


def test_a_second_resume_cannot_touch_a_live_run(folder):
    run, _ = start_training(small_config(folder, name="live", steps=2))
    before = run.metrics()
    with run.lock(), pytest.raises(BlockingIOError, match="one process writes a run"):
        resume_training(run.path, ["--steps", "3"])
    assert run.metrics() == before


@pytest.mark.parametrize(
    ("scores", "every", "kept"),
    [
        ([0.0, 0.9, 0.5, 0.4, 0.1], 2, [1, 4]),
        ([0.9, 0.1, 0.2, 0.3, 0.1], 4, [3, 4]),
        ([0.0, 0.5, 0.5, 0.5, 0.4], 0, [1, 4]),
        ([0.0, 0.1, 0.2, 0.3, 0.4], 0, [4]),
        ([0.0, None, 0.2, None, None], 0, [2, 4]),
        ([0.0, None, None, None, None], 2, [4]),
    ],
)
def test_the_best_checkpoint_is_kept_wherever_evaluations_fall(
    tmp_path, monkeypatch, scores, every, kept
):
    def evaluated(_):
        score = scores[len(run.evaluations())]
        row = {} if score is None else {"eval/mean": score}
        return SimpleNamespace(metrics=lambda: row), Cost()

    monkeypatch.setattr("accredit.runs.session.evaluate", evaluated)
    monkeypatch.setattr(Session, "_write", lambda *_: None)
    monkeypatch.setattr(Session, "stepped", lambda *_: None)
    run = RunDirectory(tmp_path)
    checkpoint = SimpleNamespace(keep_last=1)
    learner = SimpleNamespace(num_consecutive_skips=0)
    assembly = SimpleNamespace(
        config=SimpleNamespace(checkpoint=checkpoint),
        world=SimpleNamespace(learner=learner),
    )
    progress = SimpleNamespace(
        evaluated=lambda _: None,
        alarm=lambda _: None,
        activity=SimpleNamespace(evaluating=nullcontext),
    )
    session = Session.__new__(Session)
    session.__dict__ |= {
        "assembly": assembly,
        "config": assembly.config,
        "run": run,
        "progress": progress,
        "trackers": (),
        "watch": SimpleNamespace(heard=lambda _: ()),
        "stop_requested": False,
        "save_requested": False,
    }
    plan = Plan(num_steps=4, evaluate_every=1, save_every=every)
    train(Idle(), object.__new__(World), State(), plan, session)
    names = sorted(path.name for path in run.checkpoints.iterdir())
    assert names == [f"step-{step:06d}" for step in kept]


@dataclass(frozen=True)
class Idle:
    """An algorithm whose steps do nothing."""

    clip_bounds: None = None
    initial_memory: None = None

    def draw(self, state: State, world: World) -> Drawn:
        return Drawn(())

    def learn(self, state: State, world: World, drawn: Drawn) -> tuple[State, Any]:
        return state.advance(Cost()), EMPTY_RECORD


EMPTY_RECORD = object.__new__(Record)
"""Nobody looks at it."""


def test_a_best_evaluation_between_two_saves_is_saved(folder, monkeypatch):
    scores = iter([0.0, 0.9, 0.5, 0.4, 0.1])
    monkeypatch.setattr(
        "accredit.reports.evaluation.EvalResult.metrics",
        lambda self: {"eval/mean": next(scores)},
    )
    config = small_config(
        folder,
        name="best",
        evaluation={"every": 1, "samples": 1},
        checkpoint={"every": 2, "keep_last": 1},
    )
    run, _ = start_training(config)
    names = sorted(path.name for path in run.checkpoints.iterdir())
    assert names == ["step-000001", "step-000004"]


def test_a_resumed_run_may_grow_but_not_become_another(folder):
    run, _ = start_training(small_config(folder, name="grown", steps=2))
    with pytest.raises(RecipeError, match=r"may only change steps.*got learner"):
        resume_training(run.path, ["--learner.learning_rate", "1e-2"])
    run, _ = resume_training(run.path, ["--steps", "3"])
    assert [row["step"] for row in run.metrics()] == [1, 2, 3]
    assert run.recipe()["steps"] == 3


def test_other_data_are_noticed_on_resume(folder, capsys):
    data = folder / "other.jsonl"
    data.write_text((folder / "rows.jsonl").read_text())
    run, _ = start_training(
        small_config(folder, name="data", steps=2, task={"path": str(data)})
    )
    data.write_text(data.read_text().replace("say", "tell"))
    more = ["--steps", "3"]
    with pytest.raises(RecipeError, match="got others: the prompts that are trained"):
        resume_training(run.path, more)
    capsys.readouterr()
    run, _ = resume_training(run.path, more, accept_changes=True)
    assert "before step 3: the prompts that are trained on" in capsys.readouterr().out
    first = next(run.rollouts(1))["prompt"], next(run.rollouts(2))["prompt"]
    assert all("say" in prompt for prompt in first)
    assert [row["step"] for row in run.metrics()] == [1, 2, 3]


def test_a_new_run_never_writes_over_an_old_one(folder, uninterrupted):
    before = uninterrupted.metrics()
    run, _ = start_training(small_config(folder, name="uninterrupted", steps=1))
    assert run.path.name == "uninterrupted-2"
    assert uninterrupted.metrics() == before


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise RuntimeError('boom')", "boom"),
        ("return None", "None"),
        ("return float('nan')", "nan"),
        ("return [1.0, 2.0]", "list"),
    ],
)
def test_a_faulty_reward_function_stops_the_run_with_its_reason(
    body, reason, folder, monkeypatch
):
    name = f"faulty_{abs(hash(body))}"
    (folder / f"{name}.py").write_text(
        # Its trial on gold answers does not show it.
        "def reward(completion, problem):\n"
        f"    if completion == problem.answer:\n        return 1.0\n    {body}\n"
    )
    config = small_config(
        folder, name=name, steps=40, task={"reward_function": f"{name}:reward"}
    )
    with pytest.raises(RuntimeError, match="max_invalid_share") as raised:
        start_training(config)
    assert reason.lower() in str(raised.value).lower()


@pytest.mark.parametrize("broken_at", [1, 3])
def test_weights_that_break_end_the_run_and_the_last_good_checkpoint_stays(
    folder, monkeypatch, capsys, broken_at
):
    rate = Schedule.rate
    monkeypatch.setattr(
        Schedule,
        "rate",
        lambda self, done: 1e39 if done + 1 == broken_at else rate(self, done),
    )
    recipe = small_recipe(
        folder,
        name=f"broken-{broken_at}",
        checkpoint={"every": 1, "keep_last": 1},
        evaluation={"every": 0, "samples": 1},
    )
    written = folder / f"broken-{broken_at}.json"
    written.write_text(json.dumps(recipe))
    with pytest.raises(SystemExit) as stop:
        main(["train", str(written)])
    assert stop.value.code == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "weights of the policy must be finite after a step" in line
    run = RunDirectory(folder / "runs" / f"broken-{broken_at}")
    names = [found.name for found in checkpoints(run.checkpoints)]
    assert names == ([] if broken_at == 1 else ["step-000002"])
    if names:
        assert all(bool(t.isfinite().all()) for t in weights(run).values())


def test_nothing_is_pruned_while_steps_are_left_out(folder, monkeypatch):
    """What was saved before the steps that were not finite is the last good one."""
    monkeypatch.setattr(Learner, "num_consecutive_skips", property(lambda self: 1))
    changes = {"checkpoint": {"every": 1, "keep_last": 1}, "name": "skipping"}
    run, _ = start_training(small_config(folder, steps=3, **changes))
    assert len(checkpoints(run.checkpoints)) == 3
