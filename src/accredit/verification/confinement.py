"""The weakest form of a sandbox: code that may not signal, outlive or outbreed us.

    worker      leads a session; runs the code
    init        first process of a pid namespace; waits for the worker, reaps orphans
    supervisor  what the trainer started; waits for init

What runs in a pid namespace can name no process outside it, and dies with its first
process, however it forked; the user namespace keeps the trainer's `/proc` files closed.
Where the system refuses namespaces, the supervisor adopts and ends all descendants, but
code of the same user can then still signal the trainer: `Form.SESSION`.

Standard library only. Files and the network are not confined.
"""

import contextlib
import ctypes
import os
import resource
import signal
import sys
import sysconfig
from enum import StrEnum
from pathlib import Path

MAX_PROCESSES = 400
"""Of one worker with all its descendants; Linux allows no limit below 301."""
_NEW_USER, _NEW_PID = 0x10000000, 0x20000000
_PARENT_DEATH_SIGNAL, _CHILD_SUBREAPER = 1, 36
_ROUNDS = 50


class Form(StrEnum):
    """How a worker is held."""

    PLAIN = "plain"
    """In a session of its own: for code that is not a stranger's."""
    SESSION = "session"
    """With every descendant ended as well."""
    NAMESPACES = "namespaces"
    """And with no process in reach but its own."""


def confine(wanted: Form, descriptor: int) -> Form:
    """Returns in the worker alone, with the form that the system granted.

    The calling process stays as supervisor and ends with the worker. `descriptor` is
    the worker's, and closed everywhere else.
    """
    if wanted is Form.PLAIN or not sys.platform.startswith("linux"):
        return Form.PLAIN
    _die_with_parent()
    granted = Form.SESSION
    if wanted is Form.NAMESPACES and _grants_namespaces():
        _enter_namespaces()
        granted = wanted
    else:
        _prctl(_CHILD_SUBREAPER, 1)
    inner = os.fork()
    if inner:
        os.close(descriptor)
        _wait_for(inner)
        if granted is Form.SESSION:
            end_descendants(os.getpid())
        os._exit(0)
    _die_with_parent()
    if granted is Form.NAMESPACES:
        _limit_processes()
        worker = os.fork()
        if worker:
            os.close(descriptor)
            _wait_for(worker)
            os._exit(0)
    # kill(0, ...) of the worker reaches its own group and not its supervisors'.
    os.setsid()
    return granted


def end_descendants(ancestor: int) -> None:
    """Kills every descendant of a process that adopts its orphans; Linux only."""
    for _ in range(_ROUNDS):
        found = descendants(ancestor)
        if not found:
            return
        for process in found:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        if ancestor == os.getpid():
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def descendants(ancestor: int) -> list[int]:
    """Living processes below `ancestor`, as far as the system tells."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            _, _, rest = (folder / "stat").read_text("latin-1").rpartition(")")
        except OSError:
            continue
        state, parent = rest.split()[:2]
        if state not in "ZX":
            children.setdefault(int(parent), []).append(int(folder.name))
    found, waiting = [], [ancestor]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def is_standard(entry: str) -> bool:
    """Whether a line of the import path holds the standard library."""
    library = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    version = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
    return os.path.basename(entry) == version or any(
        entry in (folder, os.path.join(folder, "lib-dynload")) for folder in library
    )


def _wait_for(process: int) -> None:
    """Reaps children, adopted ones too, until this one has ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, 0)[0] != process:
            pass


def _grants_namespaces() -> bool:
    """Whether a child of this process may enter namespaces: there is no way back."""
    probe = os.fork()
    if probe == 0:
        try:
            _enter_namespaces()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(probe, 0)[1] == 0


def _enter_namespaces() -> None:
    """Puts this process's later children into namespaces; OSError where refused."""
    user, group = os.geteuid(), os.getegid()
    if ctypes.CDLL(None).unshare(_NEW_USER | _NEW_PID):
        raise OSError("namespaces are refused")
    # Everything keeps the owner that it had.
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _limit_processes() -> None:
    """Bounds a fork bomb where the system can; a call's deadline ends it anyway."""
    with contextlib.suppress(OSError):
        Path("/proc/sys/kernel/pid_max").write_text(str(MAX_PROCESSES))
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NPROC, (MAX_PROCESSES, MAX_PROCESSES))


def _die_with_parent() -> None:
    _prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)
