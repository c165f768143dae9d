"""Supports, log-probs and draws, by hand and by property."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.engines.local.sampling import (
    BLOCK,
    Uniforms,
    inverse_cdf,
    sampled_tokens,
    support_logits,
)
from accredit.randomness import generator
from accredit.types import Sampling

CPU = torch.device("cpu")


def logprobs_of(logits: list[float], sampling: Sampling) -> torch.Tensor:
    return support_logits(torch.tensor([logits]), sampling).log_softmax(-1)[0]


@pytest.mark.parametrize(
    ("temperature", "expected"),
    [
        (1.0, [-0.407606, -1.407606, -2.407606]),
        (0.5, [-0.142932, -2.142932, -4.142932]),
        (0.6, [-0.202573, -1.86924, -3.535906]),
    ],
)
def test_p13_logprobs_are_at_the_sampling_temperature(temperature, expected):
    """Cases P13, B063: the sampler's log-probs are of what it drew from."""
    logits = torch.tensor([[2.0, 1.0, 0.0]] * 3)
    # Cumulative probabilities at the three temperatures all part .05, .95 and .9999.
    uniforms = torch.tensor([[0.05], [0.95], [0.9999]], dtype=torch.float64)
    tokens, logprobs = sampled_tokens(
        logits, uniforms, Sampling(temperature=temperature)
    )
    assert tokens.tolist() == [0, 2 if temperature == 1 else 1, 2]
    by_hand = torch.tensor(expected)[tokens]
    torch.testing.assert_close(logprobs, by_hand, atol=1e-5, rtol=0)


def test_b064_the_logprob_is_the_sampled_tokens_own():
    """Case B064: not the most likely token's."""
    logits = torch.tensor([[0.0, 3.5]])
    uniforms = torch.tensor([[0.0]], dtype=torch.float64)
    tokens, logprobs = sampled_tokens(logits, uniforms, Sampling())
    assert tokens.tolist() == [0]
    # -ln(1 + e^3.5)
    assert logprobs.item() == pytest.approx(-3.529751, abs=1e-5)


def test_greedy_takes_the_largest_logit_and_its_logprob_at_temperature_one():
    logits = torch.tensor([[1.0, 2.0, 0.0]])
    uniforms = torch.tensor([[0.999]], dtype=torch.float64)
    greedy = Sampling(temperature=0.0, top_k=1, top_p=0.5)
    tokens, logprobs = sampled_tokens(logits, uniforms, greedy)
    assert tokens.tolist() == [1]
    assert logprobs.item() == pytest.approx(-0.407606, abs=1e-5)


def test_top_k_renormalises_over_its_support():
    # e^2 / (e^2 + e^1) = 1 / (1 + e^-1) = .731059
    expected = torch.tensor([0.268941, 0.731059, 0.0])
    got = logprobs_of([1.0, 2.0, 0.0], Sampling(top_k=2)).exp()
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


def test_top_k_keeps_ties_and_a_large_k_keeps_all():
    assert logprobs_of([1.0, 1.0, 0.0], Sampling(top_k=1)).exp().tolist() == [
        0.5,
        0.5,
        0.0,
    ]
    assert logprobs_of([1.0, 1.0, 0.0], Sampling(top_k=9)).isfinite().all()


def test_top_p_keeps_the_fewest_tokens_that_hold_the_mass():
    logits = torch.tensor([0.5, 0.2, 0.3]).log().tolist()
    # .5 < .6 <= .5 + .3: two tokens, .5 / .8 and .3 / .8.
    got = logprobs_of(logits, Sampling(top_p=0.6)).exp()
    torch.testing.assert_close(got, torch.tensor([0.625, 0.0, 0.375]))
    # The first alone holds .5 >= .4; and at least one stays whatever top_p is.
    assert logprobs_of(logits, Sampling(top_p=0.4)).exp().tolist() == [1, 0, 0]
    assert logprobs_of(logits, Sampling(top_p=1e-9)).exp().tolist() == [1, 0, 0]


