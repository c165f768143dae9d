"""What a reader of the numbers would call out: runs that look alive and learn nothing.

Pure: metric rows in, sentences out. Each alarm is one row of `ALARMS`; its threshold is
also in `docs/metrics.md`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

PATIENCE = 5
"""Consecutive steps that an alarm must hold before it is told."""

Row = Mapping[str, float | int | None]


@dataclass(frozen=True)
class Alarm:
    """A condition on one step's metrics and what it means when it lasts."""

    keys: tuple[str, ...]
    """What it reads; steps that lack one of them neither feed nor end a streak."""
    holds: Callable[..., bool]
    """Called with the values of `keys`."""
    meaning: str
    """A sentence: what is wrong, and what to do."""
    at_once: bool = False
    """True for what no run should wait for: told at its first step."""
    present: tuple[str, ...] = ()
    """Keys without which a step is passed over, as one that lacks what is read."""
    absent: tuple[str, ...] = ()
    """Keys with which it is."""


TRAINED = ("critic/num_skipped", "policy/num_skipped")
"""Held by steps in which a policy learns from a critic that learns: neither a group's
rewards as a critic, nor a critic that warms up, is judged by what a trained one does.
"""
ROUTED = ("readiness/flips",)
"""Held by steps in which a gate decides problem by problem whether the critic is used.
It values few prefixes of each rollout, and a bad one is not used: what is asked of
critics that deal out credit at every token says nothing there.
"""
VALUED = ("critic/valued_share", "policy/num_skipped")
"""Held by those too in which a policy learns from fresh rollouts as a critic, of which
less is asked: their values are noisy, but right on average.
"""


def _exceeds_constant(error: float, constant: float) -> bool:
    return error > constant + 0.1


def _leans(bias: float) -> bool:
    return abs(bias) > 0.2


def _points_away(correlation: float, gap: float) -> bool:
    return correlation < 0.0 and gap < 0.0


LARGEST_UNKNOWN = 0.1
"""Share of outcomes that may be a critic's own word; beyond it, its figures speak about
the rollouts that ended and not about the critic."""


def _of_trained(
    keys: tuple[str, ...], holds: Callable[..., bool], meaning: str
) -> Alarm:
    """For critics with parameters, where hardly an outcome is their own word."""

    def measured(unknown: float | int, *figures: float | int) -> bool:
        return unknown <= LARGEST_UNKNOWN and holds(*figures)

    keys = ("critic/unknown_share", *keys)
    return Alarm(keys, measured, meaning, present=TRAINED, absent=ROUTED)


CRITIC_ALARMS = (
    _of_trained(
        ("critic/explained_variance",),
        lambda explained: explained < 0.0,
        "the critic's explained variance was below 0: a constant would predict the "
        "outcome better; warm it up longer or change its learning rate",
    ),
    Alarm(
        ("critic/explained_variance",),
        lambda explained: explained <= -1.5,
        "the explained variance of the baseline was below 0, and further than that of "
        "any leave-one-out baseline (-1 in groups of two): look at rewards and groups",
        absent=(*TRAINED[:1], *ROUTED),
    ),
    _of_trained(
        ("critic/mae", "critic/constant_mae"),
        _exceeds_constant,
        "the critic's error exceeded that of a constant by more than 0.1: warm it up "
        "longer, or see that reward_low and reward_high span the rewards",
    ),
    _of_trained(
        ("critic/bias",),
        _leans,
        "the critic was off by more than 0.2 in one direction: it lags behind the "
        "policy; raise its learning rate or its epochs, or slow the policy down",
    ),
    _of_trained(
        ("critic/correlation", "critic/value_gap"),
        _points_away,
        "the critic valued failures above successes: its advantages push the wrong "
        "way; warm it up longer, and look at its values in the rollout files",
    ),
    _of_trained(
        ("credit/step_abs_mean", "credit/step_abs_bound"),
        lambda size, bound: size > max(2.0 * bound, 0.05),
        "values moved from token to token more than twice as much as exact ones can "
        "on average: most of it is the critic's error; train it more, or lambda 1",
    ),
    _of_trained(
        ("credit/step_large_mean", "credit/step_large_bound"),
        lambda count, bound: count > max(bound, 1.0),
        "more tokens a rollout moved the value by over 0.1 than exact values allow "
        "(Var(R) / 0.01): the critic is noisy; train it more, or use lambda 1",
    ),
    Alarm(
        ("critic/ratio_mean",),
        lambda ratio: not 0.8 <= ratio <= 1.25,
        "the ratios that correct the critic's targets were not 1 on average: the "
        "policy moves too far a step; lower its learning rate",
    ),
    Alarm(
        ("critic/ratio_max",),
        lambda ratio: ratio > 30.0,
        "a token became more than 30 times as likely within a step: the policy moves "
        "too far; lower its learning rate, or lower accept_high",
    ),
    Alarm(
        ("critic/rejected_share",),
        lambda share: share > 0.1,
        "more than 10% of the tokens taught the critic nothing, because their ratio "
        "was not accepted; lower the policy's learning rate or widen the range",
    ),
    Alarm(
        ("critic/num_skipped",),
        lambda skipped: skipped > 0,
        "steps of the critic's optimizer were skipped: loss or gradient not finite, or "
        "no token was accepted; see critic/rejected_share and its learning rate",
    ),
)
"""What is asked of critics, most of it of those with parameters alone."""

