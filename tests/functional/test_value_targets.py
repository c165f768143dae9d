"""Targets under a moved policy: closed forms, limits, exact expectations on a tree."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.functional.value_targets import (
    accepted_ratios,
    doubly_robust_targets,
    full_product_targets,
    pact_targets,
    plain_targets,
    shuffled_ratios,
    vtrace_targets,
    weighted_targets,
    windowed_targets,
)
from oracle import (
    COMPLETIONS,
    HORIZON,
    NUM_NODES,
    Language,
    nodes,
    random_language,
)

F64 = torch.float64
NAN, INF = float("nan"), float("inf")
RULES = {
    "plain": plain_targets,
    "pact": pact_targets,
    "weighted": weighted_targets,
    "doubly_robust": doubly_robust_targets,
    "windowed": partial(windowed_targets, window=1),
    "vtrace": partial(vtrace_targets, trace_cap=1.5),
    "full_product": partial(full_product_targets, product_cap=None),
}
rules = pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
LONGEST = 10**6
EXACT = {
    "windowed": partial(windowed_targets, window=LONGEST),
    "vtrace": partial(vtrace_targets, trace_cap=INF),
    "full_product": partial(full_product_targets, product_cap=None),
}


def row(*numbers):
    return torch.tensor([numbers], dtype=F64)


def real(*lengths):
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


# Three steps, R = 2; what stands after the last step is not read.
RATIOS, OUTCOMES, VALUES, REAL = row(2, 0.5, 3), row(2)[0], row(0.3, 0.7, 1.1, 99), 3
HAND = (RATIOS, OUTCOMES, VALUES, real(REAL))
ONES = torch.ones(1, 3, dtype=F64)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (plain_targets, row(2, 2, 2)),
        (pact_targets, row(4, 1, 6)),
        # .3 + 2 * 1.7; .7 + .5 * 1.3; 1.1 + 3 * .9
        (doubly_robust_targets, row(3.7, 1.35, 3.8)),
        # Corrections 1 * 1.7, -.5 * 1.3, 2 * .9 = 1.7, -.65, 1.8
        (partial(windowed_targets, window=0), row(3.7, 1.35, 3.8)),
        (partial(windowed_targets, window=1), row(3.05, 3.15, 3.8)),
        (partial(windowed_targets, window=2), row(4.85, 3.15, 3.8)),
        # Y_3 = 1.1 + 3 * .9; Y_2 = .7 + .5 (3.8 - .7); Y_1 = .3 + 2 (2.25 - .3)
        (partial(vtrace_targets, trace_cap=INF), row(4.2, 2.25, 3.8)),
        # Ratios 1, .5, 1: Y_3 = 2; Y_2 = .7 + .5 * 1.3; Y_1 = Y_2
        (partial(vtrace_targets, trace_cap=1.0), row(1.35, 1.35, 2)),
        # Products 3, 1.5, 3
        (partial(full_product_targets, product_cap=None), row(6, 3, 6)),
        (partial(full_product_targets, product_cap=2.0), row(4, 3, 4)),
    ],
)
def test_closed_forms(rule, expected):
    targets, weights = rule(*HAND)
    torch.testing.assert_close(targets, expected)
    assert torch.equal(weights, ONES)


def test_weighted_closed_form():
    targets, weights = weighted_targets(*HAND)
    assert torch.equal(targets, row(2, 2, 2))
    assert torch.equal(weights, RATIOS)


@rules
def test_ratio_one_gives_the_outcome_with_weight_one(rule):
    targets, weights = rule(ONES, *HAND[1:])
    torch.testing.assert_close(targets, row(2, 2, 2))
    assert torch.equal(weights, ONES)


def test_targets_of_a_likelier_success_exceed_one():
    mask, outcome = real(2), row(1)[0]
    for rule in (RULES["pact"], RULES["doubly_robust"], *EXACT.values()):
        targets, _ = rule(row(5, 5), outcome, row(0.2, 0.2, 0), mask)
        assert (targets > 1).all()


def test_a_ratio_of_zero_is_a_step_that_the_new_policy_never_takes():
    arguments = (row(2, 0, 3), *HAND[1:])
    targets, _ = EXACT["full_product"](*arguments)
    torch.testing.assert_close(targets, row(0, 0, 6))
    assert (targets[0, :2] == 0).all()
    assert torch.equal(pact_targets(*arguments).targets, row(4, 0, 6))


def test_products_that_overflow_on_the_way_are_taken_in_logs():
    rule, values = EXACT["full_product"], torch.zeros(1, 5, dtype=F64)
    ratios = row(1e-200, 1e-200, 1e200, 1e200)
    found = rule(ratios, row(1)[0], values, real(4)).targets[0]
    assert found[0].item() == pytest.approx(1)
    assert found[1].item() == pytest.approx(1e200)
    assert found[2].item() == torch.finfo(F64).max
    failed = rule(ratios, row(0)[0], values, real(4)).targets
    assert torch.equal(failed, row(0, 0, 0, 0))


def moved(language, size, seed):
    """A second policy over the same rewards, its logits `size` away."""
    generator = torch.Generator().manual_seed(seed)
    logits = language.logits.detach()
    step = torch.randn(logits.shape, generator=generator, dtype=F64)
    return Language(logits + size * step, language.rewards)


class Change:
    """Every completion of the tiny language under two policies."""

    def __init__(self, size, seed=3, chances=lambda rewards: rewards):
        drawn = random_language(seed)
        self.old = Language(drawn.logits, chances(drawn.rewards))
        self.new = moved(self.old, size, seed + 1)
        self.completions = torch.tensor(COMPLETIONS)
        self.old_logprobs = self.old.logprobs(self.completions).detach()
        log_ratios = self.new.logprobs(self.completions) - self.old_logprobs
        self.ratios = log_ratios.detach().exp()
        self.old_values, self.new_values = (
            language.exact_values() for language in (self.old, self.new)
        )
        self.mask = torch.ones(len(COMPLETIONS), HORIZON, dtype=torch.bool)

    def aligned(self, rule, values):
        """The rule's result, given a value for every node."""
        along = values[nodes(self.completions)]
        return rule(self.ratios, self.old.rewards, along, self.mask)

    def expectation(self, x):
        """E[x_t | the prefix before step t] under the old policy, for inner nodes."""
        reached = nodes(self.completions)[:, :-1]
        # Of the rest of the completion, given the prefix before each step.
        chances = self.old_logprobs.flip(1).cumsum(1).flip(1).exp()
        sums = torch.zeros(NUM_NODES, dtype=F64)
        sums.index_add_(0, reached.flatten(), (chances * x).flatten())
        return sums[: len(self.old.logits)]

    def one_step_values(self):
        """V of "the next token from the new policy, the rest from the old one"."""
        policy = self.new.logits.softmax(-1)
        children = torch.arange(len(policy))[:, None] * 2 + torch.tensor([1, 2])
        return (policy * self.old_values[children]).sum(1)


