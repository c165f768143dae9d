"""The files around the code say what is true: lock, licence, docs, docstrings."""

import ast
import os
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import accredit

ROOT = Path(__file__).parents[1]
FUNCTIONAL = sorted((ROOT / "src" / "accredit" / "functional").glob("*.py"))
LOCKED_EXTRAS = ("math", "tasks", "trackers", "lora", "dev")


def text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def project() -> dict[str, object]:
    return tomllib.loads(text("pyproject.toml"))["project"]


def pins() -> dict[str, Version]:
    """Project -> version, as the lock file says it."""
    lines = [line for line in text("requirements.lock").splitlines() if line[0] != "#"]
    parts = [line.split("==") for line in lines]
    return {canonicalize_name(name): Version(version) for name, version in parts}


def requirements() -> list[str]:
    """What pyproject asks for, the extras in the lock included."""
    extras = project()["optional-dependencies"]
    return [
        *project()["dependencies"],
        *(line for extra in LOCKED_EXTRAS for line in extras[extra]),
    ]


@pytest.mark.parametrize("line", requirements())
def test_the_lock_satisfies_what_the_project_asks_for(line: str):
    requirement = Requirement(line)
    version = pins()[canonicalize_name(requirement.name)]
    assert version in requirement.specifier, f"{line}, got {version}; run `make lock`"


def test_one_environment_satisfies_the_lock_beside_vllm():
    assert pins()["torch"] == Version("2.13.0")
    assert Version("5.16.1") <= pins()["transformers"] < Version("5.20")


def test_the_lock_names_versions_and_no_place():
    lines = text("requirements.lock").splitlines()
    pinned = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+")
    assert lines[0].startswith("#")
    assert [line for line in lines[1:] if not pinned.fullmatch(line)] == []
    assert lines[1:] == sorted(lines[1:], key=str.lower)
    assert "accredit" not in pins()


def test_the_locked_extras_are_those_of_the_makefile():
    assert f"LOCKED_EXTRAS := {','.join(LOCKED_EXTRAS)}\n" in text("Makefile")


@pytest.mark.parametrize("target", ["setup", "train", "test", "lint", "bench", "clean"])
def test_make_has_the_promised_targets(target: str):
    assert re.search(rf"^{target}:", text("Makefile"), re.MULTILINE)


def test_ci_runs_lint_then_the_tests():
    lines = text(".ci/run").splitlines()
    assert "set -euo pipefail" in lines
    assert lines[-2:] == ["make lint", "make test"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_the_version_is_the_changelogs_newest():
    newest = re.search(r"^## (\S+)", text("CHANGELOG.md"), re.MULTILINE)
    assert newest is not None
    assert newest.group(1) == accredit.__version__


def test_the_licence_is_apache_2():
    words = text("LICENSE")
    assert "Apache License" in words and "END OF TERMS AND CONDITIONS" in words
    assert project()["license"] == "Apache-2.0"


def test_the_package_ships_its_types():
    assert (ROOT / "src" / "accredit" / "py.typed").is_file()


def test_the_readme_names_the_two_commands():
    assert "make train" in text("README.md")
    assert "make test" in text("README.md")


def test_agents_md_stays_short():
    assert 0 < len(text("AGENTS.md").splitlines()) < 80


@pytest.mark.parametrize("path", FUNCTIONAL, ids=lambda path: path.stem)
def test_every_public_name_of_functional_has_a_docstring(path: Path):
    tree = ast.parse(path.read_text("utf-8"))
    silent = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert ast.get_docstring(tree)
    assert silent == []
