"""Checkpoints are whole or refused, and the previous one stays good."""

import errno
import hashlib
import math
import os
import shutil
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from types import NoneType

import pytest
from safetensors import SafetensorError

from accredit.records import Cost, State
from accredit.storage import checkpoint
from accredit.storage.checkpoint import (
    CheckpointNotSaved,
    checkpoint_fault,
    latest_checkpoint,
    load_state,
    prune_checkpoints,
    remove_leftovers,
    save_checkpoint,
)


def writer(text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "model").mkdir()
        (folder / "model" / "weights").write_text(text)
        (folder / "empty").write_bytes(b"")

    return write


def save(root: Path, step: int, text: str = "abcdef") -> Path:
    return save_checkpoint(root, step, writer(text), State(step=step))


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_a_checkpoint_holds_what_was_written_and_the_state(tmp_path: Path) -> None:
    cost = Cost(0.1, 2.0, 3.0, 4.0, 5.0, 6, 7, 8)
    state = State(7, 7, 12, cost, {"a": 1}, {"gate": [1, None]})
    folder = save_checkpoint(tmp_path / "run", 7, writer("abc"), state)
    assert folder == tmp_path / "run" / "step-000007"
    assert latest_checkpoint(tmp_path / "run") == folder
    assert (folder / "model" / "weights").read_text() == "abc"
    assert load_state(folder, dict) == state
    assert names(tmp_path / "run") == ["step-000007"]


def test_there_is_no_latest_checkpoint_before_the_first(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path / "nowhere") is None
    (tmp_path / "step-12").mkdir()
    (tmp_path / "notes").mkdir()
    assert latest_checkpoint(tmp_path) is None


def test_the_newest_is_the_highest_step_not_the_last_written(tmp_path: Path) -> None:
    for step in (9, 1_000_000, 10):
        save(tmp_path, step)
    assert latest_checkpoint(tmp_path) == tmp_path / "step-1000000"


def drop_marker(folder: Path) -> None:
    (folder / "COMPLETE").unlink()


def drop_file(folder: Path) -> None:
    (folder / "model" / "weights").unlink()


def truncate(folder: Path) -> None:
    os.truncate(folder / "model" / "weights", 3)


def flip_a_bit(folder: Path) -> None:
    (folder / "model" / "weights").write_text("abcdeg")


def change_state(folder: Path) -> None:
    text = (folder / "state.json").read_text()
    (folder / "state.json").write_text(text.replace('"step": 3', '"step": 4'))


def change_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text("{}")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (drop_marker, "it has no COMPLETE marker"),
        (drop_file, "model/weights is missing"),
        (truncate, "model/weights has 3 bytes, not 6"),
        (flip_a_bit, "model/weights has another checksum"),
        (change_state, "state.json has another checksum"),
        (change_manifest, "manifest.json is not the one that COMPLETE seals"),
    ],
)
def test_a_torn_checkpoint_is_refused_by_name_and_the_one_before_it_used(
    tmp_path: Path, damage: Callable[[Path], None], reason: str
) -> None:
    """Case B120."""
    save(tmp_path, 2)
    damage(save(tmp_path, 3))
    with pytest.warns(UserWarning, match=f"step-000003 .* is torn and not .*{reason}"):
        assert latest_checkpoint(tmp_path) == tmp_path / "step-000002"


def test_no_warning_is_given_for_torn_ones_older_than_the_newest(
    tmp_path: Path,
) -> None:
    drop_file(save(tmp_path, 2))
    save(tmp_path, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert latest_checkpoint(tmp_path) == tmp_path / "step-000003"


@pytest.mark.parametrize(
    "failure",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        SafetensorError("Error while serializing: No space left on device"),
    ],
    ids=["python", "safetensors"],
)
def test_a_full_disk_leaves_the_previous_checkpoint_good_and_nothing_else(
    tmp_path: Path, failure: Exception
) -> None:
    save(tmp_path, 2)

    def write(folder: Path) -> None:
        (folder / "weights").write_text("half")
        raise failure

    message = r"checkpoint step-000003 must fit .*No space left.*stay good, free some"
    with pytest.raises(CheckpointNotSaved, match=message):
        save_checkpoint(tmp_path, 3, write, State())
    assert names(tmp_path) == ["step-000002"]
    assert latest_checkpoint(tmp_path) == tmp_path / "step-000002"


