"""The algorithm's state as JSON text and back, exactly.

Floats are written as the shortest text that reads back to the same bits. Whatever JSON
would change on the way (a tuple, a number as a key, NaN) is refused when it is written,
not discovered after a resume.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from accredit.records import Cost, State

SCHEMA = 2


def state_json(state: State) -> str:
    """The state as JSON text.

    Raises:
        ValueError: The memory or the counters hold something JSON cannot.
    """
    content = {
        "schema": SCHEMA,
        "step": state.step,
        "num_drawn": state.num_drawn,
        "cost": plain(asdict(state.cost), "cost"),
        "counters": plain(state.counters, "counters"),
        "memory": plain(state.memory, "memory"),
    }
    return json.dumps(content, indent=1, allow_nan=False)


def state_from_json(text: str) -> State:
    """The state that `state_json` wrote.

    Raises:
        ValueError: The text is not JSON, of another schema, or lacks a part.
    """
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"a saved state must be JSON, got {error}") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        found = content.get("schema") if isinstance(content, dict) else content
        raise ValueError(
            f"a saved state must have schema {SCHEMA}, got {found!r}; "
            "it was written by another version of accredit; finish the run with that"
        )
    expected = {"schema"} | {part.name for part in fields(State)}
    if set(content) != expected:
        raise ValueError(
            f"a saved state must have the keys {sorted(expected)}, "
            f"got {sorted(content)}"
        )
    return State(
        step=whole(content["step"], "step"),
        num_drawn=whole(content["num_drawn"], "num_drawn"),
        cost=saved_cost(content["cost"]),
        counters=content["counters"],
        memory=content["memory"],
    )


def saved_cost(content: object) -> Cost:
    """The ledger, with the types it was saved with."""
    names = {part.name for part in fields(Cost)}
    if not isinstance(content, dict) or set(content) != names:
        raise ValueError(f"a saved cost must have {sorted(names)}, got {content!r}")
    return Cost(**content)


def whole(value: object, name: str) -> int:
    """The integer that a saved count must be."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} of a saved state must be a count, got {value!r}")
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
