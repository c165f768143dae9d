"""Trains a recipe in a process that kills itself, -9, at a place of a step."""

import os
import signal
import warnings
from multiprocessing import get_context
from pathlib import Path

from accredit.critics.value_head.critic import ValueHeadCritic
from accredit.engines.local.engine import TransformersEngine
from accredit.learner.learner import Learner
from accredit.learner.policy_update import PolicyUpdateSteps
from accredit.recipe.config import load_recipe
from accredit.runs.session import start_training


def die_in(owner: object, name: str, occurrence: int) -> None:
    """Replaces a function so that its n-th call does its work and then is killed."""
    inner, calls = getattr(owner, name), [0]

    def fatal(*arguments: object, **named: object) -> object:
        calls[0] += 1
        result = inner(*arguments, **named)
        if calls[0] == occurrence:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, fatal)


def killed_run(recipe: Path, place: str, step: int) -> int | None:
    """The exit code of a forked child that trains and dies."""
    with warnings.catch_warnings():
        # Newer Pythons warn of forks beside threads; the child starts its own.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = get_context("fork").Process(target=train, args=(recipe, place, step))
        child.start()
    child.join(200)
    if child.is_alive():
        child.kill()
    return child.exitcode


def train(recipe: Path, place: str, step: int) -> None:
    """Trains until it dies in `generate`, `update`, `critic` or `save`."""
    if place == "generate":
        # One evaluation precedes the first step.
        die_in(TransformersEngine, "generate", step + 1)
    elif place == "update":
        die_in(PolicyUpdateSteps, "descend", step)
    elif place == "critic":
        die_in(ValueHeadCritic, "_step", step)
    else:
        # Every file is written; nothing is sealed, marked or renamed yet.
        die_in(Learner, "save", step)
    start_training(load_recipe(recipe))
