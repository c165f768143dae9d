"""The module's own forward, prefilled in padded rows and stepped."""

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from accredit.engines.local.engine import TransformersEngine
from accredit.engines.local.module_decoder import ModuleDecoder, evaluation_mode
from accredit.types import Request, Sampling
from tiny_models import decoder_settings, seeded

PROMPTS = [tuple(range(10, 22)), (30,), (31, 40, 55)]
SMALL = decoder_settings(104) | {"head_dim": 8}
OLDER = {"vocab_size": 104, "hidden_size": 32}
RECURRENT = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
MIXED = {"layer_types": ["sliding_attention", "full_attention"]}
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "learned positions": ("GPT2", OLDER | {"n_layer": 2, "n_head": 4}),
    "sliding window": ("Mistral", SMALL | {"sliding_window": 5}),
    "some layers sliding": ("Gemma3", SMALL | MIXED | {"sliding_window": 5}),
    "positions off the mask": ("Bloom", OLDER | {"n_layer": 2, "n_head": 4}),
    "recurrent layers": ("Qwen3Next", SMALL | RECURRENT),
}


def random_model(name: str, config: dict[str, Any]) -> Any:
    """The smallest causal LM of that family."""
    head = "GPT2LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM"
    kind = "Gemma3TextConfig" if name == "Gemma3" else f"{name}Config"
    settings = {"initializer_range": 0.2} | config
    transformers.logging.set_verbosity_error()
    return seeded(
        getattr(transformers, head), getattr(transformers, kind)(**settings), 0
    )


def small_gpt2() -> Any:
    return random_model(*ARCHITECTURES["learned positions"])


def plain_logits(model: Any, ids: tuple[int, ...]) -> Tensor:
    """What comes after `ids`, by one unpadded forward without a cache."""
    return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_padded_rows_equal_unpadded_forwards(name):
    """Cases B077, B078: prefilled together, expanded, reordered and stepped."""
    model = random_model(*ARCHITECTURES[name])
    decoder = ModuleDecoder(model)
    texts = list(PROMPTS)
    with evaluation_mode(model):
        rows, logits = decoder.prefill(texts)
        expected = torch.stack([plain_logits(model, ids) for ids in texts])
        torch.testing.assert_close(logits, expected, atol=2e-5, rtol=1e-4)
        for step, order in enumerate([(2, 0, 0, 1), (0, 1, 3), (2, 1), (1,)]):
            rows.select(torch.tensor(order))
            texts = [(*texts[row], 20 + 7 * step + i) for i, row in enumerate(order)]
            logits = decoder(rows, torch.tensor([ids[-1] for ids in texts]))
            expected = torch.stack([plain_logits(model, ids) for ids in texts])
            torch.testing.assert_close(logits, expected, atol=2e-5, rtol=1e-4)


def test_training_flags_come_back_one_by_one():
    """Case B074: dropout is off while sampling and back on after, where it was on."""
    model = small_gpt2().train()
    model.transformer.h[0].eval()
    flags = {name: module.training for name, module in model.named_modules()}
    assert set(flags.values()) == {True, False}
    engine = TransformersEngine(model, ())
    requests = [Request(prompt, 8, key) for key, prompt in enumerate(PROMPTS)]
    first = engine.generate(requests, Sampling())
    assert {n: m.training for n, m in model.named_modules()} == flags
    assert engine.generate(requests, Sampling()) == first
    with pytest.raises(RuntimeError, match="stopped"), evaluation_mode(model):
        assert not model.training
        raise RuntimeError("stopped")
    assert {n: m.training for n, m in model.named_modules()} == flags


def test_the_module_still_trains_after_sampling():
    model = small_gpt2()
    TransformersEngine(model, ()).generate([Request((9, 8), 5, 0)], Sampling())
    ids = torch.tensor([PROMPTS[0]])
    model.train()(input_ids=ids, labels=ids).loss.backward()
    gradients = [p.grad for p in model.parameters()]
    assert all(g is not None and g.isfinite().all() for g in gradients)


def test_an_adapters_wrapper_is_looked_through():
    """A wrapper's own signature says nothing of what the wrapped module takes."""
    model = small_gpt2()

    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.device, self.config = model, model.device, model.config

        def get_base_model(self) -> nn.Module:
            return self.inner

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            assert kwargs["position_ids"].shape == kwargs["input_ids"].shape
            return self.inner(*args, **kwargs)

    with evaluation_mode(model):
        _, got = ModuleDecoder(Wrapper()).prefill(PROMPTS)
        _, expected = ModuleDecoder(model).prefill(PROMPTS)
    assert got.equal(expected)


def test_a_model_without_a_cache_argument_is_refused():
    class NoCache(nn.Module):
        def forward(self, input_ids: Tensor, **kwargs: Any) -> Tensor:
            return input_ids

    with pytest.raises(ValueError, match=r"must take past_key_values, got NoCache"):
        ModuleDecoder(NoCache())
