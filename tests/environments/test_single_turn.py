"""Prompts to verified groups, with an engine and a verifier that a test can steer."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch

from accredit.environments.single_turn import (
    BAD_LOGPROBS,
    ENGINE_FAILURE,
    NO_ROOM,
    NOTHING_SAMPLED,
    OVERRUN,
    SingleTurn,
)
from accredit.types import (
    Completion,
    Message,
    Problem,
    Prompt,
    Request,
    Rollout,
    Sampling,
    StopReason,
    Verdict,
)

EOS = 2
SAMPLING = Sampling(temperature=0.7)


class ScriptedEngine:
    """Answers each request with `answer(request)` and remembers what it was asked."""

    def __init__(self, answer: Callable[[Request], Completion], version: int = 3):
        self.answer = answer
        self.version = version
        self.calls: list[list[Request]] = []
        self.samplings: list[Sampling] = []

    def generate(
        self, requests: Sequence[Request], sampling: Sampling
    ) -> list[Completion]:
        self.calls.append(list(requests))
        self.samplings.append(sampling)
        return [self.answer(request) for request in requests]

    def load(self, model: object, version: int) -> None:
        self.version = version


class LengthVerifier:
    """Rewards the number of characters, and remembers what it was shown."""

    def __init__(self) -> None:
        self.calls: list[list[tuple[Problem, str, Rollout]]] = []

    def verify(self, items: Sequence[tuple[Problem, str, Rollout]]) -> list[Verdict]:
        self.calls.append(list(items))
        return [Verdict(float(len(text))) for _, text, _ in items]

    def close(self) -> None:
        pass


def keyed_answer(request: Request) -> Completion:
    """Two tokens drawn from the request's key, then EOS."""
    first, second = request.key % 2**31 + 10, request.key // 2**31 % 2**31 + 10
    return Completion((first, second, EOS), (-0.5, -1.25, -0.125), StopReason.STOP)


def always(
    token_ids: tuple[int, ...],
    stop_reason: StopReason = StopReason.STOP,
    logprobs: tuple[float, ...] | None = None,
) -> Callable[[Request], Completion]:
    given = logprobs if logprobs is not None else (-1.0,) * len(token_ids)
    return lambda request: Completion(token_ids, given, stop_reason)


def decode(completions: Sequence[Sequence[int]]) -> list[str]:
    return ["".join(chr(97 + i % 26) for i in ids if i != EOS) for ids in completions]


def prompt(name: str, *token_ids: int) -> Prompt:
    return Prompt(Problem(name, (Message("user", name),)), token_ids or (5, 6))


def environment(answer=keyed_answer, **options) -> SingleTurn:
    settings = {"max_new_tokens": 8, "seed": 0, **options}
    return SingleTurn(ScriptedEngine(answer), LengthVerifier(), decode, **settings)


def sampled_ids(groups) -> list[list[list[int]]]:
    return [[rollout.completion_ids for rollout in g.rollouts] for g in groups]


def test_groups_come_in_the_order_of_the_prompts_from_one_call_each():
    world = environment()
    prompts = [prompt("b", 5), prompt("a", 6, 7)]
    groups = world.roll_out(prompts, 3, SAMPLING, (4,))
    assert [group.prompt.problem.id for group in groups] == ["b", "a"]
    assert [[r.sample for r in group.rollouts] for group in groups] == [[0, 1, 2]] * 2
    assert len(world.engine.calls) == 1
    assert len(world.verifier.calls) == 1
    assert world.engine.samplings == [SAMPLING]
    asked = [request.token_ids for request in world.engine.calls[0]]
    assert asked == [(5,)] * 3 + [(6, 7)] * 3
    assert [item[0].id for item in world.verifier.calls[0]] == ["b"] * 3 + ["a"] * 3


def test_a_rollout_records_what_was_sampled_and_how():
    world = environment(always((9, 8, EOS), logprobs=(-0.5, -1.25, -0.125)))
    ((rollout,),) = (g.rollouts for g in world.roll_out([prompt("a")], 1, SAMPLING, ()))
    assert rollout.token_ids.tolist() == [5, 6, 9, 8, EOS]
    assert rollout.token_ids.dtype == torch.int64
    assert rollout.sampled.tolist() == [False, False, True, True, True]
    assert rollout.sampling_logprobs.tolist() == [0.0, 0.0, -0.5, -1.25, -0.125]
    assert rollout.sampling_logprobs.dtype == torch.float32
    assert rollout.stop_reason is StopReason.STOP
    assert rollout.policy_versions == (3, 3)


