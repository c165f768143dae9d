"""A run that goes on is the run that began: its folder, data, parts and rows."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from accredit.algorithms.grpo import grpo
from accredit.recipe.config import RecipeError
from accredit.records import Drawn, Record, State
from accredit.runs.assembly import Assembly, assemble
from accredit.runs.origins import (
    PARTS_FILE,
    foreign,
    record_parts,
    require_same_parts,
)
from accredit.runs.session import Session, resume_training, start_training
from accredit.storage.run_directory import NotWritten, RunDirectory
from accredit.types import Verdict
from accredit.world import World
from runs import small_config, written_files

pytestmark = pytest.mark.whole_run

MORE = ("--steps", "2")
QUICK = {"every": 0, "samples": 1, "max_problems": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written_files(tmp_path_factory.mktemp("resuming"))


@pytest.fixture(autouse=True)
def _working_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


@pytest.fixture(scope="module")
def finished(folder: Path) -> Path:
    """A run of one step, to be copied."""
    before = Path.cwd()
    os.chdir(folder)
    config = small_config(folder, name="one", steps=1, evaluation=QUICK)
    run, _ = start_training(config)
    os.chdir(before)
    return run.path


@pytest.fixture
def path(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


@pytest.fixture(scope="module")
def assembly(folder: Path) -> Iterator[Assembly]:
    before = Path.cwd()
    os.chdir(folder)
    built = assemble(small_config(folder, evaluation=QUICK))
    os.chdir(before)
    yield built
    built.close()


@pytest.fixture
def edited(folder: Path) -> Iterator[Callable[[str, Callable[[str], str]], None]]:
    """Changes a file of the user; it is put back."""
    kept: dict[Path, str] = {}

    def edit(name: str, change: Callable[[str], str]) -> None:
        text = (folder / name).read_text()
        kept.setdefault(folder / name, text)
        (folder / name).write_text(change(text))
        assert (folder / name).read_text() != text

    yield edit
    for file, text in kept.items():
        file.write_text(text)


def gold(text: str) -> str:
    return text.replace('"answer": "3"', '"answer": "33"')


def held_out_gold(text: str) -> str:
    return text.replace('"answer": "21"', '"answer": "33"')


def with_metadata(text: str) -> str:
    return text.replace('"answer": "3"', '"answer": "3", "level": 2')


def another_reward(text: str) -> str:
    return text.replace("return sum", "return 0.5 * sum")


@pytest.mark.parametrize(
    ("file", "change", "named"),
    [
        ("rows.jsonl", gold, "their gold answers"),
        ("rows.jsonl", held_out_gold, "the held-out problems"),
        ("rows.jsonl", with_metadata, "their metadata"),
        ("letters.py", another_reward, "the source of the reward function"),
    ],
)
def test_a_run_does_not_go_on_with_other_data(path, edited, file, change, named):
    edited(file, change)
    before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    with pytest.raises(RecipeError) as raised:
        resume_training(path, MORE)
    told = str(raised.value)
    assert f"before step 2, got others: {named}; restore" in told
    assert "\n" not in told and "--accept-changes" in told
    del before[path / ".lock"]
    assert {p: p.read_bytes() for p in before} == before


def test_changes_that_are_accepted_are_said_and_then_held(path, folder, edited, capsys):
    edited("letters.py", another_reward)
    edited("rows.jsonl", gold)
    run, done = resume_training(path, MORE, accept_changes=True)
    printed = " ".join(capsys.readouterr().out.split())
    assert done and run.latest_step == 2
    assert "not those of before step 2: their gold answers" in printed
    assert "not those of before step 2: the source of the reward function" in printed
    (folder / "unrelated.py").write_text("x = 1\n")
    assert resume_training(path, MORE)[1]


# Parts that came from Python


@dataclass(frozen=True)
class Slower:
    """A user's own algorithm around another one."""

    inner: object

    @property
    def clip_bounds(self) -> tuple[float, float] | None:
        return None

    @property
    def initial_memory(self) -> object:
        return self.inner.initial_memory

    def draw(self, state: State, world: World) -> Drawn:
        return self.inner.draw(state, world)

    def learn(self, state: State, world: World, drawn: Drawn) -> tuple[State, Record]:
        return self.inner.learn(state, world, drawn)


class Pays:
    """A user's own verifier."""

    def verify(self, items):
        return [Verdict(1.0) for _ in items]

    def close(self) -> None:
        pass


def my_loss(*_: object) -> None:
    """A user's own function."""


def wrapped(function: Callable) -> Callable:
    """As a library's factory closes over what it is given."""

    def inner() -> None:
        function()

    inner.__module__ = "accredit.algorithms.parts"
    return inner


