"""Calls that may hang, crash or eat memory, with deadlines, in killable processes.

Knows processes, no mathematics. Every worker leads its own session, so that its whole
process group dies with it; a killed worker is waited for, so that no zombie stays. The
pool costs nothing until its first call, may be shared by threads, and never uses
signals, so that no thread is special.
"""

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from accredit.verification.worker import receive_frame, send_frame

_BOOTSTRAP = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from accredit.verification.worker import serve; serve(int(sys.argv[1]))"
)
_CLOSE_WAIT_S = 5.0
_PLAIN_ENVIRONMENT = (
    "PATH",
    "HOME",
    "TMPDIR",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LD_LIBRARY_PATH",
)


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
    """None takes the parent's, with the current directory where it says ''."""
    environment: Mapping[str, str] | None = None
    """Environment variables; None passes the parent's."""

    def __post_init__(self) -> None:
        if self.start_timeout_s <= 0:
            raise ValueError(f"start_timeout_s must be > 0, got {self.start_timeout_s}")
        if self.memory_bytes is not None and self.memory_bytes < 64 << 20:
            raise ValueError(
                f"memory_bytes must be >= 64 MiB or None, got {self.memory_bytes}"
            )


def plain_environment() -> dict[str, str]:
    """The parent's variables that a worker needs to run, and none of its secrets."""
    return {name: os.environ[name] for name in _PLAIN_ENVIRONMENT if name in os.environ}


class StartError(Exception):
    """A worker did not come up; `kind` is the exception it met, by name."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind
        self.detail = detail


class _Worker:
    """One process and the parent's end of its socket."""

    def __init__(self, task: Task) -> None:
        path = task.import_path or tuple(sys.path)
        variables = os.environ if task.environment is None else task.environment
        fixed = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        self._lock = threading.Lock()
        self._alive = True
        self._connection, child_end = socket.socketpair()
        with child_end:
            arguments = [str(child_end.fileno()), *(p or os.getcwd() for p in path)]
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _BOOTSTRAP, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=2,
                    env={**variables, **fixed},
                    pass_fds=(child_end.fileno(),),
                    start_new_session=True,
                )
            except BaseException:
                self._connection.close()
                raise

    @property
    def id(self) -> int:
        """Of the process, which is also its group's."""
        return self._process.pid

    def start(self, task: Task) -> None:
        """Imports and calls the factory; raises `StartError` where that fails."""
        setup = {
            "factory": task.factory,
            "arguments": task.arguments,
            "memory_bytes": task.memory_bytes,
        }
        try:
            self._connection.settimeout(task.start_timeout_s)
            send_frame(self._connection, setup)
            reply = receive_frame(self._connection)
        except TimeoutError as error:
            raise StartError("timeout", f"{task.start_timeout_s:g} s") from error
        except (OSError, EOFError, ValueError) as error:
            raise StartError("crash", "the process ended while starting") from error
        if "ready" not in reply:
            raise StartError(str(reply.get("error")), str(reply.get("detail")))

    def call(self, arguments: Sequence[Any], timeout_s: float) -> Outcome:
        """One call's outcome; after a timeout or a crash the worker must be killed."""
        deadline = time.monotonic() + timeout_s
        milestone = ""
        try:
            self._connection.settimeout(timeout_s)
            request = {"arguments": list(arguments), "timeout_s": timeout_s}
            send_frame(self._connection, request)
            while True:
                self._connection.settimeout(max(deadline - time.monotonic(), 1e-3))
                reply = receive_frame(self._connection)
                if "milestone" not in reply:
                    break
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

    def kill(self) -> None:
        """Ends the whole process group and reaps the process; idempotent."""
        with self._lock:
            if self._alive:
                self._alive = False
                # Not yet waited for, so the group's number cannot have been reused.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
                self._connection.close()


