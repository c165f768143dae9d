"""A number that a model was asked for, read from the text of its reply."""

import re

MAX_REPLY_TOKENS = 6
"""An answer, a token behind it and the end of the turn: enough to see it go on."""
NUMBER = re.compile(r"[ \t\r\n]*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)[ \t\r\n]*")


def number_of(reply: str) -> float | None:
    """The number that a reply is; None where it is anything else.

    The whole reply must be one decimal number in ASCII digits with nothing but blanks
    and newlines around it: `0.5`, `.5`, `1`, `1.00`. None of these is one: words before
    or behind (`0.9 is what`), a second number (`0.5 to 0.7`, `0.5 0.5`), a fraction,
    percentage or range (`0.5/1`, `50%`), another notation (`0,5`, `1e-1`, `+0.5`,
    `nan`, `inf`, digits of other scripts), a sentence's period (`0.5.`). Whether it
    lies in range (`1.2` does not) is for whoever knows the range.
    """
    found = NUMBER.fullmatch(reply)
    return None if found is None else float(found[1])