def random_values(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(NUM_NODES, generator=generator, dtype=F64)


@pytest.mark.parametrize("critic", ["exact", "arbitrary"])
@pytest.mark.parametrize("size", [0.1, 1.0])
def test_expectations_over_every_completion(size, critic):
    """pact.md 5: what each target is on average, and that no critic changes it."""
    change = Change(size)
    values = change.old_values if critic == "exact" else random_values(0)
    inner = len(change.old.logits)
    for rule, expected in (
        (RULES["plain"], change.old_values[:inner]),
        (RULES["pact"], change.one_step_values()),
        (RULES["doubly_robust"], change.one_step_values()),
        (EXACT["vtrace"], change.new_values[:inner]),
        (EXACT["full_product"], change.new_values[:inner]),
    ):
        targets, _ = change.aligned(rule, values)
        torch.testing.assert_close(
            change.expectation(targets), expected, atol=1e-10, rtol=0
        )
    distance = (change.new_values - change.old_values)[:inner].abs()
    assert distance.max() > 0.05 * size


def test_the_weighted_minimiser_is_pacts():
    change = Change(1.0)
    targets, weights = change.aligned(weighted_targets, change.old_values)
    minimiser = change.expectation(weights * targets) / change.expectation(weights)
    torch.testing.assert_close(minimiser, change.one_step_values())
    assert set(targets.flatten().tolist()) == set(change.old.rewards.tolist())


def test_the_full_window_is_the_new_value_up_to_the_square_of_the_change():
    errors = []
    for size in (0.02, 0.01):
        change = Change(size)
        targets, _ = change.aligned(EXACT["windowed"], random_values(1))
        inner = change.new_values[: len(change.old.logits)]
        errors.append((change.expectation(targets) - inner).abs().max().item())
        plain, _ = change.aligned(plain_targets, random_values(1))
        missed = (change.expectation(plain) - inner).abs().max().item()
        assert errors[-1] < 0.1 * missed
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.1)


