"""Keys of a recipe from the command line, by dotted names. Loads no torch."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any


class RecipeError(ValueError):
    """A recipe that cannot run, in one line a user can act on."""


def with_overrides(
    content: Mapping[str, Any], overrides: Sequence[str]
) -> dict[str, Any]:
    """The recipe's content with `--a.b value` or `--a.b=value` put in.

    Raises:
        RecipeError: an override has no value or no name.
    """
    merged = json.loads(json.dumps(content, default=str))
    words = list(overrides)
    while words:
        word = words.pop(0)
        name, has_value, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not name:
            raise RecipeError(f"an override reads --section.key value, got {word!r}")
        if not has_value:
            if not words:
                raise RecipeError(f"override --{name} needs a value, got none")
            value = words.pop(0)
        place = merged
        *sections, key = name.replace("-", "_").split(".")
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise RecipeError(f"--{name}: {section!r} is a value, not a section")
        place[key] = toml_value(value)
    return merged


def toml_value(text: str) -> Any:
    """A value as TOML reads it; what is not TOML is text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
