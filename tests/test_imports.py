"""What may import what, what an import costs, and what no source file may hold."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "accredit"
FILES = sorted(SOURCE.rglob("*.py"))

FOUNDATION = {
    "functional",
    "protocols",
    "randomness",
    "recipe.base",
    "recipe.plugins",
    "records",
    "screen",
    "storage",
    "text",
    "types",
}
STEP = {"batches", "credit", "critics", "world"}
ALLOWED: dict[str, set[str]] = {
    "functional": set(),
    "randomness": set(),
    "text": set(),
    "screen": {"text"},
    "types": set(),
    "records": {"functional", "types"},
    "protocols": {"records", "types"},
    "batches": {"functional", "randomness", "types"},
    "credit": {"batches", "functional", "records", "types"},
    "world": {"functional", "protocols", "randomness", "records", "types"},
    "storage": {"records", "text", "types"},
    "models": FOUNDATION | {"batches"},
    "engines": FOUNDATION | {"models"},
    "learner": FOUNDATION | {"batches", "models"},
    "critics": FOUNDATION
    | {
        "batches",
        "credit",
        "engines",
        "learner",
        "models",
        "tasks.control_tokens",
        "tasks.rendering",
    },
    "algorithms": FOUNDATION | STEP,
    "theory": FOUNDATION | {"batches", "credit", "critics", "reports.plots"},
    "tasks": FOUNDATION | {"verification"},
    "verification": FOUNDATION,
    "environments": FOUNDATION,
    "reports": FOUNDATION | {"batches"},
    "loops": {"protocols", "records", "types", "world"},
    "recipe": {
        "algorithms.base_configs",
        "algorithms.configs",
        "critics.configs",
        "environments.configs",
        "storage.named_files",
        "tasks.configs",
        "text",
    },
}
"""Part of the library -> the parts it may import, besides itself."""

WIRING = {"__init__", "command", "runs"}
"""These put the parts together: they may import anything, and no part imports them."""

THIRD_PARTY = {
    "functional": {"torch", "jaxtyping"},
    "types": {"torch", "jaxtyping"},
    "records": {"torch", "jaxtyping"},
    "protocols": {"torch", "jaxtyping"},
    "randomness": {"numpy"},
    "text": set(),
    "screen": {"rich"},
    "recipe": {"pydantic"},
}
"""What the parts that anyone may import may in turn import from other projects."""

HEAVY = {
    "datasets",
    "math_verify",
    "matplotlib",
    "pandas",
    "ray",
    "scipy",
    "sympy",
    "tokenizers",
    "torch",
    "transformers",
    "vllm",
    "wandb",
}
UNSAFE_MODULES = {"cloudpickle", "dill", "marshal", "pickle", "shelve"}


def part_of(path: Path) -> str:
    """The folder or module directly under the package that `path` belongs to."""
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imports(tree: ast.AST) -> Iterator[str]:
    """Dotted names of everything imported, at the top or inside a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from (f"{module}.{alias.name}" for alias in node.names)


def begins_with(name: str, prefix: str) -> bool:
    """Whether the dotted `name` is `prefix` or lies inside it."""
    return f"{name}.".startswith(f"{prefix}.")


def forbidden_imports(path: Path, source: str) -> list[str]:
    """Imports of `source` that the table does not allow to the file at `path`."""
    part = part_of(path)
    faults = []
    for name in imports(ast.parse(source)):
        if name.startswith("."):
            faults.append(f"{name}: imports are absolute")
        elif begins_with(name, "accredit"):
            inner = name.removeprefix("accredit.")
            allowed = ALLOWED.get(part, set()) | {part}
            if part not in WIRING and not any(begins_with(inner, a) for a in allowed):
                faults.append(f"{part} must not import {name}")
        elif part in THIRD_PARTY:
            root = name.split(".")[0]
            if root not in sys.stdlib_module_names | THIRD_PARTY[part]:
                faults.append(f"{part} must not import {name}")
    return faults


def test_every_part_has_a_row_in_the_table():
    parts = {part_of(path) for path in FILES}
    assert parts <= ALLOWED.keys() | WIRING, (
        f"say what {sorted(parts - ALLOWED.keys() - WIRING)} may import in ALLOWED"
    )


def test_imports_point_one_way():
    found = [
        f"{path.relative_to(SOURCE)}: {fault}"
        for path in FILES
        for fault in forbidden_imports(path, path.read_text("utf-8"))
    ]
    assert not found, "\n".join(found)


