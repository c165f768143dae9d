"""Engine, learner and the model's own forward agree, whatever the architecture does.

Each model is tried as it is drawn, with weights scaled up until what saturates does,
and after updates; in rows of one length and of several, on both sides of the lengths
that its configuration names; under more than one memory knob.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from accredit.engines.local.answers import answer_logprobs
from accredit.engines.local.engine import TransformersEngine
from accredit.engines.local.module_decoder import evaluation_mode
from accredit.models.forward import read, scores_by_head, without_dropout
from accredit.models.positions import limit_note, row_limit, thresholds
from accredit.models.scorer import Scorer
from accredit.types import Request, Sampling
from tiny_models import decoder_settings, seeded

VOCAB = 64
SMALL = decoder_settings(VOCAB) | {
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "tie_word_embeddings": False,
}
FACTORS = {"short_factor": [1.0] * 4, "long_factor": [4.0, 3.0, 2.0, 9.0]}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "original_max_position_embeddings": 12,
    **FACTORS,
}
OLDER = {"vocab_size": VOCAB, "hidden_size": 16, "initializer_range": 0.3}
GPT2 = {"vocab_size": VOCAB, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
WINDOW = {"sliding_window": 6, "layer_types": ["sliding_attention", "full_attention"]}
LLAMA4 = {
    "attn_temperature_tuning": True,
    "floor_scale": 4,
    "attn_scale": 0.9,
    "no_rope_layers": [1, 0],
    "num_local_experts": 2,
    "interleave_moe_layer_step": 1,
    "intermediate_size_mlp": 24,
    "attention_chunk_size": 8,
}
BETA = {
    "rope_type": "default",
    "rope_theta": 1e4,
    "llama_4_scaling_beta": 0.7,
    "original_max_position_embeddings": 7,
}
MODELS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "llama": ("Llama", SMALL, True),
    "a head that begins at 0": ("Llama", SMALL | {"zero": True}, True),
    "soft-capped logits": ("Gemma2", SMALL | WINDOW, False),
    "soft caps and a head at 0": ("Gemma2", SMALL | WINDOW | {"zero": True}, False),
    "divided logits": ("Granite", SMALL | {"logits_scaling": 7.0}, False),
    "logits divided by 1": ("Granite", SMALL | {"logits_scaling": 1.0}, True),
    "multiplied logits": ("Cohere", SMALL | {"logit_scale": 0.0625}, False),
    "longrope": (
        "Phi3",
        SMALL | {"original_max_position_embeddings": 12, "rope_parameters": LONGROPE},
        True,
    ),
    "dynamic NTK": (
        "Llama",
        SMALL
        | {"max_position_embeddings": 14}
        | {
            "rope_parameters": {
                "rope_type": "dynamic",
                "factor": 4.0,
                "rope_theta": 1e4,
            }
        },
        True,
    ),
    "yarn": (
        "Llama",
        SMALL
        | {
            "rope_parameters": {
                "rope_type": "yarn",
                "factor": 4.0,
                "rope_theta": 1e4,
                "original_max_position_embeddings": 8,
            }
        },
        True,
    ),
    "sliding window": ("Mistral", SMALL | {"sliding_window": 5}, True),
    "attention's temperature by position": (
        "Ministral3",
        SMALL | {"rope_parameters": BETA},
        True,
    ),
    "attention's temperature by column": ("Llama4", SMALL | LLAMA4, False),
    "positions with an offset": (
        "OPT",
        OLDER
        | {
            "ffn_dim": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "max_position_embeddings": 64,
            "word_embed_proj_dim": 16,
            "init_std": 0.3,
        },
        True,
    ),
    "ALiBi": ("Bloom", OLDER | {"n_layer": 2, "n_head": 2}, True),
    "learned positions": ("GPT2", GPT2 | {"initializer_range": 0.3}, True),
}
KINDS = {"Gemma2": "Gemma2", "Llama4": "Llama4Text"}
PROMPTS = [tuple(range(20, 29)), (30,), (31, 40, 55), tuple(range(40, 53)), (7, 9, 11)]


def built(name: str) -> Any:
    """The model of that name, in evaluation mode."""
    family, settings, _ = MODELS[name]
    settings = dict(settings)
    zero = settings.pop("zero", False)
    head = "GPT2LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM"
    config = getattr(transformers, f"{KINDS.get(family, family)}Config")
    transformers.logging.set_verbosity_error()
    model = seeded(getattr(transformers, head), config(**settings), 3)
    with torch.no_grad():
        for key, weight in model.named_parameters():
            # Attention that minds where a token stands.
            weight.mul_(20.0 if "q_proj" in key else 1.0)
        if zero:
            model.get_output_embeddings().weight.zero_()
    return without_dropout(model.float())


def own(model: Any, ids: tuple[int, ...], start: int, temperature: float) -> Tensor:
    """Log-probs of the tokens from `start` on, each by one forward of its prefix."""
    found: list[Tensor] = []
    for end in range(start, len(ids)):
        logits = model(input_ids=torch.tensor([ids[:end]]), use_cache=False).logits
        found.append((logits[0, -1] / temperature).log_softmax(-1)[ids[end]])
    return torch.stack(found)


def assert_all_agree(model: Any, scorer: Scorer, rows: int) -> None:
    """Engine, learner and own forward, at a temperature other than 1."""
    engine = TransformersEngine(model, (), max_batch_rows=rows)
    requests = [Request(ids, 9, key) for key, ids in enumerate(PROMPTS)]
    sampling = Sampling(temperature=0.7)
    found = engine.generate(requests, sampling)
    texts = [(*p, *f.token_ids) for p, f in zip(PROMPTS, found, strict=True)]
    width = max(map(len, texts))
    token_ids = torch.zeros((len(texts), width), dtype=torch.long)
    wanted = torch.zeros((len(texts), width), dtype=torch.bool)
    for row, (prompt, text) in enumerate(zip(PROMPTS, texts, strict=True)):
        token_ids[row, : len(text)] = torch.tensor(text)
        wanted[row, len(prompt) : len(text)] = True
    learned = scorer.wanted_logprobs(token_ids, wanted)
    with evaluation_mode(model):
        for row, (prompt, text) in enumerate(zip(PROMPTS, texts, strict=True)):
            if len(text) == len(prompt):
                continue
            expected = own(model, text, len(prompt), 0.7)
            sampled = torch.tensor(found[row].logprobs)
            torch.testing.assert_close(sampled, expected, atol=2e-4, rtol=2e-4)
            mine = learned[row, len(prompt) : len(text)]
            torch.testing.assert_close(mine, expected, atol=2e-4, rtol=2e-4)


def moved(model: Any) -> None:
    """A few updates by whatever gradient there is."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    ids = torch.randint(0, VOCAB, (4, 9), generator=torch.Generator().manual_seed(0))
    for _ in range(3):
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@contextmanager
def scaled(model: Any, factor: float) -> Iterator[None]:
    """The output head's weights times `factor` while the block runs."""
    head: Any = model.get_output_embeddings()
    weight = head.weight
    before = weight.detach().clone()
    with torch.no_grad():
        weight.mul_(factor)
        yield
        weight.copy_(before)


