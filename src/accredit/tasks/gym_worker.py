"""The program that makes reasoning-gym's problems and scores answers to them.

    python -m accredit.tasks.gym_worker

One JSON object a line on stdin, one on stdout. `{"data": {name, config, seed, size},
"index": i, "cpu_s": limit}` makes a problem: `{"question": text, "answer": text or
null}`; with `"answer": text or null` it is scored: `{"score": number}`. Failures are
`{"error": text}`, and `{"refused": text}` where the data set does not take its options.
A request beyond its limit ends the program, by a signal that nothing can catch late;
the limit is CPU time, so that a busy machine changes no verdict.

The package may hang, print, take all memory, or make other problems under another hash
seed, so it runs where all that can be fixed. Some of its scorers hand the answer to
Python's `eval` or to SymPy's parser, which is `eval` again; an answer that is not plain
data or plain arithmetic never reaches those.

Loads neither torch nor any other part of this library.
"""

import ast
import contextlib
import json
import os
import random
import re
import signal
import sys
import warnings
import zlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

MAX_MEMORY_BYTES = 4 << 30
MAX_ANSWER_CHARS = 20_000
MAX_ENTRIES = 4096

EVALUATED = frozenset(
    {"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"}
)
"""Data sets of reasoning-gym 0.1.25 whose scorer calls `eval` on the answer."""
PARSED = frozenset(
    {
        "countdown",
        "intermediate_integration",
        "polynomial_multiplication",
        "puzzle24",
        "simple_integration",
    }
)
"""Those whose scorer calls `sympy.parse_expr` on it."""
FUNCTIONS = (
    "sin|cos|tan|cot|sec|csc|asin|acos|atan|sinh|cosh|tanh|asinh|acosh|atanh"
    "|exp|log|ln|sqrt|Abs|abs|erf|pi"
)
ARITHMETIC = re.compile(
    r"(?:[-+*/()^=,\s]|\d++(?:\.\d*+)?|\.\d++"
    rf"|(?<![A-Za-z])(?:{FUNCTIONS}|[A-Za-z])(?![A-Za-z]))*+"
)
DATA_NODES = (
    ast.Expression,
    ast.Constant,
    ast.List,
    ast.Tuple,
    ast.Load,
    ast.UnaryOp,
    ast.USub,
    ast.UAdd,
)
"""No names: `oracle_answer` is one, and in the scorer's scope it is the solution."""


def is_plain(answer: str, data_set: str) -> bool:
    """Whether the scorer of `data_set` may see `answer`: what it evaluates is data."""
    if len(answer) > MAX_ANSWER_CHARS:
        return False
    if data_set in PARSED:
        return ARITHMETIC.fullmatch(answer) is not None
    if data_set not in EVALUATED:
        return True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(answer.strip(), mode="eval")
    except SyntaxError:
        return True
    except (ValueError, MemoryError, RecursionError):
        return False
    return all(isinstance(node, DATA_NODES) for node in ast.walk(tree))


def data_set(name: str, config: dict[str, Any], seed: int, size: int) -> Any:
    """The package's data set of that name."""
    import reasoning_gym
    from reasoning_gym.composite import DatasetSpec

    if name == "composite" and isinstance(config.get("datasets"), list):
        config = {**config, "datasets": [DatasetSpec(**s) for s in config["datasets"]]}
    return reasoning_gym.create_dataset(name, **config, seed=seed, size=size)


class Worker:
    """Data sets and entries made so far, since making one may take a second."""

    def __init__(self) -> None:
        self._data_sets: dict[str, Any] = {}
        self._entries: OrderedDict[tuple[str, int], dict[str, Any]] = OrderedDict()

    def reply(self, request: dict[str, Any]) -> dict[str, Any]:
        """A problem made or an answer scored."""
        try:
            self._data_set(request["data"])
        except Exception as error:
            return {"refused": _told(error)}
        place = (request["data"], request["index"])
        if "answer" in request:
            return {"score": self.score(*place, request["answer"])}
        entry = self.entry(*place)
        return {"question": entry["question"], "answer": entry["answer"]}

    def entry(self, data: dict[str, Any], index: int) -> dict[str, Any]:
        """Problem `index` as the package holds it."""
        place = (json.dumps(data, sort_keys=True), index)
        if place not in self._entries:
            _seed_global_generators(str(place))
            self._entries[place] = self._data_set(data)[index]
            if len(self._entries) > MAX_ENTRIES:
                self._entries.popitem(last=False)
        return self._entries[place]

    def score(self, data: dict[str, Any], index: int, answer: str | None) -> float:
        """The data set's own score of the answer; an answer it must not see is none."""
        entry = self.entry(data, index)
        kind = entry.get("metadata", {}).get("source_dataset", data["name"])
        if answer not in (None, entry["answer"]) and not is_plain(answer, kind):
            answer = None
        return float(self._data_set(data).score_answer(answer=answer, entry=entry))

    def _data_set(self, data: dict[str, Any]) -> Any:
        name = json.dumps(data, sort_keys=True)
        if name not in self._data_sets:
            self._data_sets[name] = data_set(**data)
        return self._data_sets[name]


def _seed_global_generators(key: str) -> None:
    """`codeio` runs programs that draw from Python's and numpy's own generators."""
    import numpy as np

    random.seed(key)
    np.random.seed(zlib.crc32(key.encode()))


def answered(line: str, reply: Callable[[dict[str, Any]], dict[str, Any]]) -> str:
    """The reply to one request as a line, with the request's id."""
    ticket: dict[str, Any] = {}
    try:
        request = json.loads(line)
        ticket = {"id": request["id"]}
        signal.setitimer(signal.ITIMER_PROF, request["cpu_s"])
        return json.dumps({**reply(request), **ticket})
    except Exception as error:
        return json.dumps({"error": _told(error), **ticket})
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]


def main() -> None:
    """Answers requests until stdin ends."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    warnings.simplefilter("ignore")
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    worker = Worker()
    process = os.getpid()
    for line in sys.stdin:
        reply = answered(line, worker.reply)
        # What a scorer forked is not the worker, and answers nothing.
        if os.getpid() != process:
            os._exit(0)
        print(reply, file=replies, flush=True)


if __name__ == "__main__":
    main()
