"""Files of a run's folder: written whole, and never through a link.

Whoever may write into a run's folder must not choose by it what else is written: a
link, a pipe or a device in the place of a file of ours is refused by name.
"""

import os
import stat
from pathlib import Path
from typing import IO

_FLAGS = {
    "rb": os.O_RDONLY,
    "wb": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "a+b": os.O_RDWR | os.O_CREAT | os.O_APPEND,
}
PARTIAL = ".partial"
"""Ends the name of what is not written whole yet."""


def open_plain(path: Path, mode: str) -> IO[bytes]:
    """An ordinary file, opened as `rb`, `wb` or `a+b`.

    Raises:
        ValueError: something else stands there.
    """
    require_plain(path)
    # Between look and opening the file may change: no link is followed, no pipe waits.
    flags = _FLAGS[mode] | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.fdopen(os.open(path, flags, 0o666), mode)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError(refusal(path))
    return file


def require_plain(path: Path) -> None:
    """Nothing, where there is an ordinary file, a folder, or nothing.

    Raises:
        ValueError: it is a link, a pipe, a socket or a device.
    """
    try:
        kind = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        raise ValueError(refusal(path))


def require_plain_entries(folder: Path) -> None:
    """Nothing, where a folder and all that stands in it are plain.

    Raises:
        ValueError: one is not; it is named.
    """
    require_plain(folder)
    if folder.is_dir():
        for entry in sorted(folder.iterdir()):
            require_plain(entry)


def refusal(path: Path) -> str:
    """What is said of a file that is none."""
    found = f"a link to {os.readlink(path)}" if path.is_symlink() else "no such file"
    return (
        f"{path} must be an ordinary file or folder of the run, got {found}; remove it"
    )


def write_whole(path: Path, content: bytes) -> None:
    """Puts `content` in the place of a file; a kill leaves the old one or the new."""
    beside = path.with_name(path.name + PARTIAL)
    with open_plain(beside, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
