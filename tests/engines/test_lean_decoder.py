"""The lean decoder against the module's own forward, step by step."""

from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from accredit.engines.local.lean_decoder import LeanDecoder, supports
from accredit.engines.local.module_decoder import ModuleDecoder, evaluation_mode
from tiny_models import decoder_settings, seeded

SMALL = decoder_settings(104)
PROMPTS = [(5, 9, 20, 31), (7,), (8, 40, 41, 42, 43, 44, 45)]


def qwen3(**config: Any) -> nn.Module:
    settings = SMALL | {"head_dim": 16} | config
    model = seeded(Qwen3ForCausalLM, Qwen3Config(**settings), 1)
    randomise_norms(model)
    return model


def llama(**config: Any) -> nn.Module:
    model = seeded(LlamaForCausalLM, LlamaConfig(**SMALL | config), 2)
    randomise_norms(model)
    return model


def qwen2(**config: Any) -> nn.Module:
    """With biases on queries, keys and values, random ones."""
    model = seeded(Qwen2ForCausalLM, Qwen2Config(**SMALL | config), 3)
    randomise_norms(model)
    return model


def randomise_norms(model: nn.Module) -> None:
    """Fresh models have unit norms and zero biases, which would hide a mistake."""
    torch.manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "bias" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))


YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0}
MODELS = {
    "qwen3": qwen3,
    "qwen3-untied": lambda: qwen3(tie_word_embeddings=False),
    "qwen3-one-key-head": lambda: qwen3(num_key_value_heads=1),
    "qwen3-one-query-a-key": lambda: qwen3(num_key_value_heads=4),
    "llama": llama,
    "llama-yarn": lambda: llama(rope_parameters=YARN),
    "qwen2": qwen2,
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("prompts", [PROMPTS, [PROMPTS[0]] * 2], ids=["ragged", "even"])
def test_a_step_equals_the_modules_forward(name, prompts):
    """Logits within 1e-5 of the forward's, at every step, padded rows or not."""
    model: Any = MODELS[name]()
    assert supports(model)
    lean, module = LeanDecoder(model), ModuleDecoder(model)
    with evaluation_mode(model):
        lean_rows, _ = module.prefill(prompts)
        rows, _ = module.prefill(prompts)
        torch.manual_seed(0)
        for _ in range(70):
            tokens = torch.randint(8, 104, (len(prompts),))
            got, expected = lean(lean_rows, tokens), module(rows, tokens)
            torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_a_decoder_made_after_an_update_has_its_weights():
    """Every parameter matters, and none is kept from before."""
    model: Any = qwen3()
    for parameter in model.parameters():
        with torch.no_grad():
            parameter.add_(0.05)
        with evaluation_mode(model):
            lean = LeanDecoder(model)
            lean_rows, _ = ModuleDecoder(model).prefill(PROMPTS)
            rows, _ = ModuleDecoder(model).prefill(PROMPTS)
            tokens = torch.tensor([9, 10, 11])
            expected = ModuleDecoder(model)(rows, tokens)
            got = lean(lean_rows, tokens)
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-5)


def test_what_it_cannot_decode_exactly_is_not_supported():
    sliding = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0}
    assert supports(qwen3())
    assert not supports(qwen3().bfloat16())
    assert not supports(qwen3(hidden_act="gelu"))
    assert not supports(qwen3(**sliding))
    assert not supports(qwen3(attention_bias=True))
    assert not supports(llama(mlp_bias=True))
    assert not supports(GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=1)))
    assert not supports(nn.Linear(2, 2))


def test_an_adapter_inside_the_module_is_not_supported():
    """Case B109: a wrapped projection takes the module's own forward."""

    class Adapted(nn.Linear):
        def forward(self, input):
            return super().forward(input) + 1

    model: Any = qwen3()
    model.model.layers[1].self_attn.v_proj = Adapted(32, 32, bias=False)
    assert not supports(model)


def test_a_subclass_with_its_own_forward_is_not_supported():
    class Scaled(LlamaForCausalLM):
        pass

    assert not supports(seeded(Scaled, LlamaConfig(**SMALL), 0))
