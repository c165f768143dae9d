"""Which rollouts are shown to a person, with which words and in which pieces."""

import pytest
from synthetic_run import decode
from token_rows import worth_row

from accredit.reports.rollouts import rollout_rows
from accredit.reports.samples import (
    MOST_REPLAYED,
    aligned_pieces,
    chosen_rollouts,
    facts_of,
    sample,
)


def rows_of(rewards, paid=()):
    return [
        {"reward": r, "advantages": [paid[i] if paid else 0.0]}
        for i, r in enumerate(rewards)
    ]


def test_the_best_the_worst_and_another_are_chosen():
    rows = rows_of([0.5, None, 1.0, 0.0, 0.2])
    chosen = chosen_rollouts(rows, seed=0)
    assert chosen["Best"] == (2, rows[2])
    assert chosen["Worst"] == (3, rows[3])
    indices = {index for index, _ in chosen.values()}
    assert len(indices) == len(chosen) == 3
    assert chosen == chosen_rollouts(rows, seed=0)


@pytest.mark.parametrize(
    ("rewards", "paid", "best", "worst"),
    [
        # all of the first group won: nothing was learned from it
        ([1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.5, -0.5], 2, 3),
        ([0.0, 0.0, 0.5, 0.25], [0.0, 0.0, 0.1, -0.1], 2, 3),
        ([1.0, 0.0, 0.5, 0.5], [0.0, 0.0, 0.0, 1e-6], 3, None),
        ([1.0, 0.0], [0.0, 0.0], 0, 1),
        ([None, 0.0, 1.0], [0.7, 0.0, 0.0], 2, 1),
        ([1.0, 0.0, 0.0], [0.0, None, -0.2], 2, None),
    ],
)
def test_rollouts_that_were_paid_for_come_first(rewards, paid, best, worst):
    chosen = chosen_rollouts(rows_of(rewards, paid), seed=0)
    assert chosen["Best"][0] == best
    assert chosen.get("Worst", (None,))[0] == worst


def test_the_random_rollout_is_uniform():
    draws = [
        chosen_rollouts(rows_of([None] * 4), seed)["Random"][0] for seed in range(400)
    ]
    assert min(draws.count(i) for i in range(4)) > 70
    # among those that were paid for alone, where there are any
    paid = rows_of([None] * 4, [0.0, 0.1, 0.0, 0.1])
    drawn = [chosen_rollouts(paid, seed)["Random"][0] for seed in range(40)]
    assert set(drawn) == {1, 3}


def test_nothing_is_chosen_from_nothing():
    assert chosen_rollouts([], seed=0) == {}


def test_tokens_are_told_apart_by_who_wrote_them():
    row = worth_row(
        accepted=[0, 1, 0, 0, 1], num_replayed=0, prompt="a\x1b[31m\u202e", answer="7"
    )
    shown = sample(3, row)
    assert (shown.index, shown.kinds) == (3, "sgms")
    assert shown.pieces == ("b", "c", "d", "e") and shown.text == "bcde"
    assert shown.prompt == "a\\x1b[31m\\u202e"
    assert shown.boundaries == () and (shown.first, shown.num_hidden) == (0, 0)
    assert dict(shown.facts)["tokens"] == "3"
    assert dict(shown.facts)["mean advantage"] == "+0.625"


def test_long_completions_are_cut_and_say_so(record, monkeypatch):
    monkeypatch.setattr("accredit.reports.samples.MOST_TOKENS", 10)
    row = next(iter(rollout_rows(record, 1, decode)))
    shown = sample(0, row)
    assert len(shown.pieces) == len(shown.kinds) == 10
    assert len(shown.columns["paid"]) == 10
    assert shown.num_hidden == len(row["tokens"]) - row["num_prompt_tokens"] - 10


@pytest.mark.parametrize(
    ("pieces", "completion", "expected"),
    [
        (["Hello", "world", "!"], "Hello world!", ["Hello", " world", "!"]),
        (["caf", "\ufffd", "\ufffd", "x"], "caf\u00e9x", ["caf", "\u00e9", "", "x"]),
        (["\ufffd"] * 4, "\u00e9\U0001f600", ["\u00e9\U0001f600", "", "", ""]),
        (["a", "\ufffd", "a"], "a\u00e9a", ["a", "\u00e9", "a"]),
        (["x", "", "y"], "xy", ["x", "", "y"]),
        (["a", "b"], "something else", ["a", "b"]),
        (["a", "b"], "ab and more", ["a", "b"]),
        (["a", "c"], "abc", ["a", "c"]),
        ([], "", []),
        (["line", "two"], "line\n\ntwo", ["line", "\n\ntwo"]),
    ],
)
def test_each_token_has_its_own_part_of_the_text(pieces, completion, expected):
    assert aligned_pieces(pieces, completion) == expected


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x00b\x1b[31m", "a\\x00b\\x1b[31m"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("a\ud835b", "a\\ud835b"),
        ("a\u200bb\ufeff", "a\\u200bb\\ufeff"),
        ("\r\x07\x9b1m", "\\r\\x07\\x9b1m"),
        ("tab\tand\nline \U0001f600 \u00e9", "tab\tand\nline \U0001f600 \u00e9"),
    ],
)
def test_text_can_neither_hide_nor_reorder(text, shown):
    row = worth_row(
        tokens=["", text, "", "", ""], completion=text, prompt=text, reason=text
    )
    found = sample(0, row)
    assert found.text == shown and found.prompt == shown
    said = dict(found.facts)["verdict"]
    assert said == shown.replace("\t", "\\t").replace("\n", "\\n")


def test_facts_name_the_unit_where_it_is_not_the_reward():
    assert ("in", "nats") in facts_of(worth_row(advantage_unit="nats"))
    assert "in" not in dict(facts_of(worth_row()))
    assert MOST_REPLAYED < 1000
