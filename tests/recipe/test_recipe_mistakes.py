"""Recipes and overrides of the wrong kind: one short line each (issue 10, E10)."""

import json
import os
import socket

import pytest

from accredit.recipe.config import RecipeError, load_recipe, recipe_from
from accredit.recipe.overrides import DEEPEST, toml_value

LINE = 300


def fault(content: dict) -> str:
    with pytest.raises(RecipeError) as caught:
        recipe_from(content, "recipe")
    told = str(caught.value)
    assert len(told) <= LINE
    assert "\n" not in told
    return told.removeprefix("recipe: ")


def file_fault(path, *overrides: str) -> str:
    with pytest.raises(RecipeError) as caught:
        load_recipe(path, overrides)
    told = str(caught.value)
    assert len(told) <= LINE + len(str(path))
    return told


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"steps": True}, "steps must be a valid integer, got True"),
        ({"steps": " 3 "}, "steps must be a valid integer, got ' 3 '"),
        ({"steps": "3"}, "steps must be a valid integer, got '3'"),
        ({"seed": False}, "seed must be a valid integer, got False"),
        ({"learner": {"learning_rate": "1e-4"}}, "learner.learning_rate must be a "),
        ({"learner": {"beta1": True}}, "learner.beta1 must be a valid number, got T"),
        (
            {"learner": {"max_gradient_norm": "1"}},
            "learner.max_gradient_norm must be a valid number, got '1'",
        ),
        (
            {"model": {"gradient_checkpointing": 1}},
            "model.gradient_checkpointing must be a valid boolean, got 1",
        ),
        (
            {"model": {"gradient_checkpointing": "yes"}},
            "model.gradient_checkpointing must be a valid boolean, got 'yes'",
        ),
        (
            {"algorithm": {"name": "grpo", "group_size": "8"}},
            "algorithm.group_size must be a valid integer, got '8'",
        ),
        (
            {"algorithm": {"name": "ppo", "critic": {"warmup_steps": True}}},
            "algorithm.critic.warmup_steps must be a valid integer, got True",
        ),
        ({"seed": "x", "steps": True}, "seed must be a valid integer, got 'x' (and 1"),
        ({"threads": 4096}, "threads must be less than or equal to 1024, got 4096"),
        ({"threads": 0}, "threads must be greater than or equal to 1, got 0"),
    ],
    ids=str,
)
def test_nothing_stands_for_a_number_or_for_true(content, told):
    assert fault(content).startswith(told)


def test_whole_numbers_may_be_written_with_a_point():
    config = recipe_from({"steps": 3.0, "learner": {"learning_rate": 1}}, "recipe")
    assert (config.steps, config.learner.learning_rate) == (3, 1.0)


@pytest.mark.parametrize(
    "text", ["x" * 10_000, "\x1b" * 200, "[" * 900, "é" * 500, "a\nb" * 300], ids=len
)
@pytest.mark.parametrize(
    "where",
    [
        lambda text: {"steps": text},
        lambda text: {text: 3},
        lambda text: {"learner": {text: 3}},
        lambda text: {"task": {"name": text}},
        lambda text: {"algorithm": text},
        lambda text: {"name": text},
        lambda text: {"trackers": [text]},
        lambda text: {"task": {"name": "jsonl", "path": "x", "verifier": text}},
        lambda text: {
            "task": {"name": "jsonl", "path": "x", "reward_function": f"a:{text}"}
        },
    ],
)
def test_values_and_names_of_any_length_are_told_in_a_short_line(where, text):
    assert fault(where(text))


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ({"sampling": {"system": "\udcff"}}, "sampling.system"),
        ({"sampling": {"system": "a\0b"}}, "sampling.system"),
        ({"name": "a\ud800"}, "name"),
        ({"task": {"name": "jsonl", "path": "\0"}}, "task.path"),
        ({"trackers": ["\udfff"]}, "trackers"),
        ({"a\udcff": 3}, "a key"),
    ],
    ids=ascii,
)
def test_text_that_cannot_be_written_down_is_refused(content, place):
    assert fault(content).startswith(f"{place} must be text in UTF-8 without null ")


