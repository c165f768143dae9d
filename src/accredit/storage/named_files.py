"""Files that somebody named: never one that has no end or that waits for a writer."""

import stat
from pathlib import Path

SMALL = 1 << 20
"""Bytes of a file that a person wrote."""
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def require_regular(path: Path, what: str) -> int:
    """Size in bytes of a regular file, or of what a link to one leads to.

    Raises:
        ValueError: it is another kind of thing, or nothing.
    """
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(
            f"{what} must be a readable file, got {path}: {reason}"
        ) from error
    if not stat.S_ISREG(found.st_mode):
        kind = KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise ValueError(
            f"{what} must be a regular file, got {kind} at {path}; write its content "
            "into a file"
        )
    return found.st_size


def small_file(path: Path, what: str, limit: int = SMALL) -> bytes:
    """The content of a regular file of at most `limit` bytes.

    Raises:
        ValueError: it is larger, is another kind of thing, or cannot be read.
    """
    size = require_regular(path, what)
    if size > limit:
        raise ValueError(
            f"{what} must have at most {limit} bytes, got {size} in {path}; "
            "is it the right file?"
        )
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(
            f"{what} must be a readable file, got {path}: {error.strerror}"
        ) from error
