"""The conditions that a reader of the numbers would call out, one `Alarm` each.

Thresholds are also in `docs/metrics.md`, whose every healthy range has an alarm here or
names the key that has it.
"""

from accredit.records import Alarm
from accredit.reports.alarms.critic import (
    CRITIC_ALARMS,
    FRESH_ALARMS,
    strays,
)

ROUNDING = 1e-9
SAME_MEAN = 0.01
"""How far a mean may lie from that over all rollouts before it is said."""


def _lie_apart(partial: float, over_all: float) -> bool:
    return abs(partial - over_all) > SAME_MEAN + ROUNDING


POLICY_ALARMS = (
    Alarm(
        ("policy/clip_share",),
        lambda share: share > 0.3,
        "more than 30% of the tokens were clipped: the policy moves too far a step",
        "lower learner.learning_rate or algorithm.num_minibatches",
    ),
    Alarm(
        ("policy/kl_k3_mean",),
        lambda divergence: divergence > 0.1,
        "the policy moved more than 0.1 nats a token within a step",
        "lower learner.learning_rate, algorithm.num_minibatches or "
        "algorithm.num_epochs",
    ),
    Alarm(
        ("policy/ratio_mean",),
        strays,
        "the ratios of the policy's tokens were not 1 on average: it moves too far a "
        "step",
        "lower learner.learning_rate, algorithm.num_minibatches or "
        "algorithm.num_epochs",
    ),
    Alarm(
        ("policy/ratio_max",),
        lambda ratio: ratio > 30.0,
        "a token became more than 30 times as likely within a step: the policy moves "
        "too far",
        "lower learner.learning_rate or learner.max_gradient_norm",
    ),
    Alarm(
        ("policy/reference_kl_k3_mean",),
        lambda divergence: divergence > 1.0,
        "the policy was more than 1 nat a token away from where it began",
        "raise algorithm.kl_coefficient, or lower learner.learning_rate",
    ),
    Alarm(
        ("mismatch/kl_k3_mean",),
        lambda divergence: divergence > 0.015,
        "engine and trainer disagree about the sampled tokens (mean k3 above 0.015 "
        "nats)",
        "see that both hold the same weights and precision, or set "
        "algorithm.engine_correction",
    ),
    Alarm(
        ("policy/entropy_mean",),
        lambda entropy: entropy < 0.01,
        "the policy's entropy fell below 0.01 nats a token: it no longer explores",
        "lower learner.learning_rate, or raise algorithm.clip_high",
    ),
    Alarm(
        ("policy/num_skipped",),
        lambda skipped: skipped > 0,
        "optimizer steps were skipped: loss or gradient not finite, or no token was "
        "trainable",
        "lower learner.learning_rate, or see what became of the rollouts",
    ),
)
"""What is asked of a policy's update."""

ROLLOUT_ALARMS = (
    Alarm(
        ("length/truncated_share", "reward/mean"),
        lambda truncated, reward: truncated >= 1.0 and reward <= 0.0,
        "every rollout ran out of tokens and none earned a reward, so nothing is "
        "learned",
        "raise sampling.max_new_tokens, or check the model's stop tokens",
    ),
    Alarm(
        ("length/min",),
        lambda fewest: fewest < 1,
        "some rollouts had no sampled token: they have no vote and teach nobody",
        "lower sampling.max_prompt_tokens, or look at the environment that gives them",
    ),
    Alarm(
        ("group/all_equal_share",),
        lambda share: share >= 1.0,
        "all rewards within every group were equal, so group baselines give no signal",
        "use easier or harder problems, or raise algorithm.group_size",
        absent=("ac2/equal_values_share",),
    ),
    Alarm(
        ("reward/invalid_share",),
        lambda share: share >= 0.5,
        "half of the rollouts or more had no reward, so nothing is learned from them",
        "read their reasons in the rollout files (checkpoint.rollouts_every), and see "
        "max_invalid_share",
        at_once=True,
        is_loud=True,
    ),
    Alarm(
        ("reward/invalid_share",),
        lambda share: share > 0.1,
        "more than 10% of the rollouts could not be verified",
        "read their reasons in the rollout files (checkpoint.rollouts_every)",
    ),
    Alarm(
        ("reward/mean", "reward/mean_all"),
        _lie_apart,
        "the mean reward of the verified rollouts is not that of all of them, a "
        "missing reward taken for 0",
        "read reward/mean_all, and why rewards are missing in the rollout files "
        "(checkpoint.rollouts_every)",
        at_once=True,
    ),
    Alarm(
        ("rollout/failure_share",),
        lambda share: share > 0.1,
        "more than 10% of the rollouts failed in the engine or the environment",
        "read their reasons in the rollout files (checkpoint.rollouts_every)",
    ),
)
"""What is asked of rollouts and rewards."""

EVALUATION_ALARMS = (
    Alarm(
        ("eval/mean", "eval/mean_all"),
        _lie_apart,
        "the evaluation's mean leaves out samples without a reward and is not that of "
        "all of them, a missing reward taken for 0, by which checkpoints are chosen",
        "read eval/mean_all; max_invalid_share ends a run in which most are missing",
        at_once=True,
    ),
    Alarm(
        ("eval/invalid_share",),
        lambda share: share > 0.1,
        "more than 10% of the evaluation's samples could not be verified",
        "see task.verifier, or the reasons that accredit verify gives",
        at_once=True,
    ),
    Alarm(
        ("eval/truncated_share", "eval/mean_all"),
        lambda truncated, mean: truncated >= 1.0 and mean <= 0.0,
        "every sample of an evaluation ran out of tokens and none earned a reward",
        "raise sampling.max_new_tokens, or check the model's stop tokens",
        at_once=True,
    ),
)
"""Of an evaluation."""

ALARMS = (
    *ROLLOUT_ALARMS,
    *CRITIC_ALARMS,
    *FRESH_ALARMS,
    *POLICY_ALARMS,
    *EVALUATION_ALARMS,
)
