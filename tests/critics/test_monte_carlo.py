"""Values from fresh rollouts: which prefixes, who votes, what is shared and paid."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
import torch

from accredit.batches.collate import collate
from accredit.critics.monte_carlo import MonteCarlo
from accredit.types import Group, Prefix, Prompt, Sampling, StopReason, Verdict
from accredit.world import rollout_cost
from worlds import LETTERS, answered, finished, prompts, share_of_a, small_world

pytestmark = pytest.mark.whole_run

ONE, TWO = prompts(2)
"""Prompts of one token (0) and of two (1, 2)."""
SAMPLING = Sampling()
Votes = dict[tuple[int, ...], list[float | None]]


@dataclass
class Scripted:
    """Answers each prefix with the rewards that belong to what is written."""

    votes: Votes
    asked: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    keys: list[tuple[int | str, ...]] = field(default_factory=list)

    def roll_out(
        self,
        prompts: Sequence[Prompt],
        group_size: int,
        sampling: Sampling,
        key: tuple[int | str, ...],
    ) -> list[Group]:
        raise NotImplementedError

    def continue_from(
        self,
        prefixes: Sequence[Prefix],
        group_size: int,
        sampling: Sampling,
        key: tuple[int | str, ...],
    ) -> list[Group]:
        self.asked += [(o.prompt.problem.id, o.written) for o in prefixes]
        self.sizes.append(group_size)
        self.keys.append(key)
        return [
            answered(o.prompt, [((7,), vote) for vote in self.votes[o.written]])
            for o in prefixes
        ]

    def has_answer(self, prompt: Prompt, written: Sequence[int]) -> bool:
        return False


def estimate(votes: Votes, *groups: Group, chunk_length: int = 2):
    environment = Scripted(votes)
    critic = MonteCarlo(2, chunk_length)
    batch = collate(groups)
    return critic.estimate(batch, environment, SAMPLING, ("mc", 3)), environment


VOTES: Votes = {(): [0.0, 0.5], (3, 4): [0.5, 0.5], (3, 4, 5, 6): [1.0, 0.5]}


def test_values_by_hand():
    """Five tokens in chunks of two behind a prompt of two: prefixes of 2, 4 and 6.

    Means .25, .5, .75 stand until the next, and the end of seven is worth .9.
    """
    group = answered(TWO, [((3, 4, 5, 6, 7), 0.9)])
    told, environment = estimate(VOTES, group)
    expected = [0, 0, 0.25, 0.25, 0.5, 0.5, 0.75, 0.9]
    torch.testing.assert_close(told.values, torch.tensor([expected]))
    assert environment.asked == [("p1", ()), ("p1", (3, 4)), ("p1", (3, 4, 5, 6))]
    assert (environment.sizes, environment.keys) == ([2], [("mc", 3)])
    assert len(told.continuations) == 3
    assert told.num_unverified == 0


def test_equal_prefixes_are_asked_once_and_agree():
    """The prompt of both siblings, and the first chunk that two of three share."""
    group = answered(TWO, [((3, 4, 5), 1.0), ((3, 4), 0.0), ((3, 5, 6), 0.0)])
    other = answered(ONE, [((3, 4, 5), 1.0)])
    votes = {**VOTES, (3, 5): [0.0, 0.0]}
    told, environment = estimate(votes, group, other)
    assert environment.asked == [
        ("p1", ()),
        ("p1", (3, 4)),
        ("p1", (3, 5)),
        ("p0", ()),
        ("p0", (3, 4)),
    ]
    expected = [
        [0, 0, 0.25, 0.25, 0.5, 1],
        [0, 0, 0.25, 0.25, 0, 0],
        [0, 0, 0.25, 0.25, 0, 0],
        [0, 0.25, 0.25, 0.5, 1, 0],
    ]
    torch.testing.assert_close(told.values, torch.tensor(expected))


def test_problems_that_read_alike_are_asked_apart():
    """Another answer may be wanted: the same tokens, and not the same value."""
    twin = replace(ONE, problem=replace(ONE.problem, id="twin"))
    groups = (answered(ONE, [((3,), 1.0)]), answered(twin, [((3,), 1.0)]))
    told, environment = estimate(VOTES, *groups)
    assert environment.asked == [("p0", ()), ("twin", ())]
    assert len(told.continuations) == 2


def test_unverifiable_continuations_do_not_vote():
    votes = {**VOTES, (): [None, 0.5], (3, 4): [0.125, None]}
    told, _ = estimate(votes, answered(ONE, [((3, 4, 5), 1.0)]))
    torch.testing.assert_close(told.values, torch.tensor([[0, 0.5, 0.5, 0.125, 1.0]]))
    assert told.num_unverified == 2


@pytest.mark.parametrize(
    ("unknown", "expected"),
    [
        # The middle one takes the one before it, the first the one after it, and
        # where nothing is known, the outcome: no chunk gets credit from nowhere.
        ([(3, 4)], [0, 0.25, 0.25, 0.25, 0.25, 0.75, 0.9]),
        ([()], [0, 0.5, 0.5, 0.5, 0.5, 0.75, 0.9]),
        # The last one takes the nearest before it, and not the first there is.
        ([(3, 4, 5, 6)], [0, 0.25, 0.25, 0.5, 0.5, 0.5, 0.9]),
        ([(), (3, 4)], [0, 0.75, 0.75, 0.75, 0.75, 0.75, 0.9]),
        (list(VOTES), [0, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9]),
    ],
)
def test_a_prefix_of_which_nothing_is_known_gives_no_credit(unknown, expected):
    votes = VOTES | {written: [None, None] for written in unknown}
    told, _ = estimate(votes, answered(ONE, [((3, 4, 5, 6, 7), 0.9)]))
    torch.testing.assert_close(told.values, torch.tensor([expected]))
    assert told.num_unverified == 2 * len(unknown)


def test_what_cannot_be_trained_on_is_not_paid_for():
    broken = answered(ONE, [((3, 4), None)])
    told, environment = estimate(VOTES, broken)
    assert environment.asked == environment.sizes == []
    assert told.values.abs().max() == 0
    assert told.continuations == ()


def test_a_truncated_rollout_ends_with_its_outcome_too():
    cut = replace(finished(ONE, (3, 4)), stop_reason=StopReason.LENGTH)
    told, _ = estimate(VOTES, Group(ONE, (cut,), (Verdict(0.75),)))
    torch.testing.assert_close(told.values, torch.tensor([[0, 0.25, 0.25, 0.75]]))


def test_a_chunk_after_an_observation_starts_behind_it():
    """Two sampled, one observed (9), one sampled: prefixes (), and (3, 4, 9)."""
    token_ids = torch.tensor([*ONE.token_ids, 3, 4, 9, 5])
    sampled = torch.tensor([False, True, True, False, True])
    turns = replace(
        finished(ONE, (3, 4, 9, 5)),
        token_ids=token_ids,
        sampled=sampled,
        sampling_logprobs=torch.where(sampled, -1.0, 0.0),
    )
    votes: Votes = {(): [0.5, 0.5], (3, 4, 9): [1.0, 0.0]}
    told, environment = estimate(votes, Group(ONE, (turns,), (Verdict(1.0),)))
    assert [written for _, written in environment.asked] == [(), (3, 4, 9)]
    torch.testing.assert_close(
        told.values, torch.tensor([[0, 0.5, 0.5, 0.5, 0.5, 1.0]])
    )


def test_sizes_that_make_no_sense_are_errors():
    with pytest.raises(ValueError, match="num_continuations must be >= 1"):
        MonteCarlo(0, 2)
    with pytest.raises(ValueError, match="chunk_length must be at least 1, got 0"):
        estimate(VOTES, answered(ONE, [((3,), 1.0)]), chunk_length=0)


def exact_value(model, prefix: list[int], written: list[int], budget: int) -> float:
    """V of a prefix by every completion there is, from the model's own logits."""
    tails = list(itertools.product(range(len(LETTERS)), repeat=budget - len(written)))
    token_ids = torch.tensor([[*prefix, *written, *tail] for tail in tails])
    with torch.no_grad():
        table = model(input_ids=token_ids).logits.double().log_softmax(-1)
    start = len(prefix) + len(written)
    steps = table[:, start - 1 : -1].gather(2, token_ids[:, start:, None])[..., 0]
    texts = ["".join(LETTERS[i] for i in (*written, *tail)) for tail in tails]
    rewards = torch.tensor([share_of_a(text) for text in texts]).double()
    return float((steps.sum(1).exp() * rewards).sum())


