"""Entries of the bank of public faults that cross more than one part.

`docs/cases.md` lists every entry with its test; here are those whose numbers say more
about a chain of parts than about one of them.
"""

import math
from dataclasses import replace

import pytest
import torch
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from accredit.batches.collate import collate
from accredit.environments.single_turn import SingleTurn
from accredit.functional.aggregation import token_mean
from accredit.functional.divergences import kl_k1
from accredit.functional.logprobs import TokenLogprobs, head_logprobs, token_logprobs
from accredit.functional.policy_losses import (
    clipped_importance,
    clipped_surrogate,
    double_sided_importance,
    policy_gradient,
    sequence_clipped_surrogate,
)
from accredit.learner.update import UpdateTensors, weighted_losses
from accredit.protocols import Objective
from accredit.records import State
from accredit.reports.metrics.step import step_metrics
from accredit.tasks.rendering import decoder, render
from accredit.types import (
    Completion,
    Group,
    Message,
    Problem,
    Prompt,
    Rollout,
    Sampling,
    StopReason,
    Verdict,
)
from accredit.verification.weighted import WeightedVerifier
from builders import empty_rollout
from tiny_models import character_tokenizer
from worlds import (
    ALGORITHMS,
    ScriptedEnvironment,
    algorithm,
    answered,
    moved,
    prompts,
    small_policy,
    small_world,
    steps,
    weights,
)

NAN = float("nan")
(ONE,) = prompts(1)
LOSSES = [
    policy_gradient,
    clipped_surrogate,
    sequence_clipped_surrogate,
    clipped_importance,
    double_sided_importance,
]


def scripted(*groups, **options):
    """A world whose environment answers with these groups."""
    world = small_world(**options)
    return replace(world, environment=ScriptedEnvironment([list(groups)]))


def one_group_step(name, rewards, **keys):
    """State and record of a step on one group of single tokens with these rewards."""
    world = scripted(answered(ONE, [((1,), reward) for reward in rewards]))
    state, (record,) = steps(algorithm(name, prompts_per_step=1, **keys), world, 1)
    return state, record


class Listed:
    """A verifier that gives the listed rewards, whatever it is shown."""

    def __init__(self, *rewards):
        self.rewards = rewards

    def verify(self, items):
        return [Verdict(r, "" if r is not None else "unknown") for r in self.rewards]

    def close(self):
        pass


# C. Aggregation


@pytest.mark.parametrize("loss", LOSSES)
def test_b027_another_loss_is_not_another_learning_rate(loss):
    """Case B027: on-policy, the weighted gradient of every loss is -A / N."""
    sampled = torch.tensor([[1, 1, 1], [1, 0, 0]]).bool()
    logprobs = torch.full((2, 3), -1.0, requires_grad=True)
    advantages = torch.tensor([[1.0] * 3, [-2.0] * 3])
    losses = loss(logprobs, logprobs.detach().clone(), advantages, sampled)
    (losses * token_mean(sampled, torch.tensor([0, 0]))).sum().backward()
    expected = torch.tensor([[-0.25, -0.25, -0.25], [0.5, 0, 0]])
    torch.testing.assert_close(logprobs.grad, expected)


def test_b029_the_learners_kl_term_is_inside_the_masked_mean():
    """Case B029: kl [1, 9], mask [1, 0], coefficient .1: .1, not .5."""
    sampled = torch.tensor([[True, False]])
    nothing = torch.zeros(1, 2)
    tensors = UpdateTensors(
        torch.zeros(1, 2, dtype=torch.long),
        sampled,
        advantages=nothing,
        sampling_logprobs=nothing,
        old_logprobs=nothing,
        reference_logprobs=torch.tensor([[-2.0, -10.0]]),
    )
    objective = Objective(
        policy_gradient, token_mean, kl_estimator=kl_k1, kl_coefficient=0.1
    )
    scores = TokenLogprobs(torch.tensor([[-1.0, -1.0]]), nothing)
    shares = weighted_losses(
        objective, tensors, scores, token_mean(sampled, torch.tensor([0]))
    )
    torch.testing.assert_close(shares, torch.tensor([[0.1, 0.0]]))


