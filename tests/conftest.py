"""Test-wide switches: one torch thread; where types are checked, and pages written."""

from collections.abc import Iterator
from typing import Any

import jaxtyping
import pytest
import torch

# Tiny tensors would wait for cores.
torch.set_num_threads(1)


@pytest.fixture(scope="module", autouse=True)
def of_whole_runs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Modules of whole runs go without what takes most of them.

    All of it has tests of its own: type checks, pages (`whole_run(pages=True)` keeps
    them), and the proofs after the first updates that a model is still read rightly.
    """
    marker = request.node.get_closest_marker("whole_run")
    if marker is None:
        yield
        return
    with pytest.MonkeyPatch.context() as patch, unchecked():
        if not marker.kwargs.get("pages"):
            patch.setattr("accredit.runs.run_folder.write_report", blank_page)
        patch.setattr("accredit.models.forward.Reading.and_now", as_before)
        yield


@pytest.fixture(autouse=True)
def of_a_whole_run(request: pytest.FixtureRequest) -> Iterator[None]:
    """A single test of a whole run goes without type checks."""
    if not any(request.node.iter_markers("whole_run")):
        yield
        return
    with unchecked():
        yield


class unchecked:
    """No types are checked as long as the block runs."""

    def __enter__(self) -> None:
        self.before = jaxtyping.config.jaxtyping_disable
        jaxtyping.config.update("jaxtyping_disable", True)

    def __exit__(self, *_: object) -> None:
        jaxtyping.config.update("jaxtyping_disable", self.before)


def as_before(reading: Any, model: object) -> Any:
    """What was proved of the model when it was loaded."""
    return reading


def blank_page(run: Any, *_: object) -> None:
    """The file alone: pages are drawn in tests of pages."""
    run.report.write_text("a page\n")
