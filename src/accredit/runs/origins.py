"""What of a run is not its recipe's: data, a reward function, parts given in Python.

A recipe names a file and a function, and a Python program may bring an algorithm or a
task of its own. None of them is in the recipe, all of them set what is drawn, paid and
evaluated; so a run writes down which they were, and a resumed run must have the same.
"""

import hashlib
import inspect
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

from accredit.recipe.config import RecipeError
from accredit.runs.assembly import Assembly
from accredit.storage.files import require_plain, write_whole
from accredit.tasks.source import data_fingerprints

DATA_FILE = "data.json"
"""Of a checkpoint: fingerprints of the data that the run had then."""
PARTS_FILE = "parts.json"
"""Of a run: who its algorithm and its verifier are."""
SCHEMA = 2
DATA_NAMES = {
    "prompts": "the prompts that are trained on",
    "answers": "their gold answers",
    "metadata": "their metadata",
    "held_out": "the held-out problems",
    "reward_function": "the source of the reward function",
}
RECIPE = "the recipe's"
_DEPTH = 6


def data_of(assembly: Assembly) -> dict[str, str]:
    """Fingerprints of all that sets rewards and evaluations."""
    found = data_fingerprints(
        assembly.world.problems.prompts, assembly.evaluation_prompts
    )
    source = str(getattr(assembly.task.verifier, "source", ""))
    return found | {"reward_function": source}


def data_json(assembly: Assembly) -> str:
    """What a checkpoint says of its data."""
    return json.dumps({"schema": SCHEMA, "fingerprints": data_of(assembly)}, indent=1)


def saved_data(checkpoint: Path) -> dict[str, str]:
    """The fingerprints that a checkpoint was saved with.

    Raises:
        ValueError: the file is damaged or another version's.
    """
    file = checkpoint / DATA_FILE
    content = _read_object(file)
    found = content.get("fingerprints")
    if (
        content.get("schema") != SCHEMA
        or not isinstance(found, dict)
        or found.keys() != DATA_NAMES.keys()
    ):
        raise ValueError(
            f"{file} must have schema {SCHEMA} and fingerprints of "
            f"{', '.join(DATA_NAMES)}, got another file; restore it, or finish the run "
            "with the version of accredit that wrote it"
        )
    return {name: str(digest) for name, digest in found.items()}