# D. Group advantages


def test_p10_b039_from_unknown_parts_to_credit():
    """Case P10 (B039): totals [2, 1, 0, none], credit [1, 0, -1, 0], one counted."""
    parts = {
        "a": (Listed(1.0, None, 0.0, None), 1.0),
        "b": (Listed(0.5, 0.5, None, None), 2.0),
    }
    item = (ONE.problem, "", empty_rollout(ONE.problem))
    totals = [v.reward for v in WeightedVerifier(parts).verify([item] * 4)]
    assert totals == [2, 1, 0, None]
    for name in ("dr_grpo", "grpo"):
        state, record = one_group_step(name, totals)
        advantages = record.credit.advantages[:, -1].tolist()
        assert advantages == pytest.approx([1, 0, -1, 0], abs=1e-5)
        assert state.counters["rewards_invalid"] == 1
        assert step_metrics(record, state)["reward/invalid_share"] == 0.25


@pytest.mark.parametrize("reward", [NAN, math.inf, -math.inf])
def test_p10_b142_a_reward_that_is_no_number_is_refused_at_birth(reward):
    """Cases P10 (NaN instead of None), B142: no clamp can turn it into 1."""
    with pytest.raises(ValueError, match="a reward must be finite or None, got"):
        Verdict(reward)


def test_b128_a_failed_sibling_leaves_the_others_their_advantages():
    """Case B128: group [1, error, 0]: [.5, _, -.5]."""
    state, record = one_group_step("dr_grpo", [1.0, None, 0.0])
    assert record.credit.advantages[:, -1].tolist() == [0.5, 0, -0.5]
    assert step_metrics(record, state)["reward/invalid_share"] == pytest.approx(1 / 3)


def test_b045_a_penalty_of_the_whole_group_shows_beside_the_raw_reward():
    """Case B045: [1, 0] and [.7, -.3] teach the same; the row tells them apart."""
    full = [((1,) * 6, 1.0), ((2,) * 6, 0.0)]
    keys = {"prompts_per_step": 1, "group_size": 2}
    penalty = {"overlong_cache": 6, "overlong_factor": 0.3}
    _, (plain,) = steps(algorithm("dapo", **keys), scripted(answered(ONE, full)), 1)
    chosen = algorithm("dapo", **keys, **penalty)
    state, (charged,) = steps(chosen, scripted(answered(ONE, full)), 1)
    assert charged.shaped_rewards.tolist() == pytest.approx([0.7, -0.3])
    torch.testing.assert_close(charged.credit.advantages, plain.credit.advantages)
    metrics = step_metrics(charged, state)
    assert metrics["reward/mean"] == pytest.approx(0.5)
    assert metrics["reward/shaped_mean"] == pytest.approx(0.2)


@pytest.mark.parametrize(("coefficient", "expected"), [(0.0, False), (0.1, True)])
def test_b046_equal_rewards_leave_the_kl_term_alone(coefficient, expected):
    """Case B046: no policy gradient; with a KL term the weights move all the same."""
    world = small_world(lambda text: 1.0, reference=lambda: small_policy(7))
    before = weights(world)
    chosen = algorithm("grpo", kl_coefficient=coefficient)
    _, (record,) = steps(chosen, world, 1)
    assert record.credit.advantages.abs().max() == 0
    assert moved(world, before) is expected


# E. Divergences


def test_b051_b176_junk_at_padding_reaches_no_metric():
    """Cases B051, B176: [-1, -1, -7, -7] under 1100, and a difference of 1e10."""
    group = answered(ONE, [((1,), 1.0), ((1, 2, 3), 0.0)])
    world = scripted(group)
    chosen = algorithm("grpo", prompts_per_step=1, kl_coefficient=0.1)
    state, (record,) = steps(chosen, world, 1)
    clean = step_metrics(record, state)
    assert {"mismatch/kl_k3_mean", "policy/reference_kl_k3_mean"} <= clean.keys()
    padding = ~record.batch.sampled

    def soiled(tensor, junk):
        return torch.where(padding, junk, tensor)

    policy = replace(
        record.policy,
        logprobs=soiled(record.policy.logprobs, -1e10),
        old_logprobs=soiled(record.policy.old_logprobs, -7.0),
        entropies=soiled(record.policy.entropies, NAN),
        reference_logprobs=soiled(record.policy.reference_logprobs, math.inf),
    )
    assert step_metrics(replace(record, policy=policy), state) == clean


