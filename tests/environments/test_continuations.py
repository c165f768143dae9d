"""Going on from the middle of a completion: what is replayed, drawn, verified, paid."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
import torch

from accredit.environments.single_turn import (
    BAD_LOGPROBS,
    NO_ROOM,
    NOTHING_SAMPLED,
    SingleTurn,
)
from accredit.functional.flops import ModelShape, decode_flops, prefill_flops
from accredit.protocols import Environment
from accredit.randomness import keyed_seed
from accredit.types import (
    Completion,
    Message,
    Prefix,
    Problem,
    Prompt,
    Request,
    Rollout,
    Sampling,
    StopReason,
    Verdict,
)
from accredit.world import rollout_cost
from worlds import BUDGET, prompts, small_world

SAMPLING = Sampling()
SHAPE = ModelShape(1, 2, 3, 1, 1, 2, 5)
EMPTY = Completion((), (), StopReason.STOP)


@dataclass
class KeyEngine:
    """Two tokens drawn from the request's key, or what `answers` says instead."""

    answers: dict[tuple[int, ...], Completion] = field(default_factory=dict)
    version: int = 3
    asked: list[Request] = field(default_factory=list)

    def generate(
        self, requests: Sequence[Request], sampling: Sampling
    ) -> list[Completion]:
        self.asked += requests
        return [
            self.answers.get(
                request.token_ids,
                Completion(
                    (request.key % 2**31, request.key // 2**31 % 2**31)[
                        : request.max_new_tokens
                    ],
                    (-0.5, -0.25)[: request.max_new_tokens],
                    StopReason.STOP,
                ),
            )
            for request in requests
        ]

    def load(self, model: object, version: int) -> None:
        self.version = version


@dataclass
class Listening:
    """Rewards the number of tokens of a completion; remembers the texts."""

    texts: list[str] = field(default_factory=list)

    def verify(self, items: Sequence[tuple[Problem, str, Rollout]]) -> list[Verdict]:
        self.texts += [text for _, text, _ in items]
        return [Verdict(float(len(text.split()))) for _, text, _ in items]

    def close(self) -> None:
        pass


def environment(
    answers: dict[tuple[int, ...], Completion] | None = None,
    max_new_tokens: int = 5,
    max_context_tokens: int | None = None,
) -> SingleTurn:
    def decode(completions: Sequence[Sequence[int]]) -> list[str]:
        return [" ".join(map(str, ids)) for ids in completions]

    return SingleTurn(
        KeyEngine(answers or {}),
        Listening(),
        decode,
        max_new_tokens,
        0,
        max_context_tokens,
    )


def prompt(name: str = "a", *token_ids: int) -> Prompt:
    return Prompt(Problem(name, (Message("user", name),)), token_ids or (1, 2))


def continued(world: SingleTurn, *prefixes: Prefix, group_size: int = 1):
    return world.continue_from(prefixes, group_size, SAMPLING, ("mc", 4))


def draws(groups) -> list[list[tuple[int, ...]]]:
    return [
        [tuple(r.token_ids[r.sampled].tolist()) for r in group.rollouts]
        for group in groups
    ]


def test_an_environment_can_continue():
    assert isinstance(environment(), Environment)


def test_what_is_written_is_replayed_and_only_the_rest_is_sampled():
    answer = Completion((8, 9), (-0.5, -0.25), StopReason.STOP)
    world = environment({(1, 2, 6, 7): answer})
    (group,) = continued(world, Prefix(prompt(), (6, 7)))
    (rollout,) = group.rollouts
    assert rollout.token_ids.tolist() == [1, 2, 6, 7, 8, 9]
    assert rollout.sampled.tolist() == [False] * 4 + [True] * 2
    assert rollout.sampling_logprobs.tolist() == [0.0] * 4 + [-0.5, -0.25]
    assert rollout.prompt == prompt()
    assert rollout.completion_ids == [6, 7, 8, 9]
    assert rollout.spans == ((4, 2),)
    assert rollout.stop_reason is StopReason.STOP
    assert rollout.policy_versions == (3, 3)


def test_the_verifier_sees_the_whole_completion():
    answer = Completion((8, 9), (-0.5, -0.25), StopReason.STOP)
    world = environment({(1, 2, 6, 7): answer})
    (group,) = continued(world, Prefix(prompt(), (6, 7)))
    assert world.verifier.texts == ["6 7 8 9"]
    assert group.verdicts[0].reward == 4.0


def test_the_budget_is_what_the_written_tokens_have_left():
    """Five new tokens and a context of seven, behind prompts of two and four."""
    world = environment(max_context_tokens=7)
    short, long = prompt("a", 1, 2), prompt("b", 1, 2, 3, 4)
    continued(world, Prefix(short), Prefix(short, (5, 5)), Prefix(long, (5,)))
    assert [r.max_new_tokens for r in world.engine.asked] == [5, 3, 2]
    assert [r.token_ids for r in world.engine.asked] == [
        (1, 2),
        (1, 2, 5, 5),
        (1, 2, 3, 4, 5),
    ]


