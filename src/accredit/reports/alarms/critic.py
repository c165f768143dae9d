"""What is asked of critics: those that learn, fresh rollouts, and those behind a gate.

Thresholds are also in `docs/metrics.md`.
"""

from collections.abc import Callable

from accredit.records import Alarm

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

LARGEST_UNKNOWN = 0.1
"""Share of outcomes that may be a critic's own word; beyond it, its figures speak about
the rollouts that ended and not about the critic."""


def _exceeds_constant(error: float, constant: float) -> bool:
    return error > constant + 0.1


def strays(ratio: float) -> bool:
    """Whether a mean ratio of probabilities is far from the 1 of its expectation."""
    return not 0.8 <= ratio <= 1.25


def _leans(bias: float) -> bool:
    return abs(bias) > 0.2


def _points_away(correlation: float, gap: float) -> bool:
    return correlation < 0.0 and gap < 0.0


def _of_trained(
    keys: tuple[str, ...],
    holds: Callable[..., bool],
    meaning: str,
    turn: str,
    is_loud: bool = False,
) -> Alarm:
    """For critics with parameters, where hardly an outcome is their own word."""

    def measured(unknown: float | int, *figures: float | int) -> bool:
        return unknown <= LARGEST_UNKNOWN and holds(*figures)

    keys = ("critic/unknown_share", *keys)
    return Alarm(
        keys, measured, meaning, turn, is_loud=is_loud, present=TRAINED, absent=ROUTED
    )


def _of_fresh(
    keys: tuple[str, ...], holds: Callable[..., bool], meaning: str, turn: str
) -> Alarm:
    """For fresh rollouts as a critic."""
    absent = (*TRAINED[:1], *ROUTED)
    return Alarm(keys, holds, meaning, turn, present=VALUED, absent=absent)


CRITIC_ALARMS = (
    _of_trained(
        ("critic/explained_variance",),
        lambda explained: explained < 0.0,
        "the critic's explained variance was below 0: the policy learns from it, and a "
        "constant would predict the outcome better",
        "raise algorithm.critic.warmup_steps, or change algorithm.critic.learning_rate",
        is_loud=True,
    ),
    Alarm(
        ("critic/explained_variance",),
        lambda explained: explained <= -1.5,
        "the explained variance of the baseline was below 0, and further than that of "
        "any leave-one-out baseline (-1 in groups of two)",
        "look at the rewards, and raise algorithm.group_size",
        absent=(*TRAINED[:1], *ROUTED),
    ),
    _of_trained(
        ("critic/mae", "critic/constant_mae"),
        _exceeds_constant,
        "the critic's error exceeded that of a constant by more than 0.1, and the "
        "policy learns from it",
        "raise algorithm.critic.warmup_steps, and see that "
        "algorithm.critic.reward_low and algorithm.critic.reward_high span the rewards",
        is_loud=True,
    ),
    _of_trained(
        ("critic/bias",),
        _leans,
        "the critic was off by more than 0.2 in one direction: it lags behind the "
        "policy",
        "raise algorithm.critic.learning_rate or algorithm.critic.num_epochs, or lower "
        "learner.learning_rate",
    ),
    _of_trained(
        ("critic/correlation", "critic/value_gap"),
        _points_away,
        "the critic valued failures above successes: its advantages push the wrong way",
        "raise algorithm.critic.warmup_steps, and look at its values in the rollout "
        "files",
    ),
    _of_trained(
        ("credit/step_abs_mean", "credit/step_abs_bound"),
        lambda size, bound: size > max(2.0 * bound, 0.05),
        "values moved from token to token more than twice as much as exact ones can on "
        "average: most of it is the critic's error",
        "train it more (algorithm.critic.num_epochs), or set algorithm.lambda_policy 1",
    ),
    _of_trained(
        ("credit/step_large_mean", "credit/step_large_bound"),
        lambda count, bound: count > max(bound, 1.0),
        "more tokens a rollout moved the value by over 0.1 than exact values allow "
        "(Var(R) / 0.01): the critic is noisy",
        "train it more (algorithm.critic.num_epochs), or set algorithm.lambda_policy 1",
    ),
    Alarm(
        ("critic/unknown_share",),
        lambda share: share > LARGEST_UNKNOWN,
        "more than 10% of the outcomes were the critic's own word, so that no figure "
        "says how good it is",
        "set algorithm.truncation 'outcome', or raise sampling.max_new_tokens",
        present=TRAINED,
        absent=ROUTED,
    ),
    Alarm(
        ("critic/ratio_mean",),
        strays,
        "the ratios that correct the critic's targets were not 1 on average: the "
        "policy moves too far a step",
        "lower learner.learning_rate",
    ),
    Alarm(
        ("critic/ratio_max",),
        lambda ratio: ratio > 30.0,
        "a token became more than 30 times as likely within a step: the policy moves "
        "too far",
        "lower learner.learning_rate or algorithm.accept_high",
    ),
    Alarm(
        ("critic/rejected_share",),
        lambda share: share > 0.1,
        "more than 10% of the tokens taught the critic nothing, because their ratio "
        "was not accepted",
        "lower learner.learning_rate, or raise algorithm.accept_high",
    ),
    Alarm(
        ("critic/num_skipped",),
        lambda skipped: skipped > 0,
        "steps of the critic's optimizer were skipped: loss or gradient not finite, or "
        "no token was accepted",
        "lower algorithm.critic.learning_rate, and see critic/rejected_share",
    ),
)
"""What is asked of critics, most of it of those with parameters alone."""

FRESH_ALARMS = (
    _of_fresh(
        ("critic/mae", "critic/constant_mae"),
        _exceeds_constant,
        "the error of the fresh rollouts exceeded that of a constant by more than 0.1",
        "raise algorithm.num_continuations, and see how many could be verified",
    ),
    _of_fresh(
        ("critic/bias",),
        _leans,
        "the fresh rollouts were off by more than 0.2 in one direction, as rollouts of "
        "the same policy are not",
        "see how many were verified, or raise sampling.max_new_tokens",
    ),
    _of_fresh(
        ("critic/correlation", "critic/value_gap"),
        _points_away,
        "the fresh rollouts valued failures above successes: their advantages push the "
        "wrong way",
        "raise algorithm.num_continuations, and see the values in the rollout files",
    ),
)
"""What is asked of fresh rollouts as a critic."""