@dataclass
class _Shared:
    """What slots and pool share; slots hold no pool, so that it can be collected."""

    task: Task
    jobs: "queue.SimpleQueue[_Job | None]" = field(default_factory=queue.SimpleQueue)
    workers: set[_Worker] = field(default_factory=set)
    lock: threading.RLock = field(default_factory=threading.RLock)
    closed: bool = False
    num_pending: int = 0
    """Calls queued or running, which decides how many slots are worth starting."""

    def started_worker(self) -> _Worker:
        with self.lock:
            if self.closed:
                raise StartError("closed", "the pool is closed")
            worker = _Worker(self.task)
            self.workers.add(worker)
        try:
            worker.start(self.task)
        except BaseException:
            self.drop(worker)
            raise
        return worker

    def drop(self, worker: _Worker) -> None:
        with self.lock:
            self.workers.discard(worker)
        worker.kill()


@dataclass(frozen=True)
class _Job:
    arguments: Sequence[Any]
    timeout_s: float
    future: "Future[Outcome]"


def _slot(shared: _Shared) -> None:
    worker: _Worker | None = None
    while (job := shared.jobs.get()) is not None:
        if job.future.set_running_or_notify_cancel():
            try:
                worker, outcome = _called(shared, worker, job)
                job.future.set_result(outcome)
            except BaseException as error:
                job.future.set_exception(error)
        with shared.lock:
            shared.num_pending -= 1
    if worker:
        shared.drop(worker)


def _called(
    shared: _Shared, worker: _Worker | None, job: _Job
) -> tuple[_Worker | None, Outcome]:
    """The slot's worker after one call, None where it had to be killed."""
    try:
        worker = worker or shared.started_worker()
    except (StartError, OSError) as error:
        return None, Outcome(None, Failure.START, str(error))
    outcome = worker.call(job.arguments, job.timeout_s)
    if outcome.failure in (Failure.TIMEOUT, Failure.CRASH):
        shared.drop(worker)
        return None, outcome
    return worker, outcome


def _close(shared: _Shared, threads: list[threading.Thread]) -> None:
    with shared.lock:
        shared.closed = True
        workers = list(shared.workers)
    for worker in workers:
        shared.drop(worker)
    for _ in threads:
        shared.jobs.put(None)
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(_CLOSE_WAIT_S)


class Pool:
    """A fixed number of killable workers behind one queue, first come first served."""

    def __init__(self, task: Task, num_workers: int) -> None:
        if num_workers < 1:
            raise ValueError(f"num_workers must be >= 1, got {num_workers}")
        self._shared = _Shared(task)
        self._num_workers = num_workers
        self._threads: list[threading.Thread] = []
        # Runs at garbage collection or at interpreter exit, whichever comes first.
        self._finalizer = weakref.finalize(self, _close, self._shared, self._threads)

    def run(self, calls: Sequence[Sequence[Any]], timeout_s: float) -> list[Outcome]:
        """The outcome of each call, in order; `timeout_s` is each call's own deadline.

        Raises:
            ValueError: The pool is closed, or an argument is not a JSON value.
        """
        for arguments in calls:
            _check_json(arguments)
        futures: list[Future[Outcome]] = [Future() for _ in calls]
        with self._shared.lock:
            if self._shared.closed:
                raise ValueError("the pool must be open, got a call after close()")
            self._shared.num_pending += len(calls)
            self._grow(self._shared.num_pending)
            for arguments, future in zip(calls, futures, strict=True):
                self._shared.jobs.put(_Job(arguments, timeout_s, future))
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def check(self) -> None:
        """Starts and ends one worker; raises `StartError` where that fails."""
        self._shared.drop(self._shared.started_worker())

    def worker_ids(self) -> tuple[int, ...]:
        """Process ids of the workers that live now."""
        with self._shared.lock:
            return tuple(worker.id for worker in self._shared.workers)

    def _grow(self, num_wanted: int) -> None:
        while len(self._threads) < min(num_wanted, self._num_workers):
            thread = threading.Thread(target=_slot, args=(self._shared,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        """Kills all workers; calls still running end as crashes. Idempotent."""
        self._finalizer()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_json(arguments: Sequence[Any]) -> None:
    try:
        json.dumps(list(arguments), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"arguments must be finite JSON values, got {error}; convert them first"
        ) from error
