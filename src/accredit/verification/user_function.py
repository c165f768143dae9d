"""Finding a user's reward function, and what a worker does with it.

Standard library only: importing torch in each worker would cost seconds and hundreds of
megabytes, so the function is given a plain record with the fields of `types.Problem`.
"""

import difflib
import importlib
import inspect
import math
import numbers
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Function = Callable[[str, "ProblemRecord"], Any]


@dataclass(frozen=True)
class MessageRecord:
    """`types.Message` as a reward function sees it."""

    role: str
    content: str


@dataclass(frozen=True)
class ProblemRecord:
    """`types.Problem` as a reward function sees it."""

    id: str
    messages: tuple[MessageRecord, ...]
    answer: str | None
    split: str
    metadata: Mapping[str, Any]


def split_name(name: str) -> tuple[str, str]:
    """Module and function of `module:function`.

    Raises:
        ValueError: The name has another form.
    """
    module, colon, function = name.partition(":")
    parts = [*module.split("."), function]
    if not colon or not all(part.isidentifier() for part in parts):
        raise ValueError(
            "a reward function must be named 'module:function', "
            f"got {name!r}; write for example 'my_rewards:reward'"
        )
    return module, function


def loaded(name: str) -> Function:
    """The function `module:function` names.

    Raises:
        ValueError: One sentence on what is missing and where it was looked for.
    """
    module_name, function_name = split_name(name)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name + ".").startswith(error.name + "."):
            raise ValueError(
                f"reward function {name!r} needs a module {module_name!r}, which was "
                "not found; run in the folder that holds it, or install it"
            ) from error
        raise ValueError(_import_failure(name, error)) from error
    except BaseException as error:
        raise ValueError(_import_failure(name, error)) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ValueError(_missing_function(name, module, function_name))
    return function


def _import_failure(name: str, error: BaseException) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1:]
    place = f" ({where[0].filename}:{where[0].lineno})" if where else ""
    return (
        f"the module of reward function {name!r} must import, "
        f"got {type(error).__name__}: {error}{place}"
    )


def _missing_function(name: str, module: Any, function_name: str) -> str:
    known = [
        key
        for key, value in vars(module).items()
        if inspect.isfunction(value) and not key.startswith("_")
    ]
    nearest = difflib.get_close_matches(function_name, known, n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    return (
        f"reward function {name!r} must exist, got a module "
        f"whose functions are {sorted(known)}{hint}"
    )


def scorer(
    name: str,
) -> Callable[[Callable[[str], None], str, dict[str, Any]], dict[str, Any]]:
    """The named function as a pool's call."""
    function = loaded(name)

    def scored(
        _: Callable[[str], None], completion: str, problem: dict[str, Any]
    ) -> dict[str, Any]:
        messages = tuple(MessageRecord(**message) for message in problem["messages"])
        record = ProblemRecord(**{**problem, "messages": messages})
        try:
            value = function(completion, record)
        except MemoryError:
            return {"invalid": "ran out of memory"}
        except BaseException as error:
            story = f"raised {type(error).__name__}: {error}"[:500]
            return {"invalid": story + place_of(error)}
        return judged(value)

    return scored


def place_of(error: BaseException) -> str:
    """` (file:line)` of the innermost line of the user's module; nothing without."""
    _, *frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == frames[0].filename]
    return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""


def judged(value: object) -> dict[str, Any]:
    """`{"reward": float | None}` for a number, `{"invalid": what arrived}` otherwise.

    Numbers are bool, int, float and other reals, NumPy's scalars included; a list of
    one number is not a number.
    """
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.bool_):
        value = bool(value)
    if value is None:
        return {"reward": None}
    if not isinstance(value, numbers.Real):
        return {"invalid": f"must return one number or None, got {_described(value)}"}
    try:
        reward = float(value)
    except (OverflowError, ValueError):
        return {"invalid": "must return a number a float can hold"}
    if not math.isfinite(reward):
        return {"invalid": f"must return a finite number or None, got {reward}"}
    return {"reward": reward}


def _described(value: object) -> str:
    kind = type(value).__name__
    if isinstance(value, list | tuple):
        return f"a {kind} of {len(value)} values"
    return f"a {kind}" if inspect.isawaitable(value) else f"{kind} {value!r}"[:100]