def test_a_longer_window_is_nearer_to_the_new_value():
    change = Change(0.05)
    inner = change.new_values[: len(change.old.logits)]
    errors = []
    for window in range(HORIZON):
        rule = partial(windowed_targets, window=window)
        targets, _ = change.aligned(rule, change.old_values)
        errors.append((change.expectation(targets) - inner).abs().mean().item())
    assert errors[0] > errors[1] > errors[2] > 0


def test_exact_values_lower_the_variance_of_the_doubly_robust_target():
    # Successes are likely, so that most of what PACT's target varies by is the ratio.
    change = Change(1.0, chances=lambda rewards: (rewards + 2).sigmoid())

    def variance(rule):
        targets, _ = change.aligned(rule, change.old_values)
        return change.expectation(targets**2) - change.expectation(targets) ** 2

    smaller, larger = variance(doubly_robust_targets), variance(pact_targets)
    assert 0 < smaller[0] < 0.05 * larger[0]
    assert smaller.sum() < 0.05 * larger.sum()


def test_an_outcome_that_the_value_foresees_needs_no_ratio():
    targets, _ = doubly_robust_targets(
        row(5, 0), row(0.7)[0], row(0.7, 0.7, 0), real(2)
    )
    torch.testing.assert_close(targets, row(0.7, 0.7))


def test_a_trace_cap_of_one_lies_between_the_old_and_the_new_value():
    # Clipped ratios are those of a policy between the two, up to a constant.
    change = Change(1.0)
    rule = partial(vtrace_targets, trace_cap=1.0)
    targets, _ = change.aligned(rule, change.old_values)
    inner = len(change.old.logits)
    found = change.expectation(targets)
    assert not torch.allclose(found, change.old_values[:inner], atol=1e-3)
    assert not torch.allclose(found, change.new_values[:inner], atol=1e-3)


