"""Which part of a completion is the answer."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.verification.boxed import (
    EXTRACTIONS,
    FINDERS,
    box_or_label,
    box_or_text,
    last_box,
)

P19 = [
    (r"so \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
    (r"\boxed{\frac{1}{3}}", r"\frac{1}{3}"),
    (r"first \boxed{3}, then \boxed{x^{2^{3}}}.", r"x^{2^{3}}"),
    (r"\boxed{\{1,2\}}", r"\{1,2\}"),
    (r"\boxed{5", None),
    (r"\boxed{}", ""),
    ("no box here", None),
    (r"\fbox{7}", "7"),
    (r"\boxed{\text{Answer: }12}", r"\text{Answer: }12"),
    (r"\boxed {42}", "42"),
    (r"\boxed{1}\boxed{\frac{2}{", "1"),
    (r"\boxed{840}. ... \boxed{840}", "840"),
]


@pytest.mark.parametrize(("text", "box"), P19)
def test_p19_the_last_complete_box_counts(text: str, box: str | None) -> None:
    """Cases B129 and B130."""
    assert last_box(text) == box


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"\boxed{\boxed{5}}", "5"),
        (r"an open \boxed{ and then \boxed{6}", "6"),
        ("} stray } braces { \\boxed{8}", "8"),
        (r"\boxedness{5}", None),
        (r"\\boxed{5}", None),
        ("\\boxed{a\nb}", "a\nb"),
    ],
)
def test_unusual_boxes(text: str, box: str | None) -> None:
    assert last_box(text) == box


balanced = st.recursive(
    st.sampled_from(["", "x", "1,2", r"\{", r"\}", r"\frac", " "]),
    lambda inner: st.tuples(inner, inner).map(lambda p: f"{p[0]}{{{p[1]}}}"),
)


@settings(deadline=None)
@given(balanced, st.text(alphabet="ab{}\\ ", max_size=20))
def test_a_balanced_box_is_found_whole_after_any_text(inner: str, before: str) -> None:
    # A backslash at the end of `before` would escape the box itself.
    assert last_box(before + " \\boxed{" + inner + "}") == inner.strip()


def test_ten_thousand_open_boxes_cost_one_pass() -> None:
    started = time.perf_counter()
    assert last_box(r"\boxed{" * 10_000) is None
    assert time.perf_counter() - started < 1.0


def test_a_label_stands_in_for_a_missing_box() -> None:
    assert box_or_label("Final Answer: **73**") == "73"
    assert box_or_label("The answer is 12\nand I am sure") == "12"
    assert box_or_label(r"answer: 3, no: \boxed{4}") == "4"
    assert box_or_label("seventy-three") is None
    assert box_or_label("Answer:") is None


def test_the_whole_text_stands_in_for_a_missing_box() -> None:
    assert box_or_text("  R23U13 \n") == "R23U13"
    assert box_or_text(r"so \boxed{4}") == "4"


def test_every_policy_has_a_name() -> None:
    assert set(EXTRACTIONS) == set(FINDERS) == {"box", "box_or_label", "box_or_text"}


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"\boxed{5} ... \boxed{}", "5"),
        (r"\boxed{5} ... \boxed{ }", "5"),
        (r"\boxed{5} ... \boxed{\text{}}", "5"),
        (r"\boxed{5} ... \boxed{\boxed{}}", "5"),
        (r"\boxed{5} ... \boxed{$ $}", "5"),
        (r"\boxed{ }", ""),
        (r"\boxed{\boxed{}}", ""),
        (r"\boxed{0}", "0"),
        (r"\boxed 5", "5"),
        (r"so $\boxed 12$ it is", "12"),
        (r"\boxed -3.", "-3"),
        (r"\boxed \frac{1}{2}.", r"\frac{1}{2}"),
        (r"\boxed x", "x"),
        (r"\boxed5", "5"),
        (r"put it in a \boxed please", None),
        (r"a \boxed a number", None),
        (r"\framebox{6}", "6"),
        (r"\framebox[2cm]{6}", "6"),
        (r"\framebox[2cm][c]{6}", "6"),
        (
            r"\boxed{\left\{ \frac{1}{2}, {3} \right\}}",
            r"\left\{ \frac{1}{2}, {3} \right\}",
        ),
        ("```latex\n\\boxed{8}\n```", "8"),
    ],
)
def test_the_last_box_that_holds_something_counts(text: str, box: str | None) -> None:
    assert last_box(text) == box


@pytest.mark.parametrize(
    ("text", "is_whole"),
    [
        (r"\boxed{5}", True),
        (r"\boxed{5} and", True),
        (r"\boxed 5", False),
        (r"\boxed 5$", True),
        (r"\boxed{}", False),
        (r"\boxed{4}\boxed{", True),
    ],
)
def test_a_box_is_whole_once_it_is_closed(text: str, is_whole: bool) -> None:
    """A bare token may go on, and an empty box has said nothing yet."""
    found = FINDERS["box"](text)
    assert found is not None and found.is_whole is is_whole
