"""Checkpoint folders that are whole or refused.

    root/step-000123/
        state.json       what the algorithm carries
        ...              whatever the caller writes (model, optimizer)
        manifest.json    size and SHA-256 of each file above
        COMPLETE         SHA-256 of the manifest, written last

A folder is written under a hidden name beside its place, every file is synced, the
marker comes last, and one rename makes it visible. A crash at any point leaves either
the old set of checkpoints or the new one. Knows no model and no optimizer.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any

from safetensors import SafetensorError

from accredit.records import State
from accredit.storage.files import PARTIAL, require_plain, require_plain_entries
from accredit.storage.state_json import state_from_json, state_json

STATE = "state.json"
MANIFEST = "manifest.json"
MARKER = "COMPLETE"
REPLACED = ".replaced"
NAME = re.compile(r"step-(\d{6,})(\.replaced)?")


class CheckpointNotSaved(OSError):
    """The disk refused a checkpoint; those saved before it stay as they are."""


def checkpoint_name(step: int) -> str:
    """The folder name of a step."""
    return f"step-{step:06d}"


def save_checkpoint(
    root: Path, step: int, write: Callable[[Path], None], state: State
) -> Path:
    """Saves what `write` puts into the folder it is given, and `state`, atomically.

    Replaces a checkpoint of the same step; the old one stays until the new one stands.

    Raises:
        CheckpointNotSaved: The disk is full or fails. Nothing partial is left behind.
    """
    text = state_json(state)
    final = root / checkpoint_name(step)
    partial = hidden_name(final)
    require_plain_entries(root)
    with reported_as_not_saved(final), removed_unless_renamed(partial):
        root.mkdir(parents=True, exist_ok=True)
        remove_leftovers(root)
        partial.mkdir()
        write(partial)
        (partial / STATE).write_text(text, encoding="utf-8")
        seal(partial)
        rename_over(partial, final)
    return final


def latest_checkpoint(root: Path) -> Path | None:
    """The newest checkpoint that is whole; None where there is none.

    Each newer one that is torn is refused by name, in a warning.
    """
    for folder in checkpoints(root):
        fault = checkpoint_fault(folder)
        if fault is None:
            return folder
        warnings.warn(
            f"checkpoint {folder.name} in {root} is torn and not used: {fault}; "
            "falling back to the one before it",
            stacklevel=2,
        )
    return None


def load_state(folder: Path, memory_type: type) -> State:
    """The algorithm's state of a checkpoint, exactly as it was saved.

    `memory_type` is that of the algorithm's memory.

    Raises:
        ValueError: the file is damaged; it is named.
    """
    file = folder / STATE
    try:
        return state_from_json(file.read_text(encoding="utf-8"), memory_type)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def checkpoint_fault(folder: Path) -> str | None:
    """Why a checkpoint may not be used; None if every byte is as it was written."""
    if folder.is_symlink():
        return "it is a link"
    try:
        if not (folder / MARKER).is_file() or (folder / MARKER).is_symlink():
            return f"it has no {MARKER} marker"
        if not (folder / MANIFEST).is_file() or (folder / MANIFEST).is_symlink():
            return f"it has no {MANIFEST}"
        content = (folder / MANIFEST).read_bytes()
        sealed = (folder / MARKER).read_text(encoding="ascii", errors="replace")
        if hashlib.sha256(content).hexdigest() != sealed:
            return f"{MANIFEST} is not the one that {MARKER} seals"
        manifest = manifest_of(content)
        if manifest is None:
            return f"{MANIFEST} does not list files with size and checksum"
        for name, expected in manifest.items():
            if not (folder / name).is_file() or (folder / name).is_symlink():
                return f"{name} is missing"
            found = fingerprint(folder / name)
            if found["bytes"] != expected["bytes"]:
                return f"{name} has {found['bytes']} bytes, not {expected['bytes']}"
            if found != expected:
                return f"{name} has another checksum than when it was written"
    except OSError as error:
        return f"it cannot be read ({error})"
    return None


def manifest_of(content: bytes) -> dict[str, dict[str, Any]] | None:
    """What a manifest lists; None where it is none of ours."""
    try:
        manifest = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(manifest, dict) or STATE not in manifest:
        return None
    inside = all(
        name and not PurePath(name).is_absolute() and ".." not in PurePath(name).parts
        for name in manifest
    )
    known = all(
        isinstance(file, dict) and file.keys() == {"bytes", "sha256"}
        for file in manifest.values()
    )
    return manifest if inside and known else None


def prune_checkpoints(
    root: Path, keep_last: int, protected: Collection[int] = ()
) -> list[Path]:
    """Removes checkpoints beyond the newest `keep_last`, and says which.

    The steps in `protected` (the best so far) stay. Torn folders neither count nor are
    touched, and nothing is removed unless a checkpoint that stays is verified whole.
    """
    if keep_last < 1:
        raise ValueError(f"keep_last must be >= 1, got {keep_last}")
    complete = [folder for folder in checkpoints(root) if (folder / MARKER).is_file()]
    staying = [
        folder
        for rank, folder in enumerate(complete)
        if rank < keep_last or checkpoint_step(folder) in protected
    ]
    doomed = [folder for folder in complete if folder not in staying]
    if not doomed or all(checkpoint_fault(folder) for folder in staying):
        return []
    for folder in doomed:
        # Hidden first: a kill amid the removal must not leave a torn checkpoint.
        hidden = hidden_name(folder)
        shutil.rmtree(hidden, ignore_errors=True)
        folder.rename(hidden)
        shutil.rmtree(hidden)
    return doomed


def checkpoint_step(folder: Path) -> int:
    """The step a checkpoint folder is named after."""
    match = NAME.fullmatch(folder.name)
    if match is None:
        raise ValueError(f"a checkpoint is named step-000123, got {folder.name!r}")
    return int(match[1])


def checkpoints(root: Path) -> list[Path]:
    """All checkpoint folders, newest first, whole or not.

    A folder left as `.replaced` by a crash ranks behind the one that replaced it.
    """
    require_plain(root)
    if not root.is_dir():
        return []
    folders = [f for f in root.iterdir() if f.is_dir() and NAME.fullmatch(f.name)]
    return sorted(
        folders, key=lambda f: (checkpoint_step(f), f.suffix == ""), reverse=True
    )


def seal(folder: Path) -> None:
    """Syncs every file, writes the manifest, then the marker that makes it complete."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    manifest = {
        path.relative_to(folder).as_posix(): fingerprint(path) for path in files
    }
    text = json.dumps(manifest, indent=1, sort_keys=True)
    (folder / MANIFEST).write_text(text, encoding="utf-8")
    for path in [*files, folder / MANIFEST]:
        sync(path)
    for path in [*(p for p in folder.rglob("*") if p.is_dir()), folder]:
        sync(path)
    digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
    (folder / MARKER).write_text(digest, encoding="ascii")
    sync(folder / MARKER)
    sync(folder)


