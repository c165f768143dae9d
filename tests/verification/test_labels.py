"""Lines that name the answer, and words that only look so."""

import time

import pytest

from accredit.verification.boxed import FINDERS, box_or_label
from accredit.verification.labels import find_label

READ = [
    ("<answer>42</answer>", "42"),
    ("<answer>\n 42 \n</answer>", "42"),
    ("<answer>$42$</answer>", "42"),
    ("<answer>The answer is 42</answer>", "42"),
    ("<answer><answer>5</answer></answer>", "5"),
    ("<answer>1</answer>, no: <answer>2</answer>", "2"),
    ("<answer>1</answer> or <answer></answer>", "1"),
    ("Answer: 1\n<answer>2</answer>", "2"),
    ("<answer>1</answer>\nAnswer: 2", "2"),
    ("**Answer:** 42", "42"),
    ("**Answer**: 42", "42"),
    ("**Answer: 42**", "42"),
    ("__Answer:__ `42`", "42"),
    ("The final answer is $28$. I hope it is correct.", "28"),
    (r"The final answer is \(28\). I hope it is correct.", "28"),
    ("So the answer is 3.14.", "3.14"),
    ("Therefore, the correct answer is (C).", "(C)"),
    ("Thus, we conclude that the answer is 7 apples. Done", "7 apples"),
    ("The answer to the question is 42.", "42"),
    ("The answer is $3$ and $4$.", "$3$ and $4$"),
    ("The answer is $x. y$. Yes.", "x. y"),
    ("the answer is 5!", "5!"),
    ("Answer : (B)", "(B)"),
    ("ANSWER = 7", "7"),
    ("Final Answer: **73**", "73"),
    ("Answer: St. Ives", "St. Ives"),
    ("1. **Answer**: 9", "9"),
    ("### Answer: $\\frac{3}{4}$", r"\frac{3}{4}"),
    ("## Final Answer\n\n42", "42"),
    ("**Final Answer**\n$$\n\\frac{1}{2}\n$$", r"\frac{1}{2}"),
    ("Answer:\n\\[ x = 1 \\]\n", "x = 1"),
    ("Answer:\n```\n42\n```", "42"),
    ("```\nAnswer: 42\n```", "42"),
    ("Answer: 1\n```\nAnswer: 2\n```\n", "1"),
    ("Answer: 5\nWait.\nAnswer: 6", "6"),
    ("Answer: 5\n\nThe answer is not sure.", "5"),
    ("#### 42", "42"),
    ("It is <<40+2=42>>42.\n#### 42", "42"),
    ("#### 1,234\nLet me check that.", "1,234"),
    ("#### Paris", "Paris"),
    ("#### Step 3\nwe add\n#### 12", "12"),
]


@pytest.mark.parametrize(("text", "answer"), READ, ids=lambda text: repr(text)[:40])
def test_a_label_says_the_answer(text, answer):
    assert box_or_label(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        "my answer is not sure",
        "I gave an answer: none",
        "If the answer is 5 then it is odd",
        "whether the answer is even or odd",
        "They asked what the answer is.",
        "no answer",
        "Answer:",
        "Answer:\n\n",
        "the answer was 7",
        "answers: 4",
        "<answer>42",
        "42</answer>",
        "<answer></answer>",
        r"The answer is \boxed{}",
        "#### Step 3\nwe add",
        "##### 5",
        "The question asks: is the answer: 5?",
        "answer == 5",
    ],
)
def test_a_chance_word_is_no_label(text):
    assert find_label(text) is None


@pytest.mark.parametrize(
    ("text", "is_whole"),
    [
        ("Answer: 4", False),
        ("Answer: 4\n", True),
        ("The answer is 4. So", True),
        ("The answer is 4.", False),
        ("#### 4", False),
        ("#### 4\n", True),
        ("<answer>4</answer>", True),
        ("Answer:\n$$4$$", True),
        (r"\boxed{4}", True),
    ],
)
def test_a_label_is_whole_where_its_line_is(text, is_whole):
    """At a chunk border `Answer: 4` may go on as 42."""
    found = FINDERS["box_or_label"](text)
    assert found is not None and found.text == "4"
    assert found.is_whole is is_whole


@pytest.mark.parametrize(
    "text",
    [
        "answer: " * 20_000,
        "answer:\n" * 20_000,
        "the " * 40_000 + "answer: 5",
        "<answer>" * 20_000,
        "```\nanswer: 4\n```\n" * 4000,
        "#### \n" * 20_000,
        "answer:" + "\n" * 50_000,
        "Answer: " + "$" * 50_000,
        "Answer: " + "**" * 20_000,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_hostile_text_costs_one_pass(text):
    started = time.process_time()
    find_label(text)
    assert time.process_time() - started < 1.0
