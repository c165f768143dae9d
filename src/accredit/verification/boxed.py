"""Where a text says what its answer is. Knows text, no mathematics and no thinking.

Each rule is one that a recipe can name; `FINDERS` lists them, `EXTRACTIONS` the same
without saying whether the answer is whole.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from accredit.verification.blocks import Answer, Finder, find_box
from accredit.verification.labels import find_label

Extraction = Callable[[str], str | None]


def find_box_or_label(text: str) -> Answer | None:
    """The last box that holds something, else what the last label says."""
    box = find_box(text)
    return box if box and box.text else find_label(text) or box


def find_box_or_text(text: str) -> Answer | None:
    """The last box that holds something, else the whole text without outer blanks."""
    box = find_box(text)
    return box if box and box.text else Answer(text.strip(), is_whole=False)


FINDERS: Mapping[str, Finder] = MappingProxyType(
    {
        "box": find_box,
        "box_or_label": find_box_or_label,
        "box_or_text": find_box_or_text,
    }
)


def _text_of(find: Finder) -> Extraction:
    def extracted(text: str) -> str | None:
        found = find(text)
        return None if found is None else found.text

    return extracted


EXTRACTIONS: Mapping[str, Extraction] = MappingProxyType(
    {name: _text_of(find) for name, find in FINDERS.items()}
)
last_box = EXTRACTIONS["box"]
box_or_label = EXTRACTIONS["box_or_label"]
box_or_text = EXTRACTIONS["box_or_text"]
