"""Whether a text that goes on has said its whole answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.types import Message, Problem, Prompt
from accredit.verification.answered import (
    Turns,
    TurnVerifier,
    after_thinking,
    answer_reader,
    opens_thinking,
)
from accredit.verification.boxed import FINDERS
from accredit.verification.exact import ExactVerifier
from accredit.verification.math import MathVerifier
from worlds import answered

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
    reader = answer_reader()
    assert reader.has_answer(PROBLEM, text) is found
    assert (reader.answer(text) is not None) is found


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
    reader = answer_reader(answer_tag="proof")
    assert reader.has_answer(PROBLEM, text) is found
    assert reader.answer(text) == ("x" if found else None)


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


def turns_of(hidden=""):
    """One character a token, of which some are not shown."""
    return Turns(
        lambda many: [
            "".join(chr(i) for i in ids if chr(i) not in hidden)
            .replace("«", "<think>")
            .replace("»", "</think>")
            for ids in many
        ]
    )


def codes(text):
    return [ord(letter) for letter in text]


@pytest.mark.parametrize(
    ("asked", "written", "turn"),
    [
        ("ab", "cd", "cd"),
        ("ab«", "cd", "<think>cd"),
        ("ab«\n", "cd»ef", "<think>cd</think>ef"),
        ("ab«»", "cd", "cd"),
        ("ab", "«cd»ef", "<think>cd</think>ef"),
        ("ab", "cd»ef", "cd</think>ef"),
        # A prompt that talks about the tag has not opened anything.
        ("think in « first. ab", "cd", "cd"),
        ("x" * 100 + "«", "cd", "<think>cd"),
    ],
)
def test_a_completion_is_read_behind_the_tag_of_its_prompt(asked, written, turn):
    assert turns_of().read(codes(asked), codes(written)) == turn


def test_a_tag_that_is_not_shown_of_the_prompt_opens_nothing():
    """Neither is the one that would close it."""
    assert turns_of(hidden="«»").read(codes("ab«"), codes("cd»ef")) == "cdef"


@pytest.mark.parametrize("thought", [r"so \boxed{4}?", "<proof> and </proof> go round"])
def test_a_thought_whose_tag_the_prompt_opened_is_no_answer(thought):
    """A template of a thinking model: the completion has no tag until it ends."""

    def text(written):
        return turns_of().read(codes("assistant: «"), codes(written))

    for reader, answer in (
        (answer_reader(), r"It is \boxed{4}."),
        (answer_reader(answer_tag="proof"), "<proof>x</proof>"),
    ):
        assert not reader.has_answer(PROBLEM, text(thought))
        assert not reader.has_answer(PROBLEM, text(f"{thought}» wait"))
        assert reader.has_answer(PROBLEM, text(f"{thought}»{answer}"))


def asked_with(asked):
    """A rollout behind this prompt, and a problem whose gold answer is 4."""
    problem = Problem("p", (Message("user", "?"),), "4")
    group = answered(Prompt(problem, tuple(codes(asked))), [((2,), 0.0)])
    return problem, group.rollouts[0]


@pytest.mark.parametrize(
    ("asked", "text", "reward"),
    [
        ("ab", r"\boxed{4}", 1.0),
        ("ab«", r"\boxed{4}", 0.0),
        ("ab«", r"\boxed{4}</think>", 0.0),
        ("ab«", r"\boxed{5}</think>\boxed{4}", 1.0),
        ("ab", r"<think>\boxed{4}", 0.0),
        ("ab", r"<think>\boxed{5}</think>\boxed{4}", 1.0),
        ("ab", r"\boxed{4}<think>or \boxed{5}", 0.0),
    ],
)
def test_verifiers_pay_what_is_handed_in_and_no_thought(asked, text, reward):
    """And a completion that is paid is one that has answered: it is one definition."""
    problem, rollout = asked_with(asked)
    reader, turns = answer_reader(), turns_of()
    for inner in (ExactVerifier(reader.answer), MathVerifier(extract=reader.answer)):
        verifier = TurnVerifier(inner, turns)
        (verdict,) = verifier.verify([(problem, text, rollout)])
        verifier.close()
        assert verdict.reward == reward
    shown = turns.opening(rollout.prompt.token_ids) + text
    assert reader.has_answer(problem, shown) >= bool(reward)


TEXTS = st.lists(
    st.sampled_from(
        [
            "<think>",
            "</think>",
            "<answer>",
            "</answer>",
            "Answer: ",
            "\n#### ",
            "7",
            r"\boxed{",
            "}",
            "\n",
            "```\n",
        ]
    ),
    max_size=9,
).map("".join)


@given(TEXTS, st.sampled_from([*FINDERS, "tag"]))
def test_what_has_answered_has_an_answer_and_keeps_it(text, name):
    """An answer that is whole stays where blanks follow."""
    where = {"answer_tag": "answer"} if name == "tag" else {"answer_in": name}
    reader = answer_reader(**where)
    found = reader.answer(text)
    if reader.has_answer(PROBLEM, text):
        assert found
        if name != "box_or_text":
            assert reader.answer(text + "\n") == found
    if after_thinking(text) is None:
        assert found is None


def test_a_tag_is_taken_by_the_letter():
    """`a.c` is no pattern."""
    reader = answer_reader(answer_tag="a.c")
    assert reader.answer("<a.c>x</a.c>") == "x"
    assert reader.answer("<abc>x</a.c>") is None


PIECES = st.lists(
    st.sampled_from(["<think>", "</think>", "<proof>", "</proof>", "x", r"\boxed{1}"]),
    max_size=7,
)


@given(PIECES)
def test_an_answer_is_one_however_the_thinking_began(pieces):
    """A whole thought in front of a text without thoughts changes nothing."""
    text = "".join(pieces)
    for reader in (answer_reader(), answer_reader(answer_tag="proof")):
        finder = reader.has_answer
        if "<think>" not in text and "</think>" not in text:
            assert finder(PROBLEM, text) == finder(PROBLEM, f"<think>q</think>{text}")
            assert not finder(PROBLEM, f"<think>{text}")
            assert not finder(PROBLEM, f"{text}</think>")
