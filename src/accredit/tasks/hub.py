"""Data sets that the `datasets` library reads: a hub name, a folder, a parquet file.

The library is loaded inside the function that needs it (extra `tasks`). Nothing is
downloaded for a local path, and with HF_HUB_OFFLINE=1 nothing is downloaded at all.
"""

import importlib.util
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from accredit.tasks.problems import (
    DEFAULT_SPLIT,
    ColumnMapping,
    LoadedProblems,
    OnBadRow,
    load_problems,
    unknown_name,
)

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict


def load_hub(
    name: str | Path,
    split: str = "train",
    subset: str | None = None,
    columns: ColumnMapping | None = None,
    on_bad_row: OnBadRow = "stop",
    cache_dir: str | Path | None = None,
) -> LoadedProblems:
    """Problems of one split of a data set.

    Args:
        name: A hub data set ("owner/name"), a folder that `load_dataset` or
            `load_from_disk` reads, or one .parquet file, whose only split is "train".
        split: The data set's own split. A column called "split" is overridden.
        subset: The data set's configuration, where it has several.
        columns: Where to look in a row; see `ColumnMapping`.
        on_bad_row: "stop" raises at bad rows, "skip" counts them.
        cache_dir: Where `datasets` keeps its tables; None is its own default.

    Raises:
        ValueError: `datasets` is not installed, there is no such data set or split, or
            as `load_problems` says.
    """
    if columns is not None and columns.split is not None:
        raise ValueError(
            "a data set of the task `hub` has splits of its own, got the column "
            f"{columns.split!r} for them; name the split, not a column"
        )
    if importlib.util.find_spec("datasets") is None:
        raise ValueError(
            "the task `hub` needs the `datasets` library, got none installed; "
            "install accredit[tasks]"
        )
    with _no_progress_bars():
        table = _table(str(name), split, subset, cache_dir)
    rows = (
        (number, {**row, "split": split})
        for number, row in enumerate(table, start=1)
        if isinstance(row, dict)
    )
    source = f"data set {name}"
    return load_problems(rows, source, columns, split, on_bad_row, unit="row")


def _table(
    name: str, split: str, subset: str | None, cache_dir: str | Path | None
) -> "Dataset":
    from datasets import load_dataset, load_from_disk
    from datasets.exceptions import DatasetsError

    path = Path(name)
    cache = None if cache_dir is None else str(cache_dir)
    try:
        if path.suffix == ".parquet":
            return load_dataset(
                "parquet", data_files=str(_present(path)), split=split, cache_dir=cache
            )
        if (path / "state.json").exists() or (path / "dataset_dict.json").exists():
            return _chosen(load_from_disk(name), split, name)
        return load_dataset(name, subset, split=split, cache_dir=cache)
    except (DatasetsError, OSError, ValueError) as error:
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            "a data set must be a local folder, a .parquet file, or a hub name that is "
            f"cached or can be downloaded, and have the split asked for, got {name!r} "
            f"with split {split!r}: {first_line}; {hub_advice()}"
        ) from error


def hub_advice() -> str:
    """What to do where a data set is not on this machine."""
    import huggingface_hub.constants

    if not huggingface_hub.constants.HF_HUB_OFFLINE:
        return "check both"
    words = ["accredit", *sys.argv[1:]]
    if Path(sys.argv[0]).name not in ("accredit", "cli.py", "__main__.py"):
        return "check both; the hub is offline: set HF_HUB_OFFLINE=0 to download it"
    return (
        "check both; the hub is offline, so download it once with: HF_HUB_OFFLINE=0 "
        + shlex.join(words)
    )


def _chosen(saved: "Dataset | DatasetDict", split: str, name: str) -> "Dataset":
    from datasets import Dataset

    if isinstance(saved, Dataset):
        tables = {str(saved.split or DEFAULT_SPLIT): saved}
    else:
        tables = {str(key): table for key, table in saved.items()}
    if split not in tables:
        raise ValueError(unknown_name("split", split, sorted(tables), name))
    return tables[split]


def _present(path: Path) -> Path:
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    return path


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    """This library draws its own."""
    from datasets.utils import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    shown = not are_progress_bars_disabled()
    disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            enable_progress_bars()
