"""Data sets read by the `datasets` library, all local."""

import pytest

from accredit.tasks.hub import hub_advice, load_hub
from accredit.tasks.problems import ColumnMapping

datasets = pytest.importorskip("datasets")

ROWS = {
    "question": ["1+1?", "2+2?", ""],
    "gold": ["2", "4", "0"],
    "level": [1.5, float("nan"), 2.0],
}
COLUMNS = ColumnMapping(prompt="question", answer="gold")


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    path = tmp_path_factory.mktemp("hub") / "rows.parquet"
    datasets.Dataset.from_dict(ROWS).to_parquet(path)
    return path


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def test_a_parquet_file_becomes_problems(parquet, cache):
    loaded = load_hub(parquet, columns=COLUMNS, on_bad_row="skip", cache_dir=cache)
    assert [p.messages[0].content for p in loaded.problems] == ["1+1?", "2+2?"]
    assert [p.answer for p in loaded.problems] == ["2", "4"]
    assert [dict(p.metadata) for p in loaded.problems] == [
        {"level": 1.5},
        {"level": None},
    ]
    assert {p.split for p in loaded.problems} == {"train"}
    assert [(b.number, b.reason) for b in loaded.bad_rows] == [(3, "empty prompt")]


def test_a_bad_row_of_a_table_stops_with_its_row(parquet, cache):
    with pytest.raises(ValueError, match=r"rows.parquet .*row 3: empty prompt"):
        load_hub(parquet, columns=COLUMNS, cache_dir=cache)


def test_a_folder_of_parquet_files_has_the_splits_of_its_names(tmp_path, cache):
    folder = tmp_path / "data"
    folder.mkdir()
    turns = [{"role": "user", "content": "hello"}]
    for split, answer in (("train", "a"), ("test", "b")):
        table = datasets.Dataset.from_dict({"messages": [turns], "answer": [answer]})
        table.to_parquet(folder / f"{split}.parquet")
    for split, answer in (("train", "a"), ("test", "b")):
        (problem,) = load_hub(folder, split, cache_dir=cache).problems
        assert (problem.answer, problem.split) == (answer, split)
        assert problem.messages[0].content == "hello"
    with pytest.raises(ValueError, match=r"with split 'dev'.*train"):
        load_hub(folder, "dev", cache_dir=cache)


def test_saved_tables_and_saved_splits_are_read(tmp_path):
    table = datasets.Dataset.from_dict({"prompt": ["x"], "split": ["lie"]})
    table.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"test": table}).save_to_disk(tmp_path / "many")
    assert load_hub(tmp_path / "one").problems[0].split == "train"
    assert load_hub(tmp_path / "many", "test").problems[0].split == "test"
    with pytest.raises(ValueError, match=r"got 'tset'; did you mean 'test'\?"):
        load_hub(tmp_path / "many", "tset")
    with pytest.raises(ValueError, match=r"got 'test'; known: train"):
        load_hub(tmp_path / "one", "test")


def test_what_is_not_there_is_one_clear_error(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"there is no file .*none.parquet"):
        load_hub(tmp_path / "none.parquet")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match=r"got 'nobody/nothing'.*HF_HUB_OFFLINE"):
        load_hub("nobody/nothing", cache_dir=tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["/bin/accredit", "train", "a b.toml"],
            "HF_HUB_OFFLINE=0 accredit train 'a b",
        ),
        (
            ["src/accredit/cli.py", "eval"],
            "once with: HF_HUB_OFFLINE=0 accredit eval",
        ),
        (["my_script.py", "x"], "set HF_HUB_OFFLINE=0 to download it"),
    ],
)
def test_an_offline_hub_is_told_with_the_command_that_works(monkeypatch, words, said):
    monkeypatch.setattr("sys.argv", words)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert said in hub_advice()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    assert hub_advice() == "check both"


def test_a_column_of_splits_is_refused(parquet):
    with pytest.raises(ValueError, match="name the split, not a column"):
        load_hub(parquet, columns=ColumnMapping(prompt="question", split="level"))


def test_progress_bars_come_back(parquet, cache):
    from datasets.utils import are_progress_bars_disabled

    assert not are_progress_bars_disabled()
    load_hub(parquet, columns=COLUMNS, on_bad_row="skip", cache_dir=cache)
    assert not are_progress_bars_disabled()
