"""What may be called exact: whole pipelines against the enumerated tiny language.

Unbiasedness is not correctness (any baseline that ignores rollout i is unbiased), and
learning curves cannot tell GRPO from RLOO: closed forms are in the other files.
"""

from functools import partial

import pytest
import torch

from accredit.credit import (
    batch_whitened_credit,
    chunk_credit,
    gae_credit,
    normalized_outcome_credit,
    outcome_credit,
)
from accredit.critics.group import GroupMean, LeaveOneOut, ZeroBaseline
from accredit.functional.aggregation import (
    fixed_length_token_sum,
    sequence_mean_token_mean,
    sequence_mean_token_sum,
    token_mean,
)
from accredit.functional.policy_losses import (
    clipped_importance,
    clipped_surrogate,
    double_sided_importance,
    policy_gradient,
    sequence_clipped_surrogate,
)
from oracle import (
    COMPLETIONS,
    NODE,
    NUM_NODES,
    ExactCritic,
    TabularCritic,
    expected_gradient,
    learned_rewards,
    nodes,
    random_language,
)

pytestmark = pytest.mark.whole_run

F64 = torch.float64


def test_the_oracle_numbers_its_nodes_level_by_level():
    completions = torch.tensor(COMPLETIONS)
    expected = [[NODE[c[:length]] for length in range(4)] for c in COMPLETIONS]
    assert nodes(completions).tolist() == expected


def test_the_oracle_knows_its_values_and_its_gradient():
    """By definition: V is the mean reward of what can follow, and the gradient of the
    root's value by a logit is a finite difference."""
    language = random_language(3)
    completions = torch.tensor(COMPLETIONS)
    logprobs = language.logprobs(completions).detach()
    values = language.exact_values()
    for prefix, node in NODE.items():
        below = [i for i, c in enumerate(COMPLETIONS) if c[: len(prefix)] == prefix]
        chances = logprobs[below, len(prefix) :].sum(1).exp()
        expected = (chances * language.rewards[below]).sum()
        torch.testing.assert_close(values[node], expected)
    step = torch.zeros_like(language.logits)
    step[2, 1] = 1e-6
    moved = type(language)(language.logits.detach() + step, language.rewards)
    slope = (moved.exact_values()[0] - values[0]) / 1e-6
    assert language.exact_gradient()[2, 1].item() == pytest.approx(
        slope.item(), rel=1e-4
    )


PIPELINES = [policy_gradient, clipped_surrogate, double_sided_importance]


@pytest.fixture(scope="module")
def language():
    return random_language(0)


def cosine(a, b):
    return ((a * b).sum() / a.norm() / b.norm()).item()


@pytest.mark.parametrize("loss", PIPELINES)
@pytest.mark.parametrize("critic, factor", [(LeaveOneOut(), 1.0), (GroupMean(), 0.5)])
def test_rloo_is_exact_and_the_group_mean_is_g_minus_one_over_g(
    language, loss, critic, factor
):
    """Expected gradient over all 64 pairs against autograd of the objective."""
    aggregation = partial(sequence_mean_token_sum, dtype=F64)
    found = expected_gradient(language, critic, outcome_credit, loss, aggregation, 2)
    torch.testing.assert_close(
        found, -factor * language.exact_gradient(), rtol=1e-10, atol=1e-12
    )


