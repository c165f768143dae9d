"""Chains, their text and their exact values."""

import numpy as np
import pytest

from accredit.randomness import generator
from accredit.tasks import chain
from accredit.tasks.chain import Chain
from builders import empty_rollout

pytestmark = pytest.mark.whole_run

THREE = Chain(3, (("+", 4), ("*", 2), ("-", 1)))


def test_a_chain_reads_and_writes_itself():
    assert THREE.text == "3a+4b*2c-1"
    assert chain.parse_chain("3a+4b*2c-1") == THREE
    # 3 + 4 = 7, 7 * 2 = 14 -> 4, 4 - 1 = 3
    assert THREE.results == (3, 7, 4, 3)
    solution = chain.solution_text(THREE, THREE.results)
    assert solution == "a3+4=7;b7*2=4;c4-1=3;\\boxed{743}"


def test_malformed_chains_are_named():
    with pytest.raises(ValueError, match="reads like 3a"):
        chain.parse_chain("3+4")
    with pytest.raises(ValueError, match="1 to 24 operations, got 0"):
        Chain(3, ())


def test_beliefs_are_distributions_wrong_in_a_fifth_of_the_facts():
    facts = chain.belief_facts()
    np.testing.assert_allclose(facts.sum(axis=3), 1.0)
    truth = np.array(
        [
            [[chain.true_result(o, a, b) for b in range(10)] for a in range(10)]
            for o in chain.OPERATORS
        ]
    )
    right = facts.argmax(axis=3) == truth
    assert 0.15 < 1 - right.mean() < 0.25
    shares = np.take_along_axis(facts, truth[..., None], axis=3)[..., 0]
    assert (shares[~right] == pytest.approx(0.28)) and shares[right].min() >= 0.78


def test_values_multiply_the_chances_of_what_is_left():
    facts = chain.belief_facts()
    steps = [facts[0, 3, 4, 7], facts[2, 7, 2, 4], facts[1, 4, 1, 3]]
    expected = [np.prod(steps), np.prod(steps[1:]), steps[2], 1.0]
    np.testing.assert_allclose(chain.chain_values(THREE, facts), expected)
    assert 0 < expected[0] < 1


def test_start_success_is_the_share_of_sampled_chains_that_are_right():
    facts, draw = chain.belief_facts(), generator(0, "chains")
    problem = chain.sample_chain(draw, 4)
    exact = chain.success(problem, facts)
    drawn = [chain.sample_results(problem, facts, draw) for _ in range(3000)]
    share = np.mean([digits == problem.results for digits in drawn])
    assert 0.02 < exact < 0.98
    assert abs(share - exact) < 4 * np.sqrt(exact * (1 - exact) / 3000)


def test_a_mistake_is_never_healed():
    facts = chain.belief_facts()
    good = chain.prefix_value(THREE, facts, "a3+4=7;")
    assert good == pytest.approx(chain.chain_values(THREE, facts)[1])
    assert chain.prefix_value(THREE, facts, "a3+4=8;") == 0.0
    assert chain.prefix_value(THREE, facts, "a3+4=7;b7*2") == pytest.approx(good)
    assert chain.prefix_value(THREE, facts, "a3+5=8;") == 0.0
    assert chain.read_results(THREE, "b3+4=7;") is None


@pytest.mark.parametrize("split", list(chain.SPLITS))
def test_splits_hold_problems_of_the_success_they_name(split):
    problems = chain.chain_problems(split)
    low, high = chain.SPLITS[split]
    everything = problems.train + problems.evaluation
    assert all(low <= p.metadata["success"] <= high for p in everything)
    assert (len(problems.train), len(problems.evaluation)) == (96, 32)
    assert len({p.id for p in everything}) == 128


def test_gold_scores_1_and_wrong_or_unboxed_answers_0():
    problem = chain.chain_problems("easy").train[0]
    parsed = chain.parse_chain(problem.messages[0].content)
    gold = chain.solution_text(parsed, parsed.results)
    wrong = gold.replace(problem.answer, problem.answer[::-1] + "0")
    rollout = empty_rollout(problem)
    verdicts = chain.ChainVerifier().verify(
        [(problem, text, rollout) for text in (gold, wrong, gold.split("\\")[0])]
    )
    assert [verdict.reward for verdict in verdicts] == [1.0, 0.0, 0.0]
    assert verdicts[2].reason == "no complete box"


def test_an_unknown_split_or_an_impossible_length_is_named():
    with pytest.raises(ValueError, match="split must be one of easy, hard"):
        chain.chain_problems("medium")
    with pytest.raises(ValueError, match="needs 128 chains, got"):
        chain.chain_problems("very_hard", num_steps=1)
