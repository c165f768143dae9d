"""Rows to problems: every row is either a problem or a counted fault."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.tasks.problems import (
    BadRow,
    ColumnMapping,
    LoadedProblems,
    load_problems,
)
from accredit.text import without_lone_surrogates
from accredit.types import Message

GOOD = {"prompt": "1+1?", "answer": "2"}


def load(*rows: object, **options) -> LoadedProblems:
    return load_problems(list(enumerate(rows, start=1)), "data", **options)


def test_a_row_becomes_a_problem_with_every_other_column_as_metadata():
    row = {"prompt": "1+1?", "answer": 2, "id": 7, "split": "hard", "level": 3}
    (problem,) = load(row).problems
    assert problem.messages == (Message("user", "1+1?"),)
    assert (problem.id, problem.answer, problem.split) == ("7", "2", "hard")
    assert problem.metadata == {"level": 3}


def test_columns_of_any_name_are_mapped():
    columns = ColumnMapping(
        prompt="question", answer="gold", id="key", split="part", metadata=("tests",)
    )
    row = {"question": "q", "gold": "g", "key": "k", "part": "p", "tests": [1], "x": 0}
    (problem,) = load(row, columns=columns).problems
    assert problem.messages[0].content == "q"
    assert (problem.id, problem.answer, problem.split) == ("k", "g", "p")
    assert problem.metadata == {"tests": [1]}


@pytest.mark.parametrize("column", ["messages", "prompt"])
def test_messages_stand_in_either_column(column):
    turns = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    (problem,) = load({column: turns}).problems
    assert problem.messages == (Message("system", "s"), Message("user", "u"))


def test_messages_win_over_prompt_unless_prompt_is_named():
    row = {"prompt": "p", "messages": [{"role": "user", "content": "m"}]}
    assert load(row).problems[0].messages[0].content == "m"
    named = load(row, columns=ColumnMapping(prompt="prompt"))
    assert named.problems[0].messages[0].content == "p"


def test_both_prompt_and_messages_named_is_an_error():
    with pytest.raises(ValueError, match="one of the columns `prompt` and `messages`"):
        ColumnMapping(prompt="p", messages="m")


def test_ids_without_a_column_are_row_numbers_and_survive_skipped_rows():
    loaded = load(GOOD, {"prompt": ""}, GOOD, on_bad_row="skip")
    assert [problem.id for problem in loaded.problems] == ["row-1", "row-3"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"answer": "2"}, "missing prompt"),
        ({"prompt": None}, "missing prompt"),
        ({"prompt": float("nan")}, "missing prompt"),
        ({"prompt": " \n"}, "empty prompt"),
        ({"prompt": []}, "empty prompt"),
        ({"prompt": 3}, "malformed prompt"),
        ({"prompt": {"role": "user", "content": "x"}}, "malformed prompt"),
        ({"prompt": ["x"]}, "bad messages"),
        ({"prompt": [{"role": "robot", "content": "x"}]}, "bad messages"),
        ({"prompt": [{"role": ["user"], "content": "x"}]}, "bad messages"),
        ({"prompt": [{"role": "user", "content": None}]}, "bad messages"),
        ({"prompt": [{"role": "user", "content": ""}]}, "bad messages"),
        ({"prompt": [{"role": "user"}]}, "bad messages"),
        ({"prompt": [{"role": "assistant", "content": "x"}]}, "bad messages"),
        ({"prompt": "x", "answer": ["2"]}, "malformed answer"),
        ({"prompt": "x", "answer": True}, "malformed answer"),
        ({"prompt": "x", "answer": float("inf")}, "malformed answer"),
        ({"prompt": "x", "split": {}}, "malformed split"),
        ({"prompt": "x", "id": {}}, "malformed id"),
        ({"prompt": "x", "id": ""}, "missing id"),
        ({"prompt": "x", "id": "first"}, "duplicate id"),
        ({"prompt": "x", "id": "a", "level": float("inf")}, "malformed metadata"),
        ({"prompt": "x", "id": "a", "level": object()}, "malformed metadata"),
        (["prompt"], "not an object"),
        ("prompt", "not an object"),
        (None, "not an object"),
    ],
)
def test_a_bad_row_has_a_number_and_a_reason(row, reason):
    if isinstance(row, dict) and reason not in ("missing id", "duplicate id"):
        row = {"id": "second", **row}
    first = {"id": "first", "prompt": "p", "answer": "a", "split": "train"}
    loaded = load(first, row, on_bad_row="skip")
    assert [problem.id for problem in loaded.problems] == ["first"]
    assert [(bad.number, bad.reason) for bad in loaded.bad_rows] == [(2, reason)]
    assert loaded.bad_row_counts == {reason: 1}
    with pytest.raises(ValueError, match=rf"got line 2: {reason}.*on_bad_row"):
        load(first, row)


def test_stop_says_how_many_more_bad_rows_there_are():
    with pytest.raises(ValueError, match=r"line 2: empty prompt.*and 2 more bad rows"):
        load(GOOD, {"prompt": ""}, {"prompt": ""}, {"prompt": 1})


def test_counts_by_reason_add_up():
    loaded = load(GOOD, {"prompt": ""}, 3, {"prompt": " "}, on_bad_row="skip")
    assert loaded.bad_row_counts == {"empty prompt": 2, "not an object": 1}


def test_a_missing_answer_is_none_and_no_fault():
    answers = [{"prompt": "x", "answer": a} for a in (None, "", float("nan"), 0, "0")]
    problems = load(*answers, {"prompt": "x"}).problems
    assert [p.answer for p in problems] == [None, None, None, "0", "0", None]


def test_a_reader_fault_is_kept_in_place():
    rows = [(1, GOOD), BadRow(2, "not JSON", "x"), (3, GOOD)]
    loaded = load_problems(rows, "data", on_bad_row="skip")
    assert [problem.id for problem in loaded.problems] == ["row-1", "row-3"]
    assert loaded.bad_rows == (BadRow(2, "not JSON", "x"),)


def test_deep_nesting_is_a_bad_row():
    deep: list = []
    for _ in range(5000):
        deep = [deep]
    loaded = load(GOOD, {"prompt": "x", "tree": deep}, on_bad_row="skip")
    assert loaded.bad_row_counts == {"nested too deeply": 1}


def test_no_rows_is_an_error():
    with pytest.raises(ValueError, match="at least one problem, got an empty file"):
        load()


def test_no_valid_row_is_an_error_even_when_skipping():
    with pytest.raises(ValueError, match=r"got 2 bad rows, .*line 1: empty prompt"):
        load({"prompt": ""}, {"prompt": ""}, on_bad_row="skip")
    with pytest.raises(ValueError, match=r"got 1 bad rows, .*line 1: not an object"):
        load(17, on_bad_row="skip")


def test_an_unknown_column_lists_the_known_and_the_nearest():
    columns = ColumnMapping(prompt="questoin")
    with pytest.raises(
        ValueError, match=r"'questoin'; did you mean 'question'\?.*gold"
    ):
        load({"question": "x", "gold": "y"}, columns=columns)
    with pytest.raises(ValueError, match="got 'tests'"):
        load(GOOD, columns=ColumnMapping(metadata=("tests",)))


def test_neither_prompt_nor_messages_is_an_error_about_columns():
    with pytest.raises(ValueError, match=r"got 'prompt'; did you mean 'promt'\?"):
        load({"promt": "x"}, on_bad_row="skip")


def test_a_column_may_begin_late():
    loaded = load(GOOD, {"prompt": "x", "late": 1})
    assert [dict(p.metadata) for p in loaded.problems] == [{}, {"late": 1}]


def test_split_filters_and_an_unknown_one_lists_the_known():
    rows = [{"prompt": "a", "split": "train"}, {"prompt": "b", "split": "test"}]
    assert len(load(*rows).problems) == 2
    assert [p.id for p in load(*rows, split="test").problems] == ["row-2"]
    with pytest.raises(ValueError, match=r"got 'tset'; did you mean 'test'.*test, tra"):
        load(*rows, split="tset")


def test_rows_without_a_split_are_train_and_never_pass_for_test():
    assert len(load(GOOD, split="train").problems) == 1
    with pytest.raises(ValueError, match="known: train"):
        load(GOOD, split="test")


def test_metadata_is_json_with_none_for_nan_and_text_for_dates():
    day = datetime.date(2026, 3, 1)
    row = {"prompt": "x", "m": {"a": (1, float("nan")), "day": day, "t": True}}
    (problem,) = load(row).problems
    assert problem.metadata == {"m": {"a": [1, None], "day": "2026-03-01", "t": True}}


def test_b168_a_lone_surrogate_is_replaced_and_emoji_are_kept():
    """Case B168: 'a\\ud835b' must not reach a tokenizer, a file or a hash."""
    assert without_lone_surrogates("a\ud835b") == "a\ufffdb"
    assert without_lone_surrogates("a\udc00") == "a\ufffd"
    assert without_lone_surrogates("a\ud835") == "a\ufffd"
    assert without_lone_surrogates("😀é") == "😀é"
    assert without_lone_surrogates("\ud83d\ude00") == "😀"
    row = {
        "prompt": "p\ud835",
        "answer": "a\ud835",
        "id": "i\ud835",
        "split": "s\ud835",
        "note\ud835": {"k\ud835": ["v\ud835"]},
    }
    (problem,) = load(row).problems
    assert problem.messages[0].content == "p\ufffd"
    assert (problem.answer, problem.id, problem.split) == (
        "a\ufffd",
        "i\ufffd",
        "s\ufffd",
    )
    assert problem.metadata == {"note\ufffd": {"k\ufffd": ["v\ufffd"]}}


@given(st.text(st.characters(exclude_categories=())))
def test_text_without_surrogates_is_utf8_and_clean_text_is_unchanged(text):
    cleaned = without_lone_surrogates(text)
    assert cleaned.encode("utf-8").decode("utf-8") == cleaned
    assert without_lone_surrogates(cleaned) == cleaned
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert cleaned == text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["role", "content", "x"]), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["prompt", "answer", "id", "split", "extra"]), JSON
        )
        | JSON,
        max_size=6,
    )
)
def test_any_rows_are_problems_or_bad_rows_and_none_is_lost(rows):
    first = {"prompt": "p", "answer": "a", "id": "the first", "split": "train"}
    loaded = load(first, *rows, on_bad_row="skip")
    assert loaded.problems[0].id == "the first"
    assert len(loaded.problems) + len(loaded.bad_rows) == 1 + len(rows)
    ids = [problem.id for problem in loaded.problems]
    assert len(set(ids)) == len(ids)
