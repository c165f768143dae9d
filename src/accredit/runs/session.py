"""A training run from its first step to its report, and again from a checkpoint.

Ties the loop to the run's folder, to the screen and to trackers. What is written here
is what a resumed run must reproduce.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from accredit.algorithms.build import alarms_of
from accredit.critics.build import critic_line, warnings_of
from accredit.loops.synchronous import Plan, failing, first_state, is_due, train
from accredit.models.loading import quiet_transformers
from accredit.recipe.config import RecipeError, RunConfig, recipe_from, with_overrides
from accredit.recipe.plugins import told_where
from accredit.records import Cost, Record, State
from accredit.reports.alarms.alarms import PATIENCE, Watch
from accredit.reports.environment import environment
from accredit.reports.evaluation import EvalResult, evaluation, selection_score
from accredit.reports.metrics.step import (
    has_counts,
    last_fault,
    num_judged,
    step_metrics,
)
from accredit.reports.progress import TrainingProgress, final_table
from accredit.reports.rollouts import rollout_rows
from accredit.reports.trackers import Guarded, open_tracker, require_tracker
from accredit.runs.assembly import Assembly, assemble
from accredit.runs.first_lines import first_line, first_warnings
from accredit.runs.origins import (
    DATA_FILE,
    data_json,
    record_parts,
    require_same_parts,
)
from accredit.runs.prefix_critics import prompted_critic_line
from accredit.runs.resumed_keys import RESUMABLE_KEYS, change_lines
from accredit.runs.resuming import checkpoint_to_resume, require_resumable, restored
from accredit.runs.run_folder import begun, free_folder, interruptible, write_report_of
from accredit.runs.sources import (
    TEACHER,
    critic_section,
    record_sources,
    recorded_folders,
)
from accredit.storage.checkpoint import (
    checkpoint_step,
    checkpoints,
    prune_checkpoints,
    save_checkpoint,
)
from accredit.storage.folders import CRITIC_FOLDER, MODEL_FOLDER
from accredit.storage.run_directory import RunDirectory
from accredit.tasks.build import Task
from accredit.tasks.trials import tried
from accredit.types import Sampling
from accredit.world import Algorithm, rollout_cost


class TooManyInvalid(RuntimeError):
    """Hardly a rollout could be verified for several steps: the world is broken."""


class Session:
    """The observer of one run."""

    def __init__(
        self,
        assembly: Assembly,
        run: RunDirectory,
        progress: TrainingProgress,
        trackers: Sequence[Guarded] = (),
    ) -> None:
        self.assembly = assembly
        self.config = assembly.config
        self.run = run
        self.progress = progress
        self.trackers = trackers
        self.stop_requested = False
        self.save_requested = False
        self.last_save_fault = ""
        """Why the newest save failed; empty where it stands."""
        known = [row for row in run.metrics() if has_counts(row)]
        self.history = known[-10 * PATIENCE :]
        algorithm = self.config.algorithm
        self.alarms = alarms_of(algorithm.name, algorithm)
        self.watch = Watch([*known, *run.evaluations()], self.alarms)

    def evaluated(self, state: State) -> State:
        """Evaluates the policy as it is, writes it down and charges its cost."""
        with self.progress.activity.evaluating():
            result, cost = evaluate(self.assembly)
        state = replace(state, cost=state.cost + cost)
        row = {
            "step": state.step,
            "flops/decode": state.cost.decode_flops,
            "flops/total": state.cost.total_flops,
            "tokens/generated": state.cost.tokens_generated,
            **result.metrics(),
        }
        self.run.append_evaluation(row)
        self.progress.evaluated(row)
        self.progress.alarm(self.watch.heard(row))
        self._track(row, state.step)
        self.save_requested = self._best_of(self._scores()) == state.step
        return state

    def stepped(self, state: State, record: Record) -> None:
        """Writes down one step.

        Raises:
            TooManyInvalid: several steps in a row had hardly a valid reward.
        """
        self.save_requested = False
        row = step_metrics(
            record,
            state,
            clip_bounds=self.assembly.algorithm.clip_bounds,
            importance_cap=self.config.importance_cap,
            success_at=self.config.evaluation.success_at,
            shape=self.assembly.world.shape,
        )
        self.run.append_metrics(row)
        self.history = [*self.history, row][-10 * PATIENCE :]
        every = self.config.checkpoint.rollouts_every
        if is_due(every, state.step) or (every and state.step == 1):
            decode, read = self.assembly.decode, self.assembly.read
            rows = rollout_rows(record, state.step, decode, read)
            self.run.write_rollouts(state.step, rows)
        self.progress.update(row)
        self.progress.alarm(self.watch.heard(row))
        self.progress.warn(record.policy.notes if record.policy else ())
        self._track(row, state.step)
        self._stop_where_nothing_is_verified(record)

    def save(self, state: State) -> None:
        """Saves everything a resumed run needs; a full disk is told, not fatal yet."""
        self.run.require_in_place()
        root = self.run.checkpoints
        keep_last = self.config.checkpoint.keep_last
        self.last_save_fault = ""
        try:
            save_checkpoint(root, state.step, self._write, state)
            saved = {checkpoint_step(folder) for folder in checkpoints(root)}
            scores = {step: s for step, s in self._scores().items() if step in saved}
            best = self._best_of(scores)
            # Behind steps that were not finite lies the last good one: it stays.
            if not self.assembly.world.learner.num_consecutive_skips:
                prune_checkpoints(root, keep_last, [] if best is None else [best])
        except OSError as error:
            self.last_save_fault = str(error)
            self.progress.warn([f"{error}; the run goes on without it"])

    def request_stop(self, number: int, frame: FrameType | None) -> None:
        """A first Ctrl-C ends the run after this step; a second one at once."""
        if self.stop_requested:
            raise KeyboardInterrupt
        self.stop_requested = True
        self.progress.warn(["stopping after this step; press Ctrl-C again to abort"])

    def _write(self, folder: Path) -> None:
        with quiet_transformers():
            self.assembly.world.learner.save(folder)
            self.assembly.tokenizer.save_pretrained(folder / MODEL_FOLDER)
            if self.assembly.critic is not None:
                self.assembly.critic.save(folder / CRITIC_FOLDER)
        (folder / DATA_FILE).write_text(data_json(self.assembly), encoding="utf-8")

    def _scores(self) -> dict[int, float]:
        """Every evaluation after a step; the start has no checkpoint of its own."""
        return {
            row["step"]: score
            for row in self.run.evaluations()
            if row["step"] > 0 and (score := selection_score(row)) is not None
        }

    @staticmethod
    def _best_of(scores: Mapping[int, float]) -> int | None:
        """The step of the first of the highest scores."""
        return max(scores, key=lambda step: (scores[step], -step), default=None)

    def _track(self, row: dict[str, Any], step: int) -> None:
        for tracker in self.trackers:
            tracker.log(row, step)

    def _stop_where_nothing_is_verified(self, record: Record) -> None:
        limit = self.config.max_invalid_share
        recent = [row for row in self.history if num_judged(row) > 0][-PATIENCE:]
        broken = [
            row["count/rewards_invalid"] >= limit * num_judged(row) for row in recent
        ]
        if len(recent) == PATIENCE and all(broken):
            raise TooManyInvalid(
                f"at most {1 - limit:.0%} of the judged rollouts had a reward in "
                f"{PATIENCE} steps in a row (max_invalid_share = {limit}); the last "
                f"reason was: {last_fault(record)}"
            )


def evaluate(assembly: Assembly) -> tuple[EvalResult, Cost]:
    """The policy on the held-out problems; the draws are the same at every step."""
    options = assembly.config.evaluation
    world = assembly.world
    groups = world.environment.roll_out(
        assembly.evaluation_prompts,
        options.samples,
        Sampling(options.temperature, options.top_p, options.top_k),
        ("evaluation",),
    )
    spent = rollout_cost(groups, world.shape)
    world.clock.drain()
    result = evaluation(groups, assembly.config.seed, success_at=options.success_at)
    return result, Cost(
        evaluation_flops=spent.decode_flops + spent.prefill_flops,
        num_verifications=spent.num_verifications,
    )


def start_training(
    config: RunConfig,
    *,
    algorithm: Algorithm | None = None,
    task: Task | None = None,
) -> tuple[RunDirectory, bool]:
    """A new run in a folder of its own; returns it and whether it was finished.

    A name that is taken gets a number: `walk-grpo-2` beside `walk-grpo`.

    Args:
        config: The recipe.
        algorithm: Takes the place of the recipe's. It is to be given again when the run
            is resumed.
        task: Takes the place of the recipe's, likewise.

    Raises:
        ValueError: the recipe cannot be built, or its folder not be written.
    """
    for name in config.trackers:
        require_tracker(name)
    run = RunDirectory(free_folder(config.runs_folder / config.name))
    with (
        begun(run),
        closing(assemble(config, algorithm=algorithm, task=task)) as assembly,
    ):
        # Before the recipe, which makes the folder a run that can be resumed.
        record_sources(run.path, assembly.folders)
        record_parts(run.path, assembly)
        told = tried(assembly.task, config.seed)
        run.start(config.model_dump(mode="json"), environment())
        state = first_state(assembly.algorithm)
        return run, carry_on(assembly, run, state, told)


def resume_training(
    path: Path,
    overrides: Sequence[str],
    *,
    algorithm: Algorithm | None = None,
    task: Task | None = None,
    accept_changes: bool = False,
) -> tuple[RunDirectory, bool]:
    """A run from its newest whole checkpoint, or from its start where it has none.

    Args:
        path: Folder of the run.
        overrides: Keys of its recipe to change.
        algorithm: As it was given to `start_training`.
        task: Likewise.
        accept_changes: Goes on where data, reward function or parts have changed; what
            did is said.

    Raises:
        RecipeError: there is no run, or it would become another.
    """
    run = require_resumable(path)
    recipe = with_overrides(run.recipe(), overrides)
    for key, value in run.recipe().items():
        if recipe[key] != value and key not in RESUMABLE_KEYS:
            raise RecipeError(
                f"a resumed run may only change {', '.join(RESUMABLE_KEYS)}, got "
                f"{key}; start a new run for another recipe"
            )
    config = recipe_from(recipe, str(path))
    with run.lock():
        checkpoint = checkpoint_to_resume(run)
        folders = recorded_folders(config, run.path, checkpoint)
        with closing(
            assemble(config, folders, algorithm=algorithm, task=task)
        ) as assembly:
            others = require_same_parts(run.path, assembly, accept_changes)
            begin = restored(assembly, run, checkpoint, accept_changes)
            record_parts(run.path, assembly)
            before = recipe_from(run.recipe(), str(path))
            num_updates = assembly.world.learner.num_updates
            changed = change_lines(before, config, begin.state.step, num_updates)
            run.rewrite_recipe(assembly.config.model_dump(mode="json"))
            lines = [*others, *begin.lines, *changed]
            return run, carry_on(assembly, run, begin.state, lines)


def carry_on(
    assembly: Assembly, run: RunDirectory, state: State, lines: Sequence[str] = ()
) -> bool:
    """Trains from `state` to the end and reports; False where it was stopped.

    Args:
        lines: To be said before anything is trained.

    Raises:
        RuntimeError: the last checkpoint or the report could not be written.
    """
    config, world = assembly.config, assembly.world
    world.engine.load(world.learner.model, world.learner.version)
    plan = Plan(config.steps, config.evaluation.every, config.checkpoint.every)
    with ExitStack() as stack:
        progress = stack.enter_context(TrainingProgress(config.steps, state.step))
        world.clock.watcher = progress.activity
        progress.console.print(first_line(run, config, state), soft_wrap=True)
        progress.console.print(assembly.plan, soft_wrap=True, highlight=False)
        critic = critic_section(config, assembly.folders)
        if critic is not None and state.step == 0:
            progress.console.print(critic_line(critic), soft_wrap=True)
            progress.warn(warnings_of(critic, world.learner.model))
        prompted = prompted_critic_line(config, assembly.critic)
        if prompted is not None and state.step == 0:
            progress.console.print(prompted, soft_wrap=True)
        if TEACHER in assembly.folders:
            line = f"teacher: {assembly.folders[TEACHER]}"
            progress.console.print(line, soft_wrap=True)
        progress.warn([*lines, *first_warnings(assembly)])
        trackers = [
            open_tracker(name, run.path, run.recipe(), state.step)
            for name in config.trackers
        ]
        for tracker in trackers:
            stack.callback(tracker.close)
        session = Session(assembly, run, progress, trackers)
        stack.enter_context(interruptible(session.request_stop))
        stack.enter_context(failing())
        if config.plugins:
            stack.enter_context(told_where())
        state = train(assembly.algorithm, world, state, plan, session)
    write_report_of(run, progress, session.alarms)
    table = final_table(run.metrics(), run.evaluations(), session.alarms)
    progress.console.print(table)
    if session.last_save_fault:
        raise RuntimeError(
            f"the last checkpoint must be written, got: {session.last_save_fault}; "
            f"make room and continue with: accredit train --resume {run.path}"
        )
    return state.step >= config.steps
