"""A training run from its first step to its report, and again from a checkpoint.

Ties the loop to the run's folder, to the screen and to trackers. What is written here
is what a resumed run must reproduce.
"""

import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from accredit.assembly import Assembly, assemble
from accredit.config import RecipeError, RunConfig, recipe_from, with_overrides
from accredit.critics.build import opening_of, warnings_of
from accredit.engines.models import quiet_transformers
from accredit.folders import CRITIC_FOLDER, MODEL_FOLDER
from accredit.judges import (
    TEACHER,
    critic_section,
    record_judges,
    recorded_folders,
)
from accredit.learner.checkpoint import (
    checkpoint_step,
    checkpoints,
    latest_checkpoint,
    load_state,
    prune_checkpoints,
    save_checkpoint,
)
from accredit.loops.synchronous import Plan, first_state, is_due, train
from accredit.prefix_critics import opening_of_prompted
from accredit.records import Cost, Record, State
from accredit.reports.alarms import PATIENCE, new_warning_lines
from accredit.reports.environment import environment
from accredit.reports.evaluation import EvalResult, evaluation
from accredit.reports.metrics import last_fault, num_judged, step_metrics
from accredit.reports.page import write_report
from accredit.reports.progress import TrainingProgress, final_table
from accredit.reports.rollouts import rollout_rows
from accredit.reports.run_directory import RunDirectory
from accredit.reports.trackers import Guarded, open_tracker, require_tracker
from accredit.types import Sampling
from accredit.world import rollout_cost

DATA_FILE = "data.json"
RESUMABLE_KEYS = ("steps", "threads", "trackers", "engine", "checkpoint")
"""Sections of a recipe that a resumed run may change without becoming another run."""


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
        self.last_save_fault = ""
        """Why the newest save failed; empty where it stands."""
        self.history = run.metrics()[-10 * PATIENCE :]

    def evaluated(self, state: State) -> State:
        """Evaluates the policy as it is, writes it down and charges its cost."""
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
        self._track(row, state.step)
        return state

    def stepped(self, state: State, record: Record) -> None:
        """Writes down one step.

        Raises:
            TooManyInvalid: several steps in a row had hardly a valid reward.
        """
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
            rows = rollout_rows(record, state.step, self.assembly.decode)
            self.run.write_rollouts(state.step, rows)
        self.progress.update(row)
        self.progress.warn(new_warning_lines(self.history))
        self._track(row, state.step)
        self._stop_where_nothing_is_verified(record)

    def save(self, state: State) -> None:
        """Saves everything a resumed run needs; a full disk is told, not fatal yet."""
        root = self.run.checkpoints
        keep_last = self.config.checkpoint.keep_last
        self.last_save_fault = ""
        try:
            save_checkpoint(root, state.step, self._write, state)
            prune_checkpoints(root, keep_last, self._best_step())
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
        fingerprint = self.assembly.world.problems.fingerprint
        content = json.dumps({"fingerprint": fingerprint})
        (folder / DATA_FILE).write_text(content, encoding="utf-8")

    def _best_step(self) -> list[int]:
        saved = {
            checkpoint_step(folder) for folder in checkpoints(self.run.checkpoints)
        }
        scored = [
            row
            for row in self.run.evaluations()
            if "eval/mean" in row and row["step"] in saved
        ]
        best = max(scored, key=lambda row: row["eval/mean"], default=None)
        return [] if best is None else [best["step"]]

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


def start_training(config: RunConfig) -> tuple[RunDirectory, bool]:
    """A new run in a folder of its own; returns it and whether it was finished.

    A name that is taken gets a number: `walk-grpo-2` beside `walk-grpo`.

    Raises:
        ValueError: the recipe cannot be built.
    """
    for name in config.trackers:
        require_tracker(name)
    with closing(assemble(config)) as assembly:
        run = RunDirectory(free_folder(config.runs_folder / config.name))
        with run.lock():
            # Before the recipe, which makes the folder a run that can be resumed.
            record_judges(run.path, assembly.folders)
            run.start(config.model_dump(mode="json"), environment())
            state = first_state(assembly.algorithm)
            return run, carry_on(assembly, run, state)


def free_folder(wanted: Path) -> Path:
    """The folder itself if it holds no run yet, else the first numbered one."""
    folder, number = wanted, 2
    while RunDirectory(folder).exists:
        folder = wanted.with_name(f"{wanted.name}-{number}")
        number += 1
    return folder


def resume_training(path: Path, overrides: Sequence[str]) -> tuple[RunDirectory, bool]:
    """A run from its newest whole checkpoint, or from its start where it has none.

    Raises:
        RecipeError: there is no run, or an override would make it another run.
    """
    run = RunDirectory(path)
    if not run.exists:
        raise RecipeError(f"--resume needs the folder of a run, got {path}")
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
        with closing(assemble(config, folders)) as assembly:
            state = restored(assembly, run, checkpoint)
            run.rewrite_recipe(assembly.config.model_dump(mode="json"))
            return run, carry_on(assembly, run, state)


