"""FLOP ledgers: the paper's figures for Qwen3-4B, and identities between ledgers."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.functional.flops import (
    ModelShape,
    decode_coefficients,
    decode_flops,
    forward_flops,
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
    """Continuing from a cached prefix: the border token is read by the next request."""
    whole = decode_flops(SMALL, 10, 9)
    first, second = decode_flops(SMALL, 10, 4), decode_flops(SMALL, 14, 5)
    border = SMALL_A + 14 * SMALL_B
    assert first + border + second == whole


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
