"""A user's own file: .jsonl, .json and .csv, with what such files really hold."""

import csv
import json

import pytest

from accredit.tasks.jsonl import load_jsonl
from accredit.tasks.problems import ColumnMapping


def write(path, content: bytes | str):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_jsonl_file_becomes_problems(tmp_path):
    lines = [json.dumps({"prompt": f"{i}+1?", "answer": i + 1}) for i in range(200)]
    path = write(tmp_path / "own.jsonl", "\n".join(lines))
    problems = load_jsonl(path).problems
    assert len(problems) == 200
    assert problems[41].messages[0].content == "41+1?"
    assert problems[41].answer == "42"
    assert load_jsonl(str(path)).problems == problems


def test_b168_bad_lines_are_named_by_line_and_reason(tmp_path):
    """Case B168 and bad input of issue 2: the run goes on where asked."""
    content = (
        b'{"prompt": "one"}\n'
        b"\n"
        b'{"prompt": "thr\n'
        b"[1, 2]\n"
        b'{"prompt": "\xff"}\n'
        b'{"prompt": "six", "answer": NaN}\n'
        b'{"prompt": "seven", "answer": ' + b"9" * 5000 + b"}\n"
        b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
        b'{"prompt": "a\\ud835b"}\n'
        b'{"prompt": "separator \xe2\x80\xa8 stays"}'
    )
    path = write(tmp_path / "own.jsonl", content)
    loaded = load_jsonl(path, on_bad_row="skip")
    assert [p.id for p in loaded.problems] == ["row-1", "row-9", "row-10"]
    assert loaded.problems[1].messages[0].content == "a\ufffdb"
    assert [(bad.number, bad.reason) for bad in loaded.bad_rows] == [
        (3, "not JSON"),
        (4, "not an object"),
        (5, "not UTF-8"),
        (6, "not JSON"),
        (7, "not JSON"),
        (8, "nested too deeply"),
    ]
    assert "NaN is no JSON" in loaded.bad_rows[3].detail
    with pytest.raises(ValueError, match=r"own.jsonl .*line 3: not JSON.*5 more bad"):
        load_jsonl(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '{"prompt": "p", "answer": "é"}\r\n'),
        ("a.ndjson", '{"prompt": "p", "answer": "é"}'),
        ("a.json", '[{"prompt": "p", "answer": "é"}]'),
        ("a.CSV", "prompt,answer\r\np,é\r\n"),
    ],
)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_byte_order_mark_changes_nothing(tmp_path, name, content, mark):
    path = write(tmp_path / name, mark + content.encode())
    (problem,) = load_jsonl(path).problems
    assert problem.messages[0].content == "p"
    assert problem.answer == "é"


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv"])
@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b"\n\n"])
def test_an_empty_file_is_an_error(tmp_path, name, content):
    path = write(tmp_path / name, content)
    with pytest.raises(ValueError, match=r"empty file|must be JSON"):
        load_jsonl(path)


def test_a_table_without_rows_is_an_error(tmp_path):
    path = write(tmp_path / "a.csv", "prompt,answer\n")
    with pytest.raises(ValueError, match="at least one problem"):
        load_jsonl(path)


def test_a_missing_file_a_folder_and_another_kind_are_errors(tmp_path):
    with pytest.raises(ValueError, match="must exist, got nothing there"):
        load_jsonl(tmp_path / "none.jsonl")
    folder = tmp_path / "folder.jsonl"
    folder.mkdir()
    with pytest.raises(ValueError, match="must exist, got a folder"):
        load_jsonl(folder)
    with pytest.raises(ValueError, match=r"must end in .jsonl.*task `hub`"):
        load_jsonl(write(tmp_path / "a.parquet", b"x"))


def test_a_json_file_must_be_a_list(tmp_path):
    with pytest.raises(ValueError, match=r"must hold a list of objects, got \{'p"):
        load_jsonl(write(tmp_path / "a.json", '{"prompt": "x"}'))
    with pytest.raises(ValueError, match=r"must be JSON, got .*name the file .jsonl"):
        load_jsonl(write(tmp_path / "b.json", '{"prompt": "x"}\n{"prompt": "y"}'))


def test_items_of_a_json_list_are_counted_from_one(tmp_path):
    path = write(tmp_path / "a.json", '[{"prompt": "x"}, {"prompt": ""}]')
    with pytest.raises(ValueError, match="item 2: empty prompt"):
        load_jsonl(path)


def test_a_table_keeps_line_numbers_through_quoted_line_breaks(tmp_path):
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerows(
            [["prompt", "answer"], ["two\nlines", "1"], ["", "2"], ["three", ""]]
        )
    loaded = load_jsonl(path, on_bad_row="skip")
    assert [p.messages[0].content for p in loaded.problems] == ["two\nlines", "three"]
    assert [p.answer for p in loaded.problems] == ["1", None]
    assert [(b.number, b.reason) for b in loaded.bad_rows] == [(4, "missing prompt")]


def test_bad_rows_of_a_table_are_counted(tmp_path):
    content = (
        b'prompt,answer\ngood,1\nshort\nlong,1,2\nbytes \xff,1\n"quote"d,2\n"open,3\n'
    )
    path = write(tmp_path / "a.csv", content)
    loaded = load_jsonl(path, on_bad_row="skip")
    assert [p.messages[0].content for p in loaded.problems] == ["good", "quoted"]
    assert [(b.number, b.reason) for b in loaded.bad_rows] == [
        (3, "wrong number of fields"),
        (4, "wrong number of fields"),
        (5, "not UTF-8"),
        (7, "wrong number of fields"),
    ]


def test_a_field_beyond_csv_s_own_limit_is_read_and_the_limit_restored(tmp_path):
    limit = csv.field_size_limit()
    path = write(tmp_path / "a.csv", "prompt\n" + "x" * (limit + 1) + "\n")
    (problem,) = load_jsonl(path).problems
    assert len(problem.messages[0].content) == limit + 1
    assert csv.field_size_limit() == limit


def test_repeated_column_names_are_an_error(tmp_path):
    with pytest.raises(ValueError, match="distinct names"):
        load_jsonl(write(tmp_path / "a.csv", "prompt,prompt\nx,y\n"))


def test_columns_and_split_are_passed_on(tmp_path):
    rows = [{"q": f"{i}", "part": "test" if i % 2 else "train"} for i in range(4)]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    columns = ColumnMapping(prompt="q", split="part")
    loaded = load_jsonl(path, columns=columns, split="test")
    assert [p.id for p in loaded.problems] == ["row-2", "row-4"]
