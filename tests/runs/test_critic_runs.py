"""Whole runs with a critic: saved with the policy, resumed bit for bit, or warm."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from accredit.reports.metrics.step import is_timing
from accredit.runs.session import resume_training, start_training
from accredit.storage.checkpoint import latest_checkpoint
from killed_run import killed_run
from runs import small_config, small_recipe, written_files

pytestmark = pytest.mark.whole_run
TRUNKS = ("own", "shared", "lora")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written_files(tmp_path_factory.mktemp("critics"))


@pytest.fixture(autouse=True)
def _working_directory(folder, monkeypatch):
    monkeypatch.chdir(folder)


def with_critic(trunk="own", **critic):
    section = {"trunk": trunk, "warmup_steps": 1, "learning_rate": 1e-2} | critic
    return {
        "name": "pact",
        "prompts_per_step": 3,
        "group_size": 4,
        "num_minibatches": 2,
        "critic": {"num_minibatches": 2} | section,
    }


@pytest.fixture(scope="module")
def uninterrupted(folder):
    """A run of every trunk, begun when it is first asked for."""
    runs = {}

    def of(trunk):
        if trunk not in runs:
            before = Path.cwd()
            os.chdir(folder)
            config = small_config(
                folder, name=f"whole-{trunk}", algorithm=with_critic(trunk)
            )
            runs[trunk], finished = start_training(config)
            os.chdir(before)
            assert finished
        return runs[trunk]

    return of


def tensors(run):
    """Of everything in the newest checkpoint, by file and name."""
    newest = latest_checkpoint(run.checkpoints)
    return {
        (str(file.relative_to(newest)), name): tensor.clone()
        for file in sorted(newest.rglob("*.safetensors"))
        for name, tensor in load_file(file).items()
    }


def rows(run):
    return [
        {key: value for key, value in row.items() if not is_timing(key)}
        for row in run.metrics()
    ]


def assert_same(run, other):
    assert rows(run) == rows(other)
    mine, theirs = tensors(run), tensors(other)
    assert mine.keys() == theirs.keys()
    for name, tensor in mine.items():
        assert torch.equal(tensor, theirs[name]), name


@pytest.mark.parametrize("trunk", TRUNKS)
def test_a_run_killed_in_its_critic_resumes_bit_for_bit(trunk, folder, uninterrupted):
    name = f"killed-{trunk}"
    recipe = folder / f"{name}.json"
    written = small_recipe(folder, name=name, algorithm=with_critic(trunk))
    recipe.write_text(json.dumps(written))
    # Two critic steps a step: the first one of the fourth.
    assert killed_run(recipe, "critic", 7) == -9
    path = folder / "runs" / name
    assert latest_checkpoint(path / "checkpoints").name == "step-000002"
    run, finished = resume_training(path, ())
    assert finished
    assert_same(run, uninterrupted(trunk))


@pytest.mark.parametrize("trunk", TRUNKS)
def test_critic_and_policy_both_learn(trunk, folder, uninterrupted):
    run = uninterrupted(trunk)
    metrics = run.metrics()
    assert [row.get("policy/loss") is None for row in metrics] == [True, *3 * [False]]
    assert all(row["critic/gradient_norm"] > 0 for row in metrics)
    # Its own trunk, or the shared one, is in the checkpoint once.
    files = {file for file, _ in tensors(run)}
    assert ("critic/model.safetensors" in files) == (trunk == "own")
    assert "critic/value_head.safetensors" in files


def test_the_critic_of_a_run_starts_another_one(folder, uninterrupted):
    """Weights only: its optimizer, its counters and its warm-up are new."""
    source = uninterrupted("own")
    first = small_config(
        folder,
        name="warm",
        steps=1,
        algorithm=with_critic(path=str(source.path), warmup_steps=1),
    )
    run, _ = start_training(first)
    known = run.metrics()[0]["critic/value_mean"]
    assert known == pytest.approx(source.metrics()[-1]["critic/value_mean"], abs=0.1)
    assert abs(known - 0.5) > 0.02
    card = latest_checkpoint(run.checkpoints) / "critic" / "value_head.json"
    assert json.loads(card.read_text())["num_updates"] == 1


def test_adapters_on_another_policy_than_they_had_are_told(
    folder, uninterrupted, capsys
):
    """The run's policy has moved since its start; its checkpoint is the one it had."""
    source = uninterrupted("lora")
    section = with_critic("lora", path=str(source.path))
    told = "was trained on other weights than the policy's"
    moved = latest_checkpoint(source.checkpoints) / "model"
    for path, warns in ((folder / "model", True), (moved, False)):
        config = small_config(
            folder,
            name="warm-lora",
            steps=1,
            algorithm=section,
            model={"path": str(path)},
        )
        start_training(config)
        assert (told in " ".join(capsys.readouterr().out.split())) == warns
