"""Recipes as text, and keys of them from the command line. Loads no torch."""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from accredit.text import shortened, without_lone_surrogates

BARE_POINT = re.compile(r"[+-]?(\d+\.|\.\d+)([eE][+-]?\d+)?")
"""Numbers as shells and people write them, and TOML does not: .5 and 5."""
DEEPEST = 32
"""Sections and lists of a recipe inside each other."""


class RecipeError(ValueError):
    """A recipe that cannot run, in one line a user can act on."""


def with_overrides(
    content: Mapping[str, Any], overrides: Sequence[str]
) -> dict[str, Any]:
    """The recipe's content with `--a.b value` or `--a.b=value` put in.

    Raises:
        RecipeError: an override has no value or no name.
    """
    require_plain(content, "the recipe")
    merged = json.loads(json.dumps(content, default=str))
    words = list(overrides)
    while words:
        word = words.pop(0)
        name, has_value, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not name:
            raise RecipeError(
                f"an override reads --section.key value, got {shortened(word)}"
            )
        if not has_value:
            if not words:
                raise RecipeError(f"override --{name} needs a value, got none")
            value = words.pop(0)
        place = merged
        *sections, key = name.replace("-", "_").split(".")
        if len(sections) > DEEPEST:
            raise RecipeError(
                f"an override must name a key, got {len(sections)} sections in "
                f"{shortened(word)}"
            )
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise RecipeError(f"--{name}: {section!r} is a value, not a section")
        place[key] = toml_value(value)
    return merged


def toml_value(text: str) -> Any:
    """A value as TOML reads it; what is not one TOML value, and no more, is text.

    A comment or a second line would be dropped in silence, so that they make text too.
    """
    try:
        read = tomllib.loads(f"value = {text}")
        alone = tomllib.loads(f"value = [{text}]")
    except (ValueError, RecursionError):
        return float(text) if BARE_POINT.fullmatch(text) else text
    return read["value"] if read == {"value": alone["value"][0]} else text


def read_toml(text: str) -> Any:
    """What a TOML file holds.

    Raises:
        ValueError: it is no TOML, or nested too deeply.
    """
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("lists or tables that are nested too deeply") from error


def read_json(text: str) -> Any:
    """What a JSON file holds; no key twice and no NaN.

    Raises:
        ValueError: it is no such JSON, or nested too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=_once_each, parse_constant=_refused)
    except RecursionError as error:
        raise ValueError("lists or objects that are nested too deeply") from error


def require_plain(content: Any, source: str, place: str = "", depth: int = 0) -> None:
    """Nothing, where all text of a recipe can be written down and its depth is sane.

    Raises:
        RecipeError: a key or a value is no UTF-8 or holds a null character, or lies
            too deep.
    """
    if depth > DEEPEST:
        raise RecipeError(f"{source}: {place[:40]}... is nested too deeply")
    if isinstance(content, str):
        if "\0" in content or without_lone_surrogates(content) != content:
            raise RecipeError(
                f"{source}: {place or 'a key'} must be text in UTF-8 without null "
                f"characters, got {shortened(content)}"
            )
    elif isinstance(content, Mapping):
        for key, value in content.items():
            require_plain(str(key), source, "", depth)
            require_plain(value, source, f"{place}.{key}".strip("."), depth + 1)
    elif isinstance(content, list | tuple):
        for value in content:
            require_plain(value, source, place, depth + 1)


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {shortened(key)} twice")
        found[key] = value
    return found


def _refused(constant: str) -> None:
    raise ValueError(f"{constant}, which is no JSON")
