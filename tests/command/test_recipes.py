"""Recipes by name: listed, printed, run from anywhere, and from Python."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import accredit as package
from accredit.command.recipes import (
    dotted,
    named_recipes,
    recipe_path,
    recipes_folder,
    summary,
)
from accredit.recipe.config import RecipeError, load_recipe
from commanding import DONE, MISTAKE
from runs import small_recipe

pytestmark = pytest.mark.whole_run

ROOT = Path(__file__).parents[2]
TEXTS = {name: path.read_text("utf-8") for name, path in named_recipes().items()}


def test_the_names_are_those_of_the_files():
    files = (ROOT / "recipes").rglob("*.toml")
    names = {f.relative_to(ROOT / "recipes").with_suffix("").as_posix() for f in files}
    assert names == TEXTS.keys()
    assert {"walk_grpo", "ac2_walk", "paper/ac2_fineproofs"} <= names


def test_the_package_of_a_wheel_is_searched_before_the_repository(
    tmp_path, monkeypatch
):
    inside = tmp_path / "accredit"
    monkeypatch.setattr("accredit.command.recipes.PACKAGE", inside)
    (tmp_path.parent / "recipes").mkdir(exist_ok=True)
    assert recipes_folder() == tmp_path.parent / "recipes"
    (inside / "recipes" / "deep").mkdir(parents=True)
    (inside / "recipes" / "deep" / "x.toml").write_text("")
    assert recipes_folder() == inside / "recipes"
    assert named_recipes() == {"deep/x": inside / "recipes" / "deep" / "x.toml"}


@pytest.mark.parametrize("name", TEXTS)
def test_every_recipe_is_valid_and_says_its_sentence_and_its_size(name):
    assert load_recipe(named_recipes()[name]).steps > 0
    sentence, size = summary(TEXTS[name])
    assert 20 < len(sentence) < 130 and sentence.endswith((".", ":"))
    assert "parameters" in size and size.endswith(".")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# One. Two.\n# Size: small.\nsteps = 1\n", ("One.", "small.")),
        ("# One\n# and a half. Two.\n", ("One and a half.", "")),
        ("# Of arXiv:1.2 only.\n# Size: a, b.\n", ("Of arXiv:1.2 only.", "a, b.")),
        ("steps = 1\n# Late. Size: x\n", ("", "")),
        ("", ("", "")),
    ],
)
def test_the_head_of_a_recipe_is_read(text, expected):
    assert summary(text) == expected


def test_they_are_listed_with_sentence_and_size(accredit):
    code, printed, _ = accredit("recipes")
    assert code == DONE
    assert all(name in printed for name in TEXTS)
    assert "0.6 million parameters" in " ".join(printed.split())


@pytest.mark.parametrize("name", ["walk_grpo", "walk-grpo", "paper/ac2_fineproofs"])
def test_one_is_printed_as_it_stands_in_its_file(name, accredit):
    printed = TEXTS[name.replace("-", "_")]
    assert accredit("recipes", name) == (DONE, printed, "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["recipes", "walk_grp"],
            "'walk_grp' is unknown; did you mean walk_grpo",
        ),
        (["recipes", "walk_grpo", "--steps", "1"], "takes no '--steps'"),
        (["train", "walk_grp"], "got 'walk_grp'; did you mean walk_grpo? ("),
        (["train", "paper/ac2"], "got 'paper/ac2'; did you mean paper/ac2_fineproofs?"),
        (
            ["train", "no/walk_grpo.toml"],
            "accredit train walk_grpo runs the one",
        ),
        (["train", "absent.toml"], "got absent.toml: No such file or directory"),
        (["train", "."], "got a folder at ."),
    ],
)
def test_what_is_no_recipe_is_told_in_one_line(words, expected, accredit):
    code, printed, told = accredit(*words)
    assert (code, printed, told.count("\n")) == (MISTAKE, "", 1)
    assert expected in told


@pytest.mark.parametrize("word", ["walk_grpo", "walk-grpo", "paper/ac2-fineproofs"])
def test_a_name_stands_for_the_file(word):
    name = str(word).replace("-", "_")
    assert recipe_path(word) == named_recipes()[name]


def test_a_file_of_ones_own_wins_over_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "walk_grpo").mkdir()
    assert recipe_path("walk_grpo") == named_recipes()["walk_grpo"]
    (tmp_path / "walk_ppo").write_text("steps = 1")
    assert recipe_path("walk_ppo") == Path("walk_ppo")
    assert recipe_path("other.json") == Path("other.json")


def test_train_takes_a_name_from_anywhere(accredit):
    code, printed, _ = accredit("train", "walk_grpo", "--dry-run", "--steps", "7")
    assert code == DONE
    resolved = json.loads(printed)
    assert (resolved["name"], resolved["steps"]) == ("walk-grpo", 7)


# From Python


def test_train_from_python_returns_the_finished_run(recipe, folder):
    run = package.train(
        str(recipe),
        name="python",
        steps=1,
        learner={"learning_rate": 2e-3, "max_gradient_norm": None},
        evaluation={"max_problems": 2},
    )
    assert run.path == folder / "runs" / "python"
    kept = run.recipe()
    assert kept["learner"]["learning_rate"] == 2e-3
    assert kept["learner"]["max_gradient_norm"] is None
    assert kept["evaluation"] == {**kept["evaluation"], "samples": 2, "max_problems": 2}
    assert [row["step"] for row in run.evaluations()] == [0, 1]
    assert run.report.is_file()


@pytest.mark.parametrize("as_config", [False, True])
def test_train_takes_a_name_or_a_checked_recipe(as_config, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "accredit.runs.session.start_training",
        lambda config: (seen.append(config), True),
    )
    wanted = load_recipe(named_recipes()["walk_grpo"]) if as_config else "walk_grpo"
    package.train(wanted, steps=3)
    assert (seen[0].name, seen[0].steps) == ("walk-grpo", 3)


def test_a_stopped_run_is_an_interrupt(recipe, monkeypatch):
    run = type("Run", (), {"path": "runs/x"})
    monkeypatch.setattr(
        "accredit.runs.session.start_training", lambda config: (run, False)
    )
    with pytest.raises(KeyboardInterrupt, match="--resume runs/x"):
        package.train(recipe)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"stepz": 1}, "stepz is not a key; did you mean steps"),
        ({"learner": {"rate": 1}}, "learner.rate is not a key"),
        ({"steps": "many"}, "steps must be a valid integer"),
        ({"name": "a b\nc"}, "name must consist of letters"),
        ({"model": "x"}, "model must be a section of keys"),
    ],
)
def test_a_mistake_from_python_is_a_recipe_error(keys, message, folder):
    path = folder / "mistaken.json"
    path.write_text(json.dumps(small_recipe(folder)))
    with pytest.raises(RecipeError, match=message):
        package.train(path, **keys)


def test_keys_are_written_as_toml():
    keys = {"a": {"b": None, "c": {"d": "ü\n"}}, "e": [1, True], "f": 1e-6}
    assert dotted(keys) == [
        ("a.b", "none"),
        ("a.c.d", '"ü\\n"'),
        ("e", "[1, true]"),
        ("f", "1e-06"),
    ]


def test_what_the_package_promises_is_there_without_torch():
    code = (
        "import sys, accredit\n"
        "accredit.train, accredit.load_recipe, accredit.RunConfig\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
    assert all(callable(getattr(package, name)) for name in package.__all__)
    assert "accredit.train" in str(package.__doc__) and "train" in package.__all__
