"""What a resumed run may change of its recipe, and what hangs on that.

Nothing jumps in silence: whatever else moves with a key is said in one line.
"""

from accredit.learner.schedules import DECAYS, constant
from accredit.recipe.config import RunConfig
from accredit.runs.assembly import schedule_of

RESUMABLE_KEYS = {
    "steps": "a decaying learning rate, of policy and critic, ends where they end",
    "threads": "sums are rounded in another order",
    "trackers": "",
    "engine": "logits are rounded as their batch is",
    "checkpoint": "older checkpoints than are kept go at the next save",
}
"""Sections that may change without making it another run; what hangs on each."""
ROUNDED = ("threads", "engine")


def change_lines(
    before: RunConfig, after: RunConfig, num_steps: int, num_updates: int
) -> list[str]:
    """What changes with the keys that were changed, one line each.

    Args:
        before: The recipe of the run so far.
        after: The recipe it goes on with.
        num_steps: Steps that are done.
        num_updates: Updates of the policy that are done.
    """
    lines: list[str] = []
    if after.steps != before.steps:
        lines += rate_lines(before, after, num_updates)
        if after.steps <= num_steps:
            lines.append(
                f"steps = {after.steps} are behind the run, which has taken "
                f"{num_steps}: nothing is trained"
            )
    changed = [k for k in ROUNDED if getattr(after, k) != getattr(before, k)]
    if changed:
        lines.append(
            f"{' and '.join(changed)} changed: {RESUMABLE_KEYS[changed[0]]}, so that "
            "from here on the run differs from an uninterrupted one by rounding"
        )
    kept, wanted = before.checkpoint.keep_last, after.checkpoint.keep_last
    if wanted < kept:
        lines.append(
            f"checkpoint.keep_last = {wanted} in place of {kept}: "
            f"{RESUMABLE_KEYS['checkpoint']}"
        )
    return lines


def rate_lines(before: RunConfig, after: RunConfig, num_updates: int) -> list[str]:
    """How the learning rate jumps where its decay gets another end."""
    if DECAYS[after.learner.schedule] is constant:
        return []
    old = schedule_of(before).rate(num_updates)
    new = schedule_of(after).rate(num_updates)
    return [
        f"learner.schedule = {after.learner.schedule!r} now ends at step "
        f"{after.steps}, not {before.steps}: the next update has learning rate "
        f"{new:.3g}, it would have had {old:.3g}; the critic's rate, where it follows, "
        "moves likewise"
    ]
