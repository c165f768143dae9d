"""A figure as an element of a page: its colours, its ids and what it says there."""

import io
import json
import re
from html import escape
from typing import TYPE_CHECKING

from accredit.reports.plots import COLOURS, house_style
from accredit.reports.readouts import readout

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def svg(figure: "Figure", name: str, description: str) -> str:
    """The figure as an `<svg>` element for a page.

    Args:
        name: Unique in the page; begins every id.
        description: Read aloud instead of the picture.
    """
    buffer = io.StringIO()
    with house_style():
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    text = buffer.getvalue()
    text = text[text.index("<svg") :].strip()
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = _scoped_ids(text, name)
    for colour, variable in COLOURS.items():
        text = text.replace(colour, f"var(--{variable}, {colour})")
    text = text.replace("'DejaVu Sans'", "inherit")
    head, _, body = text.partition(">")
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    head += f' role="img" aria-label="{escape(description, quote=True)}"'
    said = readout(figure)
    if said is not None:
        words = json.dumps(said, ensure_ascii=False, separators=(",", ":"))
        head += f' tabindex="0" data-readout="{escape(words, quote=True)}"'
    return f"{head}>{body}"


def _scoped_ids(text: str, name: str) -> str:
    """Ids that are referred to get `name` in front; the others go."""
    used = set(re.findall(r'(?:href="#|url\(#)([\w.-]+)', text))
    text = re.sub(
        r' id="([\w.-]+)"',
        lambda match: f' id="{name}-{match[1]}"' if match[1] in used else "",
        text,
    )
    return re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", text)
