"""docs/extending.md: every file there runs, from a folder outside the package."""

import json
import re
import sys
from pathlib import Path

import pytest

from accredit.command.cli import main
from accredit.recipe.config import RecipeError, load_recipe, recipe_from
from accredit.runs.session import resume_training, start_training

pytestmark = pytest.mark.whole_run

PAGE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text("utf-8")
FILES = re.findall(r"^`(\w+)\.py`:.*?^```python\n(.*?)^```", PAGE, re.M | re.S)
RECIPE = re.findall(r"^```toml\n(.*?)^```", PAGE, re.M | re.S)[0]
SMALL = {
    "evaluation": {"every": 0, "samples": 1, "max_problems": 2},
    "checkpoint": {"every": 1, "rollouts_every": 0},
}
PPO = {"name": "ppo", "prompts_per_step": 4, "critic": {"kind": "table:TableConfig"}}
CLASSES = {
    "ranks": "RanksConfig",
    "first_move": "FirstMoveConfig",
    "brevity": "BrevityConfig",
    "shortest": "ShortestConfig",
    "table": "TableConfig",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the five files and the recipe, and none of them imported."""
    for name, text in FILES:
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "own.toml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name, _ in FILES:
        sys.modules.pop(name, None)


def test_the_page_has_a_file_of_each_kind():
    assert [name for name, _ in FILES] == list(CLASSES)


def test_a_recipe_of_ones_own_parts_trains_and_goes_on(folder, capsys):
    content = json.loads(load_recipe(folder / "own.toml").model_dump_json())
    config = recipe_from(content | SMALL, "test")
    run, finished = start_training(config)
    rows = run.metrics()
    assert finished and len(rows) == 3
    assert all(0 <= row["ranks/tied_share"] <= 1 for row in rows)
    # The environment kept 4 of 8; the verifier took 2% a token; letters were paid.
    assert rows[0]["rollout/num"] == 16
    assert rows[0]["reward/mean"] < 1 - 0.02 * rows[0]["length/min"] + 1e-6
    source = (folder / "ranks.py").read_text()
    (folder / "ranks.py").write_text(
        source.replace("clip = self.config.clip", "clip = 0.1")
    )
    sys.modules.pop("ranks")
    capsys.readouterr()
    run, finished = resume_training(run.path, ["--steps", "4"])
    said = " ".join(capsys.readouterr().out.split())
    assert finished and len(run.metrics()) == 4
    assert "algorithm has another source" in said


def test_a_critic_of_ones_own_is_taught_saved_and_loaded(folder):
    task = {"name": "first_move:FirstMoveConfig", "num_problems": 4}
    config = recipe_from({"algorithm": PPO, "task": task, "steps": 3, **SMALL}, "test")
    run, _ = start_training(config)
    rows = run.metrics()
    assert rows[-1]["critic/loss"] > 0
    (kept,) = list(run.checkpoints.glob("*3/critic/table.json"))
    assert len(json.loads(kept.read_text())) == 4


def test_its_keys_are_checked_and_explained(folder, capsys):
    with pytest.raises(RecipeError, match=r"algorithm\.clop is not a key"):
        load_recipe(folder / "own.toml", ["--algorithm.clop", "1"])
    with pytest.raises(RecipeError, match=r"algorithm\.clip must be less than 1"):
        load_recipe(folder / "own.toml", ["--algorithm.clip", "2"])
    with pytest.raises(SystemExit) as end:
        main(["algorithms", "ranks:RanksConfig"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert "Ranks in place of rewards" in out and "clip = 0.2" in out


BROKEN = {
    "1 / 0": "cannot be imported: ZeroDivisionError: division by zero",
    "import nowhere": "cannot be imported: ModuleNotFoundError: No module named",
    "def f(:": "cannot be imported: SyntaxError",
    "x = 1": "cannot be imported: AttributeError",
    "C = 3": "must be a class of keys derived from",
    "from accredit.algorithms.base_configs import OutcomeConfig as C": "a method build",
}


@pytest.mark.parametrize("text", BROKEN)
def test_what_cannot_be_imported_is_one_line(folder, text):
    (folder / "broken.py").write_text(text + "\n")
    sys.modules.pop("broken", None)
    with pytest.raises(RecipeError, match=re.escape(BROKEN[text])) as told:
        recipe_from({"algorithm": {"name": "broken:C"}}, "test")
    assert "\n" not in str(told.value)
    if "ZeroDivision" in BROKEN[text] or "Syntax" in BROKEN[text]:
        assert "broken.py:1" in str(told.value)


HEAD = """from accredit.algorithms.base_configs import OutcomeConfig

class C(OutcomeConfig):
    def build(self, parts):
"""


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return 3", r"build must return a Algorithm, got 3 from .*broken\.py:4"),
        ("raise KeyError('x')", r"cannot be built: KeyError: 'x' \(.*broken\.py:5\)"),
    ],
)
def test_what_builds_nothing_is_one_line(folder, body, told):
    (folder / "broken.py").write_text(f"{HEAD}        {body}\n")
    sys.modules.pop("broken", None)
    config = recipe_from({"algorithm": {"name": "broken:C"}}, "test")
    with pytest.raises(RecipeError, match=told):
        start_training(config)


def test_what_raises_in_the_middle_is_one_line_of_the_command(folder, capsys):
    source = (folder / "ranks.py").read_text()
    broken = source.replace('"""Of each rollout', 'raise KeyError("no rank")\n    """')
    (folder / "ranks.py").write_text(broken)
    with pytest.raises(SystemExit) as end:
        main(["train", "own.toml"])
    told = capsys.readouterr().err
    assert end.value.code == 1
    assert re.search(r"ranks\.py:\d+ raised KeyError: 'no rank'", told)
    assert "Traceback" not in told


def test_a_new_algorithm_is_written_trains_and_passes_its_own_test(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["new", "algorithm", "mine"])
    assert end.value.code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "mine.py",
        "mine.toml",
        "test_mine.py",
    ]
    monkeypatch.syspath_prepend(str(tmp_path))
    import test_mine

    test_mine.test_it_trains(tmp_path / "runs")
    with pytest.raises(SystemExit) as end:
        main(["new", "algorithm", "mine"])
    assert end.value.code == 2
    assert "mine.py must not exist yet" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["algorithm", "Two Words"], ["critic", "mine"]])
def test_what_new_cannot_write_is_refused(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["new", *words])
    assert end.value.code == 2
    assert not list(tmp_path.iterdir())
