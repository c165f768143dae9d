"""Any data set of the `reasoning-gym` package, checked by the package's own scorer.

The package makes problems from a seed, so a problem's metadata say all that is needed
to make it again. Making and scoring happen in a process of its own (`gym_worker`), one
problem at a time, which is killed when it hangs. Extra `tasks`.
"""

import dataclasses
import importlib.util
import json
import os
import secrets
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from accredit.randomness import keyed_seed
from accredit.tasks.problems import (
    BadRow,
    ColumnMapping,
    LoadedProblems,
    OnBadRow,
    RawRow,
    load_problems,
    unknown_name,
)
from accredit.types import EMPTY, LARGEST_REWARD, Problem, Rollout, Verdict
from accredit.verification.answered import AnswerReader
from accredit.verification.blocks import Answer, find_block
from accredit.verification.boxed import find_box_or_text
from accredit.verification.pool import plain_environment
from accredit.verification.process import import_path

BOOTSTRAP = (
    "import sys; sys.path[:] = sys.argv[1:]; "
    "from accredit.tasks.gym_worker import main; main()"
)
"""Imports what this process would, the standard library first."""
MAKING_CPU_S = 60.0
"""CPU time allowed for importing the package or making a problem."""
PATIENCE_S = 600.0
"""Wall time after which a process that uses no CPU time is given up."""


def known_data_sets() -> list[str]:
    """Names that `load_reasoning_gym` takes."""
    return sorted(_config_classes())


def load_reasoning_gym(
    name: str,
    size: int,
    seed: int,
    split: str = "train",
    config: Mapping[str, Any] = EMPTY,
    on_bad_row: OnBadRow = "stop",
) -> LoadedProblems:
    """`size` problems of one data set.

    The package draws problem i with seed + i, so neighbouring seeds would share nearly
    all problems; its seed is therefore hashed from (seed, name, split), and two splits
    of one seed share none but by chance.

    Args:
        name: One of `known_data_sets()`.
        size: Number of problems.
        seed: The run's.
        split: Given to the problems; part of the seed.
        config: The data set's own options, by name.
        on_bad_row: "stop" raises where the package fails to make a problem, "skip"
            counts it.

    Raises:
        ValueError: unknown data set or option, or one the data set refuses.
    """
    classes = _config_classes()
    if name not in classes:
        known = sorted(classes)
        raise ValueError(unknown_name("data set", name, known, "reasoning-gym"))
    described = f"reasoning-gym's {name}"
    fields = {field.name for field in dataclasses.fields(classes[name])}
    options = sorted(fields - {"seed", "size"})
    for option in config:
        if option not in options:
            raise ValueError(unknown_name("option", option, options, described))
    if size < 1:
        raise ValueError(f"size must be >= 1, got {size}")
    package_seed = keyed_seed("reasoning_gym", seed, name, split) % 2**31
    data = {"name": name, "config": dict(config), "seed": package_seed, "size": size}
    columns = ColumnMapping(metadata=("data", "index"))
    rows = _rows(data, split)
    return load_problems(rows, described, columns, split, on_bad_row, unit="problem")


def find_answer(text: str) -> Answer | None:
    """The last complete `<answer>` block, which is the package's convention.

    Where there is none, the whole text; in either, the last complete box if any.
    """
    return find_block(text, "answer") or find_box_or_text(text)


READER = AnswerReader(find_answer)
final_answer = READER.answer


