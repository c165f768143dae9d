"""What a run says before anything is trained."""

from accredit.models.positions import limit_note
from accredit.recipe.config import RunConfig
from accredit.records import State
from accredit.runs.assembly import Assembly
from accredit.storage.run_directory import RunDirectory


def first_line(run: RunDirectory, config: RunConfig, state: State) -> str:
    """Which folder is written, and where the run goes on."""
    taken = f" ({config.name} was taken)" if run.path.name != config.name else ""
    begins = f", continuing after step {state.step}" if state.step else ""
    return f"run: {run.path}{taken}{begins}"


def first_warnings(assembly: Assembly) -> list[str]:
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
    lines += getattr(assembly.world.learner, "notes", ())
    limited = limit_note(assembly.world.learner.model.config)
    lines += [limited] if limited else []
    context = assembly.context_tokens
    longest = max(len(prompt.token_ids) for prompt in assembly.world.problems.prompts)
    budget = assembly.config.max_new_tokens
    if context is not None and longest + budget > context:
        lines.append(
            f"completions of {budget} tokens after prompts of up to {longest} do not "
            f"fit the model's {context} positions: the longest are cut there"
        )
    config = assembly.config
    if config.num_policy_updates == 0 and config.critic is not None:
        lines.append(
            f"algorithm.critic.warmup_steps = {config.critic.warmup_steps} takes all "
            f"{config.steps} steps: the critic learns alone, the policy stays as it is"
        )
    weakness = str(getattr(assembly.task.verifier, "weakness", ""))
    if weakness:
        lines.append(weakness)
    bad_rows = assembly.task.bad_rows
    if bad_rows:
        first = bad_rows[0]
        lines.append(
            f"{len(bad_rows)} rows are left out, the first row {first.number}: "
            f"{first.reason}"
        )
    return lines
