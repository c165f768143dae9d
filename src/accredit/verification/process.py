"""The trainer's end of one worker: its process, its socket, and what it prints."""

import contextlib
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from accredit.verification.confinement import Form, end_descendants, is_standard
from accredit.verification.worker import send_frame, take_frame

_BOOTSTRAP = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from accredit.verification.worker import serve; "
    "serve(int(sys.argv[1]), sys.argv[2])"
)
_SUPERVISOR_WAIT_S = 2.0
MAX_PRINTED_BYTES = 64 << 10
"""Of what the workers of a pool print, all together, that reaches standard error."""


class Failure(StrEnum):
    """Why a call has no value."""

    TIMEOUT = "timeout"
    """It was still running at its deadline; its process group was killed."""
    CRASH = "crash"
    """The process died, or spoke something else than the protocol."""
    ERROR = "error"
    """The called function raised."""
    START = "start"
    """No worker could be started."""


@dataclass(frozen=True)
class Outcome:
    """What became of one call: a JSON value, or a failure and its story."""

    value: Any = None
    failure: Failure | None = None
    detail: str = ""
    milestone: str = ""
    """The last one the call announced before it ended."""


@dataclass(frozen=True)
class Task:
    """What every worker of a pool does."""

    factory: str
    """`module:function`, imported in the worker; returns the function to call."""
    arguments: tuple[Any, ...] = ()
    """JSON values the factory is called with."""
    memory_bytes: int | None = 2 << 30
    """Address space of a worker; None sets no limit."""
    start_timeout_s: float = 60.0
    """For the worker's imports; a call's own deadline starts after them."""
    import_path: tuple[str, ...] | None = None
    """None takes the parent's, with the current directory where it says ''. The
    standard library comes first, whatever the order is."""
    environment: Mapping[str, str] | None = None
    """Environment variables; None passes the parent's."""
    form: Form = Form.PLAIN
    """How the workers are held, where the system grants it."""

    def __post_init__(self) -> None:
        if self.start_timeout_s <= 0:
            raise ValueError(f"start_timeout_s must be > 0, got {self.start_timeout_s}")
        if self.memory_bytes is not None and self.memory_bytes < 64 << 20:
            raise ValueError(
                f"memory_bytes must be >= 64 MiB or None, got {self.memory_bytes}"
            )


