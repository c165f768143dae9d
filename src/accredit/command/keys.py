"""Keys of a recipe's sections in words, for the terminal and for docs/. Loads no torch.

Types, defaults and ranges come from the models that check a recipe.
"""

import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_origin

from pydantic import BaseModel

from accredit.recipe.config import choices_of

WIDTH = 88
"""Columns of the terminal's lines."""


@dataclass(frozen=True)
class Key:
    """One key, in words."""

    name: str
    type: str
    default: str | None
    """As TOML writes it, or `none`; None where the key must be given."""
    range: str
    meaning: str


def keys_of(model: type[BaseModel], defaults: BaseModel | None = None) -> list[Key]:
    """The keys of one section, those of the sections inside it left out.

    `defaults` is what the section is where a recipe does not name it; none takes the
    defaults of the class.
    """
    schema = model.model_json_schema()
    found = []
    for name, part in schema["properties"].items():
        field = model.model_fields[name]
        if is_chooser(name, field) or is_section(field):
            continue
        default: Any = part.get("default", {})
        if defaults is not None:
            default = json.loads(defaults.model_dump_json())[name]
        required = name in schema.get("required", [])
        written = None if required else shown(default)
        found.append(
            Key(name, plain_type(part), written, plain_range(part), meaning(part))
        )
    return found


def is_chooser(name: str, field: Any) -> bool:
    """Whether a key says which section stands here, and can be nothing else in it."""
    is_word = name in ("name", "kind") and get_origin(field.annotation) is Literal
    return is_word and field.description is None


def is_section(field: Any) -> bool:
    """Whether a key is a section of keys, or a choice between such."""
    inner = field.annotation
    return bool(field.discriminator) or (
        isinstance(inner, type) and issubclass(inner, BaseModel)
    )


def sections_of(
    model: type[BaseModel],
) -> Iterator[tuple[str, type[BaseModel], BaseModel | None]]:
    """Name, class and defaults of every section inside one, each choice by itself."""
    for name, field in model.model_fields.items():
        if not is_section(field):
            continue
        usual = field.get_default(call_default_factory=True)
        inner: Any = field.annotation
        for member in choices_of(field).values() or [inner]:
            yield name, member, usual if type(usual) is member else None


def key_lines(
    place: str, model: type[BaseModel], defaults: BaseModel | None = None
) -> Iterator[str]:
    """The keys of `[place]` and of the sections inside it, as lines for a terminal."""
    chosen = [
        f' with {name} = "{field.default}"'
        for name, field in model.model_fields.items()
        if is_chooser(name, field)
    ]
    summary = " ".join((model.__doc__ or "").split("\n\n")[0].split())
    yield from textwrap.wrap(f"[{place}]{''.join(chosen)}: {summary}", WIDTH)
    for key in keys_of(model, defaults):
        given = "required" if key.default is None else key.default
        kind, comma, none = key.type.replace("`", "").partition(", or none")
        bounds = f" {key.range}" if key.range else ""
        yield from textwrap.wrap(
            f"{key.name} = {given}  ({kind}{bounds}{comma}{none})",
            WIDTH,
            initial_indent="  ",
            subsequent_indent=" " * 6,
        )
        yield from wrapped(key.meaning)
    yield ""
    for name, inner, usual in sections_of(model):
        yield from key_lines(f"{place}.{name}", inner, usual)


def wrapped(text: str) -> list[str]:
    """Lines of a terminal, indented."""
    indent = " " * 6
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)


def plain_type(schema: dict[str, Any]) -> str:
    """What a value is, in words."""
    if "anyOf" in schema:
        kinds = [part for part in schema["anyOf"] if part.get("type") != "null"]
        none = ["none"] if len(kinds) < len(schema["anyOf"]) else []
        return ", or ".join([*map(plain_type, kinds), *none])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return "one of " + ", ".join(f"`{value}`" for value in schema["enum"])
    if schema["type"] == "array":
        return f"list, each {plain_type(schema['items'])}"
    if schema.get("format") == "path":
        return "path"
    return {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "boolean": "`true` or `false`",
        "object": "table",
    }[schema["type"]]


def plain_range(schema: dict[str, Any]) -> str:
    """The bounds of a number, or the form of a text."""
    for part in schema.get("anyOf", []):
        schema = {**part, **schema}
    if "pattern" in schema:
        return f"`{schema['pattern']}`"
    bounds = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤"}
    bounds["exclusiveMaximum"] = "<"
    found = [
        f"{sign} {schema[name]:g}" for name, sign in bounds.items() if name in schema
    ]
    return ", ".join(found)


def shown(value: Any) -> str:
    """A default as TOML writes it, or `none`."""
    return "none" if value is None else json.dumps(value)


def meaning(schema: dict[str, Any]) -> str:
    """The text under the field, in one line."""
    return " ".join(schema.get("description", "").split())