def test_a_verdict_belongs_to_the_text_of_its_own_rollout():
    def answer(request: Request) -> Completion:
        length = request.token_ids[0]
        return Completion((10,) * length, (-1.0,) * length, StopReason.LENGTH)

    prompts = [prompt("a", 3), prompt("b", 1), prompt("c", 2)]
    groups = environment(answer).roll_out(prompts, 2, SAMPLING, ())
    rewards = [[v.reward for v in group.verdicts] for group in groups]
    assert rewards == [[3.0, 3.0], [1.0, 1.0], [2.0, 2.0]]
    assert all(r.stop_reason is StopReason.LENGTH for g in groups for r in g.rollouts)


def test_b048_b173_a_prompt_that_comes_twice_gives_two_groups_with_own_draws():
    """Cases B048, B173: neither merged nor repeated."""
    twin, other = prompt("same"), prompt("other")
    groups = environment().roll_out([twin, other, twin], 2, SAMPLING, (0,))
    assert [len(group.rollouts) for group in groups] == [2, 2, 2]
    draws = [tuple(ids) for group in sampled_ids(groups) for ids in group]
    assert len(set(draws)) == 6


def test_b173_siblings_and_same_prompts_of_other_problems_differ():
    """Case B173: one key per (seed, problem, sample)."""
    groups = environment().roll_out([prompt("a"), prompt("b")], 8, SAMPLING, ())
    draws = [tuple(ids) for group in sampled_ids(groups) for ids in group]
    assert len(set(draws)) == 16


def test_b172_draws_follow_seed_and_step_and_nothing_else():
    """Case B172: seeds 1 and 2 differ, the same seed repeats."""
    prompts = [prompt("a"), prompt("b"), prompt("c")]

    def draws(seed: int, key: tuple, chosen=prompts):
        groups = environment(seed=seed).roll_out(chosen, 2, SAMPLING, key)
        names = [p.problem.id for p in chosen]
        return dict(zip(names, sampled_ids(groups), strict=True))

    assert draws(1, ("train", 7)) == draws(1, ("train", 7))
    assert draws(1, ("train", 7)) != draws(2, ("train", 7))
    assert draws(1, ("train", 7)) != draws(1, ("train", 8))
    assert draws(1, ("train", 7)) != draws(1, ("eval", 7))
    alone = draws(1, ("train", 7), [prompts[2]])
    assert alone["c"] == draws(1, ("train", 7))["c"]


def test_an_engine_failure_is_a_verdict_without_reward_beside_sound_siblings():
    def answer(request: Request) -> Completion:
        if request.token_ids == (7,):
            return Completion((9,), (-1.0,), StopReason.FAILURE)
        return keyed_answer(request)

    world = environment(answer)
    groups = world.roll_out([prompt("a"), prompt("b", 7), prompt("c")], 1, SAMPLING, ())
    assert [g.verdicts[0].reward for g in groups] == [2.0, None, 2.0]
    assert groups[1].verdicts[0].reason == ENGINE_FAILURE
    assert groups[1].rollouts[0].stop_reason is StopReason.FAILURE
    assert [item[0].id for item in world.verifier.calls[0]] == ["a", "c"]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1e39, 0.5])
def test_b068_an_unusable_logprob_is_a_counted_failure_and_no_exception(bad):
    """Case B068: never clamped, never a ratio of 1."""
    world = environment(always((9, 8), logprobs=(-1.0, bad)))
    (group,) = world.roll_out([prompt("a")], 1, SAMPLING, ())
    assert group.verdicts[0] == Verdict(None, BAD_LOGPROBS)
    (rollout,) = group.rollouts
    assert rollout.stop_reason is StopReason.FAILURE
    assert rollout.num_sampled == 0
    assert rollout.token_ids.tolist() == [5, 6]
    assert world.verifier.calls == []


