"""Engine-trainer corrections: closed forms for each scope and bound, case B065."""

import math

import pytest
import torch

from accredit.functional.corrections import (
    geometric_masked_importance,
    geometric_truncated_importance,
    masked_importance,
    sequence_masked_importance,
    sequence_truncated_importance,
    truncated_importance,
)

F64 = torch.float64
NAN, INF = float("nan"), float("inf")
TRUNCATED = [
    truncated_importance,
    sequence_truncated_importance,
    geometric_truncated_importance,
]
MASKED = [masked_importance, sequence_masked_importance, geometric_masked_importance]

# Ratios 1.5, 2.5, .8 and an unsampled slot: product 3, geometric mean 3 ** (1/3).
RATIOS = (1.5, 2.5, 0.8)
MEAN = 3 ** (1 / 3)


def arguments(*ratios, junk=0.0):
    """Log-probs with these ratios and one unsampled slot that holds junk."""
    sampling = torch.full((1, len(ratios) + 1), -2.0, dtype=F64)
    old = sampling + torch.tensor([[*map(math.log, ratios), junk]], dtype=F64)
    sampled = torch.tensor([[True] * len(ratios) + [False]])
    return old, sampling, sampled


def row(*numbers):
    return torch.tensor([numbers], dtype=F64)


def test_truncated_weights_are_cut_at_the_cap():
    given = arguments(*RATIOS)
    torch.testing.assert_close(truncated_importance(*given), row(1.5, 2, 0.8, 0))
    torch.testing.assert_close(
        truncated_importance(*given, cap=1.2), row(1.2, 1.2, 0.8, 0)
    )
    torch.testing.assert_close(sequence_truncated_importance(*given), row(2, 2, 2, 0))
    torch.testing.assert_close(
        sequence_truncated_importance(*given, cap=5.0), row(3, 3, 3, 0)
    )
    torch.testing.assert_close(
        geometric_truncated_importance(*given), row(MEAN, MEAN, MEAN, 0)
    )
    torch.testing.assert_close(
        geometric_truncated_importance(*given, cap=1.1), row(1.1, 1.1, 1.1, 0)
    )


def test_masked_weights_are_rejected_outside_the_range():
    given = arguments(*RATIOS)

    def weights(function, low, high):
        return function(*given, accept_low=low, accept_high=high)

    torch.testing.assert_close(weights(masked_importance, 0.9, 2.0), row(1.5, 0, 0, 0))
    torch.testing.assert_close(
        weights(sequence_masked_importance, 0.5, 4.0), row(3, 3, 3, 0)
    )
    assert not weights(sequence_masked_importance, 0.5, 2.9).any()
    assert not weights(sequence_masked_importance, 3.1, 4.0).any()
    torch.testing.assert_close(
        weights(geometric_masked_importance, 0.5, 2.0), row(MEAN, MEAN, MEAN, 0)
    )
    assert not weights(geometric_masked_importance, 0.5, 1.4).any()
    assert not weights(geometric_masked_importance, 1.5, 2.0).any()


def test_masked_range_includes_its_bounds():
    for low, high in ((1.0, 2.0), (0.5, 1.0)):
        found = masked_importance(*arguments(1.0), accept_low=low, accept_high=high)
        assert found.tolist() == [[1, 0]]


def test_rows_have_their_own_sequence_ratio():
    old = torch.tensor([[-1.0, -1.0], [-3.0, -2.0]], dtype=F64)
    sampling = torch.tensor([[-1.1, -1.3], [-2.0, -2.5]], dtype=F64)
    sampled = torch.ones(2, 2, dtype=torch.bool)
    found = sequence_truncated_importance(old, sampling, sampled, cap=9.0)
    torch.testing.assert_close(found[:, 0], torch.tensor([0.4, -0.5], dtype=F64).exp())
    found = geometric_truncated_importance(old, sampling, sampled, cap=9.0)
    torch.testing.assert_close(found[:, 1], torch.tensor([0.2, -0.25], dtype=F64).exp())


def test_b065_sum_and_mean_have_their_own_names():
    """Case B065: .012 a token over 100 tokens."""
    given = arguments(*[math.exp(0.012)] * 100)
    found = sequence_truncated_importance(*given, cap=9.0)
    assert found[0, 0].item() == pytest.approx(3.320117, abs=1e-6)
    found = geometric_truncated_importance(*given, cap=9.0)
    assert found[0, 0].item() == pytest.approx(1.012072, abs=1e-6)


@pytest.mark.parametrize("junk", [NAN, INF, -INF, 1e6])
def test_junk_where_not_sampled_reaches_no_weight(junk):
    clean, dirty = arguments(*RATIOS), arguments(*RATIOS, junk=junk)
    for function in TRUNCATED:
        assert torch.equal(function(*dirty), function(*clean))
    for function in MASKED:
        found = function(*dirty, accept_low=0.1, accept_high=9.0)
        assert torch.equal(found, function(*clean, accept_low=0.1, accept_high=9.0))
        assert found[0, :3].all()


def test_weights_carry_no_gradient():
    old, sampling, sampled = arguments(*RATIOS)
    old.requires_grad_()
    for function in TRUNCATED:
        assert not function(old, sampling, sampled).requires_grad
    for function in MASKED:
        found = function(old, sampling, sampled, accept_low=0.1, accept_high=9.0)
        assert not found.requires_grad


def test_equal_log_probs_weigh_exactly_one():
    given = arguments(1.0, 1.0)
    for function in TRUNCATED:
        assert function(*given).tolist() == [[1, 1, 0]]


def test_bounds_that_make_no_sense_are_named():
    given = arguments(1.0)
    for function in TRUNCATED:
        with pytest.raises(ValueError, match=r"cap must be > 0, got 0\.0"):
            function(*given, cap=0.0)
    for function in MASKED:
        for low, high in ((2.0, 1.0), (-0.5, 2.0), (1.0, 1.0)):
            with pytest.raises(ValueError, match="accept_low must be >= 0 and below"):
                function(*given, accept_low=low, accept_high=high)


@pytest.mark.parametrize("gap", [20.5, 50.0, 90.0, 800.0, 1e30])
def test_a_huge_ratio_to_the_engine_is_a_finite_weight(gap):
    """Also where nothing cuts it."""
    sampled = torch.ones(1, 2).bool()
    old, engine = torch.zeros(1, 2), torch.full((1, 2), -gap)
    for rule in (truncated_importance, sequence_truncated_importance):
        found = rule(old, engine, sampled, cap=float("inf"))
        assert found[0].tolist() == pytest.approx([math.exp(20)] * 2, rel=1e-5)
    found = masked_importance(
        old, engine, sampled, accept_low=0.0, accept_high=float("inf")
    )
    assert found[0].tolist() == pytest.approx([math.exp(20)] * 2, rel=1e-5)