class StartError(Exception):
    """A worker did not come up; `kind` is the exception it met, by name."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True)
class Started:
    """What a worker says of itself once it is ready."""

    form: Form
    """What the system granted."""
    about: Mapping[str, Any]
    """What the called function says of itself."""


class Printed:
    """What workers print: the beginning goes to standard error, the rest nowhere."""

    def __init__(self, max_bytes: int = MAX_PRINTED_BYTES) -> None:
        self._left = max_bytes
        self._lock = threading.Lock()

    def show(self, printed: bytes) -> None:
        """Shows a piece as text without control characters, if there is room."""
        with self._lock:
            if not printed or self._left <= 0:
                return
            piece, self._left = printed[: self._left], self._left - len(printed)
            text = piece.decode("utf-8", "backslashreplace")
            if self._left <= 0:
                text += "\naccredit: what the workers print from here on is dropped\n"
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write("".join(map(_visible, text)))
            sys.stderr.flush()


def _visible(character: str) -> str:
    if character.isprintable() or character in "\n\t":
        return character
    return character.encode("unicode_escape").decode("ascii")


class Worker:
    """One process and the parent's ends of its socket and of its output."""

    def __init__(self, task: Task, printed: Printed) -> None:
        variables = os.environ if task.environment is None else task.environment
        fixed = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        self._lock = threading.Lock()
        # Reentrant, because a collected pool may close in the middle of its own call.
        self._in_use = threading.RLock()
        self._alive = True
        self._form = task.form
        """Until it says what was granted, the one that was wanted."""
        self._unread = bytearray()
        self._printed = printed
        self._connection, child_end = socket.socketpair()
        output, output_end = os.pipe()
        os.set_blocking(output, False)
        self._output = os.fdopen(output, "rb", buffering=0)
        self._is_silent = False
        descriptor = child_end.fileno()
        try:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-u", "-c", _BOOTSTRAP),
                    *(str(descriptor), task.form),
                    *import_path(task.import_path),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output_end,
                stderr=output_end,
                env={**variables, **fixed},
                pass_fds=(descriptor,),
                start_new_session=True,
            )
        except BaseException:
            self._connection.close()
            self._output.close()
            raise
        finally:
            child_end.close()
            os.close(output_end)

    @property
    def id(self) -> int:
        """Of the process that was started, which is also its group's."""
        return self._process.pid

    def start(self, task: Task) -> Started:
        """Imports and calls the factory; raises `StartError` where that fails."""
        setup = {
            "factory": task.factory,
            "arguments": task.arguments,
            "memory_bytes": task.memory_bytes,
        }
        try:
            with self._in_use:
                ticket, deadline = self._sent(setup, task.start_timeout_s)
                reply = self._reply(ticket, deadline)
        except TimeoutError as error:
            raise StartError("timeout", f"{task.start_timeout_s:g} s") from error
        except (OSError, EOFError, ValueError) as error:
            raise StartError("crash", "the process ended while starting") from error
        if "ready" not in reply:
            raise StartError(str(reply.get("error")), str(reply.get("detail")))
        about = reply.get("about")
        self._form = Form(str(reply.get("form")))
        return Started(self._form, about if isinstance(about, dict) else {})

    def call(self, arguments: Sequence[Any], timeout_s: float) -> Outcome:
        """One call's outcome; after a timeout or a crash the worker must be killed."""
        milestone = ""
        try:
            request = {"arguments": list(arguments), "timeout_s": timeout_s}
            with self._in_use:
                ticket, deadline = self._sent(request, timeout_s)
                while "milestone" in (reply := self._reply(ticket, deadline)):
                    milestone = str(reply["milestone"])
        except TimeoutError:
            detail = f"longer than {timeout_s:g} s"
            return Outcome(None, Failure.TIMEOUT, detail, milestone)
        except (OSError, EOFError, ValueError):
            return Outcome(None, Failure.CRASH, "the process died", milestone)
        if "value" in reply:
            return Outcome(reply["value"], milestone=milestone)
        detail = f"{reply.get('error')}: {reply.get('detail')}"
        return Outcome(None, Failure.ERROR, detail, milestone)

    def _sent(self, request: dict[str, Any], timeout_s: float) -> tuple[str, float]:
        """Sends a request; returns its id, which no other frame has, and deadline."""
        deadline, ticket = time.monotonic() + timeout_s, secrets.token_hex(16)
        self._connection.settimeout(timeout_s)
        send_frame(self._connection, {"id": ticket, **request})
        return ticket, deadline

    def _reply(self, ticket: str, deadline: float) -> dict[str, Any]:
        """The next frame that answers this request; what answers none is dropped."""
        while True:
            frame = take_frame(self._unread)
            if frame is not None and frame.get("id") == ticket:
                self._show_output()
                return frame
            if frame is None:
                self._wait(deadline)
            elif time.monotonic() > deadline:
                raise TimeoutError

    def _wait(self, deadline: float) -> None:
        """Until something arrived on the socket or was printed."""
        left = deadline - time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection, selectors.EVENT_READ)
            if not self._is_silent:
                selector.register(self._output, selectors.EVENT_READ)
            ready = (
                [key.fileobj for key, _ in selector.select(left)] if left > 0 else []
            )
        if not ready:
            raise TimeoutError
        self._show_output()
        if self._connection in ready:
            piece = self._connection.recv(1 << 20)
            if not piece:
                raise EOFError
            self._unread += piece

    def _show_output(self) -> None:
        """Shows what the pipe holds now."""
        # Bounded, so that a call that prints for ever still meets its deadline.
        for _ in range(64):
            piece = self._output.read(1 << 16)
            if not piece:
                self._is_silent = piece is not None
                return
            self._printed.show(piece)

    def kill(self) -> None:
        """Ends the worker with all that it started, and reaps it; idempotent."""
        with self._lock:
            if not self._alive:
                return
            self._alive = False
            if self._form is not Form.PLAIN:
                # The supervisor is left to reap them, and to end.
                end_descendants(self._process.pid)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_SUPERVISOR_WAIT_S)
            if self._process.poll() is None:
                # Not yet waited for, so the group's number cannot have been reused.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            # A descriptor closed under a thread that waits for it never wakes the
            # thread: it is shut down, and closed when the thread is through.
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
            with self._in_use:
                self._connection.close()
                self._output.close()


def import_path(wanted: Sequence[str] | None) -> list[str]:
    """Where a worker imports from: nothing stands before the standard library."""
    entries = [entry or os.getcwd() for entry in (wanted or sys.path)]
    return sorted(entries, key=lambda entry: not is_standard(entry))