def test_b053_the_first_step_stands_on_the_reference():
    """Case B053: at step 0 the KL to the reference is 0, up to float32 rounding."""
    world = small_world(seed=3, reference=lambda: small_policy(3))
    chosen = algorithm("grpo", kl_coefficient=0.1)
    state, records = steps(chosen, world, 2)
    first, second = (step_metrics(record, state) for record in records)
    assert first["policy/reference_kl_k3_mean"] < 1e-10
    assert second["policy/reference_kl_k3_mean"] > 1e-5


# F. Ratios and engines


def test_p13_b109_engine_learner_and_reference_agree_after_a_sync():
    """Cases P13, B109: at temperature .5 ratio 1; a learner at 1 would show."""
    gaps = {}
    for temperature in (0.5, 1.0):
        world = replace(
            small_world(temperature=temperature, rate=0.1, seed=2),
            sampling=Sampling(temperature=0.5),
        )
        _, records = steps(algorithm("grpo"), world, 3)
        policy, batch = records[-1].policy, records[-1].batch
        gap = (policy.old_logprobs - batch.sampling_logprobs)[batch.trainable]
        gaps[temperature] = gap.abs().max().item()
        assert records[-1].groups[0].rollouts[0].policy_versions == (2, 2)
    assert gaps[0.5] < 1e-4
    assert gaps[1.0] > 0.01


def test_b067_tokens_and_logprobs_must_be_as_many():
    """Case B067: three ids and four log-probs end at the engine's boundary."""
    with pytest.raises(ValueError, match="3 tokens and 4 log-probs"):
        Completion((1, 2, 3), (-1.0,) * 4, StopReason.STOP)


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("token_ids", torch.ones(4, dtype=torch.long)),
        ("sampled", torch.zeros(2, dtype=torch.bool)),
        ("sampling_logprobs", torch.zeros(4)),
    ],
)
def test_b070_b080_a_rollout_has_one_length(name, tensor):
    """Cases B070, B080: ids 5 -> 4, and a mask that did not grow from 2 to 5."""
    rollout = Rollout(
        ONE,
        torch.ones(5, dtype=torch.long),
        torch.zeros(5, dtype=torch.bool),
        torch.zeros(5),
        StopReason.STOP,
    )
    # The check itself: type annotations, which tests switch on, would come before it.
    object.__setattr__(rollout, name, tensor)
    with pytest.raises(ValueError, match=r"must have one length, got \["):
        rollout.__post_init__()


# A, H. Which tokens are trained on


def test_b014_both_ways_to_score_leave_an_observation_out():
    """Case B014: tokens [prompt, act, obs, act], by logits and by the output layer."""
    torch.manual_seed(0)
    weight = torch.randn(5, 3)
    token_ids = torch.tensor([[0, 1, 2, 3]])
    sampled = torch.tensor([[False, True, False, True]])
    found = []
    for score in (
        lambda x: head_logprobs(x, weight, token_ids, sampled),
        lambda x: token_logprobs(x @ weight.T, token_ids, sampled),
    ):
        hidden = torch.linspace(-1, 1, 12).reshape(1, 4, 3).requires_grad_()
        logprobs = score(hidden).logprobs
        clipped_surrogate(
            logprobs, logprobs.detach(), torch.ones(1, 4), sampled
        ).sum().backward()
        found.append((logprobs, hidden.grad))
    for logprobs, gradient in found:
        assert logprobs[0, 2] == 0
        # What predicts the observation is at index 1, what predicts actions at 0, 2.
        assert (gradient[0].abs().sum(1) > 0).tolist() == [True, False, True, False]
    torch.testing.assert_close(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1])


