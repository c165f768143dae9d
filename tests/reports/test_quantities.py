"""What is known of a token, what colours it by default, and how deep the colour is."""

import math

import pytest
from token_rows import worth_row

from accredit.reports.quantities import (
    ALIKE,
    EXACT,
    LEARNED,
    MEASURED,
    TOKEN_LEVEL,
    Palette,
    columns_of,
    mean_paid,
    step_credits,
)


def palette(*columns) -> Palette:
    made = Palette()
    for column in columns:
        made.add(column)
    return made


def test_a_tokens_credit_is_what_it_changed_and_not_what_was_paid():
    assert step_credits(worth_row()) == [0.0, 0.25, 0.0, -0.125, 0.625]
    assert step_credits(worth_row(reward=None)) == [0.0, 0.25, 0.0, -0.125, 0.0]
    assert step_credits(worth_row(share_f=0.0)) is None
    columns = columns_of(worth_row())
    assert columns["credit"] == [0.25, -0.125, 0.625]
    assert columns["paid"] == [0.75, 0.5, 0.625]
    assert columns["value"] == [0.25, 0.5, 0.375]
    assert columns["logprob"] == [-0.5, -2.0, -1.25]
    assert columns.keys() == {"credit", "paid", "value", "logprob"}
    assert mean_paid(worth_row()) == 0.625
    assert mean_paid(worth_row(sampled=[0] * 5)) is None


def test_what_no_critic_valued_has_a_baseline_and_no_credit():
    columns = columns_of(worth_row(share_f=0.0))
    assert columns["baseline"] == [0.25, 0.5, 0.375]
    assert not {"credit", "value"} & columns.keys()
    assert "baseline" not in columns_of(worth_row(share_f=0.0, values=[0.0] * 6))


def test_all_else_that_a_row_knows_is_a_column_of_the_sampled_tokens():
    row = worth_row(
        old_logprobs=[0.0, -0.5 + math.log(2.0), 0.0, -2.0, None],
        value_targets=[0.0, 1.25, 0.0, 0.5, 1.0, 0.0],
        ratios=[1.0, 1.25, 1.0, 7.0, 1.0],
        entropies=[0.0, 0.30004, 0.0, 0.2, None],
    )
    columns = columns_of(row)
    assert columns["engine"] == [2.0, 1.0, None]
    assert columns["target"] == [1.25, 0.5, 1.0]
    assert columns["ratio"] == [1.25, 7.0, 1.0]
    assert columns["entropy"] == [0.3, 0.2, None]
    # small numbers keep their digits
    small = columns_of(worth_row(advantages=[0.0, 1.24e-5, 0.0, 2e-3, 0.0]))
    assert small["paid"] == [1.2e-5, 2e-3, 0.0]


def test_the_scale_is_a_quantile_of_what_is_not_blank():
    # 98 of 100 tokens carry nothing: a quantile over all of them would be 0
    column = [0.0] * 9_800 + [0.5] * 199 + [50.0]
    legend = palette(*({"paid": column[i::100]} for i in range(100))).legends()[0]
    assert legend.scale == pytest.approx(0.5)
    assert (legend.low, legend.high) == (0.0, 0.5)
    assert [legend.strength(x) for x in (0.25, 50.0, 0.0, None)] == [0.5, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        ({"paid": [0.0, 0.0]}, None),
        ({"paid": [-1e-9, 1e-9]}, None),
        ({"paid": [None, None]}, None),
        ({"paid": []}, None),
        ({"engine": [1.0, 1.00005]}, None),
        ({"engine": [1.0, 1.5]}, (1.0, 1.5)),
        ({"logprob": [0.0, -2.0]}, (-2.0, 0.0)),
        ({"paid": [-0.5, 0.5]}, (-0.5, 0.5)),
    ],
)
def test_only_what_differs_from_its_blank_level_can_be_chosen(column, shown):
    legends = palette(column).legends()
    ends = [(legend.low, legend.high) for legend in legends]
    assert ends == ([] if shown is None else [pytest.approx(shown)])


ALL_ALIKE = {"paid": [0.5, 0.5], "logprob": [-1.0, -2.0]}
APART = {"paid": [0.5, 0.25], "logprob": [-1.0, -2.0], "credit": [0.1, -0.3]}


@pytest.mark.parametrize(
    ("algorithm", "columns", "key", "words"),
    [
        ({"name": "grpo"}, ALL_ALIKE, "logprob", [ALIKE, MEASURED]),
        ({"name": "vine"}, ALL_ALIKE, "logprob", [ALIKE, MEASURED]),
        ({"name": "vine"}, APART, "paid", [TOKEN_LEVEL["vine"]]),
        ({"name": "opd"}, APART, "paid", [TOKEN_LEVEL["opd"]]),
        ({"name": "pact", "critic": {}}, APART, "logprob", [LEARNED, MEASURED]),
        ({"name": "ppo", "critic": {"kind": "x"}}, APART, "logprob", [LEARNED]),
        ({"name": "ac2", "critic": {"kind": "exact"}}, APART, "credit", [EXACT]),
        ({"name": "ac2", "critic": {"kind": "exact"}}, ALL_ALIKE, "logprob", [ALIKE]),
        (
            {"name": "ac2", "critic": {"kind": "prompted"}},
            ALL_ALIKE | {"credit": [0.0, 0.5]},
            "logprob",
            [ALIKE, LEARNED, MEASURED],
        ),
        ("grpo", ALL_ALIKE, "logprob", [ALIKE]),
        ({"name": "grpo"}, {"paid": [0.5, 0.5]}, "paid", []),
        (None, {}, "", []),
    ],
)
def test_what_the_study_calls_noise_is_no_default(algorithm, columns, key, words):
    chosen, reason = palette(columns).preferred({"algorithm": algorithm})
    assert chosen == key
    assert all(word in reason for word in words)
    assert bool(reason) == bool(words)
