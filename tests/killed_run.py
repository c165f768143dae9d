"""Trains a recipe and kills itself, -9, at a named place of a named step.

python killed_run.py RECIPE.json {generate,update,critic,save} STEP
"""

import os
import signal
import sys
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


if __name__ == "__main__":
    recipe, place, step = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
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
