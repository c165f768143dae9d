"""Parts that a recipe names as `module:object`: somebody's own code beside the library.

The object is a class of keys, as every section of a recipe has one, with a method
`build` that makes the part; so its keys are checked, overridden and explained like all
others. It is code that the owner of the recipe chose to run, as the recipe itself.
Loads no torch, but for what the object's own module loads.
"""

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, create_model

from accredit.recipe.base import BaseConfig
from accredit.recipe.faults import choices_of
from accredit.recipe.overrides import RecipeError

PACKAGE = str(Path(__file__).parents[1])
Part = TypeVar("Part")
Model = type[BaseModel]


class Place(NamedTuple):
    """Where a recipe may name such a part."""

    path: tuple[str, ...]
    """Of the section, from the top of the recipe."""
    chooser: str
    """The key that says what stands there."""
    base: type[BaseConfig]
    """What its class of keys must be derived from."""


def is_plugin(name: object) -> bool:
    """Whether a name in a recipe is that of somebody's own part."""
    module, colon, found = str(name).partition(":")
    parts = [*module.split("."), *found.split(".")]
    return bool(colon) and all(part.isidentifier() for part in parts)


def config_class(name: str, place: Place) -> Model:
    """The class of keys behind `module:object`, which says its name.

    Raises:
        RecipeError: it cannot be imported, or is none of that kind.
    """
    key = ".".join((*place.path, place.chooser))
    module_name, _, attribute = name.partition(":")
    import_from_here()
    with told_of(f"{key} = {name!r} cannot be imported"):
        module = importlib.import_module(module_name)
        found: Any = module
        for part in attribute.split("."):
            found = getattr(found, part)
    wanted = f"{place.base.__module__}.{place.base.__name__}"
    if not (isinstance(found, type) and issubclass(found, place.base)):
        raise RecipeError(
            f"{key} = {name!r} must be a class of keys derived from {wanted}, got "
            f"{found!r:.80} in {module.__file__}"
        )
    if not callable(getattr(found, "build", None)):
        raise RecipeError(
            f"{key} = {name!r} must have a method build, got a class without one in "
            f"{line_of(found)}"
        )
    fields: dict[str, Any] = {place.chooser: (Literal[name], name)}  # type: ignore[valid-type]
    return create_model(
        found.__name__, __base__=found, __module__=found.__module__, **fields
    )


def with_plugins(
    model: Model, content: Mapping[str, Any], places: Mapping[str, Place]
) -> Model:
    """The model of a recipe with the classes of the parts that `content` names.

    Raises:
        RecipeError: one cannot be used.
    """
    found = model
    for place in sorted(places.values(), key=lambda place: -len(place.path)):
        section: Any = content
        for part in place.path:
            section = section.get(part) if isinstance(section, Mapping) else None
        name = section.get(place.chooser) if isinstance(section, Mapping) else None
        if is_plugin(name):
            chosen = config_class(str(name), place)
            found = replaced(found, place.path, chosen, content)
    return found


def replaced(
    model: Model, path: tuple[str, ...], chosen: Model, content: Mapping[str, Any]
) -> Model:
    """The model with another class in the place of a section inside it."""
    key, *rest = path
    if rest:
        inner = chosen_member(model, key, content.get(key))
        chosen = replaced(inner, tuple(rest), chosen, content.get(key) or {})
    changed: dict[str, Any] = {key: (chosen, ...)}
    return create_model(
        model.__name__, __base__=model, __module__=model.__module__, **changed
    )


def chosen_member(model: Model, key: str, section: Any) -> Model:
    """The class of a section, of those that may stand there, that the section names.

    Raises:
        RecipeError: no known one is named.
    """
    field = model.model_fields[key]
    if not field.discriminator:
        return field.annotation  # type: ignore[return-value]
    tag = str(field.discriminator)
    named = section.get(tag) if isinstance(section, Mapping) else None
    members = choices_of(field)
    if named not in members:
        raise RecipeError(f"{key}.{tag} {named!r} is unknown (known: {list(members)})")
    return members[named]


def built(config: Any, wanted: type[Part], *parts: Any) -> Part:
    """What the section's own `build` makes.

    Raises:
        RecipeError: it fails, or makes something else than it must.
    """
    name = f"{type(config).__module__}:{type(config).__name__}"
    with told_of(f"{name} cannot be built"):
        made = config.build(*parts)
    if not isinstance(made, wanted):
        raise RecipeError(
            f"{name}.build must return a {wanted.__name__}, got {made!r:.80} from "
            f"{line_of(type(config).build)}"
        )
    return made


def import_from_here() -> None:
    """Lets modules of the current directory be found, after all others."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def plugins_of(config: Any, places: Mapping[str, Place]) -> tuple[str, ...]:
    """The names of somebody's own parts in a recipe."""
    found: list[str] = []
    for place in places.values():
        section: Any = config
        for part in place.path:
            section = getattr(section, part, None)
        name = getattr(section, place.chooser, None)
        found += [str(name)] if is_plugin(name) else []
    return tuple(found)


@contextmanager
def told_where() -> Iterator[None]:
    """What somebody's code raises while a run goes on is told with file and line.

    Raises:
        RuntimeError: such code raised something.
    """
    try:
        yield
    except Exception as error:
        place = place_of(error)
        if not place:
            raise
        kind = type(error).__name__
        raise RuntimeError(f"{place} raised {kind}: {error}") from error


@contextmanager
def told_of(fault: str) -> Iterator[None]:
    """What somebody's code raises becomes one line with its file and line.

    Raises:
        RecipeError: something was raised.
    """
    try:
        yield
    except RecipeError:
        raise
    except Exception as error:
        place = place_of(error)
        where = f" ({place})" if place else ""
        kind = type(error).__name__
        raise RecipeError(f"{fault}: {kind}: {error}{where}") from error


def place_of(error: BaseException) -> str:
    """`file:line` of the last of somebody's own code that an error passed."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_own(frame.filename)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else ""


def is_own(file: str) -> bool:
    """Whether a file is neither ours, nor a library's, nor Python's."""
    path = str(Path(file).resolve())
    libraries = ("site-packages", "dist-packages", "<frozen", "<string")
    standard = str(Path(os.__file__).parent)
    return not path.startswith((PACKAGE, standard)) and not any(
        part in file for part in libraries
    )


def line_of(thing: Callable[..., Any] | type) -> str:
    """`file:line` where something is defined; the file alone where that is unknown."""
    try:
        file = inspect.getsourcefile(thing) or "?"
        return f"{file}:{inspect.getsourcelines(thing)[1]}"
    except (OSError, TypeError):
        return str(getattr(thing, "__module__", "?"))
