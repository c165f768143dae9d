"""What a screen may be sent."""

import unicodedata

import pytest

from accredit.text import UNSEEN, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a[/b] 2 + 2", "a[/b] 2 + 2"),
        ("−1 ≤ x · 中文 é 𝔸 👍", "−1 ≤ x · 中文 é 𝔸 👍"),
        ("✔️", "✔️"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("gold\u202edlog\u2066!", r"gold\u202edlog\u2066!"),
        ("a\u200bb\u200d\ufeff", r"a\u200bb\u200d\ufeff"),
        ("bell\a null\0 back\b", r"bell\x07 null\x00 back\x08"),
        ("two\nlines\r\n", r"two\nlines\r\n"),
        ("next\x85 line\u2028\u2029", r"next\x85 line\u2028\u2029"),
        ("\x9b31m", r"\x9b31m"),
        ("half \ud83d pair", r"half \ud83d pair"),
        ("tag \U000e0041", r"tag \U000e0041"),
        ("\u3164name", r"\u3164name"),
        ("\x7f", r"\x7f"),
        ("C:\\x1b", "C:\\x1b"),
        ("", ""),
    ],
    ids=ascii,
)
def test_what_a_screen_would_obey_or_hide_is_written_out(text, shown):
    assert printable(text) == shown


def test_layout_stays_where_it_is_asked_for():
    text = "a\tb\nc\rd\x1be\u2028"
    assert printable(text, keep_layout=True) == "a\tb\nc\\rd\\x1be\\u2028"
    assert printable(text) == r"a\tb\nc\rd\x1be\u2028"


def test_every_control_and_format_character_of_unicode_is_among_them():
    unseen = {
        chr(code)
        for code in range(0x110000)
        if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    }
    assert {character for character in unseen if not UNSEEN.match(character)} == set()
    assert all(UNSEEN.match(printable(character)) is None for character in unseen)
