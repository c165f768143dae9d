"""Where the command is called, and with what."""

import json
from functools import partial
from pathlib import Path

import pytest

from commanding import called
from runs import small_recipe, written_files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the command is called: a model, rows and a reward function."""
    return written_files(tmp_path_factory.mktemp("command"))


@pytest.fixture(autouse=True)
def working_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test stands in that folder."""
    monkeypatch.chdir(folder)


@pytest.fixture
def accredit(capsys: pytest.CaptureFixture[str]) -> partial:
    """The command."""
    return partial(called, capsys)


@pytest.fixture(scope="module")
def recipe(folder: Path) -> Path:
    """A small recipe over the folder's files."""
    path = folder / "small.json"
    path.write_text(json.dumps(small_recipe(folder)))
    return path
