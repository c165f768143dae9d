"""What is asked of a critic that may end rollouts early.

Thresholds are also in `docs/metrics.md`.
"""

from accredit.records import Alarm

AC2_ALARMS: tuple[Alarm, ...] = (
    Alarm(
        ("critic/explained_variance", "readiness/sampled_share"),
        lambda explained, trusted: explained < 0.0 and trusted > 0.0,
        "the critic's explained variance was below 0 while rollouts were stopped on "
        "its word: a constant would predict the outcome better",
        "lower algorithm.gate.tau_local and algorithm.gate.tau_global, set "
        "algorithm.gate.revocable, or raise algorithm.critic.learning_rate",
        is_loud=True,
    ),
    Alarm(
        ("ac2/error_rewards", "ac2/constant_error", "readiness/sampled_share"),
        lambda error, constant, trusted: error > constant + 0.1 and trusted > 0.0,
        "the critic was further from the rewards than a constant, by more than 0.1, "
        "while rollouts were stopped on its word",
        "lower algorithm.gate.tau_local and algorithm.gate.tau_global, set "
        "algorithm.gate.revocable, or raise algorithm.critic.learning_rate",
        is_loud=True,
    ),
    Alarm(
        ("ac2/bias_rewards",),
        lambda bias: abs(bias) > 0.2,
        "the critic's value of prefixes was off by more than 0.2 in one direction: it "
        "lags behind the policy",
        "raise algorithm.critic.learning_rate or algorithm.records_per_step",
    ),
    Alarm(
        ("ac2/invalid_share",),
        lambda share: share >= 0.5,
        "half of the critic's answers or more were no number on its grid: it values "
        "nothing, whatever it is asked",
        "change algorithm.critic.template, or set algorithm.critic.readout "
        "'expectation'",
        at_once=True,
        is_loud=True,
    ),
    Alarm(
        ("ac2/invalid_share",),
        lambda share: 0.1 < share < 0.5,
        "more than 10% of the critic's answers were no number on its grid",
        "change algorithm.critic.template, or set algorithm.critic.readout "
        "'expectation'",
    ),
    Alarm(
        ("ac2/left_out_share",),
        lambda share: share > 0.1,
        "more than 10% of the questions to the critic did not fit the model's context",
        "shorten algorithm.critic.template, or lower sampling.max_new_tokens or "
        "sampling.max_prompt_tokens",
    ),
    Alarm(
        ("ac2/hacking_gap",),
        lambda gap: gap > 0.2,
        "where audited rollouts would have been stopped, the critic promised over 0.2 "
        "more than they earned: the policy may please the critic",
        "raise algorithm.audit_share, and set algorithm.gate.revocable",
    ),
    Alarm(
        ("ac2/equal_values_share",),
        lambda share: share > 0.7,
        "more than 70% of the groups that were stopped got one value for all members, "
        "so that nothing is learned from them",
        "raise algorithm.grid_size, or set algorithm.critic.readout 'expectation'",
    ),
)
