"""The files of a model directory, looked at before anything of them is loaded.

Weights are sized from their headers, so that what does not fit, or is no number that a
model computes with, is refused before memory is taken for it. Whatever a third-party
loader raises becomes one line.
"""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from accredit.storage.named_files import KINDS, small_file
from accredit.text import printable, shortened, within

INDEX = "model.safetensors.index.json"
WHOLE = "model.safetensors"
ADAPTER = "adapter_config.json"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
)
FLOATS = ("F64", "F32", "F16", "BF16")
"""Types of stored numbers that a model computes with."""
JSON_BYTES = 1 << 26
"""Of a configuration or an index; tokenizers may be larger."""
LINE = 160
"""Characters of a library's message that are passed on."""


class Stored(NamedTuple):
    """What a header says of one tensor."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Numbers in it."""
        count = 1
        for side in self.shape:
            count *= side
        return count


@contextmanager
def loading(what: str, folder: Path, advice: str) -> Iterator[None]:
    """Whatever a library raises inside is one line that names the directory.

    Raises:
        ValueError: for every error but those that end the process.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, Told):
        raise
    except BaseException as error:  # The Rust tokenizers panic outside of Exception.
        raise Told(
            f"{what} in {folder} must load, got {one_line(error)}; {advice}"
        ) from error


class Told(ValueError):
    """What is wrong with a model directory, in our own words."""


def one_line(error: BaseException) -> str:
    """The first line of a library's message, cut to what a terminal shows."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    kind = type(error).__name__
    said = printable(lines[0].strip()) if lines else kind
    if isinstance(error, KeyError | IndexError | AttributeError | TypeError):
        said = f"{kind}: {said}"
    return within(said, LINE)


def require_plain_files(folder: Path) -> None:
    """Nothing, where every entry is a file or a folder.

    Raises:
        Told: one is a pipe or a device, on which a loader would wait, or leads nowhere.
    """
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        try:
            mode = entry.stat().st_mode
        except OSError as error:
            raise Told(
                f"a model directory must hold files that can be read, got "
                f"{entry.path}: {error.strerror}"
            ) from error
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            kind = KINDS.get(stat.S_IFMT(mode), "something else")
            raise Told(f"a model directory must hold files, got {kind} at {entry.path}")


def json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a model directory.

    Raises:
        Told: it is no JSON, or no object.
    """
    try:
        found = json.loads(small_file(path, path.name, JSON_BYTES))
    except (ValueError, RecursionError) as error:
        raise Told(
            f"{path.name} of {path.parent} must be JSON, got {one_line(error)}; copy "
            "the directory again"
        ) from error
    if not isinstance(found, dict):
        raise Told(
            f"{path.name} of {path.parent} must hold a JSON object, got "
            f"{shortened(found)}; copy the directory again"
        )
    return found


def weight_files(folder: Path) -> list[Path]:
    """The files that hold the weights: one, or those that the index names.

    Raises:
        Told: the index is malformed, or a file is missing.
    """
    if (folder / WHOLE).is_file():
        return [folder / WHOLE]
    if not (folder / INDEX).is_file():
        raise Told(
            f"a model directory must hold {WHOLE}, or {INDEX} beside several files, "
            f"got {folder} without either; save the model with save_pretrained"
        )
    names = json_object(folder / INDEX).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise Told(
            f"{INDEX} of {folder} must map each tensor to its file in weight_map, got "
            f"{shortened(names)}; copy the directory again"
        )
    files: list[Path] = []
    for name in dict.fromkeys(map(str, names.values())):
        if name != os.path.basename(name) or not (folder / name).is_file():
            raise Told(
                f"{INDEX} of {folder} must name files beside it, got "
                f"{shortened(name)}; copy the directory again"
            )
        files.append(folder / name)
    return files


def stored_tensors(folder: Path) -> dict[str, Stored]:
    """Type and shape of every tensor, from the headers alone.

    Raises:
        Told: a file is no safetensors file, or is cut off.
    """
    from safetensors import safe_open

    found: dict[str, Stored] = {}
    for path in weight_files(folder):
        with (
            loading("the weights", folder, "copy the directory again"),
            safe_open(path, framework="pt") as tensors,
        ):
            for name in tensors.keys():  # noqa: SIM118 - no mapping
                part = tensors.get_slice(name)
                found[name] = Stored(part.get_dtype(), tuple(part.get_shape()))
    return found


def free_bytes() -> int:
    """Memory that this process may still take."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        for line in meminfo.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                found.append(1024 * int(line.split()[1]))
    return min(found)