def test_it_is_right_on_average_with_the_real_engine():
    """Every prefix of a rollout of three letters against enumeration, 4 deviations."""
    budget, num = 3, 1500
    world = small_world(seed=2, max_new_tokens=budget)
    (group,) = world.environment.roll_out([TWO], 1, SAMPLING, ("train", 0))
    critic = MonteCarlo(num, 1)
    told = critic.estimate(collate([group]), world.environment, SAMPLING, ("mc", 0))
    written = group.rollouts[0].completion_ids
    for place, continuations in enumerate(told.continuations):
        rewards = torch.tensor([v.reward for v in continuations.verdicts])
        error = float(rewards.std()) / math.sqrt(num)
        expected = exact_value(
            world.learner.model, list(TWO.token_ids), written[:place], budget
        )
        found = float(told.values[0, 2 + place])
        assert abs(found - expected) < 4 * error + 1e-6, place
    assert len(told.continuations) == 3
    cost = rollout_cost(told.continuations, world.shape)
    assert cost.tokens_generated == num * (3 + 2 + 1)
    assert cost.num_verifications == 3 * num


def test_draws_repeat_with_the_key_and_do_not_see_the_other_rows():
    world = small_world(seed=2)
    groups = world.environment.roll_out([ONE, TWO], 2, SAMPLING, ("train", 0))

    def values(key, *chosen):
        batch = collate(chosen)
        return MonteCarlo(3, 2).estimate(batch, world.environment, SAMPLING, key).values

    both = values(("mc", 0), *groups)
    assert torch.equal(values(("mc", 0), *groups), both)
    assert torch.equal(values(("mc", 0), groups[1]), both[2:])
    assert not torch.equal(values(("mc", 1), *groups), both)


def test_the_rollout_itself_does_not_vote():
    """One continuation of the prompt is another rollout than the one it is of."""
    world = small_world(seed=2)
    groups = world.environment.roll_out(prompts(6), 1, SAMPLING, ("train", 0))
    critic = MonteCarlo(1, 6)
    told = critic.estimate(collate(groups), world.environment, SAMPLING, ("mc", 0))
    for group, fresh in zip(groups, told.continuations, strict=True):
        assert group.prompt == fresh.prompt
        assert group.rollouts[0].completion_ids != fresh.rollouts[0].completion_ids
