"""Which prefixes are trained on, and how much a prompt weighs."""

import pytest
import torch
from critic_cases import rollouts

from accredit.critics.lessons import few_prefixes, prompt_weights


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
