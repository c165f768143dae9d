"""Rewrites of notation that leave the value alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.text import without_lone_surrogates
from accredit.verification.tokens import spelling, tokenize

P20 = [
    ("0,1", "0,1"),
    ("3,5,7", "3,5,7"),
    ("12,34", "12,34"),
    ("19,22", "19,22"),
    ("1,23,456", "1,23,456"),
    ("7", "7"),
    ("115,000", "115000"),
    ("1,234,567", "1234567"),
    ("-61,328", "-61328"),
    ("1,000.50", "1000.50"),
]


@pytest.mark.parametrize(("text", "joined"), P20)
def test_p20_thousands_are_joined_and_tuples_are_not(text: str, joined: str) -> None:
    """Case B131."""
    assert spelling(text) == joined


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("(2,251,252)", "(2,251,252)"),
        (r"\{1,100\}", r"\{1,100\}"),
        ("1,000, 2,000", "1000,2000"),
        ("0,123", "0,123"),
        ("1,000,2", "1,000,2"),
        ("(1,234) + 5,678", "(1,234)+5678"),
        (r"\frac{115,000}{3}", r"\frac{115000}3"),
    ],
)
def test_only_a_number_outside_brackets_has_thousands(text: str, joined: str) -> None:
    assert spelling(text) == joined


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("**73**", "73"),  # Case B135
        ("Final Answer: **73**", "73"),
        ("**Final Answer:** 73", "73"),
        (r"$\text{13}$", "13"),  # Case B134
        ("\u22123", "-3"),
        ("\uff11\uff12", "12"),
        (r"\(5\)", "5"),
        (r"\[ 5 \]", "5"),
        ("3.", "3"),
        ("2.5.", "2.5"),
        (r"12\,345", "12345"),
        ("1{,}000", "1000"),
        ("1 000", "1000"),
        (r"32,\! 349", "32349"),
        (r"90^{\circ}", "90°"),
        (r"90^\circ", "90°"),
        ("50%", "50%"),
        (r"50\%", "50%"),
        (r"\dfrac{1}{2}", r"\frac{1}{2}"),
        ("½", r"\frac{1}{2}"),
        ("√10", r"\radical10"),
        ("x⁴", "x^{4}"),
        ("a₁₂", "a_{12}"),
        ("2**3", "2^{3}"),
        (r"x\ge0", r"x\geq0"),
        (r"\left(1,\ 2\right)", "(1,2)"),
        ("α+β", r"\alpha+\beta"),
        ("$18", r"\$18"),
        ("18$", r"18\$"),
        ("Yes.", "yes"),
        (r"\text{Some words}", "some words"),
        (r"\boxed{7}", "7"),
    ],
)
def test_one_spelling(text: str, expected: str) -> None:
    assert spelling(text) == spelling(expected)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("x^2", "x2"),
        ("x_2", "x2"),
        ("x^{10}", "x^1 0"),
        (r"\frac{1}{23}", r"\frac{1}23"),
        ("3:30", "330"),
        ("4 5", "45"),
        ("a b", "ab"),
        ("A", "a"),
        ("AB", "ab"),
        ("cat", "act"),
        ("7'", "7"),
        ("7#", "7"),
        ("7?", "7"),
        (r"7\unknown", "7"),
        (r"\overline{ab}", "ab"),
        ("1011_2", "1011"),
        ("5%", "5"),
        ("5°", "5"),
        (r"\$5", "5"),
        ("m²", "m"),
    ],
)
def test_no_sign_is_dropped(text: str, other: str) -> None:
    assert spelling(text) != spelling(other)


def test_a_space_between_digits_stays() -> None:
    assert spelling("4 5") != spelling("45")
    assert spelling("x + 1") == spelling("x+1")


@settings(deadline=None)
@given(st.text("ax12^_()[]'#?!&|%/+-", max_size=20))
def test_every_character_is_in_a_token(text: str) -> None:
    tokens = tokenize(f"7{text}7")
    assert "".join(token.text for token in tokens) == f"7{text}7"


def test_b168_lone_surrogates_are_replaced_and_emoji_are_not() -> None:
    assert without_lone_surrogates("a\ud835b") == "a\ufffdb"
    assert without_lone_surrogates("\U0001f600") == "\U0001f600"
    assert without_lone_surrogates("\ud83d\ude00") == "\U0001f600"


@settings(deadline=None)
@given(st.text(st.characters(codec=None), max_size=50))
def test_every_text_can_be_encoded_afterwards(text: str) -> None:
    clean = without_lone_surrogates(text)
    assert clean.encode("utf-8").decode("utf-8") == clean
    assert without_lone_surrogates(clean) == clean
