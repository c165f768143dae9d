"""Log-probs of a few answers: a tree walked from a cache against plain forwards."""

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from accredit.engines.local import lean_decoder
from accredit.engines.local.answers import answer_logprobs, inner_levels
from tiny_models import decoder_settings, seeded

SMALL = decoder_settings(104) | {"head_dim": 8}
OLDER = {"vocab_size": 104, "n_embd": 32, "n_layer": 2, "n_head": 4}
MIXED = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "lean": ("Qwen3ForCausalLM", "Qwen3Config", SMALL),
    "positions": ("GPT2LMHeadModel", "GPT2Config", OLDER),
    "windows": ("Gemma3ForCausalLM", "Gemma3TextConfig", SMALL | MIXED),
}
ANSWERS = [(10, 20, 30), (10, 20, 31), (10, 21, 30), (11, 20, 30), (10, 20), (12,)]
"""Two that share two tokens, one that begins others, one that ends at once."""
CONTEXTS = [tuple((7 * i + j) % 100 for j in range(1 + i)) for i in range(24)]


def model_of(name: str) -> Any:
    kind, config, settings = MODELS[name]
    transformers.logging.set_verbosity_error()
    settings = {"initializer_range": 0.2} | settings
    return seeded(
        getattr(transformers, kind), getattr(transformers, config)(**settings), 0
    )


def plain(model: Any, contexts: list, answers: list) -> Tensor:
    """One forward without a cache for each pair."""
    found = torch.zeros(len(contexts), len(answers))
    with torch.no_grad():
        for i, context in enumerate(contexts):
            for j, answer in enumerate(answers):
                ids = torch.tensor([[*context, *answer]])
                logprobs = model(input_ids=ids).logits[0].float().log_softmax(-1)
                for place, token in enumerate(answer, start=len(context)):
                    found[i, j] += logprobs[place - 1, token]
    return found


@pytest.mark.parametrize("name", MODELS)
def test_the_tree_equals_plain_forwards(name: str):
    model = model_of(name)
    assert lean_decoder.supports(model) == (name == "lean")
    order = [3, 0, 23, 11, 11, 5, 17, 1, 2, 3]
    contexts = [CONTEXTS[i] for i in order]
    found = answer_logprobs(model, contexts, ANSWERS)
    torch.testing.assert_close(
        found, plain(model, contexts, ANSWERS), atol=1e-4, rtol=0
    )


@pytest.mark.parametrize(
    "bounds",
    [
        {"max_batch_rows": 1},
        {"max_batch_rows": 5},
        {"max_batch_tokens": 1},
        {"max_batch_tokens": 90},
        {},
    ],
)
def test_bounds_change_no_answer(bounds: dict[str, int]):
    model = model_of("lean")
    found = answer_logprobs(model, CONTEXTS, ANSWERS, **bounds)
    expected = plain(model, CONTEXTS, ANSWERS)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_all_answers_of_two_tokens_have_probability_one():
    model = model_of("lean")
    answers = [(a, b) for a in range(104) for b in range(104)]
    found = answer_logprobs(model, CONTEXTS[:3], answers).double().exp().sum(1)
    torch.testing.assert_close(found, torch.ones(3).double(), atol=1e-5, rtol=0)


def test_inner_levels_hold_each_common_beginning_once():
    assert inner_levels(ANSWERS) == [
        [()],
        [(10,), (11,)],
        [(10, 20), (10, 21), (11, 20)],
    ]
    assert inner_levels([(5,), (6,)]) == [[()]]


def test_the_result_is_a_plain_tensor_and_modes_come_back():
    model = model_of("lean").train()
    found = answer_logprobs(model, CONTEXTS[:2], ANSWERS)
    assert not found.requires_grad
    assert not found.is_inference()
    assert model.training
    assert all(p.grad is None for p in model.parameters())


def test_no_context_has_no_answer():
    assert answer_logprobs(model_of("lean"), [], ANSWERS).shape == (0, 6)


@pytest.mark.parametrize(
    ("contexts", "answers", "bounds", "message"),
    [
        ([(1,)], [], {}, "must be an answer"),
        ([(1,)], [(1,), ()], {}, "each must hold a token"),
        ([(1,), ()], [(1,)], {}, "context 1 must hold a token"),
        ([(1,)], [(1,)], {"max_batch_rows": 0}, "max_batch_rows must be >= 1"),
        ([(1,)], [(1,)], {"max_batch_tokens": 0}, "must be >= 1, got 0"),
    ],
)
def test_what_cannot_be_asked_is_refused(contexts, answers, bounds, message: str):
    with pytest.raises(ValueError, match=message):
        answer_logprobs(model_of("lean"), contexts, answers, **bounds)