def changed_data(saved: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """What is other than it was, in words."""
    return [DATA_NAMES[name] for name in saved if saved[name] != found[name]]


def parts_of(assembly: Assembly) -> dict[str, list[str]]:
    """Who stands behind each part of a run that Python may replace."""
    objects = {
        "algorithm": assembly.algorithm,
        "verifier": assembly.task.verifier,
        "environment": assembly.world.environment,
        "critic": assembly.critic,
    }
    return {
        name: sorted({*_given(assembly, name), *foreign(part)})
        for name, part in objects.items()
    }


def record_parts(run: Path, assembly: Assembly) -> None:
    """Writes down who the parts are."""
    content = {"schema": SCHEMA, "parts": parts_of(assembly)}
    write_whole(run / PARTS_FILE, json.dumps(content, indent=1).encode())


def require_same_parts(
    run: Path, assembly: Assembly, accept_changes: bool
) -> list[str]:
    """What to say of the parts of a run that goes on: whose source is another.

    Parts that the recipe names may change, as they are somebody's work; parts given in
    Python must be accepted.

    Raises:
        RecipeError: one is another, or its source is and nobody accepted that.
        ValueError: the record is damaged.
    """
    file = run / PARTS_FILE
    content = _read_object(file)
    found = parts_of(assembly)
    saved = _record(content.get("parts"), found)
    if content.get("schema") != SCHEMA or saved is None:
        raise ValueError(
            f"{file} must say who {', '.join(found)} are, got another file; restore "
            "it, or finish the run with the version of accredit that wrote it"
        )
    said: list[str] = []
    modules = {name.partition(":")[0] for name in assembly.config.plugins}
    for part, wanted in saved.items():
        before, now = _names(wanted), _names(found[part])
        if before != now:
            raise RecipeError(
                f"the {part} of this run must be {_spoken(before)}, got {_spoken(now)};"
                " go on from Python: accredit.resume_training(path, (), algorithm=..., "
                "task=...) with what start_training was given"
            )
        if wanted == found[part]:
            continue
        if modules and all(name.startswith(tuple(modules)) for name in now):
            said.append(f"the {part} has another source than when the run began")
        elif not accept_changes:
            raise RecipeError(
                f"the {part} of this run must be as it was, got another source of "
                f"{_spoken(now)}; restore it, start a new run, or go on all the same "
                "with --accept-changes"
            )
    return said


def foreign(part: object) -> list[str]:
    """`module.name sha256` of what a part is made of that is somebody's own code.

    The part itself is named as well where its class is an installed library's.
    """
    found = []
    for owner in _owners(part, _DEPTH, set()):
        module = getattr(owner, "__module__", None) or "builtins"
        if module.partition(".")[0] in ("accredit", "builtins", "functools"):
            continue
        if owner is type(part) or not _is_installed(module):
            name = f"{module}.{getattr(owner, '__qualname__', owner)}"
            found.append(f"{name} {_source(owner)}")
    return found


def _owners(part: Any, depth: int, seen: set[int]) -> Iterator[Any]:
    """Functions and classes that a part is made of."""
    plain = part is None or isinstance(part, bool | int | float | str | bytes)
    if plain or depth == 0 or id(part) in seen:
        return
    seen.add(id(part))
    held: Iterable[Any] = ()
    if isinstance(part, partial):
        held = (part.func, *part.args, *part.keywords.values())
    elif isinstance(part, Mapping):
        held = part.values()
    elif isinstance(part, list | tuple | set | frozenset):
        held = part
    elif inspect.isroutine(part) or inspect.isclass(part):
        yield part
        held = [cell.cell_contents for cell in getattr(part, "__closure__", None) or ()]
    else:
        yield type(part)
        if not _is_installed(type(part).__module__):
            held = [h for h in _fields(part) if _may_hold_code(h)]
    for inner in held:
        yield from _owners(inner, depth - 1, seen)


def _fields(part: Any) -> list[Any]:
    if is_dataclass(part):
        return [getattr(part, field.name) for field in fields(part)]
    return list(getattr(part, "__dict__", {}).values())


def _may_hold_code(value: object) -> bool:
    return (
        callable(value)
        or is_dataclass(value)
        or isinstance(value, list | tuple | Mapping)
    )


def _is_installed(module: str) -> bool:
    """Whether a module is a library's: its version is in `environment.json`."""
    file = str(getattr(sys.modules.get(module), "__file__", "") or "")
    standard = module.partition(".")[0] in sys.stdlib_module_names
    own = module == "__main__"
    return not own and (standard or "site-packages" in file or "dist-packages" in file)


def _source(owner: Any) -> str:
    """SHA-256 of the text of a function or a class; nothing where there is none."""
    try:
        return hashlib.sha256(inspect.getsource(owner).encode()).hexdigest()
    except (OSError, TypeError):
        return ""


def _given(assembly: Assembly, part: str) -> Sequence[str]:
    """A word for a part that came as an argument, whoever wrote its class."""
    given = {"algorithm": "algorithm", "verifier": "task"}.get(part)
    return ["from Python "] if given in assembly.from_python else []


def _names(owners: Sequence[str]) -> list[str]:
    return sorted({owner.rpartition(" ")[0] for owner in owners})


def _spoken(names: Sequence[str]) -> str:
    return ", ".join(names) or RECIPE


def _record(saved: object, found: Mapping[str, Any]) -> Mapping[str, list[str]] | None:
    """The parts of a record; None where it is none of these."""
    if not isinstance(saved, dict) or saved.keys() != found.keys():
        return None
    lists = [owners for owners in saved.values() if isinstance(owners, list)]
    texts = all(isinstance(owner, str) for owners in lists for owner in owners)
    return saved if texts and len(lists) == len(saved) else None


def _read_object(file: Path) -> dict[str, Any]:
    require_plain(file)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{file} must hold a JSON object, got a damaged or missing file; restore "
            "it, or start a new run"
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"{file} must hold a JSON object, got {content!r:.60}")
    return content