@pytest.mark.parametrize("name", MODELS)
def test_engine_learner_and_the_models_own_forward_agree(name: str):
    model = built(name)
    reading = read(model)
    assert reading.short_head == MODELS[name][2]
    assert reading.unpadded
    assert bool(reading.notes) == (not reading.short_head)
    scorers = [Scorer(model, reading.scoring, size, 0.7) for size in (1, 4096)]
    assert_all_agree(model, scorers[0], 1)
    assert_all_agree(model, scorers[1], 8)
    with scaled(model, 30.0):
        assert_all_agree(model, scorers[1], 8)
    moved(model)
    assert reading.and_now(model) == reading
    assert_all_agree(model, scorers[1], 8)
    again = TransformersEngine(model, ())
    assert again.generate([Request((1, 2), 4, 0)], Sampling())


@pytest.mark.parametrize("name", ["attention's temperature by column", "longrope"])
def test_answers_are_scored_alike_beside_longer_contexts(name: str):
    model = built(name)
    contexts, answers = [(5,) * 9, (6, 7), (8, 9, 10)], [(1,), (2, 3)]
    found = answer_logprobs(model, contexts, answers)
    with evaluation_mode(model):
        for row, context in enumerate(contexts):
            for column, answer in enumerate(answers):
                expected = own(model, (*context, *answer), len(context), 1.0).sum()
                torch.testing.assert_close(
                    found[row, column], expected, atol=1e-4, rtol=1e-4
                )


LIMITS = {"longrope": 12, "dynamic NTK": 14, "yarn": 512, "ALiBi": None}


