"""Whatever hangs on a key that a resumed run may change is said."""

import ast
import re
from pathlib import Path

import pytest

from accredit.recipe.config import RunConfig, recipe_from
from accredit.runs.resumed_keys import RESUMABLE_KEYS, change_lines
from accredit.runs.session import resume_training, start_training
from runs import small_config, written_files

pytestmark = pytest.mark.whole_run

SOURCE = Path(__file__).parents[2] / "src" / "accredit"
READERS = {
    "steps": {
        "recipe/config.py",
        "reports/embedded.py",
        "runs/assembly.py",
        "runs/first_lines.py",
        "runs/resumed_keys.py",
        "runs/session.py",
    },
    "num_policy_updates": {
        "recipe/config.py",
        "runs/assembly.py",
        "runs/first_lines.py",
    },
    "threads": {"runs/assembly.py"},
}
"""Who reads what hangs on a key: a new one must say what then changes on resume."""


def recipe(**content) -> RunConfig:
    return recipe_from(content, "test")


def lines(before, after, num_steps=20, num_updates=20):
    return change_lines(recipe(**before), recipe(**after), num_steps, num_updates)


@pytest.mark.parametrize(
    ("schedule", "old", "new", "rates"),
    [
        ("linear", 40, 80, ("0.75", "0.5")),
        ("linear", 40, 25, ("0.2", "0.5")),
        ("linear", 20, 40, ("0.5", "0")),
        ("cosine", 40, 80, ("0.854", "0.5")),
        ("cosine", 20, 21, ("0.00558", "0")),
    ],
)
def test_a_rate_that_jumps_is_said_with_both_numbers(schedule, old, new, rates):
    learner = {"schedule": schedule, "learning_rate": 1.0}
    (line,) = lines(
        {"steps": old, "learner": learner}, {"steps": new, "learner": learner}
    )
    assert f"now ends at step {new}, not {old}" in line
    found = re.findall(r"(?:rate|had) ([0-9.e-]+)(?:,|;)", line)
    assert tuple(found) == rates


def test_the_rate_counts_the_policys_updates_not_the_critics():
    learner = {"schedule": "linear", "learning_rate": 1.0}
    critic = {"name": "ppo", "critic": {"warmup_steps": 10}}
    (line,) = lines(
        {"steps": 30, "learner": learner, "algorithm": critic},
        {"steps": 50, "learner": learner, "algorithm": critic},
        num_updates=10,
    )
    assert "learning rate 0.75, it would have had 0.5" in line


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({"steps": 40}, {"steps": 80}, None),
        ({"threads": 1}, {"threads": 2}, "threads changed: sums are rounded in anoth"),
        ({}, {"engine": {"max_batch_rows": 3}}, "engine changed: logits are rounded"),
        ({}, {"engine": {"max_batch_tokens": 900}, "threads": 1}, "threads and engine"),
        ({"steps": 40}, {"steps": 20}, "steps = 20 are behind the run, which has ta"),
        ({"steps": 40}, {"steps": 7}, "nothing is trained"),
        ({}, {"checkpoint": {"keep_last": 1}}, "keep_last = 1 in place of 2: older"),
        ({}, {"checkpoint": {"keep_last": 5, "every": 3}}, None),
        ({}, {"trackers": ["tensorboard"]}, None),
        ({}, {}, None),
    ],
)
def test_what_else_changes_is_said(before, after, said):
    found = lines(before, after)
    assert len(found) == (said is not None)
    assert said is None or said in found[0]


def test_every_key_that_may_change_says_what_hangs_on_it():
    assert set(RESUMABLE_KEYS) < set(RunConfig.model_fields)
    assert {key for key, effect in RESUMABLE_KEYS.items() if not effect} == {"trackers"}


@pytest.mark.parametrize("name", READERS)
def test_nobody_else_reads_it(name):
    """Of a recipe: attributes of something called config, recipe, before or after."""
    owners = {"config", "recipe", "before", "after", "self"}
    readers = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr == name:
                owner = ast.unparse(node.value).rpartition(".")[2]
                if owner in owners:
                    readers.add(path.relative_to(SOURCE).as_posix())
    assert readers <= READERS[name], readers - READERS[name]
    assert readers


def test_a_longer_run_says_where_its_rate_goes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(written_files(tmp_path))
    monkeypatch.setattr("accredit.runs.session.write_report_of", lambda *_: None)
    learner = {"learning_rate": 1e-3, "schedule": "linear"}
    evaluation = {"every": 0, "samples": 1}
    config = small_config(tmp_path, steps=2, learner=learner, evaluation=evaluation)
    run, _ = start_training(config)
    capsys.readouterr()
    resume_training(run.path, ["--steps", "3"])
    written = " ".join(capsys.readouterr().out.split())
    assert "now ends at step 3, not 2: the next update has learning rate" in written
    assert run.metrics()[-1]["policy/learning_rate"] == pytest.approx(1e-3 / 3)
