"""From a run's folder back to where it was: the checkpoint, the data, the rows."""

from dataclasses import dataclass, replace
from pathlib import Path

from accredit.loops.synchronous import first_state
from accredit.recipe.config import RecipeError
from accredit.records import State
from accredit.reports.metrics.step import has_counts
from accredit.runs.assembly import Assembly
from accredit.runs.origins import changed_data, data_of, saved_data
from accredit.storage.checkpoint import (
    checkpoint_step,
    checkpoints,
    latest_checkpoint,
    load_state,
    remove_leftovers,
)
from accredit.storage.folders import CRITIC_FOLDER
from accredit.storage.run_directory import RunDirectory


@dataclass(frozen=True)
class Restored:
    """Where a run goes on, and what is to be said about it first."""

    state: State
    lines: tuple[str, ...] = ()


def checkpoint_to_resume(run: RunDirectory) -> Path | None:
    """The newest whole checkpoint; None where the run saved none yet.

    Raises:
        RecipeError: there are checkpoints, and none of them is whole.
    """
    remove_leftovers(run.checkpoints)
    checkpoint = latest_checkpoint(run.checkpoints)
    if checkpoint is None and checkpoints(run.checkpoints):
        raise RecipeError(
            "a run must have a whole checkpoint to go on from, got none but torn ones "
            f"in {run.checkpoints}; restore their files, or delete that folder to "
            "begin the run anew"
        )
    return checkpoint


def restored(
    assembly: Assembly, run: RunDirectory, checkpoint: Path | None, accept_changes: bool
) -> Restored:
    """The state of a checkpoint, loaded; rows after it are dropped.

    Raises:
        RecipeError: other data would be paid or evaluated than before.
        ValueError: a part of the checkpoint is damaged; it is named.
    """
    state, lines = first_state(assembly.algorithm), odd_lines(run)
    if checkpoint is not None:
        state = load_state(checkpoint, type(state.memory))
        saved = saved_data(checkpoint)
        changed = changed_data(saved, data_of(assembly))
        where = f"before step {checkpoint_step(checkpoint) + 1}"
        if changed and not accept_changes:
            raise RecipeError(
                f"a resumed run must have the data of {where}, got others: "
                f"{', '.join(changed)}; restore them, start a new run, or go on all "
                "the same with --accept-changes"
            )
        lines += [f"the data are not those of {where}: {c}" for c in changed]
        assembly.world.learner.load(checkpoint)
        if assembly.critic is not None:
            assembly.critic.load(checkpoint / CRITIC_FOLDER)
        start = assembly.world.problems.resumed_start(state.num_drawn, saved["prompts"])
        state = replace(state, num_drawn=start)
    run.truncate(state.step if checkpoint is not None else -1)
    return Restored(state, tuple(lines))


def odd_lines(run: RunDirectory) -> list[str]:
    """What of the run's rows cannot be read, one line each."""
    lines = run.odd_rows()
    uncounted = [row["step"] for row in run.metrics() if not has_counts(row)]
    if uncounted:
        lines.append(
            f"{len(uncounted)} rows of metrics.jsonl lack their counts, the first of "
            f"step {uncounted[0]}: alarms and limits pass them over"
        )
    return lines


def require_resumable(path: Path) -> RunDirectory:
    """The run in a folder.

    Raises:
        RecipeError: there is none.
    """
    run = RunDirectory(path)
    if not run.exists:
        held = "which holds no recipe.json" if path.is_dir() else "where there is none"
        raise RecipeError(f"--resume needs the folder of a run, got {path}, {held}")
    return run