def test_a_disk_that_fills_up_at_any_later_point_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sync in turn fails, also while a step is saved for the second time."""
    save(tmp_path, 2, "before")
    for fails_at in range(30):
        calls = 0

        def failing(path: Path, fails_at: int = fails_at) -> None:
            nonlocal calls
            calls += 1
            if calls == fails_at + 1:
                raise OSError(errno.ENOSPC, "No space left on device", str(path))

        monkeypatch.setattr(checkpoint, "sync", failing)
        try:
            save(tmp_path, 2, "behind")
        except CheckpointNotSaved:
            latest = latest_checkpoint(tmp_path)
            assert latest is not None
            assert (latest / "model" / "weights").read_text() in ("before", "behind")
            assert not list(tmp_path.glob(".*"))
        else:
            break
    assert 5 < fails_at < 29
    assert names(tmp_path) == ["step-000002"]
    assert (tmp_path / "step-000002" / "model" / "weights").read_text() == "behind"


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_other_errors_pass_through_and_leave_nothing_behind(
    tmp_path: Path, kind: type[BaseException]
) -> None:
    def write(folder: Path) -> None:
        (folder / "weights").write_text("half")
        raise kind("broken")

    with pytest.raises(kind, match="broken"):
        save_checkpoint(tmp_path, 3, write, State())
    assert names(tmp_path) == []


def test_a_state_that_cannot_be_saved_fails_before_anything_is_written(
    tmp_path: Path,
) -> None:
    with pytest.raises(ValueError, match="must hold JSON values"):
        save_checkpoint(tmp_path, 1, writer("a"), State(cost=Cost(math.nan)))
    assert names(tmp_path) == []


def killed_at_sync(point: int, run: Callable[[], object]) -> int:
    """Exit status of a child that runs until its `point`-th sync, killed there."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    calls = 0
    real = checkpoint.sync

    def sync(path: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == point:
            os.kill(os.getpid(), signal.SIGKILL)
        real(path)

    checkpoint.sync = sync
    try:
        run()
    finally:
        os._exit(0)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize(
    ("point", "step", "expected"),
    [
        # Syncs: state, weights, manifest, folder, marker, folder, then (renamed) root.
        (1, 3, "old"),
        (5, 3, "old"),
        (6, 3, "old"),
        (7, 3, "new"),
        (4, 2, "old"),
        (7, 2, "new"),
    ],
)
def test_kill_while_saving_leaves_the_old_checkpoint_or_the_new(
    tmp_path: Path, point: int, step: int, expected: str
) -> None:
    """Cases B120, B121: SIGKILL at a sync, of a new step and of one saved before."""

    def write(text: str) -> Callable[[Path], None]:
        return lambda folder: (folder / "weights").write_text(text) and None

    save_checkpoint(tmp_path, 2, write("old"), State())
    status = killed_at_sync(
        point, lambda: save_checkpoint(tmp_path, step, write("new"), State())
    )
    assert status == -signal.SIGKILL
    latest = latest_checkpoint(tmp_path)
    assert latest is not None
    assert (latest / "weights").read_text() == expected
    # The next save clears what the kill left.
    save_checkpoint(tmp_path, 4, write("next"), State())
    assert not list(tmp_path.glob(".*"))


def test_a_kill_between_two_renames_leaves_the_replaced_one_to_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1, "old")
    (tmp_path / "step-000001").rename(tmp_path / "step-000001.replaced")
    latest = latest_checkpoint(tmp_path)
    assert latest == tmp_path / "step-000001.replaced"
    assert load_state(latest, NoneType) == State(step=1)
    save(tmp_path, 1, "new")
    assert latest_checkpoint(tmp_path) == tmp_path / "step-000001"
    assert names(tmp_path) == ["step-000001"]


def test_the_last_n_and_the_best_are_kept(tmp_path: Path) -> None:
    for step in range(1, 7):
        save(tmp_path, step)
    removed = prune_checkpoints(tmp_path, keep_last=2, protected=[3])
    assert sorted(folder.name for folder in removed) == [
        "step-000001",
        "step-000002",
        "step-000004",
    ]
    assert names(tmp_path) == ["step-000003", "step-000005", "step-000006"]
    assert prune_checkpoints(tmp_path, keep_last=2, protected=[3]) == []


def test_pruning_never_removes_the_last_good_one(tmp_path: Path) -> None:
    save(tmp_path, 1)
    for step in (2, 3):
        truncate(save(tmp_path, step))
    assert prune_checkpoints(tmp_path, keep_last=1) == []
    with pytest.warns(UserWarning, match="torn"):
        assert latest_checkpoint(tmp_path) == tmp_path / "step-000001"


