"""A user's own reward: one Python function, which a recipe names `module:function`."""

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from accredit.text import without_lone_surrogates
from accredit.types import LARGEST_REWARD, Problem, Rollout, Verdict
from accredit.verification.confinement import Form
from accredit.verification.pool import Pool, plain_environment
from accredit.verification.process import Failure, Outcome, Started, StartError, Task
from accredit.verification.screening import unscorable
from accredit.verification.user_function import split_name

_FACTORY = "accredit.verification.user_function:scorer"


class FunctionVerifier:
    """`reward(completion: str, problem) -> float | None`, called in a killable worker.

    `problem` has the fields of `types.Problem`. Whatever goes wrong in the function is
    a verdict of None that says so: an exception, no answer by the deadline, NaN, more
    than one number. The current directory can be imported from, behind the standard
    library. The worker is confined (see `confinement`), has a plain environment, and of
    what it prints the beginning goes to standard error.
    """

    def __init__(
        self,
        name: str,
        num_workers: int = 1,
        timeout_s: float = 10.0,
        memory_bytes: int | None = None,
        start_timeout_s: float = 60.0,
        environment: Sequence[str] = (),
    ) -> None:
        """Starts nothing yet; `check` says whether the function can be loaded.

        Args:
            name: `module:function`.
            num_workers: Processes that call it, started when first needed.
            timeout_s: Seconds for one call.
            memory_bytes: Address space of one worker; None sets no limit.
            start_timeout_s: Seconds for importing the module.
            environment: Names of variables that it sees beside the plain ones.
        """
        split_name(name)
        if timeout_s <= 0:
            raise ValueError(f"timeout_s must be > 0, got {timeout_s}")
        self._name = name
        self._timeout_s = timeout_s
        self._started: Started | None = None
        named = {key: os.environ[key] for key in environment if key in os.environ}
        task = Task(
            _FACTORY,
            arguments=(name, os.getcwd()),
            memory_bytes=memory_bytes,
            start_timeout_s=start_timeout_s,
            environment={**plain_environment(), **named},
            form=Form.NAMESPACES,
        )
        self._pool = Pool(task, num_workers)

    def check(self) -> None:
        """Loads the function once, in a worker.

        Raises:
            ValueError: The module or the function is missing, or does not import.
        """
        try:
            self._started = self._pool.check()
        except StartError as error:
            raise ValueError(_start_failure(self._name, error)) from error

    @property
    def source(self) -> str:
        """SHA-256 of the function's module and those beside it, once checked."""
        return str(self._started.about.get("source", "")) if self._started else ""

    @property
    def weakness(self) -> str:
        """What the system would not grant, in one line; empty where it granted all."""
        if self._started is None or self._started.form is Form.NAMESPACES:
            return ""
        return (
            f"reward function {self._name!r} runs without namespaces, which this "
            "system refuses: it could signal the trainer (docs/security.md)"
        )

    def verify(self, items: Sequence[tuple[Problem, str, Rollout]]) -> list[Verdict]:
        """One verdict an item, in order."""
        excluded = [unscorable(problem, rollout) for problem, _, rollout in items]
        calls = [
            [without_lone_surrogates(completion), _record(problem)]
            for (problem, completion, _), verdict in zip(items, excluded, strict=True)
            if verdict is None
        ]
        outcomes = iter(self._pool.run(calls, self._timeout_s))
        return [verdict or self._verdict(next(outcomes)) for verdict in excluded]

    def _verdict(self, outcome: Outcome) -> Verdict:
        if outcome.failure is Failure.TIMEOUT:
            return self._invalid(f"took longer than {self._timeout_s:g} s")
        if outcome.failure is Failure.START:
            return self._invalid(f"could not be loaded: {outcome.detail}")
        if outcome.failure is not None:
            return self._invalid(f"ended its process ({outcome.detail})")
        reply = outcome.value if isinstance(outcome.value, dict) else {}
        if "invalid" in reply:
            return self._invalid(str(reply["invalid"]))
        reward = reply.get("reward", reply)
        if reward is None:
            return self._invalid("returned None")
        if not isinstance(reward, float) or not math.isfinite(reward):
            return self._invalid(f"had a reply of another shape, {outcome.value!r:.80}")
        if abs(reward) > LARGEST_REWARD:
            return self._invalid(f"returned {reward:g}, beyond +-{LARGEST_REWARD:g}")
        return Verdict(reward)

    def _invalid(self, story: str) -> Verdict:
        reason = f"reward function {self._name!r} {story}"
        return Verdict(None, without_lone_surrogates(reason))

    def close(self) -> None:
        """Ends the workers."""
        self._pool.close()


def _start_failure(name: str, error: StartError) -> str:
    if error.kind == "ValueError":
        return error.detail
    return f"reward function {name!r} must be loadable, got {error}"


def _record(problem: Problem) -> dict[str, Any]:
    return {
        "id": problem.id,
        "messages": [dataclasses.asdict(message) for message in problem.messages],
        "answer": problem.answer,
        "split": problem.split,
        "metadata": _plain(problem.metadata),
    }


def _plain(value: Any) -> Any:
    """JSON containers instead of the read-only ones a `Problem` may hold."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value
