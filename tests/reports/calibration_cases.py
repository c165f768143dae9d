"""Tables, runs and their printed calibration, for the tests that need a few."""

import io
from pathlib import Path

from rich.console import Console
from synthetic_run import RECIPE

from accredit.reports.calibration.sources import read_source
from accredit.reports.calibration.tables import calibration_tables
from accredit.reports.environment import environment
from accredit.storage.run_directory import RunDirectory

HEADER = "mean_reward,mean_value,share_f,reference_shown"
PACT = {"name": "pact", "critic": {"template": ""}}


def table(folder: Path, *lines: str, header: str = HEADER) -> Path:
    path = folder / "probe.csv"
    path.write_text("\n".join([header, *lines, ""]), encoding="utf-8")
    return path


def run_with(
    folder: Path, rows: list[dict], algorithm: dict | None = None, step: int = 1
) -> RunDirectory:
    run = RunDirectory(folder / "run")
    if not run.exists:
        run.start(RECIPE | {"algorithm": algorithm or PACT}, environment())
    run.write_rollouts(step, rows)
    return run


def rollout_row(**changes) -> dict:
    """Two prompt tokens, a sampled one, an observation, another sampled one."""
    row = {
        "step": 1,
        "group": 0,
        "sampled": [0, 0, 1, 0, 1],
        "values": [9.0, 9.0, 0.25, 9.0, 0.75, 9.0],
        "reward": 1.0,
        "shaped_reward": 1.0,
        "outcome_known": 1,
        "share_f": 1.0,
        "reference_shown": 0,
    }
    return row | changes


def printed(path: Path, last: int | None = None) -> str:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(calibration_tables(read_source(path, last), seed=0))
    return console.export_text()


def unwrapped(text: str) -> str:
    return " ".join(text.split())
