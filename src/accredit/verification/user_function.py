"""Finding a user's reward function, and what a worker does with it.

Standard library only: importing torch in each worker would cost seconds and hundreds of
megabytes, so the function is given a plain record with the fields of `types.Problem`.
"""

import contextlib
import difflib
import hashlib
import importlib
import inspect
import math
import numbers
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accredit.verification.confinement import is_standard

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


def loaded(name: str, folder: str) -> Function:
    """The function `module:function` names, in `folder` or in what is installed.

    Raises:
        ValueError: One sentence on what is missing and where it was looked for.
    """
    module_name, function_name = split_name(name)
    if module_name.partition(".")[0] in sys.stdlib_module_names:
        raise ValueError(
            f"reward function {name!r} must be in a module of its own, got the "
            "standard library's; give your file another name"
        )
    _make_importable(folder)
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


def _make_importable(folder: str) -> None:
    """Puts the user's folder behind the standard library and before what is installed.

    A `random.py` there must not be taken for Python's own.
    """
    others = [entry for entry in sys.path if entry != folder]
    standard = [entry for entry in others if is_standard(entry)]
    installed = [entry for entry in others if not is_standard(entry)]
    sys.path[:] = [*standard, folder, *installed]


def source_of(function_module: str, folder: str) -> str:
    """SHA-256 of the function's module and of those loaded from the user's folder."""
    digest = hashlib.sha256()
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and (name == function_module or is_own(file, folder)):
            with contextlib.suppress(OSError):
                content = Path(file).read_bytes()
                digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def is_own(file: str, folder: str) -> bool:
    """Whether a module is the user's: below the folder, and not installed there."""
    path = Path(file)
    parts = {"site-packages", "dist-packages", "accredit"}
    return path.is_relative_to(folder) and not parts & set(
        path.relative_to(folder).parts
    )


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
    name: str, folder: str
) -> Callable[[Callable[[str], None], str, dict[str, Any]], dict[str, Any]]:
    """The named function as a pool's call."""
    function = loaded(name, folder)

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

    scored.about = {"source": source_of(split_name(name)[0], folder)}
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
