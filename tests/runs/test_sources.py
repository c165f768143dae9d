"""Critic and teacher of a run: the same after a resume, and never short of room."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from accredit.reports.metrics.step import is_timing
from accredit.runs.assembly import assemble
from accredit.runs.session import resume_training, start_training
from accredit.runs.sources import SOURCES_FILE, recorded_folder, require_room_for
from accredit.storage.checkpoint import latest_checkpoint
from accredit.types import Message, Problem, Prompt
from runs import small_config, written_files
from tiny_models import tiny_qwen3

pytestmark = pytest.mark.whole_run

MORE = ("--steps", "4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written_files(tmp_path_factory.mktemp("sources"))


@pytest.fixture(autouse=True)
def _working_directory(folder, monkeypatch):
    monkeypatch.chdir(folder)


@pytest.fixture
def source(folder, tmp_path):
    """A run with a critic, one checkpoint old."""
    run, _ = start_training(
        small_config(
            folder,
            runs_folder=str(tmp_path),
            name="source",
            steps=1,
            algorithm=critic_section(),
            checkpoint={"every": 1, "keep_last": 9},
        )
    )
    return run


def critic_section(**critic):
    section = {"warmup_steps": 1, "learning_rate": 1e-2, **critic}
    small = {"prompts_per_step": 3, "group_size": 4}
    return {"name": "pact", **small, "critic": section}


def opd_section(teacher):
    return {"name": "opd", "prompts_per_step": 3, "group_size": 2, "teacher": teacher}


def trained(folder, tmp_path, name, algorithm, **changes):
    config = small_config(
        folder, runs_folder=str(tmp_path), name=name, algorithm=algorithm, **changes
    )
    return start_training(config)[0]


def rows(run):
    return [{k: v for k, v in r.items() if not is_timing(k)} for r in run.metrics()]


def spoiled(file: Path):
    """Other weights under the same name."""
    tensors = load_file(file)
    name = sorted(tensors)[0]
    tensors[name] = tensors[name] + 0.1
    save_file(tensors, file, {"format": "pt"})


def test_a_resumed_run_has_the_teacher_it_began_with(folder, tmp_path, source):
    """The teacher trains on meanwhile; its newest checkpoint is another model."""
    section = opd_section(str(source.path))
    whole = trained(folder, tmp_path, "whole", section)
    halted = trained(folder, tmp_path, "halted", section, steps=2)
    resume_training(source.path, ("--steps", "2"))
    assert latest_checkpoint(source.checkpoints).name == "step-000002"
    resumed, finished = resume_training(halted.path, MORE)
    assert finished
    assert rows(resumed) == rows(whole)
    other = trained(folder, tmp_path, "other", section)
    assert rows(other) != rows(whole)


def test_a_teacher_of_other_weights_is_refused(folder, tmp_path):
    teacher = tiny_qwen3(tmp_path / "teacher", seed=7)
    halted = trained(folder, tmp_path, "halted", opd_section(str(teacher)), steps=2)
    spoiled(teacher / "model.safetensors")
    with pytest.raises(
        ValueError,
        match=r"^algorithm.teacher must be the weights that the run began with, got "
        r"others in .*teacher; restore",
    ):
        resume_training(halted.path, MORE)
    shutil.rmtree(teacher)
    with pytest.raises(ValueError, match=r"began with, got none in .*teacher; restore"):
        resume_training(halted.path, MORE)
    (halted.path / SOURCES_FILE).write_text('{"sources": {}}')
    with pytest.raises(ValueError, match=r"must say which algorithm.teacher the run"):
        resume_training(halted.path, MORE)


def test_the_packaged_model_and_the_policy_itself_may_teach(folder, tmp_path):
    halted = trained(
        folder,
        tmp_path,
        "itself",
        opd_section("self") | {"template": "{prompt} {answer}"},
        steps=1,
    )
    assert not (halted.path / SOURCES_FILE).exists()
    packaged = {"path": "packaged"}
    halted = trained(
        folder,
        tmp_path,
        "packaged",
        opd_section("packaged"),
        steps=1,
        model=packaged,
    )
    recorded = json.loads((halted.path / SOURCES_FILE).read_text())["sources"]
    assert recorded["algorithm.teacher"]["folder"] == "packaged"
    assert resume_training(halted.path, ("--steps", "2"))[1]


@pytest.mark.parametrize("trunk", ["own", "lora"])
def test_a_checkpoint_needs_nothing_of_where_its_critic_began(folder, tmp_path, trunk):
    start = trained(folder, tmp_path, "start", critic_section(trunk=trunk), steps=1)
    section = critic_section(trunk=trunk, path=str(start.path))
    whole = trained(folder, tmp_path, "whole", section)
    halted = trained(folder, tmp_path, "halted", section, steps=2)
    shutil.rmtree(start.path)
    resumed, finished = resume_training(halted.path, MORE)
    assert finished
    assert rows(resumed) == rows(whole)


def test_a_run_without_a_checkpoint_starts_over_with_the_same_critic(
    folder, tmp_path, source
):
    section = critic_section(path=str(source.path))
    halted = trained(folder, tmp_path, "halted", section, steps=2)
    before = rows(halted)
    resume_training(source.path, ("--steps", "2"))
    shutil.rmtree(halted.checkpoints)
    resumed, _ = resume_training(halted.path, ())
    assert rows(resumed) == before
    shutil.rmtree(halted.checkpoints)
    first = source.checkpoints / "step-000001" / "critic"
    spoiled(first / "value_head.safetensors")
    with pytest.raises(ValueError, match=r"^algorithm.critic.path must be the weights"):
        resume_training(halted.path, ())


@pytest.mark.parametrize("key", ["algorithm.critic.path", "algorithm.teacher"])
def test_a_judge_with_a_shorter_context_is_found_before_anything_is_sampled(
    folder, tmp_path, key
):
    short = str(tiny_qwen3(tmp_path / "short", max_position_embeddings=16))
    section = critic_section(path=short) if "critic" in key else opd_section(short)
    with pytest.raises(
        ValueError,
        match=rf"^{key} must leave room for a completion in a context of 16 tokens, "
        r"got a prompt of \d+ and sampling.max_new_tokens = 10; .* model with more",
    ):
        assemble(small_config(folder, algorithm=section))


def asked(num_tokens: int) -> Prompt:
    problem = Problem(f"p{num_tokens}", (Message("user", "?"),))
    return Prompt(problem, tuple(range(num_tokens)))


def test_a_judge_needs_what_the_policys_own_context_lets_through():
    """A prompt of 8 and a budget of 10 are 18 tokens, or 14 where the policy ends."""
    require = partial(
        require_room_for,
        "algorithm.template",
        "algorithm.teacher",
        show=lambda template, prompt: (*prompt.token_ids, 0, 0),
        prompts=[asked(3), asked(8)],
        budget=10,
    )
    require("", 18, policy_context=None)
    require("", None, policy_context=None)
    require("", 14, policy_context=14)
    with pytest.raises(ValueError, match=r"^algorithm.teacher .* 17 tokens, got a pro"):
        require("", 17, policy_context=None)
    with pytest.raises(ValueError, match=r"^algorithm.teacher .* of 13 tokens"):
        require("", 13, policy_context=14)
    require("{prompt}!", 20, policy_context=None)
    with pytest.raises(ValueError, match=r"^algorithm.template .* a prompt of 10 and"):
        require("{prompt}!", 19, policy_context=None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        '{"sources": []}',
        '{"sources": {"algorithm.teacher": 3}}',
        '{"sources": {"algorithm.teacher": {"folder": "x"}}}',
        "[" * 100_000,
    ],
    ids=range(8),
)
def test_a_damaged_record_of_judges_is_named(tmp_path, text):
    (tmp_path / SOURCES_FILE).write_text(text)
    with pytest.raises(ValueError, match=r"sources\.json must say which alg"):
        recorded_folder("algorithm.teacher", tmp_path)