@pytest.mark.parametrize("limits", [{"max_new_tokens": 3}, {"max_context_tokens": 5}])
def test_an_opening_without_room_is_verified_as_it_is(limits):
    """Nothing is sampled and nothing sent; what is written is what is judged."""
    world = environment(**limits)
    (group,) = continued(world, Prefix(prompt(), (5, 6, 7)), group_size=2)
    assert world.engine.asked == []
    assert [v.reward for v in group.verdicts] == [3.0, 3.0]
    for rollout in group.rollouts:
        assert rollout.num_sampled == 0
        assert rollout.token_ids.tolist() == [1, 2, 5, 6, 7]
        assert rollout.stop_reason is StopReason.LENGTH
    cost = rollout_cost([group], SHAPE)
    assert (cost.total_flops, cost.tokens_generated) == (0.0, 0)
    assert cost.num_verifications == 2


def test_a_prompt_without_room_is_still_not_verified():
    world = environment(max_context_tokens=2)
    (group,) = continued(world, Prefix(prompt()))
    assert group.verdicts == (Verdict(None, NO_ROOM),)
    assert rollout_cost([group], SHAPE).num_verifications == 0


def test_a_failed_continuation_is_no_verdict_and_no_verification():
    bad = Completion((8,), (float("nan"),), StopReason.STOP)
    world = environment({(1, 2, 5): bad, (1, 2, 6): EMPTY})
    groups = continued(world, Prefix(prompt(), (5,)), Prefix(prompt(), (6,)))
    reasons = [group.verdicts[0].reason for group in groups]
    assert reasons == [BAD_LOGPROBS, NOTHING_SAMPLED]
    assert world.verifier.texts == []
    assert groups[0].rollouts[0].token_ids.tolist() == [1, 2, 5]
    assert rollout_cost(groups, SHAPE).num_verifications == 0


def test_draws_follow_what_is_written_and_not_the_neighbours():
    first, second = Prefix(prompt(), (5,)), Prefix(prompt(), (6,))
    bare, other = Prefix(prompt()), Prefix(prompt("b"), (5,))
    together = draws(continued(environment(), bare, first, second, other, group_size=3))
    assert len({draw for group in together for draw in group}) == 12
    for place, prefix in enumerate((bare, first, second, other)):
        alone = draws(continued(environment(), prefix, group_size=3))
        assert alone == [together[place]]


def test_the_same_opening_twice_has_draws_of_its_own():
    prefix = Prefix(prompt(), (5,))
    once = draws(continued(environment(), prefix, group_size=2))
    twice = draws(continued(environment(), prefix, prefix, group_size=2))
    assert twice[0] == once[0]
    assert len({draw for group in twice for draw in group}) == 4


def test_nothing_written_is_rolling_out():
    asked = [prompt("a"), prompt("b", 3), prompt("a")]
    rolled = environment().roll_out(asked, 2, SAMPLING, ("mc", 4))
    bare = continued(environment(), *map(Prefix, asked), group_size=2)
    assert draws(rolled) == draws(bare)
    assert [g.verdicts for g in rolled] == [g.verdicts for g in bare]


def test_draws_of_rolling_out_are_those_of_earlier_releases():
    """A resumed run must meet the seeds it would have met."""
    world = environment()
    world.roll_out([prompt("a"), prompt("a")], 2, SAMPLING, ("train", 7))
    assert [request.key for request in world.engine.asked] == [
        keyed_seed(0, "sample", "train", 7, "a", occurrence, sample)
        for occurrence in range(2)
        for sample in range(2)
    ]


def test_siblings_share_the_prefill_of_what_is_replayed():
    """Prompt of two and two replayed: one prefill of four, and three times two new."""
    (group,) = continued(environment(), Prefix(prompt(), (5, 6)), group_size=3)
    cost = rollout_cost([group], SHAPE)
    assert cost.prefill_flops == prefill_flops(SHAPE, 4)
    assert cost.decode_flops == 3 * decode_flops(SHAPE, 4, 2)
    assert (cost.tokens_generated, cost.num_verifications) == (6, 3)


def test_a_group_size_below_one_is_an_error():
    with pytest.raises(ValueError, match="group_size must be >= 1, got 0"):
        continued(environment(), Prefix(prompt()), group_size=0)


def test_the_engine_continues_from_the_distribution_behind_the_opening():
    """The log-prob of a continuation's first token is the model's own."""
    world = small_world(seed=3)
    prefix = Prefix(prompts(1)[0], (4, 2, 7))
    (group,) = world.environment.continue_from([prefix], 8, SAMPLING, ())
    replayed = torch.tensor([prefix.token_ids])
    with torch.no_grad():
        logits = world.learner.model(input_ids=replayed).logits[0, -1]
    expected = logits.log_softmax(-1)
    for rollout in group.rollouts:
        assert rollout.num_sampled == BUDGET - 3
        token = int(rollout.token_ids[4])
        found = rollout.sampling_logprobs[4]
        torch.testing.assert_close(found, expected[token], atol=1e-5, rtol=0)
    assert len({int(r.token_ids[4]) for r in group.rollouts}) > 1
