"""FLOP ledgers: the paper's figures for Qwen3-4B, and identities between ledgers."""

import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.functional.flops import (
    ModelShape,
    decode_coefficients,
    decode_flops,
    forward_flops,
    gpu_hours,
    prefill_flops,
    training_flops,
)

QWEN3_4B = ModelShape(
    num_layers=36,
    hidden=2560,
    feed_forward=9728,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    vocab=151_936,
)
# By hand: queries and outputs 2*3*10, keys and values 2*3*5,
# feed-forward 3*3*7 in each of 2 layers; logits 3*11.
SMALL = ModelShape(2, 3, 7, 2, 1, 5, 11)
SMALL_A = 2 * (2 * (60 + 30 + 63) + 33)
SMALL_B = 4 * 2 * 2 * 5


def test_qwen3_4b_reproduces_the_paper():
    assert decode_coefficients(QWEN3_4B) == (8_044_544_000, 589_824)
    assert decode_flops(QWEN3_4B, 300, 50_000) == pytest.approx(1.148e15, rel=5e-4)


def test_qwen3_4b_by_its_parts():
    """The parts that AC2 names: projections, gated feed-forward, logits."""
    assert QWEN3_4B.attention_parameters == 36 * (2 * 2560 * 4096 + 2 * 2560 * 1024)
    assert QWEN3_4B.layer_parameters == 36 * (26_214_400 + 3 * 2560 * 9728)
    assert QWEN3_4B.logit_parameters == 2560 * 151_936
    # m = 49,999: A m + B (m p + m (m + 1) / 2).
    expected = 8_044_544_000 * 49_999 + 589_824 * (49_999 * 300 + 49_999 * 25_000)
    assert decode_flops(QWEN3_4B, 300, 50_000) == expected


def test_small_model_by_hand():
    assert decode_coefficients(SMALL) == (SMALL_A, SMALL_B)
    # p = 10, n = 4: three tokens with contexts 11, 12, 13
    assert decode_flops(SMALL, 10, 4) == 3 * SMALL_A + SMALL_B * (11 + 12 + 13)
    # four tokens with contexts 1..4, logits once
    layers = SMALL_A - 2 * 33
    assert prefill_flops(SMALL, 4) == 4 * layers + 66 + SMALL_B * 10
    # the last two of them, contexts 3 and 4
    assert prefill_flops(SMALL, 4, 2) == 2 * layers + 66 + SMALL_B * 7
    assert forward_flops(SMALL, 4) == 4 * SMALL_A + SMALL_B * 10


def test_the_first_new_token_is_the_prefills():
    for num_new in (0, 1):
        assert decode_flops(SMALL, 10, num_new) == 0
    assert decode_flops(SMALL, 10, 2) == SMALL_A + 11 * SMALL_B


@given(st.integers(1, 50), st.integers(1, 50))
def test_prefill_and_decode_make_one_forward_pass(num_prefix, num_new):
    """All tokens but the last are read; logits are made once per new token."""
    together = prefill_flops(SMALL, num_prefix) + decode_flops(
        SMALL, num_prefix, num_new
    )
    skipped_logits = 66 * (num_prefix - 1)
    assert together + skipped_logits == forward_flops(SMALL, num_prefix + num_new - 1)


@given(st.integers(0, 50), st.integers(0, 50))
def test_a_cached_prefix_is_not_paid_twice(num_cached, num_rest):
    total = num_cached + num_rest
    whole = prefill_flops(SMALL, total)
    rest = prefill_flops(SMALL, total, num_cached)
    if num_rest and num_cached:
        assert prefill_flops(SMALL, num_cached) + rest == whole + 66
    assert prefill_flops(SMALL, total, total) == 0


def test_chunked_decoding_costs_as_much_as_one_request():
    """Continuing from a cached prefix: the last token is read by the next request."""
    whole = decode_flops(SMALL, 10, 9)
    first, second = decode_flops(SMALL, 10, 4), decode_flops(SMALL, 14, 5)
    boundary = SMALL_A + 14 * SMALL_B
    assert first + boundary + second == whole


