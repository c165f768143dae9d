"""What a saved prompted critic says about itself: `prompted_critic.json`."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CARD_FILE = "prompted_critic.json"
SCHEMA = 1
SHOWN = 60
"""Characters of a text in a message."""


def write_card(folder: Path, content: Mapping[str, Any]) -> None:
    """Writes the content with the version of its words."""
    text = json.dumps({"schema": SCHEMA, **content}, indent=1)
    (folder / CARD_FILE).write_text(text, encoding="utf-8")


def read_card(folder: Path) -> dict[str, Any]:
    """What the prompted critic in `folder` says about itself.

    Raises:
        ValueError: it says nothing, or not in this version's words.
    """
    file = folder / CARD_FILE
    if not file.is_file():
        raise ValueError(
            f"a saved prompted critic must hold {CARD_FILE}, got {folder} without it; "
            "name a folder that such a critic was saved to"
        )
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{file} must hold a JSON object, got a damaged file; restore it"
        ) from error
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != SCHEMA or not isinstance(content.get("num_consecutive_skips"), int):
        raise ValueError(
            f"{file} must have schema {SCHEMA}, got {schema!r} or a part of it; "
            "another version of accredit wrote it"
        )
    return content


def require_same(
    folder: Path, card: Mapping[str, Any], wanted: Mapping[str, Any], template: str
) -> None:
    """Compares a card with that of the critic which is to go on from it.

    Raises:
        ValueError: they differ; of the template's texts the first that does is told.
    """
    for key, ours in wanted.items():
        theirs = card.get(key)
        if theirs == ours:
            continue
        if key == "template" and isinstance(theirs, dict):
            raise ValueError(
                f"{folder} holds a critic of another kind: the template {template!r} "
                "must be as it was when the critic was trained, got "
                f"{_change(ours, theirs)}; restore the file"
            )
        raise ValueError(
            f"{folder} holds a critic of another kind: {key} must be {ours!r}, got "
            f"{theirs!r}; resume with the recipe that it was trained by"
        )


def _change(now: Mapping[str, str], then: Mapping[str, Any]) -> str:
    """The first key of two templates that differs, from where its texts part."""
    key = next(key for key in (*now, *then) if now.get(key) != then.get(key))
    texts = [str(texts.get(key, "")) for texts in (now, then)]
    start = max(0, len(os.path.commonprefix(texts)) - SHOWN // 2)
    shown = [repr(text[start : start + SHOWN]) for text in texts]
    return f"{key} {shown[0]}, was {shown[1]}"
