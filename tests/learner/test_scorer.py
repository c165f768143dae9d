"""Log-probs of one model: as the plain forward says, whatever fits at once."""

from collections.abc import Callable

import pytest
import torch
from learner_cases import ragged_batch
from transformers import PreTrainedModel

from accredit.learner.learner import Learner
from accredit.models.forward import scoring_of, without_dropout
from accredit.models.scorer import Scorer


def scorer(
    model: PreTrainedModel, micro_batch_tokens: int = 2048, temperature: float = 1.0
) -> Scorer:
    still = without_dropout(model)
    return Scorer(still, scoring_of(still), micro_batch_tokens, temperature)


@pytest.mark.parametrize("name", ["qwen3", "llama", "gpt2"])
def test_it_says_what_the_plain_forward_says(
    name: str, model: Callable[[str], PreTrainedModel]
) -> None:
    """Row by row without padding, at temperature .7."""
    batch, plain = ragged_batch(3), model(name)
    found = scorer(model(name), temperature=0.7).logprobs(batch)
    for row, length in enumerate(batch.token_mask.sum(1).tolist()):
        ids = batch.token_ids[row : row + 1, :length]
        with torch.no_grad():
            logits = plain(input_ids=ids).logits[0, :-1] / 0.7
        expected = torch.zeros(batch.token_ids.shape[1])
        expected[1:length] = logits.log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
        expected = torch.where(batch.sampled[row], expected, 0.0)
        torch.testing.assert_close(found[row], expected, atol=1e-5, rtol=1e-5)
    assert found[batch.sampled].abs().min() > 0


def test_micro_batches_change_nothing(model: Callable[..., PreTrainedModel]) -> None:
    batch, own = ragged_batch(), model()
    whole = scorer(own).logprobs(batch)
    for budget in (60, 13, 1):
        parts = scorer(own, budget).logprobs(batch)
        torch.testing.assert_close(parts, whole, atol=1e-6, rtol=1e-6)


def test_no_gradient_where_none_is_asked_for(
    model: Callable[..., PreTrainedModel],
) -> None:
    own, batch = scorer(model()), ragged_batch()
    assert not own.logprobs(batch).requires_grad
    assert own.scores(batch.token_ids, batch.sampled).logprobs.requires_grad


def test_the_learner_scores_with_its_live_weights(
    learner: Callable[..., Learner], model: Callable[..., PreTrainedModel]
) -> None:
    actor, batch = learner(), ragged_batch()
    before = actor.logprobs(batch)
    torch.testing.assert_close(before, scorer(model()).logprobs(batch))
    with torch.no_grad():
        for parameter in actor.model.parameters():
            parameter.mul_(1.1)
    assert (actor.logprobs(batch) - before).abs().max() > 1e-3
    torch.testing.assert_close(actor.reference_logprobs(batch), before)
