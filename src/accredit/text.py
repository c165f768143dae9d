"""Text as UTF-8 can hold it, and as a screen may show it.

Needs the standard library only: workers import it.
"""

import re

_UNSEEN = (
    "\\x00-\\x1f\\x7f-\\x9f"  # control characters
    "\\u2028-\\u202e\\u2060-\\u206f\\u200b-\\u200f\\u061c"  # breaks, bidi, zero width
    "\\xad\\u034f\\u0600-\\u0605\\u06dd\\u070f\\u0890\\u0891\\u08e2\\ufeff\\ufff9-\\ufffb"
    "\\U000110bd\\U000110cd\\U00013430-\\U00013438"
    "\\U0001bca0-\\U0001bca3\\U0001d173-\\U0001d17a"  # the rest of Unicode's formats
    "\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u3164\\uffa0"  # shapeless letters
    "\\U000e0000-\\U000e0fff"  # tags and the long variation selectors, which hide text
    "\\ud800-\\udfff"  # halves of surrogate pairs
)
UNSEEN = re.compile(f"[{_UNSEEN}]")
"""What a screen obeys, hides or cannot show, rather than shows."""


def without_lone_surrogates(text: str) -> str:
    """Half surrogate pairs become U+FFFD; whole pairs the character they mean."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def printable(text: str, *, keep_layout: bool = False) -> str:
    r"""The text with everything unseen written out, as `\x1b` or `\u202e`.

    Untrusted text can then neither move the cursor, nor turn the reading direction, nor
    end its line. A backslash of the text itself stays single: this is for eyes, and is
    not read back.

    Args:
        text: From anywhere.
        keep_layout: Leaves newlines and tabs as they are.
    """
    if text.isascii() and text.isprintable():
        return text
    kept = "\n\t" if keep_layout else ""
    return UNSEEN.sub(lambda match: _escaped(match[0], kept), text)


def _escaped(character: str, kept: str) -> str:
    if character in kept:
        return character
    return character.encode("unicode_escape").decode("ascii")


def shortened(value: object, limit: int = 80) -> str:
    """The beginning of `repr(value)`, for messages."""
    try:
        text = printable(repr(value))
    except (RecursionError, ValueError):  # Nested too deeply; an integer too long.
        text = f"a {type(value).__name__} too large to show"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def within(line: str, limit: int) -> str:
    """A line of at most `limit` characters: a longer one loses its middle.

    Its beginning says what must hold, its end what to do.
    """
    if len(line) <= limit:
        return line
    head = (2 * limit) // 3
    return f"{line[:head]} ... {line[len(line) - (limit - head - 5) :]}"