@pytest.mark.parametrize(
    "part",
    [
        Slower(None),
        Pays(),
        my_loss,
        partial(my_loss, 1),
        [my_loss],
        {"loss": my_loss},
        wrapped(my_loss),
        replace(grpo(small_config(Path()).algorithm), credit=my_loss),
        replace(grpo(small_config(Path()).algorithm), draw_groups=partial(my_loss, 3)),
    ],
)
def test_code_that_is_not_the_librarys_is_seen(part):
    found = foreign(part)
    assert any(entry.startswith(f"{__name__}.") for entry in found), found
    assert all(len(entry.split()) == 2 for entry in found)


def test_the_librarys_own_parts_are_not(assembly):
    assert foreign(assembly.algorithm) == foreign(assembly.task.verifier) == []
    assert foreign(assembly.world.environment) == foreign(None) == []
    assert foreign([1, "text", 2.0, None, {"a": (3,)}]) == []


def with_verifier(assembly: Assembly) -> Assembly:
    return replace(assembly, task=replace(assembly.task, verifier=Pays()))


def with_algorithm(assembly: Assembly) -> Assembly:
    return replace(assembly, algorithm=Slower(assembly.algorithm))


def with_credit(assembly: Assembly) -> Assembly:
    algorithm = replace(assembly.algorithm, credit=my_loss)
    return replace(assembly, algorithm=algorithm)


def as_argument(assembly: Assembly) -> Assembly:
    """The library's own class, chosen in Python."""
    return replace(assembly, from_python=frozenset({"algorithm"}))


def task_as_argument(assembly: Assembly) -> Assembly:
    return replace(assembly, from_python=frozenset({"task"}))


@pytest.mark.parametrize(
    ("change", "part", "name"),
    [
        (with_algorithm, "algorithm", "Slower"),
        (with_credit, "algorithm", "my_loss"),
        (with_verifier, "verifier", "Pays"),
        (as_argument, "algorithm", "from Python"),
        (task_as_argument, "verifier", "from Python"),
    ],
)
def test_a_run_with_parts_of_python_is_not_the_recipes(
    assembly, tmp_path, change, part, name
):
    changed = change(assembly)
    record_parts(tmp_path, changed)
    require_same_parts(tmp_path, changed, accept_changes=False)
    for accept in (False, True):
        with pytest.raises(RecipeError, match=f"the {part} of this run must be") as e:
            require_same_parts(tmp_path, assembly, accept)
        assert name in str(e.value) and "got the recipe's; go on from Python" in str(
            e.value
        )
    record_parts(tmp_path, assembly)
    with pytest.raises(RecipeError, match="must be the recipe's, got"):
        require_same_parts(tmp_path, changed, accept_changes=True)


def test_another_source_of_a_part_is_refused_or_accepted(assembly, tmp_path):
    changed = with_algorithm(assembly)
    record_parts(tmp_path, changed)
    file = tmp_path / PARTS_FILE
    content = json.loads(file.read_text())
    owner, digest = content["parts"]["algorithm"][0].split()
    assert owner.endswith("Slower") and len(digest) == 64
    content["parts"]["algorithm"] = [f"{owner} {'0' * 64}"]
    file.write_text(json.dumps(content))
    with pytest.raises(RecipeError, match=r"source of .*Slower.*--accept-chang"):
        require_same_parts(tmp_path, changed, accept_changes=False)
    require_same_parts(tmp_path, changed, accept_changes=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"schema": 2}',
        '{"schema": 1, "parts": {}}',
        '{"schema": 2, "parts": []}',
        '{"schema": 2, "parts": {"algorithm": []}}',
        json.dumps(
            {
                "schema": 2,
                "parts": {
                    "algorithm": [1],
                    "verifier": [],
                    "environment": [],
                    "critic": [],
                },
            }
        ),
        "[" * 100_000,
    ],
    ids=range(10),
)
def test_a_damaged_record_of_parts_is_named(assembly, tmp_path, text):
    (tmp_path / PARTS_FILE).write_text(text)
    with pytest.raises(ValueError, match=r"parts\.json must"):
        require_same_parts(tmp_path, assembly, accept_changes=True)


def test_a_run_from_python_goes_on_from_python_alone(folder, assembly):
    config = small_config(folder, name="mine", steps=1, evaluation=QUICK)
    mine = Slower(assembly.algorithm)
    run, _ = start_training(config, algorithm=mine)
    with pytest.raises(RecipeError, match="got the recipe's; go on from Python"):
        resume_training(run.path, MORE)
    _, done = resume_training(run.path, MORE, algorithm=mine)
    assert done and run.latest_step == 2


# The folder


def test_a_run_whose_folder_is_moved_stops_at_the_next_write(
    path, folder, tmp_path, monkeypatch
):
    def moved(self, state, record):
        path.rename(tmp_path / "elsewhere")
        return inner(self, state, record)

    inner = Session.stepped
    monkeypatch.setattr(Session, "stepped", moved)
    with pytest.raises(NotWritten, match="must stay while it is trained"):
        resume_training(path, MORE)
    assert not path.exists()
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    run, done = resume_training(tmp_path / "elsewhere", MORE)
    assert done and run.latest_step == 2