@pytest.mark.parametrize("name", LIMITS)
def test_rows_end_where_prefixes_would_be_rewritten(name: str):
    """Beyond it the same prefix has another log-prob in a longer row: no batch, cache
    or forward could agree with another."""
    model, limit = built(name), LIMITS[name]
    assert row_limit(model.config) == limit
    completions = TransformersEngine(model, ()).generate(
        [Request((5, 6), 40, 0)], Sampling()
    )
    lengths = [2 + len(found.token_ids) for found in completions]
    assert lengths == [min(42, limit or 42)]
    if limit is None or limit > 100:
        return
    scorer = Scorer(model, scores_by_head, 4096, 1.0)
    ids = torch.zeros((1, limit + 1), dtype=torch.long)
    with pytest.raises(ValueError, match=f"rows must fit the {limit} positions"):
        scorer.wanted_logprobs(ids, torch.ones_like(ids, dtype=torch.bool))
    with evaluation_mode(model):
        row = torch.arange(3 * limit)[None] % VOCAB
        # In this order: dynamic frequencies stay those of the longest row so far.
        short = model(input_ids=row[:, :limit], use_cache=False).logits[0]
        long = model(input_ids=row, use_cache=False).logits[0, :limit]
    assert not torch.allclose(long, short, atol=1e-3)
    if name == "longrope":
        assert "rows end at 12 of the model's 512 positions" in str(
            limit_note(model.config)
        )


class Named:
    """A configuration that says a few things."""

    def __init__(self, **said: Any) -> None:
        vars(self).update(said)


@pytest.mark.parametrize(
    ("said", "limit", "crossed"),
    [
        ({}, None, []),
        ({"n_positions": 40, "window_size": [8, None]}, 40, [8]),
        ({"max_seq_len": 30, "sliding_window": 0}, 30, []),
        ({"sliding_window": 9, "attention_chunk_size": 4}, None, [4, 9]),
        (
            {"max_position_embeddings": 99, "rope_scaling": {"type": "longrope"}}
            | {"original_max_position_embeddings": 50},
            50,
            [50],
        ),
        (
            {"max_position_embeddings": 99, "rope_parameters": {"full": LONGROPE}},
            12,
            [12],
        ),
        ({"max_position_embeddings": "many", "sliding_window": True}, None, []),
        ({"max_position_embeddings": 9, "rope_parameters": None}, 9, []),
        ({"max_position_embeddings": 9, "rope_parameters": [1]}, 9, []),
    ],
)
def test_a_configuration_is_read_by_its_keys(said, limit, crossed):
    assert row_limit(Named(**said)) == limit
    assert thresholds(Named(**said)) == crossed


def test_layers_that_begin_at_0_are_seen_once_they_say_something(monkeypatch):
    """What reads ahead says nothing at first, and is refused after the first update."""
    model = built("llama")
    honest = model.model.forward
    strength = torch.zeros(())

    def ahead(*positional: Any, **named: Any) -> Any:
        found = honest(*positional, **named)
        hidden = found.last_hidden_state
        found.last_hidden_state = hidden + strength * hidden.flip(1)
        return found

    monkeypatch.setattr(model.model, "forward", ahead)
    reading = read(model)
    assert reading.scoring is scores_by_head
    strength.fill_(0.5)
    with pytest.raises(RuntimeError, match=r"after its first updates a policy must be"):
        reading.and_now(model)


def test_rows_that_see_one_another_are_scored_one_by_one(monkeypatch):
    """Slower and right: a batch's statistics change a row, its own prefix does not."""
    model = built("llama")
    honest = model.model.forward

    def crowded(*positional: Any, **named: Any) -> Any:
        found = honest(*positional, **named)
        found.last_hidden_state = found.last_hidden_state * len(named["input_ids"])
        return found

    monkeypatch.setattr(model.model, "forward", crowded)
    reading = read(model)
    assert not reading.unpadded and "one by one" in reading.notes[0]
    ids = torch.tensor([[3, 4, 5, 6], [7, 8, 9, 0]])
    wanted = torch.tensor([[False, True, True, True], [False, True, True, False]])
    found = reading.scoring(model, ids, wanted, 1.0)
    for row, length in enumerate((4, 3)):
        logits = model(input_ids=ids[row : row + 1, :length]).logits[0]
        expected = logits[:-1].log_softmax(-1)
        expected = expected.gather(1, ids[row, 1:length, None])[:, 0]
        torch.testing.assert_close(found.logprobs[row, 1:length], expected)
    assert math.isclose(float(found.logprobs[1, 3].detach()), 0.0)
