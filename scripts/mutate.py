"""Breaks the mathematics one term at a time and demands that a test notices.

Each mutant of `mutants.txt` is made in a copy of the package and its test file is run
against the copy. Prints KILLED or SURVIVED for each; exits 1 if any survives.

    python scripts/mutate.py                 all of them
    python scripts/mutate.py --only masked   those of modules with "masked" in the path

The table has a line `# <module> <test file>...` per module, and a line per mutant:
`old => new`, or `n| old => new` for the n-th occurrence. `old` must occur, and occur
once where no n is given.
"""

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "accredit"
TABLE = Path(__file__).with_name("mutants.txt")
LIMIT_S = 300
TESTS_FAILED = 1
CRASHED = 70


@dataclass(frozen=True)
class Mutant:
    """One edit of one module, and the tests that should mind."""

    module: str
    tests: tuple[str, ...]
    old: str
    new: str
    occurrence: int

    def __str__(self) -> str:
        place = f" ({self.occurrence})" if self.occurrence > 1 else ""
        return f"{self.module}{place}: {self.old} => {self.new}"

    def mutated(self) -> str:
        """The module's source with the edit made."""
        source = (PACKAGE / self.module).read_text()
        pieces = source.split(self.old)
        if len(pieces) <= self.occurrence:
            raise ValueError(
                f"the text to break must occur, got {self}; mend the table"
            )
        before = self.old.join(pieces[: self.occurrence])
        after = self.old.join(pieces[self.occurrence :])
        return before + self.new + after


def table(text: str) -> Iterator[Mutant]:
    """The mutants of a table."""
    module, tests = "", ()
    for line in text.splitlines():
        if line.startswith("# "):
            module, *named = line[2:].split()
            tests = tuple(named)
        elif line.strip():
            place, bar, edit = line.partition("| ")
            numbered = bool(bar) and place.isdecimal()
            old, _, new = (edit if numbered else line).partition(" => ")
            mutant = Mutant(module, tests, old, new, int(place) if numbered else 1)
            count = (PACKAGE / module).read_text().count(old)
            if count > 1 and not numbered:
                raise ValueError(f"say which of {count} is meant, got {mutant}")
            yield mutant


def run_tests(folder: str, tests: tuple[str, ...]) -> None:
    """Runs in a forked child, which has everything but the package imported."""
    import pytest

    code = CRASHED
    try:
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        sys.path.insert(0, folder)
        sys.dont_write_bytecode = True
        os.chdir(ROOT)
        options = ["-x", "-q", "-p", "no:cacheprovider", "--assert=plain"]
        options += ["-W", "ignore:Module already imported", "-m", "not slow"]
        options += ["--hypothesis-seed=0"]
        code = int(pytest.main([*options, *tests]))
    finally:
        # An exception would exit with 1, which is what failing tests exit with.
        os._exit(code)


def exit_code(mutant: Mutant | None, tests: tuple[str, ...]) -> int | None:
    """Of the tests against the (mutated) package; None where they hang."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(PACKAGE, Path(folder) / "accredit", ignore=without_data)
        if mutant is not None:
            (Path(folder) / "accredit" / mutant.module).write_text(mutant.mutated())
        child = multiprocessing.get_context("fork").Process(
            target=run_tests, args=(folder, tests)
        )
        child.start()
        child.join(LIMIT_S)
        if child.is_alive():
            child.kill()
            child.join()
            return None
        return child.exitcode


def without_data(folder: str, names: list[str]) -> list[str]:
    """Everything but Python files and folders."""
    keep = [n for n in names if n.endswith(".py") or (Path(folder) / n).is_dir()]
    return [n for n in names if n not in keep or n == "__pycache__"]


def verdict(mutant: Mutant) -> str:
    """KILLED, SURVIVED, or BROKEN where the tests could not even be collected."""
    code = exit_code(mutant, mutant.tests)
    if code in (None, TESTS_FAILED):
        return "KILLED"
    return "SURVIVED" if code == 0 else "BROKEN"


def preload() -> None:
    """Import what takes long once, and keep hypothesis from writing or shrinking."""
    import beartype  # noqa: F401
    import hypothesis
    import jaxtyping  # noqa: F401
    import pytest  # noqa: F401
    import torch
    from transformers import Qwen3ForCausalLM  # noqa: F401

    torch.set_num_threads(1)
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutate", database=None, phases=phases)
    hypothesis.settings.load_profile("mutate")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="part of the module's path")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    arguments = parser.parse_args()
    mutants = [m for m in table(TABLE.read_text()) if arguments.only in m.module]
    preload()
    for tests in sorted({m.tests for m in mutants}):
        code = exit_code(None, tests)
        if code != 0:
            print(f"{' '.join(tests)} must pass unbroken, got exit code {code}")
            return 1
    with ThreadPoolExecutor(arguments.jobs) as pool:
        alive = 0
        for mutant, found in zip(mutants, pool.map(verdict, mutants), strict=True):
            alive += found != "KILLED"
            print(f"{found:9}{mutant}", flush=True)
    print(f"{len(mutants) - alive} of {len(mutants)} mutants killed")
    return int(alive > 0)


if __name__ == "__main__":
    sys.exit(main())