class ReasoningGymVerifier:
    """A `Verifier` that asks the package's scorers; one serves every data set of it.

    A scorer that raises, gives no number or takes too long yields a verdict without a
    reward, or one of 0 where the answer is to blame: the gold answer has a score. Not
    to be used from two threads at once.

    Args:
        timeout_s: CPU time allowed for one answer.
    """

    def __init__(self, timeout_s: float = 5.0) -> None:
        if not timeout_s > 0:
            raise ValueError(f"timeout_s must be > 0, got {timeout_s}")
        self.timeout_s = timeout_s
        self._process: _Process | None = None

    def verify(self, items: Sequence[tuple[Problem, str, Rollout]]) -> list[Verdict]:
        """The data set's own score of each completion's final answer."""
        return [
            self._judged(problem, final_answer(completion))
            for problem, completion, _ in items
        ]

    def _judged(self, problem: Problem, answer: str | None) -> Verdict:
        """The answer's score; 0 where it twice has none and the gold answer has one."""
        verdict = self.verdict(problem, answer)
        if verdict.reward is not None or problem.answer is None:
            return verdict
        if self.verdict(problem, problem.answer).reward is None:
            return verdict
        again = self.verdict(problem, answer)
        return Verdict(0.0, again.reason) if again.reward is None else again

    def verdict(self, problem: Problem, answer: str | None) -> Verdict:
        """The data set's own score of one answer."""
        if not {"data", "index"} <= problem.metadata.keys():
            return Verdict(None, "not a problem of reasoning-gym")
        place = {key: problem.metadata[key] for key in ("data", "index")}
        reply = self._scored(place, answer)
        if reply is None:
            self.close()
            limit = f"{self.timeout_s} s of CPU time"
            return Verdict(None, f"the scorer gave no answer within {limit}")
        score = reply.get("score")
        if "score" not in reply:
            told = ", ".join(map(str, reply.values()))
            return Verdict(None, f"the scorer failed: {told}")
        if not isinstance(score, float) or not abs(score) <= LARGEST_REWARD:
            return Verdict(None, f"the scorer gave {score!r:.80}")
        return Verdict(score)

    def _scored(
        self, place: dict[str, Any], answer: str | None
    ) -> dict[str, Any] | None:
        if self._process is None:
            self._process = _Process()
            # Importing the package and making the problem are no part of the scoring.
            if self._process.ask(place, MAKING_CPU_S) is None:
                return None
        return self._process.ask({**place, "answer": answer}, self.timeout_s)

    def gold_faults(self, problems: Sequence[Problem]) -> dict[str, Verdict]:
        """Verdict by id of each problem whose own answer does not score 1.

        Problems without an answer are passed over: their scorers know no single one.
        """
        given = [problem for problem in problems if problem.answer is not None]
        verdicts = [self.verdict(problem, problem.answer) for problem in given]
        return {
            problem.id: verdict
            for problem, verdict in zip(given, verdicts, strict=True)
            if verdict.reward != 1.0
        }

    def close(self) -> None:
        """Ends the process; the next answer starts another."""
        if self._process is not None:
            self._process.end()
            self._process = None


class _Process:
    """A running `gym_worker`: one line in, one line out."""

    def __init__(self) -> None:
        fixed = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        # Some data sets iterate over sets of text, whose order is the hash seed's.
        fixed["PYTHONHASHSEED"] = "0"
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-c", BOOTSTRAP, *import_path(None)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**plain_environment(), **fixed},
            # Ctrl-C is the run's to answer, not its scorer's.
            start_new_session=True,
        )
        self._unread = b""

    def ask(self, request: Mapping[str, Any], cpu_s: float) -> dict[str, Any] | None:
        """The reply; None where the process died or said nothing in time."""
        assert self._child.stdin is not None
        ticket = secrets.token_hex(16)
        line = json.dumps({**request, "id": ticket, "cpu_s": cpu_s})
        try:
            self._child.stdin.write(line.encode("ascii") + b"\n")
            self._child.stdin.flush()
        except OSError:
            return None
        deadline = time.monotonic() + PATIENCE_S
        while (line := self._line(deadline)) is not None:
            reply = reply_of(line, ticket)
            if reply is not None:
                return reply
        return None

    def _line(self, deadline: float) -> bytes | None:
        assert self._child.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    return None
                part = os.read(self._child.stdout.fileno(), 65_536)
                if not part:
                    return None
                self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def end(self) -> None:
        self._child.kill()
        self._child.communicate()


def reply_of(line: bytes, ticket: str) -> dict[str, Any] | None:
    """What a line answers to the request with this id; None where it is no answer."""
    try:
        reply = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(reply, dict) or reply.pop("id", None) != ticket:
        return None
    return reply


def _config_classes() -> dict[str, type]:
    if importlib.util.find_spec("reasoning_gym") is None:
        raise ValueError(
            "the task `reasoning_gym` needs the package reasoning-gym, got none "
            "installed; install accredit[tasks]"
        )
    from reasoning_gym.factory import DATASETS

    return {name: config for name, (_, config) in DATASETS.items()}


def _rows(data: dict[str, Any], split: str) -> Iterator[RawRow]:
    """Problems as rows, made by a process of their own."""
    process = _Process()
    try:
        for index in range(data["size"]):
            entry = process.ask({"data": data, "index": index}, MAKING_CPU_S)
            if entry is None:
                process.end()
                process = _Process()
                detail = f"nothing within {MAKING_CPU_S} s of CPU time"
                yield BadRow(index + 1, "cannot be made", detail)
            elif "refused" in entry:
                raise ValueError(
                    f"options must suit reasoning-gym's {data['name']}, got "
                    f"{data['config']}: {entry['refused']}"
                )
            elif "error" in entry:
                yield BadRow(index + 1, "cannot be made", entry["error"])
            else:
                name = f"{data['name']}-{data['seed']}-{index}"
                row = {"id": name, "prompt": entry["question"], "split": split}
                row |= {"answer": entry["answer"], "data": data, "index": index}
                yield index + 1, row
    finally:
        process.end()