def test_top_p_comes_after_temperature_and_top_k():
    logits = torch.tensor([0.5, 0.2, 0.3]).log().tolist()
    # Squared by T = .5: .25, .04, .09 -> top-2 .25, .09 -> .735, .265 -> first only.
    both = Sampling(temperature=0.5, top_k=2, top_p=0.7)
    assert logprobs_of(logits, both).exp().tolist() == [1, 0, 0]
    assert logprobs_of(logits, Sampling(top_p=0.7)).exp().gt(0).sum() == 2


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(st.floats(-60, 60), st.just(-torch.inf)), min_size=1, max_size=40
    ).filter(lambda logits: max(logits) > -torch.inf),
    st.one_of(
        st.floats(0, 1, exclude_max=True),
        st.sampled_from([0.0, 1 - 2**-53, 1 - 2**-24, 2**-1074]),
    ),
    st.sampled_from(
        [Sampling(), Sampling(2.0, 0.9, 3), Sampling(0.3, 0.5), Sampling(0.0)]
    ),
)
def test_a_draw_always_has_positive_probability(logits, uniform, sampling):
    row = torch.tensor([logits])
    tokens, logprobs = sampled_tokens(
        row, torch.tensor([[uniform]], dtype=torch.float64), sampling
    )
    reference = support_logits(row, sampling).log_softmax(-1)[0]
    assert logprobs.item() == reference[tokens.item()]
    assert logprobs.item() > -torch.inf


def test_the_largest_uniform_never_passes_the_end_of_the_cdf():
    # The last tokens have probability 0 and must not be reached by rounding, whatever
    # the total is: 300 totals, most of them not representable exactly.
    scales = torch.linspace(0.5, 2.0, 300)[:, None]
    probabilities = scales * torch.tensor([[0.1] * 9 + [0.0, 0.0]])
    uniforms = torch.full((300, 1), 1 - 2**-53, dtype=torch.float64)
    assert inverse_cdf(probabilities, uniforms).unique().tolist() == [8]
    # The first token has probability 0 and must not be reached by u = 0.
    probabilities = torch.tensor([[0.0, 0.4, 0.6]])
    assert inverse_cdf(probabilities, uniforms[:1] * 0).tolist() == [[1]]


def test_draws_follow_the_distribution():
    probabilities = torch.tensor([0.1, 0.0, 0.6, 0.3])
    grid = (torch.arange(1000, dtype=torch.float64)[:, None] + 0.5) / 1000
    tokens = inverse_cdf(probabilities.expand(1000, -1), grid)
    assert tokens.flatten().bincount(minlength=4).tolist() == [100, 0, 600, 300]


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(0.0), Sampling(top_k=2), Sampling(top_p=0.9)]
)
def test_b068_broken_logits_give_nan_and_a_valid_index(broken, sampling):
    """Case B068: a NaN log-prob marks the row, and its neighbour is not touched."""
    logits = torch.tensor([[0.0, broken, 1.0], [0.0, 50.0, 1.0]])
    uniforms = torch.tensor([[0.5], [0.5]], dtype=torch.float64)
    tokens, logprobs = sampled_tokens(logits, uniforms, sampling)
    assert logprobs[0].isnan()
    assert 0 <= tokens[0] < 3
    assert tokens[1] == 1
    assert logprobs[1] == 0


def test_logits_without_any_support_give_nan():
    logits = torch.full((1, 3), -torch.inf)
    uniforms = torch.tensor([[0.5]], dtype=torch.float64)
    assert sampled_tokens(logits, uniforms, Sampling())[1].isnan().all()


def test_bfloat16_logits_are_normalised_in_float32():
    """Case B069: the log-softmax never runs in the model's type."""
    logits = torch.tensor([[20.0, 19.5, 10.0]], dtype=torch.bfloat16)
    uniforms = torch.tensor([[0.1]], dtype=torch.float64)
    _, logprobs = sampled_tokens(logits, uniforms, Sampling())
    # -ln(1 + e^-.5 + e^-10)
    assert logprobs.dtype == torch.float32
    assert logprobs.item() == pytest.approx(-0.474105, abs=1e-5)


def test_uniforms_are_the_requests_own_stream_across_blocks_and_selections():
    num = BLOCK + 7
    streams = {key: generator(key).random(2 * num) for key in (3, 8, 21)}
    uniforms = Uniforms([3, 8, 21], CPU)
    for step in range(num):
        numbers = uniforms.draw()[:, 0].tolist()
        assert numbers == [streams[key][step] for key in (3, 8, 21)]
    uniforms.select(torch.tensor([2, 0]))
    for step in range(num, 2 * num):
        numbers = uniforms.draw()[:, 0].tolist()
        assert numbers == [streams[21][step], streams[3][step]]