FRESH_ALARMS = (
    Alarm(
        ("critic/mae", "critic/constant_mae"),
        _exceeds_constant,
        "the error of the fresh rollouts exceeded that of a constant by more than 0.1: "
        "take more of them, and see how many could be verified",
        present=VALUED,
        absent=(*TRAINED[:1], *ROUTED),
    ),
    Alarm(
        ("critic/bias",),
        _leans,
        "the fresh rollouts were off by more than 0.2 in one direction, as rollouts of "
        "the same policy are not: see how many were verified, or ran out of tokens",
        present=VALUED,
        absent=(*TRAINED[:1], *ROUTED),
    ),
    Alarm(
        ("critic/correlation", "critic/value_gap"),
        _points_away,
        "the fresh rollouts valued failures above successes: their advantages push "
        "the wrong way; take more of them, and look at the values in the rollout files",
        present=VALUED,
        absent=(*TRAINED[:1], *ROUTED),
    ),
)
"""What is asked of fresh rollouts as a critic."""

ROUTED_ALARMS = (
    Alarm(
        ("ac2/hacking_gap",),
        lambda gap: gap > 0.2,
        "where audited rollouts would have been stopped, the critic promised over 0.2 "
        "more than they earned: the policy may please the critic; audit more, revoke",
    ),
)
"""What is asked of a critic that may end rollouts early."""

ALARMS = (
    Alarm(
        ("length/truncated_share", "reward/mean"),
        lambda truncated, reward: truncated >= 1.0 and reward <= 0.0,
        "every rollout ran out of tokens and none earned a reward, so nothing is "
        "learned; raise the token budget, or check the model's stop tokens",
    ),
    Alarm(
        ("group/all_equal_share",),
        lambda share: share >= 1.0,
        "all rewards within every group were equal, so group baselines give no signal; "
        "use easier or harder problems, or a larger group",
        absent=("ac2/equal_values_share",),
    ),
    Alarm(
        ("reward/invalid_share",),
        lambda share: share >= 0.5,
        "half of the rollouts or more had no reward, so nothing is learned from them",
        at_once=True,
    ),
    Alarm(
        ("reward/invalid_share",),
        lambda share: share > 0.1,
        "more than 10% of the rollouts could not be verified; read their reasons in "
        "the rollout files",
    ),
    Alarm(
        ("rollout/failure_share",),
        lambda share: share > 0.1,
        "more than 10% of the rollouts failed in the engine or the environment",
    ),
    *CRITIC_ALARMS,
    *FRESH_ALARMS,
    *ROUTED_ALARMS,
    Alarm(
        ("policy/clip_share",),
        lambda share: share > 0.3,
        "more than 30% of the tokens were clipped: the policy moves too far a step; "
        "lower the learning rate or the number of minibatches",
    ),
    Alarm(
        ("mismatch/kl_k3_mean",),
        lambda divergence: divergence > 0.015,
        "engine and trainer disagree about the sampled tokens (mean k3 above 0.015 "
        "nats); check temperature, precision and that both hold the same weights",
    ),
    Alarm(
        ("policy/entropy_mean",),
        lambda entropy: entropy < 0.01,
        "the policy's entropy fell below 0.01 nats a token: it no longer explores; "
        "lower the learning rate or raise clip_high",
    ),
    Alarm(
        ("policy/num_skipped",),
        lambda skipped: skipped > 0,
        "optimizer steps were skipped: loss or gradient not finite, or no token was "
        "trainable; lower the learning rate, or see what became of the rollouts",
    ),
)


def warning_lines(history: Sequence[Row], patience: int = PATIENCE) -> list[str]:
    """One line for each alarm that ever held long enough: its last such streak.

    Args:
        patience: Steps that an alarm must hold; 1 for those that are told at once.
    """
    lines = []
    for alarm in ALARMS:
        needed = 1 if alarm.at_once else patience
        long = [s for s in _streaks(alarm, history) if len(s) >= needed]
        if long:
            lines.append(_line(alarm, long[-1]))
    return lines


def new_warning_lines(history: Sequence[Row], patience: int = PATIENCE) -> list[str]:
    """The alarms whose streak became long enough at the last step: each told once.

    The last `patience + 1` steps of a run are enough for most alarms; a longer history
    gives the same lines.
    """
    lines = []
    for alarm in ALARMS:
        if not history or not _reads(alarm, history[-1]):
            continue
        needed = 1 if alarm.at_once else patience
        streaks = _streaks(alarm, history)
        if streaks and len(streaks[-1]) == needed and streaks[-1][-1] is history[-1]:
            lines.append(_line(alarm, streaks[-1]))
    return lines


def _streaks(alarm: Alarm, history: Sequence[Row]) -> list[list[Row]]:
    """Maximal runs of consecutive steps, among those that have its keys, that hold."""
    streaks: list[list[Row]] = []
    open_streak = False
    for row in history:
        if not _reads(alarm, row):
            continue
        holds = alarm.holds(*(row[key] for key in alarm.keys))
        if holds and not open_streak:
            streaks.append([])
        if holds:
            streaks[-1].append(row)
        open_streak = holds
    return streaks


def _reads(alarm: Alarm, row: Row) -> bool:
    needed = (*alarm.keys, *alarm.present)
    return all(row.get(key) is not None for key in needed) and not any(
        key in row for key in alarm.absent
    )


def _line(alarm: Alarm, streak: Sequence[Row]) -> str:
    first, last = streak[0].get("step"), streak[-1].get("step")
    if len(streak) == 1:
        return f"step {first}: {alarm.meaning}"
    return f"steps {first}-{last} ({len(streak)} steps): {alarm.meaning}"
