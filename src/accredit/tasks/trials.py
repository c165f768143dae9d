"""What is tried of a task before anything is sampled: gold answers, reward functions.

A fault that every step would show is told here, in one line, by the verifier that the
run uses. Knows no model.
"""

import ast
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from accredit.protocols import Verifier
from accredit.tasks.build import Task
from accredit.tasks.golds import require_golds, rollout_of
from accredit.types import Problem, Verdict

NUM_PROBLEMS = 3
"""Problems that a reward function is tried on, while it fails."""
NO_WORD, TOO_LONG = "returned None", "took longer"
"""What the reasons of a reward function say where it would not, or did not, answer."""


def tried(task: Task, seed: int) -> list[str]:
    """What to say of a task whose verifier was tried on its own problems.

    Raises:
        ValueError: a run with it would pay nobody, or hardly anybody.
    """
    config = task.rows
    if config is None:
        return []
    seen = {problem.id: problem for problem in (*task.train, *task.evaluation)}
    problems = list(seen.values())
    if config.verifier == "function":
        return try_function(config.reward_function, problems, task.verifier)
    lines = require_golds(config, problems, task.verifier, seed, task.columns)
    return [*task.notes, *lines]


def try_function(
    name: str, problems: Sequence[Problem], verifier: Verifier
) -> list[str]:
    """What to say of a reward function that was called on plausible completions.

    Raises:
        ValueError: it failed in every one of them.
    """
    verdicts: list[Verdict] = []
    for place in range(min(NUM_PROBLEMS, len(problems))):
        problem = problems[place * len(problems) // NUM_PROBLEMS]
        answer = problem.answer or ""
        texts = (answer, f"The answer is \\boxed{{{answer}}}.")
        rollout = rollout_of(problem)
        found = verifier.verify([(problem, text, rollout) for text in texts])
        verdicts += found
        if any(verdict.reward is not None for verdict in found):
            return []
        if all(TOO_LONG in verdict.reason for verdict in found):
            break
    failed = [verdict for verdict in verdicts if NO_WORD not in verdict.reason]
    where = defined_at(name)
    place = f" ({where})" if where else ""
    if len(failed) == len(verdicts):
        raise ValueError(
            f"task.reward_function = {name!r}{place} must return a number or None, "
            f"got in all of {len(failed)} trials no reward: {failed[0].reason}; mend "
            "it, and try it on completions of your own with `accredit verify`"
        )
    return [
        f"task.reward_function = {name!r}{place} returned a number in none of "
        f"{len(verdicts)} trials with gold answers; does it return what it means to?"
    ]


def defined_at(name: str) -> str:
    """`file:line` of the function `module:function`; nothing where it is not found.

    Read, not imported: the module belongs into the verifier's process.
    """
    module, _, function = name.partition(":")
    inner = Path(*module.split("."))
    for folder in (os.getcwd(), *sys.path):
        for file in (inner.with_suffix(".py"), inner / "__init__.py"):
            path = Path(folder) / file
            if path.is_file():
                return _line_of(path, function)
    return ""


def _line_of(path: Path, function: str) -> str:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return str(path)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return f"{path}:{node.lineno}"
    return str(path)
