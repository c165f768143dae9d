"""Calls that may hang, crash or eat memory, with deadlines, in killable processes.

Knows processes, no mathematics. Every worker leads its own session, so that its whole
process group dies with it; a killed worker is waited for, so that no zombie stays. The
pool costs nothing until its first call, may be shared by threads, and never uses
signals, so that no thread is special.
"""

import json
import os
import queue
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from accredit.verification.process import (
    Failure,
    Outcome,
    Printed,
    Started,
    StartError,
    Task,
    Worker,
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


def plain_environment() -> dict[str, str]:
    """The parent's variables that a worker needs to run, and none of its secrets."""
    return {name: os.environ[name] for name in _PLAIN_ENVIRONMENT if name in os.environ}


@dataclass
class _Shared:
    """What slots and pool share; slots hold no pool, so that it can be collected."""

    task: Task
    jobs: "queue.SimpleQueue[_Job | None]" = field(default_factory=queue.SimpleQueue)
    workers: set[Worker] = field(default_factory=set)
    printed: Printed = field(default_factory=Printed)
    lock: threading.RLock = field(default_factory=threading.RLock)
    closed: bool = False
    num_pending: int = 0
    """Calls queued or running, which decides how many slots are worth starting."""

    def started_worker(self) -> tuple[Worker, Started]:
        with self.lock:
            if self.closed:
                raise StartError("closed", "the pool is closed")
            worker = Worker(self.task, self.printed)
            self.workers.add(worker)
        try:
            return worker, worker.start(self.task)
        except BaseException:
            self.drop(worker)
            raise

    def drop(self, worker: Worker) -> None:
        with self.lock:
            self.workers.discard(worker)
        worker.kill()


@dataclass(frozen=True)
class _Job:
    arguments: Sequence[Any]
    timeout_s: float
    future: "Future[Outcome]"


def _slot(shared: _Shared) -> None:
    worker: Worker | None = None
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
    shared: _Shared, worker: Worker | None, job: _Job
) -> tuple[Worker | None, Outcome]:
    """The slot's worker after one call, None where it had to be killed."""
    try:
        worker = worker or shared.started_worker()[0]
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

    def check(self) -> Started:
        """Starts and ends one worker; raises `StartError` where that fails."""
        worker, started = self._shared.started_worker()
        self._shared.drop(worker)
        return started

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
