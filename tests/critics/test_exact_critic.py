"""The ceiling: a critic that is told the truth, for nothing."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from accredit.critics.exact import ExactCritic, model_logits
from accredit.protocols import PrefixCritic
from accredit.types import CriticExample, CriticQuery, Message, Problem, Prompt

Policy = Callable[..., PreTrainedModel]
PROMPT = Prompt(Problem("p", (Message("user", "?"),)), (1, 2))
ATTEMPTS = [CriticQuery(PROMPT, (5,) * n) for n in (3, 0, 1)]
CRITIC = ExactCritic(lambda queries: [len(one.written) / 4 for one in queries])
ROWS = [[3, 4, 5], [7], [3, 4, 5, 6, 7, 8, 9], [2, 2]]


def test_it_says_what_it_is_told_and_asks_for_nothing():
    assert isinstance(CRITIC, PrefixCritic)
    said = CRITIC.values(ATTEMPTS)
    assert said.values == (0.75, 0.0, 0.25)
    assert said.flops == 0.0
    assert CRITIC.values([]).values == ()
    assert CRITIC.learning_rate == 0.0


def test_it_learns_nothing():
    assert CRITIC.update([CriticExample(ATTEMPTS[0], 0.1)], 1e-3) is None
    with pytest.raises(ValueError, match=r"got the exact one, which has none"):
        CRITIC.add_gradient([])


def test_its_folder_says_whose_it_is(tmp_path: Path):
    CRITIC.save(tmp_path / "critic")
    CRITIC.load(tmp_path / "critic")
    with pytest.raises(ValueError, match=r"must be an exact critic's, got one without"):
        CRITIC.load(tmp_path)


@pytest.mark.parametrize("budget", [1, 9, 10_000])
def test_the_logits_are_those_of_each_row_alone(policy: Policy, budget: int):
    model = policy("gpt2").train()
    found = model_logits(model, budget)(ROWS)
    # Its dropouts are .1: they were off, and come on again.
    assert model.training
    model.eval()
    for row, one in zip(ROWS, found, strict=True):
        expected = model(input_ids=torch.tensor([row])).logits[0].detach().numpy()
        np.testing.assert_allclose(one, expected, atol=1e-5)
        assert one.dtype == np.float32 and np.abs(one).max() > 0.1


def test_the_logits_are_of_the_weights_as_they_are(policy: Policy):
    model = policy()
    logits = model_logits(model)
    before = logits(ROWS)[0]
    with torch.no_grad():
        next(model.parameters()).mul_(1.5)
    assert np.abs(logits(ROWS)[0] - before).max() > 1e-2
    assert logits([]) == []
    assert not model.training
