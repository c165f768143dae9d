"""Whether a text that goes on has said its whole answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.types import Message, Problem
from accredit.verification.answered import (
    after_thinking,
    answer_finder,
    has_block,
    has_box,
    opens_thinking,
    read_with_thinking,
)

PROBLEM = Problem("p", (Message("user", "?"),))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("plain", "plain"),
        ("", ""),
        ("<think>still at it", None),
        ("<think>done</think>the answer", "the answer"),
        # The opening tag is the template's, as models that think are prompted.
        ("done</think>the answer", "the answer"),
        ("<think>a</think>b<think>c</think>d", "d"),
        ("<think>a</think>b<think>again", None),
        ("a</think>b</think>", ""),
    ],
)
def test_what_stands_behind_the_thinking_part(text, answer):
    assert after_thinking(text) == answer


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"so \boxed{4}", True),
        (r"so \boxed{4", False),
        (r"so \boxed{\frac{1}{2}", False),
        (r"so \boxed{\frac{1}{2}}", True),
        ("so 4", False),
        (r"<think>perhaps \boxed{4}", False),
        (r"<think>perhaps \boxed{4}</think>", False),
        (r"perhaps \boxed{4}</think>no", False),
        (r"<think>perhaps</think>yes, \boxed{4}", True),
        (r"<think>x</think>\boxed{4}<think>or not", False),
    ],
)
def test_a_box_counts_when_it_is_closed_and_not_a_thought(text, found):
    assert has_box(PROBLEM, text) is found
    assert answer_finder("")(PROBLEM, text) is found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<proof>x</proof>", True),
        ("<proof>x</proof> and more", True),
        ("<proof>x", False),
        ("x</proof>", False),
        ("</proof><proof>x", False),
        ("</proof><proof>x</proof>", True),
        ("<proofs>x</proofs>", False),
        ("<think><proof>x</proof>", False),
        ("<think><proof>x</proof></think>", False),
        ("<proof>x</think></proof>", False),
        ("<think>so</think><proof>x</proof>", True),
        (r"\boxed{4}", False),
    ],
)
def test_a_block_counts_when_it_is_complete_and_not_a_thought(text, found):
    assert has_block(PROBLEM, text, tag="proof") is found
    assert answer_finder("proof")(PROBLEM, text) is found


@pytest.mark.parametrize(
    ("text", "opens"),
    [
        ("", False),
        ("user: prove it. assistant:", False),
        ("assistant: <think>\n", True),
        ("assistant: <think>\n\n</think>\n", False),
        ("think in <think> and </think>. assistant: <think>\n", True),
        ("think in <think> and </think>. assistant:", False),
        ("</think>", False),
        ("</think> <think>", True),
    ],
)
def test_a_prompt_may_open_the_thinking_part(text, opens):
    assert opens_thinking(text) is opens


SPECIAL = str.maketrans("", "", "{}")


def read_of(asked, written):
    """One character a token; curly brackets are special tokens, shown as tags."""

    def shown(ids):
        text = "".join(map(chr, ids))
        return text.replace("{", "<think>").replace("}", "</think>")

    return read_with_thinking(
        [ord(letter) for letter in asked],
        [ord(letter) for letter in written],
        decode=lambda many: ["".join(map(chr, ids)).translate(SPECIAL) for ids in many],
        decode_whole=shown,
    )


def test_a_completion_is_read_behind_the_tag_of_its_prompt():
    assert read_of("ab", "cd") == "cd"
    assert read_of("ab{", "cd") == "<think>cd"
    assert read_of("ab{", "cd}ef") == "<think>cd</think>ef"
    assert read_of("ab{}", "cd") == "cd"
    assert read_of("ab", "{cd}ef") == "<think>cd</think>ef"
    assert read_of("ab", "cd}ef") == "cd</think>ef"


@pytest.mark.parametrize("thought", [r"so \boxed{4}?", "<proof> and </proof> go round"])
def test_a_thought_whose_tag_the_prompt_opened_is_no_answer(thought):
    """A template of a thinking model: the completion has no tag until it ends."""

    def text(written):
        return read_with_thinking(
            list(b"assistant: <think>"),
            list(written.encode()),
            decode=lambda many: [bytes(ids).decode() for ids in many],
            decode_whole=lambda ids: bytes(ids).decode(),
        )

    for finder, answer in (
        (answer_finder(""), r"It is \boxed{4}."),
        (answer_finder("proof"), "<proof>x</proof>"),
    ):
        assert not finder(PROBLEM, text(thought))
        assert not finder(PROBLEM, text(f"{thought}</think> wait"))
        assert finder(PROBLEM, text(f"{thought}</think>{answer}"))


def test_a_tag_is_taken_by_the_letter():
    """`a.c` is no pattern."""
    assert has_block(PROBLEM, "<a.c>x</a.c>", tag="a.c")
    assert not has_block(PROBLEM, "<abc>x</a.c>", tag="a.c")


PIECES = st.lists(
    st.sampled_from(["<think>", "</think>", "<proof>", "</proof>", "x", r"\boxed{1}"]),
    max_size=7,
)


@given(PIECES)
def test_an_answer_is_one_however_the_thinking_began(pieces):
    """A whole thought in front of a text without thoughts changes nothing."""
    text = "".join(pieces)
    for finder in (answer_finder(""), answer_finder("proof")):
        if "<think>" not in text and "</think>" not in text:
            assert finder(PROBLEM, text) == finder(PROBLEM, f"<think>q</think>{text}")
            assert not finder(PROBLEM, f"<think>{text}")
            assert not finder(PROBLEM, f"{text}</think>")