class Scripted:
    """An engine that answers every request with the same tokens."""

    version = 0

    def __init__(self, *token_ids):
        self.token_ids = token_ids
        self.num_calls = 0

    def generate(self, requests, sampling):
        self.num_calls += 1
        logprobs = (-1.0,) * len(self.token_ids)
        answer = Completion(self.token_ids, logprobs, StopReason.STOP)
        return [answer] * len(requests)

    def load(self, model, version):
        self.version = version


class Reader(Listed):
    """Scores 1 and keeps the texts it was shown."""

    def verify(self, items):
        self.texts = [text for _, text, _ in items]
        return [Verdict(1.0)] * len(items)


def test_b015_an_answer_inside_the_prompt_is_not_trained_on():
    """Case B015: user, assistant (an example), user; then what the policy says."""
    turns = (Message("user", "1"), Message("assistant", "2"), Message("user", "3"))
    prompt = render(Problem("p", turns), character_tokenizer(104))
    environment = SingleTurn(
        Scripted(50, 51, 2), Reader(), lambda rows: ["x" for _ in rows], 8, 0
    )
    batch = collate(environment.roll_out([prompt], 2, Sampling(), ()))
    length = len(prompt.token_ids)
    assert batch.token_ids[0, :length].tolist() == list(prompt.token_ids)
    assert not batch.trainable[:, :length].any()
    assert batch.token_ids[batch.trainable].tolist() == [50, 51, 2] * 2


def test_b079_what_was_sampled_is_what_is_trained_on():
    """Case B079: "hello" as he + llo, which no encoder would write."""
    letters = {letter: n for n, letter in enumerate("helo")}
    vocabulary = {**letters, "he": 4, "ll": 5, "llo": 6, "hello": 7, "<eos>": 8}
    merges = [("h", "e"), ("l", "l"), ("ll", "o"), ("he", "llo")]
    core = Tokenizer(models.BPE(vocabulary, merges))
    core.decoder = decoders.Fuse()
    core.add_special_tokens(["<eos>"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<eos>")
    assert tokenizer("hello")["input_ids"] == [7]
    reader = Reader()
    environment = SingleTurn(Scripted(4, 6, 8), reader, decoder(tokenizer, [8]), 8, 0)
    prompt = Prompt(Problem("p", (Message("user", "h"),)), (0,))
    (group,) = environment.roll_out([prompt], 1, Sampling(), ())
    assert reader.texts == ["hello"]
    assert group.rollouts[0].completion_ids == [4, 6, 8]
    batch = collate([Group(prompt, group.rollouts, group.verdicts)])
    assert batch.token_ids[batch.trainable].tolist() == [4, 6, 8]


# L, Q. Resuming, and very short completions


def test_b119_a_resumed_run_samples_nothing_it_throws_away():
    """Case B119: from step 5 on, one call a step, of problems 15, 16 and 17."""
    world = small_world()
    engine, asked = world.engine, []
    generate = engine.generate

    def counted(requests, sampling):
        asked.append([request.token_ids for request in requests])
        return generate(requests, sampling)

    engine.generate = counted
    state, _ = steps(algorithm("grpo"), world, 1, State(step=5, num_drawn=15))
    expected = [prompt.token_ids for prompt in world.problems.draw(15, 3)]
    assert asked == [[ids for ids in expected for _ in range(4)]]
    assert (state.step, state.num_drawn) == (6, 18)


@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.whole_run
def test_b167_very_short_completions_have_ordinary_losses(name, length):
    """Case B167: completions of one and two tokens; the bug's loss was 1e10."""
    world = small_world(max_new_tokens=length)
    _, records = steps(algorithm(name, length, group_size=8), world, 2)
    for record in records:
        ends = {len(r.completion_ids) for g in record.groups for r in g.rollouts}
        assert (ends, record.batch.num_rollouts) == ({length}, 24)
        assert record.policy.num_skipped == 0
        assert all(abs(loss) < 20 for loss in record.policy.losses)
        assert all(norm < 100 for norm in record.policy.gradient_norms)
    # Where nobody earned anything, fresh rollouts leave nothing to learn.
    assert max(max(record.policy.gradient_norms) for record in records) > 0
