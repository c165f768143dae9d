"""No rewrite makes two answers equal that sympy, given both unread, tells apart."""

from dataclasses import dataclass

import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from accredit.verification.equivalence import math_equal

POINT = {"x": sympy.Float("3.41", 60), "y": sympy.Float("4.17", 60)}


@dataclass(frozen=True)
class Written:
    """One expression in three notations, and its value without any notation."""

    latex: str
    plain: str
    unicode: str
    value: sympy.Expr
    is_atom: bool = False


SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
VULGAR = {"½": (1, 2), "¾": (3, 4), "⅓": (1, 3), "⅝": (5, 8)}


def number(n: int) -> Written:
    return Written(str(n), str(n), str(n), sympy.Float(n, 60), True)


def letter(name: str) -> Written:
    return Written(name, name, name, POINT[name], True)


def vulgar(sign: str) -> Written:
    top, bottom = VULGAR[sign]
    latex, plain = rf"\tfrac{top}{bottom}", f"({top}/{bottom})"
    return Written(latex, plain, sign, sympy.Float(top, 60) / bottom, True)


def group(part: Written) -> Written:
    return Written(
        rf"\left({part.latex}\right)",
        f"({part.plain})",
        f"({part.unicode})",
        part.value,
        True,
    )


def atom(part: Written) -> Written:
    return part if part.is_atom else group(part)


def added(parts: tuple[Written, Written]) -> Written:
    a, b = parts
    return Written(
        f"{a.latex}+{b.latex}",
        f"{a.plain} + {b.plain}",
        f"{a.unicode} + {b.unicode}",
        a.value + b.value,
    )


def subtracted(parts: tuple[Written, Written]) -> Written:
    a, b = parts[0], atom(parts[1])
    return Written(
        f"{a.latex}-{b.latex}",
        f"{a.plain}-{b.plain}",
        f"{a.unicode} − {b.unicode}",
        a.value - b.value,
    )


def multiplied(parts: tuple[Written, Written]) -> Written:
    a, b = map(atom, parts)
    return Written(
        rf"{a.latex}\cdot {b.latex}",
        f"{a.plain}*{b.plain}",
        f"{a.unicode}·{b.unicode}",
        a.value * b.value,
    )


def divided(parts: tuple[Written, Written]) -> Written:
    a, b = parts
    return Written(
        rf"\frac{{{a.latex}}}{{{b.latex}}}",
        f"({a.plain})/({b.plain})",
        f"({a.unicode}) ÷ ({b.unicode})",
        a.value / b.value if b.value else sympy.nan,
    )


def raised(part: Written, exponent: int) -> Written:
    base = group(part)
    return Written(
        f"{base.latex}^{{{exponent}}}",
        f"{base.plain}^{exponent}",
        f"{base.unicode}{str(exponent).translate(SUPERSCRIPTS)}",
        base.value**exponent,
    )


def rooted(part: Written) -> Written:
    return Written(
        rf"\sqrt{{{part.latex}}}",
        f"sqrt({part.plain})",
        f"√({part.unicode})",
        sympy.sqrt(part.value),
        True,
    )


def nested(parts: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    pairs = st.tuples(parts, parts)
    return st.one_of(
        pairs.map(added),
        pairs.map(subtracted),
        pairs.map(multiplied),
        pairs.map(divided),
        st.builds(raised, parts, st.integers(2, 12)),
        parts.map(rooted),
    )


LEAVES = st.one_of(
    st.integers(0, 30).map(number),
    st.sampled_from("xy").map(letter),
    st.sampled_from(sorted(VULGAR)).map(vulgar),
)
EXPRESSIONS = st.recursive(LEAVES, nested, max_leaves=4)


def is_finite(*values: sympy.Expr) -> bool:
    return not any(value.has(sympy.nan, sympy.zoo, sympy.oo) for value in values)


@settings(deadline=None, max_examples=60)
@given(EXPRESSIONS, EXPRESSIONS, st.integers(0, 8))
def test_what_sympy_tells_apart_is_never_equal(
    gold: Written, answer: Written, notations: int
) -> None:
    assume(is_finite(gold.value, answer.value))
    texts = [(e.latex, e.plain, e.unicode) for e in (gold, answer)]
    claimed = math_equal(texts[0][notations // 3], texts[1][notations % 3]).equal
    far = abs(gold.value - answer.value) > 1e-30 * (1 + abs(gold.value))
    assert not (claimed and far), texts


@settings(deadline=None, max_examples=30)
@given(EXPRESSIONS, st.integers(0, 8))
def test_one_expression_is_equal_in_all_notations(
    written: Written, notations: int
) -> None:
    assume(is_finite(written.value))
    assume(written.value.is_real)
    texts = (written.latex, written.plain, written.unicode)
    comparison = math_equal(texts[notations // 3], texts[notations % 3])
    assert comparison.equal is True, (texts, comparison.reason)


SIGNS = [*"0123456789xy^_{}()/+-*√²½:,. ", r"\sqrt", r"\frac", r"\cdot "]
NEAR = st.lists(st.sampled_from(SIGNS), min_size=1, max_size=7).map("".join)


def value_of(digits: str) -> sympy.Expr | None:
    """What a text is that nobody can read in two ways: digits with a point."""
    whole, _, part = digits.partition(".")
    is_plain = (whole + part).isascii() and whole.isdigit() and (part or "0").isdigit()
    return sympy.Rational(digits) if is_plain and not digits.endswith(".") else None


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 130), NEAR)
def test_no_scrambled_number_is_read_as_another(gold: int, text: str) -> None:
    value = value_of(text.replace(" ", "x"))
    equal = math_equal(str(gold), text).equal
    if value is not None:
        assert equal is (value == gold)
    if any(sign in text for sign in "_:"):
        assert equal is False