def test_the_table_has_no_cycle():
    settled: set[str] = set()
    while settled < ALLOWED.keys():
        free = {
            part
            for part, allowed in ALLOWED.items()
            if {name.split(".")[0] for name in allowed if "." not in name} <= settled
        }
        assert free - settled, f"a cycle among {sorted(ALLOWED.keys() - settled)}"
        settled |= free


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("functional/masked.py", "from accredit.types import Batch"),
        ("functional/masked.py", "import numpy as np"),
        ("types.py", "import accredit.functional.masked"),
        (
            "engines/local/cache.py",
            "def f():\n    from accredit.learner import learner",
        ),
        ("loops/synchronous.py", "from accredit import algorithms"),
        ("recipe/config.py", "from accredit.algorithms.grpo import grpo"),
        ("algorithms/grpo.py", "from accredit.command.cli import main"),
        ("reports/page.py", "from . import plots"),
        ("tasks/walk.py", "from accredit import __version__"),
        ("verification/exact.py", "from accredit.tasks.walk import moves"),
    ],
)
def test_a_wrong_import_is_seen(file: str, line: str):
    assert len(forbidden_imports(SOURCE / file, line)) == 1


def fresh_import(module: str) -> tuple[set[str], float]:
    """Modules loaded by importing `module` in a new process, and its CPU seconds."""
    code = (
        "import json, sys, time\n"
        "start = time.process_time()\n"
        f"import {module}\n"
        "seconds = time.process_time() - start\n"
        "print(json.dumps([sorted(sys.modules), seconds]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    modules, seconds = json.loads(done.stdout)
    return set(modules), seconds


@pytest.mark.parametrize(
    "module",
    [
        "accredit",
        "accredit.recipe.config",
        "accredit.command.cli",
        "accredit.randomness",
    ],
)
def test_the_entrances_load_nothing_heavy(module: str):
    loaded, _ = fresh_import(module)
    assert module in loaded
    assert loaded & HEAVY == set()


def test_importing_the_package_is_cheap():
    runs = [fresh_import("accredit") for _ in range(5)]
    assert min(len(modules) for modules, _ in runs) < 200
    assert min(seconds for _, seconds in runs) < 0.3


def is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def call_faults(call: ast.Call) -> Iterator[str]:
    """What is unsafe about one call."""
    name = ast.unparse(call.func)
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if name in {"eval", "exec", "os.system", "os.popen"}:
        yield f"line {call.lineno}: calls {name}"
    if "shell" in keywords:
        yield f"line {call.lineno}: passes shell="
    weights_only = keywords.get("weights_only")
    if name == "torch.load" and not (weights_only and is_true(weights_only)):
        yield f"line {call.lineno}: torch.load without weights_only=True"


def faults(source: str, most_lines: int = 400) -> list[str]:
    """What `source` holds that no file of the library may hold."""
    tree = ast.parse(source)
    found = [f"holds {word}" for word in ("TODO", "FIXME") if word in source]
    for name in imports(tree):
        if name.split(".")[0] in UNSAFE_MODULES:
            found.append(f"imports {name}")
        if name == "__future__.annotations":
            found.append("hides annotations from the type checks of the tests")
    num_lines = len(source.splitlines())
    if num_lines > most_lines:
        found.append(f"has {num_lines} lines, more than {most_lines}")
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            found.append(f"line {node.lineno}: bare except")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            num_lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if num_lines > 60:
                found.append(f"{node.name} has {num_lines} lines, more than 60")
        elif isinstance(node, ast.Call):
            found.extend(call_faults(node))
    return found


def test_no_source_file_holds_what_the_house_forbids():
    found = [
        f"{path.relative_to(SOURCE)}: {fault}"
        for path in FILES
        # A file that is one algorithm is read as one page.
        for fault in faults(
            path.read_text("utf-8"), 600 if "algorithms" in path.parts else 400
        )
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "x = 1  # TODO later",
        "# FIXME",
        "from __future__ import annotations",
        "try:\n    x = 1\nexcept:\n    x = 2",
        "from pickle import loads",
        "import dill",
        "eval('1')",
        "exec('1')",
        "os.system('ls')",
        "subprocess.run('ls', shell=True)",
        "torch.load('x.pt')",
        "torch.load('x.pt', weights_only=False)",
        "x = 1\n" * 401,
        "def long():\n" + "    x = 1\n" * 60,
    ],
)
def test_each_forbidden_thing_is_seen(source: str):
    assert len(faults(source)) == 1


def test_what_only_looks_forbidden_is_allowed():
    source = (
        "model.eval()\n"
        "torch.load('x.pt', weights_only=True)\n"
        "subprocess.run(['ls'])\n"
        "def long():\n" + "    x = 1\n" * 59
    )
    assert faults(source) == []
