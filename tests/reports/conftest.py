"""A seeded record and a whole run, shared by the tests of `reports`."""

from pathlib import Path

import numpy as np
import pytest
from synthetic_run import synthetic_record, write_synthetic_run

from accredit.records import Record
from accredit.reports.page import report_page
from accredit.storage.run_directory import RunDirectory


@pytest.fixture
def record() -> Record:
    return synthetic_record(np.random.default_rng(11), skill=0.5)


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Read only: tests that change a run make their own."""
    path: Path = tmp_path_factory.mktemp("runs") / "walk-grpo"
    return write_synthetic_run(path, num_steps=20)


@pytest.fixture(scope="session")
def finished_page(finished_run: RunDirectory) -> str:
    """Its page, which takes a second or two to draw."""
    return report_page(finished_run)
