"""What is wrong with a recipe, in one line a user can act on. Loads no torch."""

import difflib
from collections.abc import Sequence
from typing import Any, TypeAlias

from pydantic import BaseModel, ValidationError

from accredit.text import printable, shortened, within

Model: TypeAlias = type[BaseModel]

LONGEST_LIST = 160
"""Characters of known names that are all listed."""
LONGEST_NAME = 40
"""Characters of a key that somebody made up."""
LONGEST_LINE = 260


def explained(error: ValidationError, model: Model) -> str:
    """The first fault, and how many more there are, in one line."""
    first, *others = error.errors()
    more = f" (and {len(others)} more)" if others else ""
    return within(fault_line(first, model), LONGEST_LINE) + more


def fault_line(fault: Any, model: Model) -> str:
    """What must hold of a key, and what arrived."""
    parts = [printable(str(part)) for part in dotted(fault["loc"], model)]
    place = ".".join(within(part, LONGEST_NAME) for part in parts)
    kind, arrived = fault["type"], fault["input"]
    context = fault.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind == "extra_forbidden":
        return f"{place} is not a key" + nearest_key(fault["loc"], model)
    if kind == "union_tag_invalid":
        names = str(context["expected_tags"]).replace("'", "").split(", ")
        tag = str(context["tag"])
        tagged_by = str(context["discriminator"]).strip("'")
        return f"{place}.{tagged_by} {shortened(tag)} is unknown" + nearest(tag, names)
    if kind == "union_tag_not_found":
        tagged_by = str(context["discriminator"]).strip("'")
        names = sorted(choices_at(fault["loc"], model))
        return (
            f"{place} needs a {tagged_by}, got a section without one (known: "
            f"{', '.join(names)})"
        )
    if kind == "missing":
        return f"{place} must be given, got a section without it"
    return f"{place} must {demand(kind, fault['msg'])}, got {shortened(arrived)}"


def demand(kind: str, message: str) -> str:
    """What pydantic asks for, as the end of a sentence about a key."""
    plain = {
        "model_type": "be a section of keys",
        "model_attributes_type": "be a section of keys",
        "tuple_type": "be a list",
        "string_pattern_mismatch": (
            "consist of letters, digits, '.', '_' and '-', and begin with one of the "
            "first two"
        ),
    }
    asked = message.partition(" should ")[2]
    if kind.endswith("_parsing") or kind == "int_from_float":
        asked = asked.partition(",")[0]
    return plain.get(kind, asked)


def nearest_key(location: Sequence[int | str], model: Model) -> str:
    """What to say after an unknown key: the like of it, here or in another section."""
    *sections, key = location
    name = str(key)
    known = known_keys(model, sections)
    homes = [
        f"{section}.{name}"
        for section in model.model_fields
        if section not in map(str, sections) and name in section_keys(model, section)
    ]
    if homes and not difflib.get_close_matches(name, known, n=1, cutoff=0.8):
        return f"; did you mean {homes[0]}?"
    return nearest(name, known)


def section_keys(model: Model, name: str) -> list[str]:
    """Keys that a section of the recipe may have; none where it is a single key."""
    field = model.model_fields[name]
    inner: Any = field.annotation
    members = union_members(field) if field.discriminator else [inner]
    sections = [m for m in members if isinstance(m, type) and issubclass(m, BaseModel)]
    return [key for section in sections for key in section.model_fields]


def nearest(name: str, known: Sequence[str]) -> str:
    """`; did you mean X? (known: ...)`, the likest ones where there are many."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]}?" if close else ""
    listed = ", ".join(sorted(known))
    if len(listed) <= LONGEST_LIST:
        return f"{hint} (known: {listed})"
    likest = difflib.get_close_matches(name[:LONGEST_LIST], known, n=6, cutoff=0.0)
    return f"{hint} ({len(known)} are known, the likest: {', '.join(likest)})"


def dotted(location: Sequence[int | str], model: Model) -> list[int | str]:
    """A location as a user writes it: without the tag of a union."""
    shown: list[int | str] = []
    fields: dict[str, Any] = dict(model.model_fields)
    choices: dict[str, Model] = {}
    for i, part in enumerate(location):
        if part in choices:
            fields, choices = dict(choices[str(part)].model_fields), {}
            if i < len(location) - 1:
                continue
        shown.append(part)
        field = fields.get(str(part))
        if field is not None:
            choices = choices_of(field)
            fields = section_fields(field)
    return shown


def choices_at(location: Sequence[int | str], model: Model) -> dict[str, Model]:
    """By its name, each section that may stand at a location."""
    found: dict[str, Model] = {}
    fields: dict[str, Any] = dict(model.model_fields)
    for part in location:
        if part in found:
            fields = dict(found[str(part)].model_fields)
        elif str(part) in fields:
            found = choices_of(fields[str(part)])
            fields = section_fields(fields[str(part)])
    return found


def known_keys(model: Model, location: Sequence[int | str]) -> list[str]:
    """Names that may stand at a location."""
    fields = model.model_fields
    if not location:
        return list(fields)
    field = fields[str(location[0])]
    if field.discriminator:
        return known_keys(choices_of(field)[str(location[1])], location[2:])
    inner = field.annotation
    assert isinstance(inner, type) and issubclass(inner, BaseModel)
    return known_keys(inner, location[1:])


def union_members(field: Any) -> list[Model]:
    """The classes a field with a discriminator chooses from."""
    return list(field.annotation.__args__)


def choices_of(field: Any) -> dict[str, Model]:
    """By its name, or kind, each section that a field may be; none where it is one."""
    if not field.discriminator:
        return {}
    return {
        member.model_fields[field.discriminator].default: member
        for member in union_members(field)
    }


def section_fields(field: Any) -> dict[str, Any]:
    """Fields of the section that a key is; none of a plain key or a choice."""
    inner = field.annotation
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        return dict(inner.model_fields)
    return {}