def random_steps(seed, lengths, pad=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (len(lengths), max(lengths) + pad)
    ratios = torch.rand(shape, generator=generator, dtype=F64) * 3
    outcomes = torch.randn(len(lengths), generator=generator, dtype=F64)
    values = torch.randn(shape[0], shape[1] + 1, generator=generator, dtype=F64)
    mask = torch.arange(shape[1]) < torch.tensor(lengths)[:, None]
    return ratios, outcomes, values, mask


@rules
@given(
    st.lists(st.integers(0, 7), min_size=1, max_size=4).filter(any),
    st.integers(0, 4),
    st.sampled_from([0.0, 1e6, NAN, INF, -INF]),
    st.integers(0, 2**31),
)
@settings(max_examples=40, deadline=None)
def test_padding_never_reaches_a_real_step(rule, lengths, pad, junk, seed):
    """Bit for bit, NaN included, and the value after the last step with it."""
    ratios, outcomes, values, mask = random_steps(seed, lengths, pad)
    read = torch.cat([mask, torch.zeros_like(mask[:, :1])], 1)
    dirty = rule(
        torch.where(mask, ratios, junk), outcomes, torch.where(read, values, junk), mask
    )
    for i, length in enumerate(lengths):
        alone = rule(
            ratios[i : i + 1, :length],
            outcomes[i : i + 1],
            values[i : i + 1, : length + 1],
            mask[i : i + 1, :length],
        )
        for found, expected in zip(dirty, alone, strict=True):
            assert torch.equal(found[i : i + 1, :length], expected)
            assert (found[i, length:] == 0).all()


@rules
@given(st.integers(1, 6), st.permutations(range(3)), st.integers(0, 2**31))
@settings(max_examples=20, deadline=None)
def test_permuting_rollouts_permutes_targets(rule, steps, order, seed):
    arguments = random_steps(seed, [steps, 2, 4])
    index = torch.tensor(order)
    permuted = rule(*(x[index] for x in arguments))
    for found, expected in zip(permuted, rule(*arguments), strict=True):
        assert torch.equal(found, expected[index])


@rules
def test_targets_carry_no_gradient(rule):
    ratios, outcomes, values, mask = random_steps(0, [3, 2])
    leaves = [x.requires_grad_() for x in (ratios, outcomes, values)]
    targets, weights = rule(*leaves, mask)
    assert not targets.requires_grad
    assert not weights.requires_grad


@rules
def test_no_steps_at_all_have_no_targets(rule):
    nothing = torch.zeros(2, 0)
    targets, weights = rule(nothing, torch.ones(2), torch.zeros(2, 1), nothing > 0)
    assert targets.shape == weights.shape == (2, 0)


@given(st.integers(1, 6), st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_doubly_robust_is_the_window_of_the_step_alone(steps, seed):
    arguments = random_steps(seed, [steps, 3])
    torch.testing.assert_close(
        windowed_targets(*arguments, window=0), doubly_robust_targets(*arguments)
    )


@given(st.integers(1, 6), st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_vtrace_without_values_or_clips_is_the_full_product(steps, seed):
    ratios, outcomes, values, mask = random_steps(seed, [steps, 3])
    arguments = (ratios, outcomes, torch.zeros_like(values), mask)
    torch.testing.assert_close(
        EXACT["vtrace"](*arguments), EXACT["full_product"](*arguments)
    )


def test_both_ends_of_the_acceptance_range_are_accepted():
    ratios = row(0.5, 0.4999, 2, 2.0001, 1, NAN, INF, 1)
    mask = torch.tensor([[True] * 7 + [False]])
    found = accepted_ratios(ratios, mask, 0.5, 2.0)
    assert found.tolist() == [[True, False, True, False, True, False, False, False]]
    every = accepted_ratios(ratios, mask, 0.0, INF)
    assert every.tolist() == [[True] * 5 + [False, True, False]]


@pytest.mark.parametrize(("low", "high"), [(2.0, 0.5), (NAN, 1.0), (0.0, NAN)])
def test_an_acceptance_range_upside_down_is_named(low, high):
    with pytest.raises(ValueError, match=rf"low <= high, got \[{low}, {high}\]"):
        accepted_ratios(ONES, real(3), low, high)


@given(st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_shuffled_ratios_are_the_same_numbers_on_other_steps(seed):
    ratios, _, _, mask = random_steps(5, [6, 2, 4])
    mask[0, 3] = False  # need not be packed
    generator = torch.Generator().manual_seed(seed)
    found = shuffled_ratios(ratios, mask, generator)
    assert sorted(found[mask].tolist()) == sorted(ratios[mask].tolist())
    assert torch.equal(found[~mask], ratios[~mask])


def test_shuffling_is_over_the_whole_batch_and_by_the_generator():
    ratios, _, _, mask = random_steps(5, [30, 20, 25])
    found, again, other = (
        shuffled_ratios(ratios, mask, torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    )
    assert torch.equal(found, again)
    assert not torch.equal(found, other)
    assert set(found[0].tolist()) & set(ratios[1][mask[1]].tolist())
    assert (found == ratios)[mask].double().mean() < 0.2


@pytest.mark.parametrize("cap", [0.0, -1.0, NAN])
def test_a_cap_that_is_not_positive_is_named(cap):
    for name, rule in (
        ("trace_cap", partial(vtrace_targets, trace_cap=cap)),
        ("product_cap", partial(full_product_targets, product_cap=cap)),
    ):
        with pytest.raises(ValueError, match=f"{name} must be > 0, got {cap}"):
            rule(*HAND)


def test_a_negative_window_is_named():
    with pytest.raises(ValueError, match="window must be >= 0, got -1"):
        windowed_targets(*HAND, window=-1)


@pytest.mark.parametrize("name", ["windowed", "vtrace", "full_product"])
def test_a_mask_with_a_gap_is_refused(name):
    mask = torch.tensor([[True, False, True]])
    with pytest.raises(ValueError, match="right padding"):
        RULES[name](*HAND[:3], mask)
