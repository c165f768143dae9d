"""What a saved prompted critic says about itself: `prompted_critic.json`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CARD_FILE = "prompted_critic.json"
SCHEMA = 1


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
