"""The algorithm's state as JSON text and back, exactly.

Floats are written as the shortest text that reads back to the same bits; NaN is
refused. The algorithm's memory is an object of a type of its own, which pydantic writes
and reads by its fields, strictly.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeGuard

from pydantic import TypeAdapter, ValidationError

from accredit.records import Cost, State

SCHEMA = 3


def state_json(state: State) -> str:
    """The state as JSON text.

    Raises:
        ValueError: The memory or the counters hold something JSON cannot.
    """
    content = {
        "schema": SCHEMA,
        "step": state.step,
        "num_draws": state.num_draws,
        "num_drawn": state.num_drawn,
        "cost": plain(asdict(state.cost), "cost"),
        "counters": plain(state.counters, "counters"),
        "memory": memory_json(state.memory),
    }
    return json.dumps(content, indent=1, allow_nan=False)


@cache
def adapter(memory_type: type) -> Any:
    """What writes and reads such a memory."""
    return TypeAdapter(memory_type)


def memory_json(memory: object) -> Any:
    """An algorithm's memory as JSON values, by the fields of its type."""
    return adapter(type(memory)).dump_python(memory, mode="json")


def memory_from_json(content: Any, memory_type: type) -> Any:
    """An algorithm's memory as it was saved.

    Raises:
        ValueError: It is of another type, or was not saved by this version.
    """
    try:
        text = json.dumps(content)
        memory = adapter(memory_type).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(["memory", *map(str, first["loc"])])
        raise ValueError(
            f"a saved state must hold the memory of its algorithm, got "
            f"{first['input']!r:.80} at {place} ({first['msg']}); resume from another "
            "checkpoint, or with the algorithm of the run"
        ) from error
    if memory_json(memory) != content:
        # A field that is missing would have been taken for its default.
        raise ValueError(
            "a saved state must hold the memory of its algorithm whole, got one with "
            "fields missing or added; resume from another checkpoint, or with the "
            "algorithm of the run"
        )
    return memory


def refuse_constant(name: str) -> NoReturn:
    """NaN and infinities are no JSON."""
    raise ValueError(f"{name} is no finite number")


def state_from_json(text: str, memory_type: type) -> State:
    """The state that `state_json` wrote, with a memory of that type.

    Raises:
        ValueError: The text is not JSON, of another schema, or lacks a part.
    """
    try:
        content = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a saved state must be JSON, got {error}") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        found = content.get("schema") if isinstance(content, dict) else content
        raise ValueError(
            f"a saved state must have schema {SCHEMA}, got {found!r:.80}; "
            "it was written by another version of accredit; finish the run with that"
        )
    expected = {"schema"} | {part.name for part in fields(State)}
    if set(content) != expected:
        raise ValueError(
            f"a saved state must have the keys {sorted(expected)}, "
            f"got {sorted(content)}"
        )
    return State(
        step=whole(content["step"], "step of a saved state"),
        num_draws=whole(content["num_draws"], "num_draws of a saved state"),
        num_drawn=whole(content["num_drawn"], "num_drawn of a saved state"),
        cost=saved_cost(content["cost"]),
        counters=saved_counters(content["counters"]),
        memory=memory_from_json(content["memory"], memory_type),
    )


def read_counts(file: Path, schema: int, names: Sequence[str]) -> dict[str, int]:
    """The counts of a small file of this schema.

    Raises:
        ValueError: The file is missing, damaged or another version's.
    """
    try:
        counts = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{file} must hold a JSON object, got a damaged file ({error}); restore it"
        ) from error
    found = counts.get("schema") if isinstance(counts, dict) else counts
    if found != schema or isinstance(found, bool):
        raise ValueError(
            f"{file} must have schema {schema}, got {found!r:.60}; another version of "
            "accredit wrote it"
        )
    return {name: whole(counts.get(name), f"{name} in {file}") for name in names}


def saved_cost(content: object) -> Cost:
    """The ledger, with the types it was saved with."""
    names = {part.name for part in fields(Cost)}
    if not isinstance(content, dict) or set(content) != names:
        raise ValueError(f"a saved cost must have {sorted(names)}, got {content!r:.80}")
    for name, spent in content.items():
        if not is_number(spent) or spent < 0:
            raise ValueError(f"{name} of a saved cost must be >= 0, got {spent!r:.80}")
    return Cost(**content)


def saved_counters(content: object) -> dict[str, Any]:
    """The counters, which are numbers by name."""
    counters = mapping(content, "counters")
    for name, count in counters.items():
        if not is_number(count):
            raise ValueError(
                f"the counter {name!r:.40} of a saved state must be a number, got "
                f"{count!r:.80}"
            )
    return counters


def mapping(value: object, name: str) -> dict[str, Any]:
    """The JSON object that a part of a saved state must be."""
    if not isinstance(value, dict):
        raise ValueError(
            f"{name} of a saved state must be a JSON object, got {value!r:.80}"
        )
    return value


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a finite one, and no truth value."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) < math.inf


def whole(value: object, name: str) -> int:
    """The integer that a saved count must be."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} must be a count, got {value!r:.80}; restore the file")
    return value


def plain(value: Any, place: str) -> Any:
    """The value with mappings as dictionaries; refused where JSON would change it."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, list):
        return [plain(item, f"{place}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: plain(item, f"{place}[{key!r}]") for key, item in value.items()}
    raise ValueError(
        "state must hold JSON values (finite numbers, texts, lists, mappings with text "
        f"keys), got {type(value).__name__} {value!r:.80} at {place}"
    )
