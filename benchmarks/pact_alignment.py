"""Which value target brings a critic closest to the policy that an update has made?

    python benchmarks/pact_alignment.py tables [--seeds 10] [--row 10]
    python benchmarks/pact_alignment.py model [--seeds 5]

A critic of the old policy is taught on the rollouts that changed the policy, with each
target of docs/pact.md, and compared with V of the new policy. `tables`: tabular walks,
where V^new is exact (`alignment_tables.py`); one update from a warm critic, and many in
a row. `model`: the packaged model, a value head with a backbone of its own, and V^new
from fresh continuations (`alignment_model.py`). Three lengths, three sizes of change.
Learning rates are chosen for each target and cell on seeds of their own. Writes
benchmarks/results/pact_alignment_<setting>.json, after every seed.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from common import write_result
from intervals import in_words, spread

LENGTHS = (5, 10, 20)
"""Moves."""
SIZES = (0.03, 0.1, 0.3)
"""Mean |ratio - 1| over the moves, or tokens, that the change was made from."""
TUNING = 4
"""Seeds from 1000 on that learning rates are chosen on."""

Errors = dict[str, dict[str, list[float]]]
"""Target -> quantity -> one number a seed."""


def main() -> None:
    """Runs one setting and writes its file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("setting", choices=("tables", "model"))
    parser.add_argument("--seeds", type=int, default=None)
    parser.add_argument("--row", type=int, default=10, help="updates in a row")
    options = parser.parse_args()
    torch.set_num_threads(1)
    run: dict[str, Callable[[argparse.Namespace], None]] = {
        "tables": tables,
        "model": model,
    }
    run[options.setting](options)


def tables(options: argparse.Namespace) -> None:
    """The tabular setting."""
    import alignment_tables as setting

    seeds = range(options.seeds or 10)
    tuning = range(1000, 1000 + TUNING)
    content: dict[str, Any] = heading(seeds, tuning) | {"cells": [], "rows": []}
    began = time.process_time()
    for num_moves in LENGTHS:
        for size in SIZES:
            rates = setting.chosen_rates(num_moves, size, tuning)
            cell = {"num_moves": num_moves, "size": size, "rates": rates}
            for part, found in setting.one_update(num_moves, size, rates, seeds):
                cell.setdefault(part, []).append(found)
            content["cells"].append(summed_up(cell))
            show(cell)
            write_result("pact_alignment_tables", content)
    for num_moves in LENGTHS:
        cell = {"num_moves": num_moves, "size": SIZES[1], "updates": options.row}
        cell["rates"] = setting.chosen_rates(num_moves, SIZES[1], tuning, options.row)
        for part, found in setting.many_updates(
            num_moves, SIZES[1], options.row, cell["rates"], seeds
        ):
            cell.setdefault(part, []).append(found)
        content["rows"].append(summed_up(cell))
        show(cell)
        content["cpu_seconds"] = round(time.process_time() - began, 1)
        write_result("pact_alignment_tables", content)


def model(options: argparse.Namespace) -> None:
    """The packaged model."""
    import alignment_model as setting

    seeds = range(options.seeds or 5)
    content: dict[str, Any] = heading(seeds, ()) | {"cells": []}
    began = time.process_time()
    for cell in setting.cells(LENGTHS, seeds):
        content["cells"].append(summed_up(cell))
        show(cell)
        content["cpu_seconds"] = round(time.process_time() - began, 1)
        write_result("pact_alignment_model", content)


def heading(seeds: Iterable[int], tuning: Iterable[int]) -> dict[str, Any]:
    """What made the file."""
    return {
        "command": " ".join(["python", *sys.argv]),
        "seeds": list(seeds),
        "tuning_seeds": list(tuning),
    }


def summed_up(cell: Mapping[str, Any]) -> dict[str, Any]:
    """The cell with means and intervals in place of one entry a seed.

    Gains over `plain` are paired: within a seed all targets see the same data. Every
    seed's own number is kept of the critics' errors.
    """
    summary = dict(cell)
    for part, rows in cell.items():
        if not isinstance(rows, list):
            continue
        summary[part] = {
            name: {
                quantity: spread([row[name][quantity] for row in rows])
                for quantity in rows[0][name]
            }
            for name in rows[0]
        }
        for name, found in summary[part].items():
            if "mae" in found and "plain" in rows[0]:
                gains = [row["plain"]["mae"] - row[name]["mae"] for row in rows]
                found["gain"] = spread(gains)
            if part != "critic":
                for numbers in found.values():
                    del numbers["seeds"]
    return summary


def show(cell: Mapping[str, Any]) -> None:
    """One line a target."""
    words = [f"{k} {v}" for k, v in cell.items() if isinstance(v, int | float)]
    print(", ".join(words), flush=True)
    summary = summed_up(cell)
    for part, found in summary.items():
        if part == "rates" or not isinstance(found, dict):
            continue
        for name, quantities in found.items():
            print(f"  {part:<10} {name:<16} {in_words(quantities)}", flush=True)


if __name__ == "__main__":
    main()