def test_a_logprob_that_rounding_lifts_above_zero_is_fine():
    world = environment(always((9,), logprobs=(1e-7,)))
    assert world.roll_out([prompt("a")], 1, SAMPLING, ())[0].verdicts[0].reward == 1.0


@pytest.mark.parametrize("reason", [StopReason.STOP, StopReason.LENGTH])
def test_b165_an_empty_completion_is_not_a_wrong_one(reason):
    """Case B165: nothing was sampled, so nothing is scored."""
    (group,) = environment(always((), reason)).roll_out([prompt("a")], 2, SAMPLING, ())
    assert group.verdicts == (Verdict(None, NOTHING_SAMPLED),) * 2
    assert [r.num_sampled for r in group.rollouts] == [0, 0]


def test_b166_eos_first_is_a_completion_of_one_token():
    """Case B166: it is verified and trained, or nothing would speak against it."""
    world = environment(always((EOS,), logprobs=(-2.5,)))
    (group,) = world.roll_out([prompt("a")], 1, SAMPLING, ())
    assert group.verdicts[0].reward == 0.0
    assert group.rollouts[0].num_sampled == 1
    assert group.rollouts[0].sampling_logprobs.tolist() == [0.0, 0.0, -2.5]
    assert world.verifier.calls[0][0][1] == ""


def test_both_limits_are_kept_and_a_full_context_is_never_sent():
    """Case B165: context 10, new 8; prompts of 1, 7, 10 and 12 leave 8, 3, 0, 0."""
    world = environment(max_context_tokens=10)
    prompts = [prompt(str(n), *range(n)) for n in (1, 7, 10, 12)]
    groups = world.roll_out(prompts, 1, SAMPLING, ())
    assert [r.max_new_tokens for r in world.engine.calls[0]] == [8, 3]
    assert [g.verdicts[0].reward for g in groups] == [2.0, 2.0, None, None]
    assert groups[2].verdicts[0].reason == groups[3].verdicts[0].reason == NO_ROOM
    assert groups[3].rollouts[0].token_ids.tolist() == list(range(12))
    assert groups[3].rollouts[0].stop_reason is StopReason.LENGTH


def test_nothing_is_sent_where_no_prompt_has_room():
    world = environment(max_context_tokens=2)
    (group,) = world.roll_out([prompt("a")], 2, SAMPLING, ())
    assert group.verdicts == (Verdict(None, NO_ROOM),) * 2
    assert world.engine.calls == []
    assert world.verifier.calls == []
    assert world.roll_out([], 2, SAMPLING, ()) == []


def test_more_tokens_than_asked_for_are_a_failure():
    world = environment(always((9,) * 9))
    (group,) = world.roll_out([prompt("a")], 1, SAMPLING, ())
    assert group.verdicts == (Verdict(None, OVERRUN),)
    assert group.rollouts[0].stop_reason is StopReason.FAILURE


def test_a_verdict_of_none_stays_none():
    world = environment()
    world.verifier.verify = lambda items: [Verdict(None, "cannot tell") for _ in items]
    (group,) = world.roll_out([prompt("a")], 2, SAMPLING, ())
    assert [v.reward for v in group.verdicts] == [None, None]


def test_b040_too_few_answers_are_an_error_with_both_numbers():
    """Case B040: one value for many is never spread over all."""
    world = environment()
    world.verifier.verify = lambda items: [Verdict(1.0)]
    with pytest.raises(ValueError, match="1 verdicts for 2 rollouts"):
        world.roll_out([prompt("a")], 2, SAMPLING, ())
    world.engine.generate = lambda requests, sampling: []
    with pytest.raises(ValueError, match="0 completions for 2 requests"):
        world.roll_out([prompt("a")], 2, SAMPLING, ())


def test_sizes_that_make_no_sense_are_errors():
    with pytest.raises(ValueError, match="max_new_tokens must be >= 1, got 0"):
        environment(max_new_tokens=0)
    with pytest.raises(ValueError, match=r"max_context_tokens .* got 1"):
        environment(max_context_tokens=1)
    with pytest.raises(ValueError, match="group_size must be >= 1, got 0"):
        environment().roll_out([prompt("a")], 0, SAMPLING, ())
