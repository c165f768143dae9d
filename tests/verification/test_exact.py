"""Exact spelling: nothing is forgiven but surrounding whitespace."""

from collections.abc import Callable

import pytest

from accredit.types import StopReason
from accredit.verification.boxed import last_box
from accredit.verification.exact import ExactVerifier


def test_the_box_or_the_whole_text_must_be_the_gold_answer(item: Callable) -> None:
    verdicts = ExactVerifier().verify(
        [
            item("12", " 12\n"),
            item("12", r"so \boxed{12}"),
            item("12", "12."),
            item("12", "012"),
            item("12", ""),
        ]
    )
    assert [verdict.reward for verdict in verdicts] == [1, 1, 0, 0, 0]


def test_a_missing_box_is_wrong_where_a_box_is_asked_for(item: Callable) -> None:
    verdict = ExactVerifier(last_box).verify([item("12", "12")])[0]
    assert (verdict.reward, verdict.reason) == (0.0, "no answer was given")


def test_nothing_to_score_is_none(item: Callable) -> None:
    verifier = ExactVerifier()
    verdicts = verifier.verify(
        [
            item(None, "12"),
            item(" ", "12"),
            item("12", "12", StopReason.FAILURE),
        ]
    )
    verifier.close()
    assert [verdict.reward for verdict in verdicts] == [None, None, None]
    assert "no answer to compare with" in verdicts[0].reason
    assert "failed" in verdicts[2].reason


def test_b168_a_lone_surrogate_is_compared_as_its_replacement(item: Callable) -> None:
    """Case B168."""
    verdict = ExactVerifier().verify([item("a\ufffdb", "a\ud835b")])[0]
    assert verdict.reward == 1


@pytest.mark.parametrize(
    "completion", ["", "\x00", "a\ud835b", "9" * 100_000, r"\boxed{", r"\boxed{}", "No"]
)
def test_every_answer_to_a_gold_answer_is_0_or_1(
    item: Callable, completion: str
) -> None:
    wrong, right = ExactVerifier().verify(
        [item("Yes", completion), item("Yes", completion + r"\boxed{Yes}")]
    )
    assert (wrong.reward, right.reward) == (0, 1)
    assert wrong.reason
