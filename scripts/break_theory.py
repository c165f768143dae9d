"""Breaks one term of the theory's formulas at a time; the lab must notice each time.

Each break of `theory_breaks.txt` is made in a fresh copy of the package, where
`accredit lab --json` then has to say "ok": false and exit with 1. Prints CAUGHT with
the statements that failed, or MISSED, or CRASHED where the broken copy gave no answer;
exits 1 unless every one is caught.

    python scripts/break_theory.py                 all of them
    python scripts/break_theory.py --only axioms   of modules with "axioms" in the path

The table is written as that of `mutate.py`, without test files.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from pathlib import Path

from mutate import PACKAGE, Mutant, table, without_data

TABLE = Path(__file__).with_name("theory_breaks.txt")
WORDS = ("lab", "--json", "--trees", "3")
LIMIT_S = 120


def run_lab(folder: str) -> None:
    """Runs the command in a forked child, which has torch but not the package."""
    code = 70
    try:
        sys.path.insert(0, folder)
        sys.dont_write_bytecode = True
        with open(Path(folder) / "found.json", "w") as sys.stdout:
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115
            from accredit.command.cli import main

            main(WORDS)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else code
    finally:
        os._exit(code)


def preload() -> None:
    """Imports once what takes long, for the children to inherit."""
    import pydantic  # noqa: F401
    import rich.table  # noqa: F401
    import torch
    import tyro  # noqa: F401

    torch.set_num_threads(1)


def failed_statements(mutant: Mutant | None) -> list[str] | None:
    """Names that the lab finds false in the (broken) copy; None where it crashes."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(PACKAGE, Path(folder) / "accredit", ignore=without_data)
        if mutant is not None:
            (Path(folder) / "accredit" / mutant.module).write_text(mutant.mutated())
        child = multiprocessing.get_context("fork").Process(
            target=run_lab, args=(folder,)
        )
        child.start()
        child.join(LIMIT_S)
        if child.is_alive():
            child.kill()
            child.join()
            return None
        try:
            found = json.loads((Path(folder) / "found.json").read_text())
        except ValueError:
            return None
    failed = [
        row["name"]
        for row in found["identities"]
        if row["error"] is None or row["error"] > row["tolerance"]
    ]
    agrees = found["ok"] == (not failed) and child.exitcode == int(bool(failed))
    return failed if agrees else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="part of the module's path")
    parser.add_argument("--table", type=Path, default=TABLE, help="another table")
    arguments = parser.parse_args()
    rows = table(arguments.table.read_text())
    breaks = [one for one in rows if arguments.only in one.module]
    preload()
    if failed_statements(None) != []:
        print("the lab must hold unbroken; run accredit lab")
        return 1
    caught = 0
    for one in breaks:
        failed = failed_statements(one)
        caught += bool(failed)
        word = "CRASHED" if failed is None else "CAUGHT" if failed else "MISSED"
        print(f"{word:8}{one}", flush=True)
        if failed:
            print(f"        by {'; '.join(failed)}", flush=True)
    print(f"{caught} of {len(breaks)} breaks caught")
    return int(caught < len(breaks))


if __name__ == "__main__":
    sys.exit(main())
