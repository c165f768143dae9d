"""Case B184: memory that grows with every step."""

import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from accredit.loops.synchronous import Plan, advance, first_state, train
from accredit.recipe.config import recipe_from
from accredit.reports.environment import environment
from accredit.reports.progress import TrainingProgress
from accredit.runs.assembly import assemble
from accredit.runs.session import Session
from accredit.storage.run_directory import RunDirectory
from tiny_models import tiny_qwen3
from worlds import algorithm, small_world

pytestmark = pytest.mark.whole_run

STATM = Path("/proc/self/statm")
SETTLED = 5
"""Steps until optimizer state, reference and caches are there."""
NUM_STEPS = 50
LARGEST_GROWTH = 1.03


def rss_bytes() -> int:
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def live_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


def growth(step: Callable[[], None]) -> int:
    """Tensors that live after twelve steps and did not after `SETTLED`."""
    counts = {}
    for number in range(1, 13):
        step()
        if number in (SETTLED, 12):
            counts[number] = live_tensors()
    return counts[12] - counts[SETTLED]


def test_the_meter_sees_one_tensor_a_step():
    kept = []
    assert growth(lambda: kept.append(torch.zeros(1))) == 12 - SETTLED


@pytest.mark.parametrize(
    "name, keys",
    [
        ("grpo", {"kl_coefficient": 0.01, "num_minibatches": 2}),
        ("reinforce_pp", {"kl_coefficient": 0.01}),
    ],
)
def test_an_algorithm_with_a_reference_leaves_no_tensor_behind(name, keys):
    """Case B184."""
    chosen, world = algorithm(name, **keys), small_world()
    state = first_state(chosen)

    def step() -> None:
        nonlocal state
        state, _ = advance(chosen, state, world)

    assert growth(step) == 0


@pytest.mark.skipif(not STATM.exists(), reason="resident memory is read from /proc")
def test_fifty_steps_of_a_run_need_no_more_memory_than_five(tmp_path):
    """Case B184."""
    recipe = {
        "name": "small",
        "runs_folder": str(tmp_path),
        "steps": NUM_STEPS,
        "model": {"path": str(tiny_qwen3(tmp_path / "model")), "device": "cpu"},
        "algorithm": {"prompts_per_step": 2, "group_size": 4},
        "sampling": {"max_new_tokens": 6},
        "evaluation": {"every": 0, "samples": 1, "max_problems": 2},
        "checkpoint": {"every": 0, "rollouts_every": 10},
    }
    seen = {}

    class Watched(Session):
        def stepped(self, state, record):
            super().stepped(state, record)
            if state.step in (SETTLED, NUM_STEPS):
                seen[state.step] = live_tensors(), rss_bytes()

    config = recipe_from(recipe, "test")
    run = RunDirectory(tmp_path / "small")
    run.start(config.model_dump(mode="json"), environment())
    assembly = assemble(config)
    with TrainingProgress(config.steps) as progress:
        chosen = assembly.algorithm
        train(
            chosen,
            assembly.world,
            first_state(chosen),
            Plan(NUM_STEPS),
            Watched(assembly, run, progress),
        )
    (tensors, rss), (tensors_after, rss_after) = seen[SETTLED], seen[NUM_STEPS]
    assert tensors_after == tensors
    assert rss_after < LARGEST_GROWTH * rss
