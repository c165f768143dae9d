"""Which prefixes are trained on, and how much a prompt weighs."""

import math
from dataclasses import replace

import pytest
import torch
from critic_cases import rollouts

from accredit.critics.value_head.targets import (
    critic_targets,
    few_prefixes,
    prompt_weights,
)
from accredit.records import ValueTargets


def test_few_prefixes_are_evenly_separated():
    """100 places, 4 of them: a quarter apart, wherever the first one falls."""
    where = torch.ones((200, 100), dtype=torch.bool)
    few = few_prefixes(where, 4, seed=0)
    assert bool((few.sum(1) == 4).all())
    places = few.nonzero()[:, 1].view(200, 4)
    assert bool((places.diff() == 25).all())
    assert bool((places[:, 0] < 25).all())
    assert len(places[:, 0].unique()) > 20


def test_every_prefix_is_as_likely_as_any_other():
    """3 of 7 places that are not neighbours: each in 3/7 of the draws."""
    where = torch.zeros((20_000, 12), dtype=torch.bool)
    where[:, [1, 2, 5, 6, 7, 9, 11]] = True
    few = few_prefixes(where, 3, seed=1)
    assert bool((few.sum(1) == 3).all())
    assert not few[~where].any()
    shares = few.float().mean(0)[where[0]]
    # Five standard errors.
    assert (shares - 3 / 7).abs().max() < 5 * (3 / 7 * 4 / 7 / 20_000) ** 0.5


def test_rollouts_with_fewer_keep_all_and_the_seed_decides():
    batch = rollouts()
    few = few_prefixes(batch.sampled, 3, seed=4)
    counts = batch.sampled.sum(1)
    assert torch.equal(few.sum(1), counts.clamp(max=3))
    assert not few[~batch.sampled].any()
    assert int(counts.min()) < 3 < int(counts.max())
    assert torch.equal(few, few_prefixes(batch.sampled, 3, seed=4))
    assert not torch.equal(few, few_prefixes(batch.sampled, 3, seed=5))
    assert torch.equal(few_prefixes(batch.sampled, 50, seed=4), batch.sampled)
    with pytest.raises(ValueError, match=r"max_prefixes must be >= 1, got 0"):
        few_prefixes(batch.sampled, 0, seed=0)


def test_a_prompt_weighs_one_over_its_deviation_and_at_most_one_over_the_floor():
    """Rewards 1, 0: .7071; 1, 1: the floor; 1, 0 and 9 that nobody verified: .7071."""
    batch = rollouts(num_groups=3)
    batch = type(batch)(
        **vars(batch)
        | {
            "rewards": torch.tensor([1.0, 0, 0.5, 1, 1, 1, 1, 0, 9]),
            "verified": torch.tensor([True] * 8 + [False]),
        }
    )
    found = prompt_weights(batch, 0.25)
    expected = torch.tensor([2.0] * 3 + [4.0] * 3 + [2**0.5] * 3)
    torch.testing.assert_close(found, expected)


def test_rewards_are_rescaled_and_what_is_not_wanted_is_nothing():
    """Y = 3 of [-1, 7] is .5 of it; NaN and another's ids stay behind the mask."""
    batch = rollouts()
    where = batch.trainable
    targets = torch.where(where, 3.0, math.nan)
    weights = torch.where(where, 2.0, math.nan)
    dirty = torch.where(batch.token_mask, batch.token_ids, -100)
    taught = critic_targets(
        replace(batch, token_ids=dirty),
        ValueTargets(targets, weights, where),
        -1.0,
        7.0,
        torch.device("cpu"),
    )
    assert torch.equal(taught.token_ids, batch.token_ids)
    assert torch.equal(taught.where, where)
    assert torch.equal(taught.targets, torch.where(where, 0.5, 0.0))
    assert torch.equal(taught.weights, torch.where(where, 2.0, 0.0))
    assert not taught.old_values.any()
    old = replace(taught, old_values=torch.rand(where.shape))
    part = old.part(torch.tensor([3, 1]), 5)
    for name, tensor in vars(part).items():
        assert torch.equal(tensor, getattr(old, name)[[3, 1], :5]), name


def test_a_lesson_lies_in_its_rollout_and_begins_behind_the_first_token():
    batch = rollouts()
    anything = torch.ones(batch.token_ids.shape)
    padding = ~batch.token_mask
    first = torch.zeros_like(padding)
    first[:, 0] = True
    for where, message in (
        (padding, "must lie in its rollout"),
        (first, "the value of an empty prefix cannot"),
        (batch.trainable[:, :-1], "value targets must align with token_ids"),
    ):
        wanted = ValueTargets(
            anything[:, : where.shape[1]], anything[:, : where.shape[1]], where
        )
        with pytest.raises(ValueError, match=message):
            critic_targets(batch, wanted, 0.0, 1.0, torch.device("cpu"))
