"""Test-wide switches: one torch thread, and where types are checked as tests run."""

from collections.abc import Iterator

import jaxtyping
import pytest
import torch

# Tiny tensors would wait for cores.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def type_checks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every call's types are checked, but in tests of whole runs, which take half.

    What whole runs call is called by short tests as well.
    """
    if request.node.get_closest_marker("whole_run") is None:
        yield
        return
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
