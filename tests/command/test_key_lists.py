"""`accredit algorithms` and `accredit tasks`: every key with type, default, meaning."""

import pytest
from pydantic import BaseModel

from accredit.command.keys import keys_of, sections_of
from accredit.recipe.config import RunConfig, choices_of
from commanding import DONE, MISTAKE

ALGORITHMS = choices_of(RunConfig.model_fields["algorithm"])
TASKS = choices_of(RunConfig.model_fields["task"])


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_shows_its_rule_and_every_key(name, accredit):
    code, printed, _ = accredit("algorithms", name)
    assert code == DONE
    shown = words(printed)
    assert "Differs from the paper" in shown and "arXiv:" in shown
    for key in keys_of(ALGORITHMS[name]):
        assert f" {key.name} = {key.default} (" in shown
        assert key.meaning in shown
    for section, model, defaults in sections_of(ALGORITHMS[name]):
        assert f"[algorithm.{section}]" in shown
        for key in keys_of(model, defaults):
            assert f" {key.name} = {key.default} (" in shown


@pytest.mark.parametrize("name", TASKS)
def test_a_task_shows_every_key(name, accredit):
    code, printed, _ = accredit("tasks", name)
    assert code == DONE
    for key in keys_of(TASKS[name]):
        given = "required" if key.default is None else key.default
        assert f" {key.name} = {given} (" in words(printed)
        assert key.meaning in words(printed)
    assert printed.count("[task]") == 1


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("grpo", "clip_low = 0.2 (number ≥ 0, ≤ 1)"),
        ("grpo", "dual_clip = none (number > 1, or none)"),
        ("dapo", 'overlong_applies_to = "all" (one of all, successes)'),
        ("ac2", "chunk_length = none (whole number ≥ 1, or none)"),
        ("ac2", 'readout = "greedy" (one of greedy, expectation)'),
        ("ac2_plus", 'readout = "expectation" (one of greedy, expectation)'),
        ("ac2", "revocable = false (true or false)"),
        ("ac2_plus", "revocable = true (true or false)"),
        ("ppo", 'output = "linear" (one of sigmoid, linear, categorical)'),
        ("pact", 'output = "sigmoid" (one of sigmoid, linear, categorical)'),
        ("opd", 'teacher = "self" (text)'),
    ],
)
def test_defaults_are_those_of_the_algorithm_itself(name, line, accredit):
    assert line in words(accredit("algorithms", name)[1])


def test_lines_fit_a_terminal(accredit):
    printed = accredit("tasks")[1]
    assert max(map(len, printed.splitlines())) <= 88


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (["algorithms", "grp"], "algorithm 'grp' is unknown; did you mean grpo?"),
        (["algorithms", "nothing_like_it"], "is unknown (known: ac2, ac2_plus, "),
        (["algorithms", "grpo", "--clip_low", "1"], "takes no '--clip_low'"),
        (["tasks", "jsnl"], "task 'jsnl' is unknown; did you mean jsonl?"),
        (["tasks", "--task.path", "x"], "takes no '--task.path'"),
    ],
)
def test_what_is_unknown_is_named(asked, expected, accredit):
    code, printed, told = accredit(*asked)
    assert (code, printed) == (MISTAKE, "")
    assert expected in told


class Inner(BaseModel):
    depth: int = 1


class Outer(BaseModel):
    name: str = "text, and not a choice"
    inner: Inner = Inner(depth=4)


def test_a_section_inside_has_the_defaults_of_its_home():
    assert [key.name for key in keys_of(Outer)] == ["name"]
    [(name, model, defaults)] = sections_of(Outer)
    assert (name, model) == ("inner", Inner)
    assert [key.default for key in keys_of(model, defaults)] == ["4"]
    assert [key.default for key in keys_of(model)] == ["1"]