def unreached(*_: object, **__: object) -> None:
    pytest.fail("the model was loaded before the mistake was told")


@pytest.mark.parametrize("left", ["metrics.jsonl", "checkpoints", "sources.json"])
def test_a_new_run_takes_no_folder_that_holds_something(
    folder, path, left, monkeypatch
):
    monkeypatch.setattr("accredit.runs.assembly.load_model", unreached)
    (path / "recipe.json").unlink()
    for entry in path.iterdir():
        if entry.name != left:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    if left == "sources.json":
        (path / left).write_text("{}")
    config = small_config(folder, name=path.name, runs_folder=str(path.parent))
    with pytest.raises(ValueError, match=f"needs an empty folder, got .*{left}"):
        start_training(config)
    assert left in [entry.name for entry in path.iterdir()]


def test_a_place_that_cannot_be_written_is_told_before_a_model_is_loaded(
    folder, monkeypatch
):
    monkeypatch.setattr("accredit.runs.assembly.load_model", unreached)
    config = small_config(folder, runs_folder=str(folder / "rows.jsonl" / "runs"))
    with pytest.raises(ValueError, match="the folder of a run must be writable, got"):
        start_training(config)


def test_a_run_that_never_started_leaves_nothing(folder, tmp_path):
    config = small_config(
        folder, runs_folder=str(tmp_path / "a" / "b"), model={"path": "nowhere"}
    )
    with pytest.raises(ValueError, match="the model must be a directory"):
        start_training(config)
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_being_taken_gets_a_number(folder, tmp_path):
    config = small_config(folder, runs_folder=str(tmp_path), model={"path": "nowhere"})
    with (
        RunDirectory(tmp_path / "small").lock(),
        pytest.raises(ValueError, match="mod"),
    ):
        start_training(config)
    assert [entry.name for entry in tmp_path.iterdir()] == ["small"]


@pytest.mark.parametrize(
    ("place", "told"),
    [("nowhere", "where there is none"), (".", "which holds no recipe.json")],
)
def test_a_missing_run_is_told_as_missing(tmp_path, place, told):
    with pytest.raises(RecipeError, match=told):
        resume_training(tmp_path / place, ())


# Rows and files of a checkpoint


def test_odd_rows_are_said_before_anything_is_trained(path, capsys, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("accredit.runs.session.train", stop)
    for name in ("metrics.jsonl", "evals.jsonl"):
        lines = (path / name).read_text()
        odd = 'null\n{"step": 0, "reward/mean": "high"}\n{"step": 1}\n'
        (path / name).write_text(odd + lines)
    with pytest.raises(KeyboardInterrupt):
        resume_training(path, MORE)
    printed = " ".join(capsys.readouterr().out.split())
    assert "warning: 2 rows of metrics.jsonl left out, the first in line 1" in printed
    assert "warning: 2 rows of evals.jsonl left out, the first in line 1" in printed
    assert "1 rows of metrics.jsonl lack their counts, the first of step 1" in printed


def test_a_run_with_odd_rows_ends_with_its_report(path):
    for name in ("metrics.jsonl", "evals.jsonl"):
        with open(path / name, "a") as file:
            file.write('{"step": 1, "count/rollouts_drawn": null}\n"x"\n{"st')
    (path / "rollouts").mkdir(exist_ok=True)
    run, done = resume_training(path, MORE)
    assert done and run.report.exists() and run.odd_rows() == []


def resealed(checkpoint: Path) -> None:
    """Makes an edit look whole, as an attacker or a careful user would."""
    from accredit.storage.checkpoint import seal

    for name in ("manifest.json", "COMPLETE"):
        (checkpoint / name).unlink()
    seal(checkpoint)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("data.json", "{}"),
        ("data.json", "null"),
        ("data.json", '{"schema": 2, "fingerprints": {"prompts": 1}}'),
        ("learner.json", "[]"),
        ("learner.json", '{"schema": 1}'),
        ("learner.json", '{"schema": 1, "version": "3", "num_consecutive_skips": 0}'),
        ("learner.json", '{"schema": 1, "version": -1, "num_consecutive_skips": 0}'),
        ("state.json", "null"),
        ("state.json", '{"schema": 2}'),
        ("optimizer.safetensors", "no tensors"),
        ("model/model.safetensors", "no tensors"),
    ],
)
def test_an_edited_file_of_a_checkpoint_is_named(
    assembly, path, file, text, monkeypatch
):
    monkeypatch.setattr("accredit.runs.session.assemble", lambda *_, **__: assembly)
    monkeypatch.setattr(Assembly, "close", lambda _: None)
    checkpoint = path / "checkpoints" / "step-000001"
    (checkpoint / file).write_text(text)
    resealed(checkpoint)
    named = "checkpoint" if file.startswith("model") else file.replace(".", r"\.")
    with pytest.raises(ValueError, match=named) as raised:
        resume_training(path, MORE)
    assert "Traceback" not in str(raised.value)