def test_torn_folders_do_not_count_when_pruning(tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    drop_marker(save(tmp_path, 3))
    prune_checkpoints(tmp_path, keep_last=1)
    assert names(tmp_path) == ["step-000002", "step-000003"]
    with pytest.raises(ValueError, match="keep_last must be >= 1, got 0"):
        prune_checkpoints(tmp_path, keep_last=0)


def test_every_file_is_under_the_seal(tmp_path: Path) -> None:
    folder = save(tmp_path, 1)
    sealed = {"COMPLETE", "manifest.json"}
    for path in [p for p in folder.rglob("*") if p.is_file() and p.name not in sealed]:
        content = path.read_bytes()
        path.write_bytes(content + b"x")
        assert checkpoint_fault(folder) is not None
        path.write_bytes(content)
    assert checkpoint_fault(folder) is None


def resealed(folder: Path, manifest: str) -> None:
    """A manifest of somebody else, with the checksum that it should have."""
    (folder / "manifest.json").write_text(manifest)
    digest = hashlib.sha256(manifest.encode()).hexdigest()
    (folder / "COMPLETE").write_text(digest)


FILE = '{"bytes": 1, "sha256": "0"}'


@pytest.mark.parametrize(
    "manifest",
    [
        "",
        "{",
        "null",
        "[]",
        "{}",
        '"text"',
        '{"state.json": 1}',
        '{"state.json": {"bytes": 1}}',
        f'{{"state.json": {FILE}, "../outside": {FILE}}}',
        f'{{"state.json": {FILE}, "a/../../outside": {FILE}}}',
        f'{{"state.json": {FILE}, "/etc/hostname": {FILE}}}',
        f'{{"state.json": {FILE}, "": {FILE}}}',
        f'{{"other": {FILE}}}',
        "[" * 100_000,
    ],
    ids=range(14),
)
def test_a_manifest_that_is_none_is_refused_by_name(
    tmp_path: Path, manifest: str
) -> None:
    save(tmp_path, 1)
    resealed(save(tmp_path, 2), manifest)
    assert "manifest.json does not list" in str(
        checkpoint_fault(tmp_path / "step-000002")
    )
    with pytest.warns(UserWarning, match="step-000002"):
        assert latest_checkpoint(tmp_path) == tmp_path / "step-000001"


def test_a_checkpoint_that_is_a_link_or_holds_one_is_refused(tmp_path: Path) -> None:
    root, other = tmp_path / "root", save(tmp_path / "other", 3)
    inside = save(root, 1) / "model" / "weights"
    inside.rename(tmp_path / "weights")
    inside.symlink_to(tmp_path / "weights")
    assert checkpoint_fault(root / "step-000001") == "model/weights is missing"
    (root / "step-000003").symlink_to(other)
    assert checkpoint_fault(root / "step-000003") == "it is a link"
    (tmp_path / "linked").symlink_to(root)
    for read in (latest_checkpoint, lambda path: save(path, 4)):
        with pytest.raises(ValueError, match="linked must be an ordinary file"):
            read(tmp_path / "linked")
    with pytest.raises(ValueError, match="step-000003 must be an ordinary file"):
        save(root, 5)
    assert names(root) == ["step-000001", "step-000003"]


def test_what_a_kill_left_goes_with_the_next_run(tmp_path: Path) -> None:
    save(tmp_path, 1)
    for name in (".step-000002.partial", ".step-000003.partial"):
        (tmp_path / name / "model").mkdir(parents=True)
    (tmp_path / ".step-000004.partial").write_text("a file")
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["step-000001"]
    (tmp_path / ".step-000005.partial").symlink_to(tmp_path / "step-000001")
    with pytest.raises(ValueError, match=r"step-000005\.partial must be"):
        remove_leftovers(tmp_path)
    assert checkpoint_fault(tmp_path / "step-000001") is None


def test_a_replacement_that_was_killed_is_undone_or_finished(tmp_path: Path) -> None:
    old = save(tmp_path, 1, "old")
    old.rename(tmp_path / "step-000001.replaced")
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["step-000001"]
    shutil.copytree(old, tmp_path / "step-000001.replaced")
    drop_marker(old)
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["step-000001", "step-000001.replaced"]
    shutil.rmtree(old)
    save(tmp_path, 2)
    assert names(tmp_path) == ["step-000001", "step-000002"]
    shutil.copytree(old, tmp_path / "step-000001.replaced")
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["step-000001", "step-000002"]


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    folder = save(tmp_path, 1)
    (folder / "state.json").write_text("{")
    with pytest.raises(
        ValueError, match=r"step-000001/state\.json: a saved state must"
    ):
        load_state(folder, NoneType)