def checkpoint_to_resume(run: RunDirectory) -> Path | None:
    """The newest whole checkpoint; None where the run saved none yet.

    Raises:
        RecipeError: there are checkpoints, and none of them is whole.
    """
    checkpoint = latest_checkpoint(run.checkpoints)
    if checkpoint is None and checkpoints(run.checkpoints):
        raise RecipeError(
            "a run must have a whole checkpoint to go on from, got none but torn ones "
            f"in {run.checkpoints}; restore their files, or delete that folder to "
            "begin the run anew"
        )
    return checkpoint


def restored(assembly: Assembly, run: RunDirectory, checkpoint: Path | None) -> State:
    """The state of a checkpoint, loaded; rows after it are dropped."""
    state = first_state(assembly.algorithm)
    if checkpoint is not None:
        state = load_state(checkpoint, type(state.memory))
        assembly.world.learner.load(checkpoint)
        if assembly.critic is not None:
            assembly.critic.load(checkpoint / CRITIC_FOLDER)
        saved = json.loads((checkpoint / DATA_FILE).read_text(encoding="utf-8"))
        start = assembly.world.problems.resumed_start(
            state.num_drawn, saved["fingerprint"]
        )
        state = replace(state, num_drawn=start)
    run.truncate(state.step if checkpoint is not None else -1)
    return state


def carry_on(assembly: Assembly, run: RunDirectory, state: State) -> bool:
    """Trains from `state` to the end and reports; False where it was stopped.

    Raises:
        RuntimeError: the last checkpoint could not be written.
    """
    config, world = assembly.config, assembly.world
    world.engine.load(world.learner.model, world.learner.version)
    plan = Plan(config.steps, config.evaluation.every, config.checkpoint.every)
    with ExitStack() as stack:
        progress = stack.enter_context(TrainingProgress(config.steps, state.step))
        progress.console.print(opening_line(run, config, state), soft_wrap=True)
        critic = critic_section(config, assembly.folders)
        if critic is not None and state.step == 0:
            progress.console.print(opening_of(critic), soft_wrap=True)
            progress.warn(warnings_of(critic, world.learner.model))
        prompted = opening_of_prompted(config)
        if prompted is not None and state.step == 0:
            progress.console.print(prompted, soft_wrap=True)
        if TEACHER in assembly.folders:
            line = f"teacher: {assembly.folders[TEACHER]}"
            progress.console.print(line, soft_wrap=True)
        progress.warn(opening_warnings(assembly))
        trackers = [
            open_tracker(name, run.path, run.recipe(), state.step)
            for name in config.trackers
        ]
        for tracker in trackers:
            stack.callback(tracker.close)
        session = Session(assembly, run, progress, trackers)
        stack.enter_context(interruptible(session))
        state = train(assembly.algorithm, world, state, plan, session)
    write_report(run)
    progress.console.print(final_table(run.metrics(), run.evaluations()))
    if session.last_save_fault:
        raise RuntimeError(
            f"the last checkpoint must be written, got: {session.last_save_fault}; "
            f"make room and continue with: accredit train --resume {run.path}"
        )
    return state.step >= config.steps


def opening_line(run: RunDirectory, config: RunConfig, state: State) -> str:
    """Which folder is written, and where the run goes on."""
    taken = f" ({config.name} was taken)" if run.path.name != config.name else ""
    begins = f", continuing after step {state.step}" if state.step else ""
    return f"run: {run.path}{taken}{begins}"


def opening_warnings(assembly: Assembly) -> list[str]:
    """What was left out before anything ran."""
    lines = []
    if assembly.dropped:
        id, reason = next(iter(assembly.dropped.items()))
        lines.append(
            f"{len(assembly.dropped)} prompts are left out, the first {id!r}: {reason}"
        )
    if assembly.num_unknown:
        lines.append(
            f"{assembly.num_unknown} prompts hold text that the tokenizer has no token "
            "for; is it the model for these data?"
        )
    context = assembly.context_tokens
    longest = max(len(prompt.token_ids) for prompt in assembly.world.problems.prompts)
    budget = assembly.config.max_new_tokens
    if context is not None and longest + budget > context:
        lines.append(
            f"completions of {budget} tokens after prompts of up to {longest} do not "
            f"fit the model's {context} positions: the longest are cut there"
        )
    sampling = assembly.world.sampling
    if sampling.top_p < 1 or sampling.top_k > 0:
        lines.append(
            "top_p and top_k cut what is sampled, but the learner scores the whole "
            "distribution: ratios to the engine are biased, see mismatch/*"
        )
    config = assembly.config
    if config.num_policy_updates == 0 and config.critic is not None:
        lines.append(
            f"algorithm.critic.warmup_steps = {config.critic.warmup_steps} takes all "
            f"{config.steps} steps: the critic learns alone, the policy stays as it is"
        )
    bad_rows = assembly.task.bad_rows
    if bad_rows:
        first = bad_rows[0]
        lines.append(
            f"{len(bad_rows)} rows are left out, the first row {first.number}: "
            f"{first.reason}"
        )
    return lines


@contextmanager
def interruptible(session: Session) -> Iterator[None]:
    """SIGINT and SIGTERM ask the session to stop, while the block runs."""
    signals = (signal.SIGINT, signal.SIGTERM)
    previous = [signal.signal(s, session.request_stop) for s in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, previous, strict=True):
            signal.signal(number, handler)