def test_text_that_is_no_utf8_is_refused_from_the_command_line(tmp_path):
    path = tmp_path / "empty.toml"
    path.write_text("")
    word = os.fsdecode(b"--sampling.system=\xff")
    assert "sampling.system must be text in UTF-8" in file_fault(path, word)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("'3'", "3"),
        ("[1, 2]", [1, 2]),
        ("[1,\n2]", [1, 2]),
        ("{a = 1}", {"a": 1}),
        (".5", 0.5),
        ("-5.", -5.0),
        (".5e-3", 0.0005),
        ("3\nseed = 4", "3\nseed = 4"),
        ("3\n[learner]", "3\n[learner]"),
        ("3 # of ten", "3 # of ten"),
        ("3, 4", "3, 4"),
        ("3]", "3]"),
        ("3] #", "3] #"),
        ("", ""),
        ("a\nb", "a\nb"),
        ("[" * 5000, "[" * 5000),
        ("9" * 5000, "9" * 5000),
        ("007", "007"),
        ("true\r\nseed = 1", "true\r\nseed = 1"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_an_override_is_one_value_or_text(text, value):
    assert toml_value(text) == value


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = " + "[" * 5000, "nested too deeply"),
        (".".join("a" * 3000) + " = 1", "is nested too deeply"),
        ("steps = " + "9" * 5000, "must be TOML in UTF-8, or JSON if so named, got: "),
        ("steps = 1\nsteps = 2", "must be TOML in UTF-8"),
        ("steps = nan", "steps must be a finite number, got nan"),
        ("steps = 2024-01-01", "steps must be a valid integer, got '2024-01-01'"),
        ("[task]\nsplit = 'easy'", "task needs a name, got a section without one ("),
        ("[[task]]\nname = 'walk'", "task must be a section of keys, got ["),
        ("[task]\nname = 3", "task.name '3' is unknown"),
    ],
    ids=lambda text: text[:20],
)
def test_a_toml_recipe_of_the_wrong_kind_is_told(text, told, tmp_path):
    (tmp_path / "recipe.toml").write_text(text)
    assert told in file_fault(tmp_path / "recipe.toml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"steps": 1, "steps": 2}', "got: the key 'steps' twice"),
        ('{"learner": {"beta1": 0.1, "beta1": 0.2}}', "got: the key 'beta1' twice"),
        ('{"steps": NaN}', "got: NaN, which is no JSON"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
        ("[1]", "must hold keys and sections, got [1]"),
        ('"' + "x" * 900 + '"', "must hold keys and sections, got 'xxx"),
        (
            '{"sampling": {"system": "\\ud800"}}',
            "sampling.system must be text in UTF-8",
        ),
    ],
    ids=lambda text: text[:20],
)
def test_a_json_recipe_of_the_wrong_kind_is_told(text, told, tmp_path):
    (tmp_path / "recipe.json").write_text(text)
    assert told in file_fault(tmp_path / "recipe.json")


def test_what_has_no_end_or_no_writer_is_no_recipe(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "socket.toml"))
    (tmp_path / "loop.toml").symlink_to("loop.toml")
    (tmp_path / "to_pipe.toml").symlink_to("pipe.toml")
    expected = {
        "/dev/zero": "must be a regular file, got a device at ",
        "pipe.toml": "must be a regular file, got a pipe at ",
        "to_pipe.toml": "must be a regular file, got a pipe at ",
        "socket.toml": "must be a regular file, got a socket at ",
        "loop.toml": "must be a readable file, got ",
        "a\0b": "must be a readable file, got ",
        "x" * 300: "must be a readable file, got ",
    }
    for name, told in expected.items():
        assert told in file_fault(tmp_path / name)
    listening.close()


def test_a_recipe_is_a_small_file(tmp_path):
    with (tmp_path / "large.toml").open("wb") as file:
        file.truncate(1 << 40)
    told = file_fault(tmp_path / "large.toml")
    assert "a recipe must have at most 1048576 bytes, got 1099511627776 in " in told


def test_overrides_lie_no_deeper_than_a_recipe_may(tmp_path):
    (tmp_path / "empty.json").write_text(json.dumps({}))
    deep = "--" + ".".join("a" * (DEEPEST + 2))
    assert "an override must name a key, got 33 sections" in file_fault(
        tmp_path / "empty.json", f"{deep}=1"
    )


@pytest.mark.parametrize("name", ["jsonl", "hub"])
def test_a_prompt_and_messages_exclude_each_other(name):
    columns = {"prompt_column": "q", "messages_column": "turns"}
    assert fault({"task": {"name": name, "path": "x", **columns}}) == (
        "task.prompt_column and task.messages_column exclude each other, got 'q' and "
        "'turns'; leave one out"
    )


def test_many_known_names_are_cut_to_the_likest():
    told = fault({"learner": {"lerning_rate": 1.0}})
    assert "did you mean learning_rate? (" in told
    told = fault({"algorithm": {"name": "ac2", "grup_size": 8}})
    assert "did you mean group_size? (" in told
    assert "the likest: " in told
