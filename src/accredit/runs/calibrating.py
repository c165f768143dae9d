"""A run's critic asked anew: held-out problems, fresh rollouts, the critic alone.

The rollouts of a run are those that its critic was trained on a moment later, under a
policy that has moved since. These are of the newest checkpoint, whose policy rolls out
problems that neither has seen; the critic is loaded from its folder and from nothing
else of the run.
"""

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from accredit.algorithms.actor_critic import OUTCOME_RULES, OutcomeRule
from accredit.batches.collate import collate
from accredit.critics.loading import load_critic
from accredit.protocols import TrainableCritic
from accredit.recipe.config import RecipeError, RunConfig, recipe_from, with_overrides
from accredit.reports.calibration.sources import (
    Calibration,
    ValuedRollout,
    calibration_of,
    counted,
    valued_rollouts,
)
from accredit.runs.assembly import Assembly, assemble, chosen_device
from accredit.storage.checkpoint import checkpoint_step, latest_checkpoint
from accredit.storage.folders import CRITIC_FOLDER, MODEL_FOLDER
from accredit.storage.run_directory import RunDirectory
from accredit.tasks.rendering import shown_prompt_ids
from accredit.types import Group

NO_CRITIC = {"name": "rloo"}
"""The algorithm of the rolling out, which none is needed for."""
GROUPS_AT_ONCE = 16


def fresh_calibration(path: Path, overrides: Sequence[str]) -> Calibration:
    """Values of the newest critic of a run beside what its newest policy comes to.

    Args:
        path: Of the run.
        overrides: Keys of its recipe to change, as evaluation.max_problems.

    Raises:
        ValueError: there is no run, no checkpoint, or no critic in it.
    """
    run = RunDirectory(path)
    if not run.exists:
        raise RecipeError(f"--fresh needs the folder of a run, got {path}")
    newest = latest_checkpoint(run.checkpoints)
    if newest is None:
        raise RecipeError(f"--fresh needs a whole checkpoint, got none in {path}")
    if not (newest / CRITIC_FOLDER).is_dir():
        raise RecipeError(
            f"--fresh needs a critic with parameters, got none in {newest}; without "
            "--fresh, the rollouts that the run kept answer for any critic"
        )
    if "truncation" not in run.recipe()["algorithm"]:
        raise RecipeError(
            "--fresh needs a critic that values every prefix, got one of "
            f"{run.recipe()['algorithm']['name']}, which answers about few; without "
            "--fresh, the audited groups that the run kept answer for it"
        )
    config = rolling_out(run, newest / MODEL_FOLDER, overrides)
    with closing(assemble(config)) as assembly:
        critic = critic_alone(newest / CRITIC_FOLDER, assembly)
        outcome_rule = OUTCOME_RULES[run.recipe()["algorithm"]["truncation"]]
        groups = rolled_out(assembly)
        at = f"{run.path.absolute().name} at step {checkpoint_step(newest)}"
        pairs = valued(critic, groups, outcome_rule)
        found = calibration_of(f"{at}, held-out problems", *pairs)
        verdicts = [verdict for group in groups for verdict in group.verdicts]
        missing = [verdict.reward for verdict in verdicts].count(None)
        samples, sampling = config.evaluation.samples, config.sampling
        told = (
            f"{at}: {len(groups)} held-out problems, {samples} fresh rollouts each at "
            f"temperature {sampling.temperature:g}, valued by the critic of "
            f"{(newest / CRITIC_FOLDER).relative_to(path)} alone: {counted(found)}."
        )
        return replace(found, told=told, num_missing=missing)


def rolling_out(run: RunDirectory, model: Path, overrides: Sequence[str]) -> RunConfig:
    """The run's recipe about its newest policy, without the run's algorithm."""
    # Quoted, so that a folder called 2024 or none stays text.
    words = ["--model.path", json.dumps(str(model)), *overrides]
    content = {**run.recipe(), "algorithm": NO_CRITIC}
    return recipe_from(with_overrides(content, words), str(run.path))


def critic_alone(folder: Path, assembly: Assembly) -> TrainableCritic:
    """The saved critic, shown prompts as the run's recipe renders them."""
    config = assembly.config
    return load_critic(
        folder,
        show=partial(
            shown_prompt_ids,
            tokenizer=assembly.tokenizer,
            chat=config.sampling.chat,
            system=config.sampling.system,
        ),
        device=chosen_device(config.model.device),
        micro_batch_tokens=config.learner.micro_batch_tokens,
    )


def rolled_out(assembly: Assembly) -> list[Group]:
    """Held-out problems under the sampling of training: the policy that V is about."""
    return assembly.world.environment.roll_out(
        assembly.evaluation_prompts,
        assembly.config.evaluation.samples,
        assembly.world.sampling,
        ("calibration",),
    )


def valued(
    critic: TrainableCritic, groups: Sequence[Group], outcome_rule: OutcomeRule
) -> tuple[list[ValuedRollout], int]:
    """Rollouts of a known outcome with their values, and how many have an open one."""
    found: list[ValuedRollout] = []
    num_open = 0
    for start in range(0, len(groups), GROUPS_AT_ONCE):
        batch = collate(groups[start : start + GROUPS_AT_ONCE])
        values = critic.values(batch, batch.rewards)
        known = outcome_rule(batch, values).known
        num_open += int((batch.verified & ~known).sum())
        shown = critic.reference_shown
        found += valued_rollouts(batch, values, known, start, shown)
    return found, num_open
