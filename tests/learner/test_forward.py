"""Running a model over right-padded rows."""

from collections.abc import Callable

import pytest
import torch
from learner_cases import VOCAB, ragged_batch
from torch import nn
from transformers import (
    BertConfig,
    BertLMHeadModel,
    Gemma2Config,
    Gemma2ForCausalLM,
    PreTrainedModel,
)

from accredit.models.forward import (
    scores_by_head,
    scores_by_logits,
    scoring_of,
    without_dropout,
)

KINDS = ["qwen3", "llama", "gpt2"]


def alone(
    model: PreTrainedModel, ids: torch.Tensor, temperature: float
) -> torch.Tensor:
    """Log-prob of each token of one unpadded row, the plainest way."""
    logits = model(input_ids=ids[None]).logits[0].double() / temperature
    chosen = logits[:-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0]
    return torch.cat([torch.zeros(1), chosen.float()])


@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_padding_and_row_mates_never_reach_a_real_token(
    model: Callable[[str], PreTrainedModel], name: str
) -> None:
    """Cases B077, B078: each row scores as it does alone; absolute positions too."""
    policy = without_dropout(model(name)).eval()
    batch = ragged_batch(1)
    noise = torch.randint(0, VOCAB, batch.token_ids.shape)
    ids = torch.where(batch.token_mask, batch.token_ids, noise)
    scores = scoring_of(policy)(policy, ids, batch.sampled, 0.7)
    for row in range(batch.num_rollouts):
        length = int(batch.token_mask[row].sum())
        expected = alone(policy, batch.token_ids[row, :length], 0.7)
        where = batch.sampled[row, :length]
        found = scores.logprobs[row, :length]
        torch.testing.assert_close(found[where], expected[where], atol=1e-5, rtol=1e-5)
    assert not scores.logprobs[~batch.sampled].any()
    assert not scores.entropies[~batch.sampled].any()
    assert (scores.entropies[batch.sampled] > 0).all()


@pytest.mark.parametrize("name", KINDS)
def test_usual_models_are_scored_without_vocabulary_sized_logits(
    model: Callable[[str], PreTrainedModel], name: str
) -> None:
    assert scoring_of(without_dropout(model(name))) is scores_by_head


def test_a_model_that_caps_its_logits_is_scored_by_them() -> None:
    config = Gemma2Config(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        initializer_range=0.8,
        final_logit_softcapping=2.0,
    )
    torch.manual_seed(0)
    policy = Gemma2ForCausalLM(config)
    assert scoring_of(policy) is scores_by_logits
    ids = torch.arange(8)
    wanted = (ids > 1)[None]
    found = scoring_of(policy)(policy, ids[None], wanted, 1.0).logprobs[0]
    expected = alone(policy, ids, 1.0)
    torch.testing.assert_close(found[2:], expected[2:], atol=1e-5, rtol=1e-5)


def test_a_model_that_reads_what_follows_is_refused() -> None:
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        initializer_range=1.0,
    )
    torch.manual_seed(0)
    with pytest.raises(ValueError, match=r"a policy must be causal.*BertLMHeadModel"):
        scoring_of(without_dropout(BertLMHeadModel(config)))


def test_a_model_that_is_noisy_in_training_mode_is_refused(
    model: Callable[[str], PreTrainedModel],
) -> None:
    class Noise(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.randn_like(x) if self.training else x

    policy = model("qwen3")
    policy.model.norm = nn.Sequential(policy.model.norm, Noise())
    with pytest.raises(ValueError, match="same log-probs in training mode"):
        scoring_of(policy)


def test_dropout_goes_and_the_config_stays(
    model: Callable[[str], PreTrainedModel],
) -> None:
    policy = without_dropout(model("gpt2"))
    assert {m.p for m in policy.modules() if isinstance(m, nn.Dropout)} == {0.0}
    assert policy.config.resid_pdrop == 0.1


@torch.no_grad()
def test_attention_dropout_goes_too(
    model: Callable[[str], PreTrainedModel],
) -> None:
    """Case B074: it is a number on the attention module, not a Dropout."""
    policy = model("llama").train()
    for layer in policy.model.layers:
        layer.self_attn.attention_dropout = 0.5
    ids = torch.arange(12)[None]
    noisy = policy(input_ids=ids).logits
    assert not torch.equal(policy(input_ids=ids).logits, noisy)
    steady = without_dropout(policy)(input_ids=ids).logits
    assert torch.equal(policy.eval()(input_ids=ids).logits, steady)