def test_group_mean_of_three_is_two_thirds_exact(language):
    aggregation = partial(sequence_mean_token_sum, dtype=F64)
    found = expected_gradient(
        language, GroupMean(), outcome_credit, policy_gradient, aggregation, 3
    )
    torch.testing.assert_close(
        found, -2 / 3 * language.exact_gradient(), rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("lambda_", [0.0, 0.3, 1.0])
def test_gae_with_exact_values_is_exact_for_any_lambda(language, lambda_):
    found = expected_gradient(
        language,
        ExactCritic(language),
        partial(gae_credit, lambda_=lambda_),
        policy_gradient,
        partial(sequence_mean_token_sum, dtype=F64),
        1,
    )
    torch.testing.assert_close(
        found, -language.exact_gradient(), rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("chunk_length", [1, 2, 3])
def test_chunk_credit_with_exact_values_is_exact(language, chunk_length):
    found = expected_gradient(
        language,
        ExactCritic(language),
        partial(chunk_credit, chunk_length=chunk_length),
        policy_gradient,
        partial(sequence_mean_token_sum, dtype=F64),
        1,
    )
    torch.testing.assert_close(
        found, -language.exact_gradient(), rtol=1e-10, atol=1e-12
    )


def test_wrong_values_bias_gae_below_lambda_one_only(language):
    """pact.md 1: the critic's error enters with weight 1 - lambda."""
    wrong = random_language(7)
    gradients = {
        lambda_: expected_gradient(
            language,
            ExactCritic(wrong),
            partial(gae_credit, lambda_=lambda_),
            policy_gradient,
            partial(sequence_mean_token_sum, dtype=F64),
            1,
        )
        for lambda_ in (0.0, 1.0)
    }
    exact = -language.exact_gradient()
    torch.testing.assert_close(gradients[1.0], exact, rtol=1e-10, atol=1e-12)
    assert cosine(gradients[0.0], exact) < 0.9


def test_dividing_by_the_group_deviation_is_biased(language):
    found = expected_gradient(
        language,
        GroupMean(),
        normalized_outcome_credit,
        policy_gradient,
        partial(sequence_mean_token_sum, dtype=F64),
        2,
    )
    assert 0.5 < cosine(found, -language.exact_gradient()) < 0.999


def test_sequence_ratio_and_clipped_weights_are_exact_on_policy(language):
    exact = -language.exact_gradient()
    for loss, aggregation, factor in (
        (sequence_clipped_surrogate, sequence_mean_token_mean, 1 / 3),
        (clipped_importance, token_mean, 1 / 3),
        (policy_gradient, partial(fixed_length_token_sum, max_length=12), 1 / 12),
    ):
        found = expected_gradient(
            language,
            LeaveOneOut(),
            outcome_credit,
            loss,
            partial(aggregation, dtype=F64),
            2,
        )
        torch.testing.assert_close(found, factor * exact, rtol=1e-10, atol=1e-12)


CLIPPED = partial(clipped_surrogate, clip_high=0.28)
ALGORITHMS = {
    "grpo": (GroupMean(), normalized_outcome_credit, CLIPPED, sequence_mean_token_mean),
    "dr_grpo": (
        GroupMean(),
        outcome_credit,
        CLIPPED,
        partial(fixed_length_token_sum, max_length=4),
    ),
    "dapo": (GroupMean(), normalized_outcome_credit, CLIPPED, token_mean),
    "rloo": (LeaveOneOut(), outcome_credit, policy_gradient, sequence_mean_token_sum),
    "reinforce_pp": (ZeroBaseline(), batch_whitened_credit, CLIPPED, token_mean),
    "gspo": (
        GroupMean(),
        normalized_outcome_credit,
        partial(sequence_clipped_surrogate, clip_low=0.2, clip_high=0.2),
        sequence_mean_token_mean,
    ),
    "cispo": (GroupMean(), normalized_outcome_credit, clipped_importance, token_mean),
    "dis": (GroupMean(), outcome_credit, double_sided_importance, token_mean),
}


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("choices", ALGORITHMS.values(), ids=ALGORITHMS.keys())
def test_an_algorithm_learns_the_tiny_language(choices, seed):
    curve = learned_rewards(*choices, seed=seed)
    assert sum(curve[:3]) / 3 < 0.4
    assert sum(curve[-10:]) / 10 > 0.85


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    "rule",
    [partial(gae_credit, lambda_=0.9), partial(chunk_credit, chunk_length=1)],
    ids=["gae", "chunk"],
)
def test_a_learned_critic_teaches_the_tiny_language(rule, seed):
    critic = TabularCritic(torch.zeros(NUM_NODES))
    curve = learned_rewards(critic, rule, CLIPPED, token_mean, seed=seed)
    assert sum(curve[-10:]) / 10 > 0.85
    assert critic.table[0].item() > 0.8