def fingerprint(path: Path) -> dict[str, int | str]:
    """Size and SHA-256 of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"bytes": os.fstat(file.fileno()).st_size, "sha256": digest}


def sync(path: Path) -> None:
    """Makes a file's bytes, or a folder's entries, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename_over(source: Path, target: Path) -> None:
    """Puts `source` in `target`'s place; the old folder goes last."""
    replaced = target.with_name(f"{target.name}{REPLACED}")
    if target.exists():
        shutil.rmtree(replaced, ignore_errors=True)
        target.rename(replaced)
    source.rename(target)
    sync(target.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def hidden_name(folder: Path) -> Path:
    """Where a checkpoint lies while it is written or removed."""
    return folder.with_name(f".{folder.name}{PARTIAL}")


def remove_leftovers(root: Path) -> None:
    """Deletes what a killed save or removal left.

    A checkpoint that was being replaced takes its place again where its successor never
    came, and goes where it did.
    """
    for path in sorted(root.glob(f".step-*{PARTIAL}")):
        require_plain(path)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    for replaced in sorted(root.glob(f"step-*{REPLACED}")):
        final = replaced.with_suffix("")
        if not final.exists():
            replaced.rename(final)
        elif checkpoint_fault(final) is None:
            shutil.rmtree(replaced)


@contextmanager
def removed_unless_renamed(partial: Path) -> Iterator[None]:
    """Deletes the hidden folder if it is still there, whatever happened."""
    try:
        yield
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def reported_as_not_saved(final: Path) -> Iterator[None]:
    """Turns a disk's refusal, whoever met it, into one clear error."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise CheckpointNotSaved(
            getattr(error, "errno", None) or errno.EIO,
            f"checkpoint {final.name} must fit on the disk of {final.parent}, got "
            f"{error}; earlier checkpoints stay good, free some space to save again",
        ) from error