def test_training_pays_twice_for_the_backward_pass():
    one_pass = forward_flops(SMALL, 4) + forward_flops(SMALL, 6)
    assert training_flops(SMALL, [4, 6], 10, 0) == pytest.approx(one_pass)
    assert training_flops(SMALL, [4, 6], 20, 10) == pytest.approx(4 * one_pass)
    assert training_flops(SMALL, [], 0, 0) == 0


def test_frozen_entries_have_no_gradient_of_their_own():
    """One of two products of the backward pass, two operations an entry and token."""
    whole = training_flops(SMALL, [4, 6], 20, 10)
    attention = 2 * (60 + 30)
    assert SMALL.attention_parameters == attention
    assert SMALL.layer_parameters == attention + 2 * 63
    frozen = training_flops(SMALL, [4, 6], 20, 10, attention)
    assert whole - frozen == pytest.approx(2 * attention * 10)
    assert training_flops(SMALL, [4, 6], 10, 0, attention) == training_flops(
        SMALL, [4, 6], 10, 0
    )
    # Everything frozen: the matrices' backward pass is their forward's price.
    everything = training_flops(SMALL, [4, 6], 0, 10, SMALL_A // 2)
    scores = SMALL_B * (10 + 21)
    assert everything == pytest.approx(10 * SMALL_A + 2 * scores)


def test_gpu_hours_by_hand():
    """At 1,000 FLOPs a second, a fifth and a half of them reached."""
    rates = {
        "peak_flops_per_s": 1000.0,
        "decode_utilisation": 0.2,
        "other_utilisation": 0.5,
    }
    # 200 a second for 1,440,000: two hours; 500 a second for 5,400,000: three.
    assert gpu_hours(1_440_000.0, 0.0, **rates) == pytest.approx(2.0)
    assert gpu_hours(0.0, 5_400_000.0, **rates) == pytest.approx(3.0)
    assert gpu_hours(1_440_000.0, 5_400_000.0, **rates) == pytest.approx(5.0)
    assert gpu_hours(0.0, 0.0, **rates) == 0.0


def test_by_default_decoding_reaches_a_tenth_of_an_h100():
    """GRPO's 1.99e20 decode FLOPs at 98.9 TFLOP/s, and as much at 395.6."""
    decoding = 1.99e20 / 98.9e12 / 3600
    assert decoding == pytest.approx(559, abs=0.5)
    assert gpu_hours(1.99e20, 0.0) == pytest.approx(decoding)
    assert gpu_hours(0.0, 1.99e20) == pytest.approx(decoding / 4)


@pytest.mark.parametrize(
    ("name", "number", "message"),
    [
        ("decode_flops", -1.0, "decode_flops must be finite and >= 0, got -1.0"),
        ("other_flops", math.inf, "other_flops must be finite and >= 0, got inf"),
        ("other_flops", math.nan, "other_flops must be finite and >= 0, got nan"),
        ("peak_flops_per_s", 0.0, "peak_flops_per_s must be finite and > 0, got 0.0"),
        ("peak_flops_per_s", math.inf, "peak_flops_per_s must be finite and > 0"),
        ("decode_utilisation", 0.0, r"decode_utilisation must be in \(0, 1\], got 0"),
        ("decode_utilisation", 1.1, r"decode_utilisation must be in \(0, 1\], got 1.1"),
        ("other_utilisation", -0.4, r"other_utilisation must be in \(0, 1\], got -0.4"),
    ],
)
def test_gpu_hours_of_what_cannot_be_are_refused(name, number, message):
    arguments = {"decode_flops": 1.0, "other_flops": 1.0} | {name: number}
    with pytest.raises(ValueError, match=message):
        gpu_hours(**arguments)


def test_all_of_the_peak_is_reached_by_whom_it_is_said():
    hours = gpu_hours(
        3600.0,
        0.0,
        peak_flops_per_s=1.0,
        decode_utilisation=1.0,
        other_utilisation=1.0,
    )
    assert hours == 1.0


def config(**changes):
    fields = {
        "num_hidden_layers": 36,
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151_936,
    }
    return SimpleNamespace(**{**fields, **changes})


def test_shape_is_read_from_a_configuration():
    assert ModelShape.from_config(config()) == QWEN3_4B
    nested = SimpleNamespace(text_config=config(), hidden_size=1)
    assert ModelShape.from_config(nested) == QWEN3_4B


def test_missing_heads_have_stand_ins():
    found = ModelShape.from_config(config(num_key_value_heads=None, head_dim=None))
    assert found.num_kv_heads == 32
    assert found.head_dim == 80


def test_experts_count_as_those_that_are_active():
    found = ModelShape.from_config(
        config(
            num_experts_per_tok=8,
            moe_intermediate_size=512,
            shared_expert_intermediate_size=100,
        )
    )
    assert found.feed_forward == 8 * 512 + 100


@pytest.mark.parametrize(
    "name",
    [
        "num_hidden_layers",
        "hidden_size",
        "num_attention_heads",
        "vocab_size",
    ],
)
def test_a_configuration_that_lacks_a_size_is_refused_by_name(name):
    with pytest.raises(ValueError, match=f"must have '{name}' to count its FLOPs"):
        ModelShape.from_config(config(**{name: None}))


@pytest.mark.parametrize(
    ("widths", "feed_forward"),
    [
        ({"intermediate_size": None, "ffn_dim": 11}, 11),
        ({"intermediate_size": None, "ffn_hidden_size": 12}, 12),
        ({"intermediate_size": None, "n_inner": 13}, 13),
        ({"num_experts_per_tok": 2}, 2),
        ({"num_experts_per_tok": 2, "moe_intermediate_size": 5}, 10),
        (
            {
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 5,
                "n_shared_experts": 1,
            },
            15,
        ),
    ],
)
def test_the_inner_width_is_read_under_its_many_names(widths, feed_forward):
    given = config(**widths)
    if widths == {"num_experts_per_tok": 2}:
        feed_forward *= config().intermediate_size
    assert ModelShape.from_config(given).feed_forward == feed_forward


def test_a_model_without_an_inner_width_has_four_hidden():
    given = config(intermediate_size=None)
    assert ModelShape.from_config(given).feed_forward == 4 * given.hidden_size


def test_shape_and_counts_must_make_sense():
    with pytest.raises(ValueError, match="vocab of a model must be at least 1, got 0"):
        ModelShape(2, 3, 7, 2, 1, 5, 0)
    with pytest.raises(ValueError, match="num_new must be >= 0, got -1"):
        decode_flops(SMALL, 3, -1)
    with pytest.raises(ValueError, match="num_prefix must be >= 0, got -3"):
        decode_flops(SMALL, -3, 1)
    with pytest.raises(ValueError, match=r"num_cached must not exceed .* got 5 of 4"):
        prefill_flops(SMALL, 4, 5)
    with pytest.raises(ValueError, match="num_tokens must be >= 0, got -1"):
        prefill_flops(SMALL, -1)
    with pytest.raises(ValueError, match="length must be >= 0, got -1"):
        forward_flops(SMALL, -1)
    with pytest.raises(ValueError, match="num_backward_tokens must be >= 0, got -1"):
        training_flops(SMALL, [1], 1, -1)
    with pytest.raises(ValueError, match="num_frozen must be >= 0, got -1"):
        training_flops(SMALL, [1], 1, 1, -1)
    with pytest.raises(ValueError, match="num_frozen must not exceed the 339 matrix"):
        training_flops(SMALL, [1], 1, 1, 340)
