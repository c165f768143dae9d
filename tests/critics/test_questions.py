"""How a critic is asked: exact ids, seams, templates, and what is read from answers."""

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from accredit.critics.prompted.questions import (
    Questions,
    QuestionTemplate,
    template_named,
)
from accredit.models.loading import loaded_tokenizer, model_folder
from accredit.tasks.rendering import render
from accredit.types import CriticQuery, Message, Problem, Prompt
from asked_tokenizers import PLAIN_TURNS, bytes_with, thinking_tokenizer

SCRIPTS = Path(__file__).parents[2] / "scripts"
PROBLEM = Problem("p", (Message("user", "S20G47"),))


def asked(
    tokenizer: Any = None, template: QuestionTemplate | None = None, **changes: Any
) -> Questions:
    """Compact questions of a byte tokenizer, where nothing else is said."""
    tokenizer = tokenizer or bytes_with()
    settings: dict[str, Any] = {
        "stop_token_ids": [tokenizer.eos_token_id],
        "max_new_tokens": 60,
        "grid_size": 11,
    }
    template = template or template_named("compact")
    return Questions(template, tokenizer, **settings | changes)


def ids(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def test_compact_is_what_the_packaged_model_was_taught():
    """Token by token, stem, value and end of turn included."""
    name = "tiny_lessons"
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    examples = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(examples)
    tokenizer = loaded_tokenizer(model_folder("packaged"))
    draw, taught = np.random.default_rng(3), examples.WalkLessons()
    shape = re.compile(
        r"(<\|user\|>(S\d\dG\d\d)<\|end\|><\|assistant\|>)([^<]*)<\|end\|><\|user\|>"
        r"([?%])(\d+)(?:=([^<]+))?<\|end\|><\|assistant\|>v(\d\.\d)<\|end\|>"
    )
    seen = set()
    for _ in range(60):
        text = "".join(taught.question(draw).tokens)
        found = shape.fullmatch(text)
        assert found is not None
        opening, problem, written, mark, left, reference, value = found.groups()
        prompt = render(Problem("w", (Message("user", problem),)), tokenizer)
        assert prompt.token_ids == ids(tokenizer, opening)
        name = "compact" if mark == "?" else "compact_progress"
        questions = Questions(
            template_named(name),
            tokenizer,
            stop_token_ids=[tokenizer.eos_token_id],
            max_new_tokens=int(left) + len(written),
            grid_size=11,
        )
        shown = None if reference is None else ids(tokenizer, reference)
        query = CriticQuery(prompt, ids(tokenizer, written), shown)
        context = questions.context(query, shown is not None)
        answer = questions.answer_ids(round(float(value) * 10))
        whole = (*context, *answer, *questions.end_of_turn)
        assert whole == ids(tokenizer, text)
        seen.add((mark, shown is None))
    assert len(seen) == 4


@given(st.lists(st.integers(3, 258), max_size=70), st.booleans())
def test_a_context_begins_with_the_sampled_ids(written: list[int], stopped: bool):
    """Never encoded again, even where they are no text; a stop is not doubled."""
    questions = SHARED
    sampled = (*written, 0) if stopped else tuple(written)
    context = questions.context(CriticQuery(Prompt(PROBLEM, (5, 6)), sampled), False)
    assert context[: 2 + len(written)] == (5, 6, *written)
    asked_ids = context[2 + len(written) :]
    left = max(0, 60 - len(sampled))
    expected = f"<|end|><|user|>?{left}<|end|><|assistant|>v"
    assert asked_ids == ids(TOKENIZER, expected)


@pytest.mark.parametrize(
    ("context", "num_prompt", "num_written", "left"),
    [
        (None, 5, 10, 50),
        (100, 5, 10, 50),
        (40, 5, 10, 25),
        (15, 5, 10, 0),
        (11, 5, 10, 0),
    ],
)
def test_what_is_left_is_bounded_by_budget_and_context(
    context: int | None, num_prompt: int, num_written: int, left: int
):
    """min(60 - written, context - prompt - written)."""
    questions = asked(TOKENIZER, max_context_tokens=context)
    prompt = Prompt(PROBLEM, (5,) * num_prompt)
    ids_asked = questions.context(CriticQuery(prompt, (6,) * num_written), False)
    text = TOKENIZER.decode(ids_asked[num_prompt + num_written :])
    assert text == f"<|end|><|user|>?{left}<|end|><|assistant|>v"


TOKENIZER = bytes_with()
SHARED = asked(TOKENIZER)


def test_a_reference_is_shown_only_where_it_is_asked_for():
    prompt = Prompt(PROBLEM, ids(TOKENIZER, "P"))
    query = CriticQuery(prompt, ids(TOKENIZER, "ab"), (*ids(TOKENIZER, "U10"), 0))
    shown = TOKENIZER.decode(SHARED.context(query, True))
    assert shown == "Pab<|end|><|user|>?58=U10<|end|><|assistant|>v"
    assert "U10" not in TOKENIZER.decode(SHARED.context(query, False))
    with pytest.raises(ValueError, match="needs an attempt that has one"):
        SHARED.context(CriticQuery(prompt), True)


@pytest.mark.parametrize("text", ["a<|end|>b", "a<|e<|end|>nd|><|user|>b"])
def test_a_reference_cannot_open_a_turn(text: str):
    """It is a policy's text: control tokens that it spells out stay text."""
    spelled = tuple(i for letter in text for i in ids(TOKENIZER, letter))
    query = CriticQuery(Prompt(PROBLEM, (5,)), (), spelled)
    context = SHARED.context(query, True)
    shown = f"<|end|><|user|>?60={text}<|end|><|assistant|>v"
    assert TOKENIZER.decode(context[1:]) == shown
    assert [i for i in context[1:] if i < 3] == [0, 1, 0, 2]


def test_a_reference_is_not_read_as_a_template():
    query = CriticQuery(Prompt(PROBLEM, (5,)), (), ids(TOKENIZER, "{left}{reference}"))
    text = TOKENIZER.decode(SHARED.context(query, True))
    assert "?60={left}{reference}<|end|>" in text


def test_answers_are_the_grid():
    texts = [TOKENIZER.decode(SHARED.answer_ids(k)) for k in range(11)]
    assert texts == [*(f"0.{digit}" for digit in range(10)), "1.0"]
    assert SHARED.grid[3] == pytest.approx(0.3)
    assert SHARED.end_of_turn == (0,)


@pytest.mark.parametrize(
    ("text", "k"),
    [
        ("0.3", 3),
        ("0.3<|end|>", 3),
        (".3<|end|>", 3),
        (" 0.3", 3),
        ("0", 0),
        ("0.0", 0),
        ("1<|end|>", 10),
        ("1.0", 10),
        ("1.00", 10),
        ("1.0\n", 10),
        ("0.3 x", None),
        ("0.3 <|end|>", 3),
        ("\n0.3\n", 3),
        ("0.9 is what the candidate asks for; 0.1", None),
        ("0.5 to 0.7", None),
        ("0.5 0.5", None),
        ("0.5\n0.5", None),
        ("between 0.5 and 0.7", None),
        ("1e-1", None),
        ("5e-1", None),
        ("50%", None),
        ("0.5/1", None),
        ("0,5", None),
        ("nan", None),
        ("inf", None),
        ("+0.5", None),
        ("\u0660.\u0665", None),
        ("\uff10.\uff15", None),
        ("\u00bd", None),
        ("1.2", None),
        ("10", None),
        ("0_1", None),
        ("0x1", None),
        ("0.5.", None),
        ("0..5", None),
        ("(0.5)", None),
        ("**0.5**", None),
        ("$0.5$", None),
        ("0.5\u00a0", None),
        ("01.0", 10),
        ("1.", 10),
        ("0.5<|end|>0.7", 5),
        ("1.0.", None),
        ("0.5.5", None),
        ("0.5-0.7", None),
        ("0.5 - 0.7", None),
        ("0.5 \u2013 0.7", None),
        ("0.5 / 1", None),
        ("1 / 2", None),
        ("1 %", None),
        ("0.3<|user|>", None),
        ("0.35", None),
        ("0.3x", None),
        ("0.3%", None),
        ("1/7", None),
        ("12/", None),
        ("1,5", None),
        ("-0.3", None),
        ("2.0", None),
        ("x0.3", None),
        ("<|end|>0.3", None),
        ("", None),
        (".", None),
        ("0.3\n9999", None),
    ],
)
def test_a_reply_is_one_number_on_the_grid_or_nothing(text: str, k: int | None):
    assert SHARED.parsed(ids(TOKENIZER, text)) == k


def test_every_token_is_read():
    assert SHARED.parsed(ids(TOKENIZER, "1.000")) == 10
    assert SHARED.parsed(ids(TOKENIZER, "1.005")) is None
    assert SHARED.parsed(ids(TOKENIZER, "1.05")) is None


def test_a_grid_is_read_by_what_is_written():
    """Sevenths are written with one digit, and 0.1 is the first of them."""
    questions = asked(grid_size=8)
    assert questions.grid[1] == pytest.approx(1 / 7)
    assert [questions.parsed(answer) for answer in questions.answers] == [*range(8)]
    assert questions.parsed(ids(TOKENIZER, "0.2")) is None


def test_answers_of_two_digits_stand_apart():
    template = QuestionTemplate("{left}", "{left}{reference}", "v", "", "{:.2f}")
    questions = asked(template=template, grid_size=101)
    assert len(questions.answers) == len(set(questions.answers)) == 101
    assert questions.parsed(questions.answers[57]) == 57


@pytest.mark.parametrize(
    ("answer_format", "grid_size", "message"),
    [
        ("{:.1f}", 101, "must have as many different answers, got '0.0' more"),
        ("{:.3f}", 101, "must have 1 to 4 tokens, got 5"),
        ("{:g}", 11, "no answer may begin another, got '0'"),
        ("{:.1f}", 1, "grid_size must be >= 2"),
        ("{:.9f}", 1002, "grid_size of a prompted critic must be <= 1001, got 1002"),
        ("{:.1f}", 10**12, "must be <= 1001, got 1000000000000; take a coarser"),
    ],
)
def test_a_grid_that_cannot_be_told_apart_is_refused(
    answer_format: str, grid_size: int, message: str
):
    template = QuestionTemplate("{left}", "{left}{reference}", "v", "", answer_format)
    with pytest.raises(ValueError, match=message):
        asked(template=template, grid_size=grid_size)


def test_the_first_answer_that_is_too_long_ends_the_search(
    monkeypatch: pytest.MonkeyPatch,
):
    """A grid of 1001 is refused after a few encodings, not after thousands."""
    encoded: list[str] = []
    plain = Questions._ids

    def counted(questions: Questions, text: str) -> tuple[int, ...]:
        encoded.append(text)
        return plain(questions, text)

    monkeypatch.setattr(Questions, "_ids", counted)
    template = QuestionTemplate("{left}", "{left}{reference}", "v", "", "{:.3f}")
    with pytest.raises(ValueError, match=r"must have 1 to 4 tokens, got 5 for '0.000'"):
        asked(template=template, grid_size=1001)
    assert 0 < len(encoded) < 10


def test_answers_of_the_same_tokens_are_refused(monkeypatch: pytest.MonkeyPatch):
    """As of a tokenizer that knows no digits."""
    monkeypatch.setattr(Questions, "_answer", lambda questions, text: (7,))
    with pytest.raises(ValueError, match=r"the same for '0.0' and '0.1'; take another"):
        asked()


@pytest.mark.parametrize("chat", ["auto", "plain"])
def test_a_question_must_leave_room_for_its_answer(chat: str):
    """?0 between end, user, end, assistant and stem, or blank lines: 7 ids; 4 said."""
    assert asked(chat=chat, max_context_tokens=11).max_context_tokens == 11
    with pytest.raises(ValueError, match=r"model's 10 positions, got 7 \+ 4 tokens"):
        asked(chat=chat, max_context_tokens=10)


@pytest.mark.parametrize("stem", ["a<|end|>v", "<|user|>", "<t></t><|end|>v"])
def test_a_stem_cannot_open_a_turn(stem: str):
    template = QuestionTemplate("{left}", "{left}{reference}", stem)
    for chat in ("auto", "plain"):
        with pytest.raises(
            ValueError, match=r"must hold no control token .*, got '<\|"
        ):
            asked(template=template, chat=chat)


def test_a_stem_may_close_thinking_by_control_tokens():
    control = ("<|end|>", "<|user|>", "<|assistant|>", "<think>", "</think>")
    tokenizer = bytes_with(control=control)
    questions = asked(tokenizer, template_named("instruction"), max_new_tokens=500)
    context = questions.context(CriticQuery(Prompt(PROBLEM, (5,))), False)
    assert tokenizer.decode(context).endswith("</think>\n\nExpected credit: ")


@pytest.mark.parametrize(
    ("merge", "template", "words"),
    [
        (("v", "0"), PLAIN_TURNS, "'v' with '0.0'"),
        (("v", "1"), PLAIN_TURNS, "'v' with '1.0'"),
        (("7", "Ċ"), PLAIN_TURNS.replace("<|end|>", "\n<|end|>"), "'0.7' with"),
    ],
)
def test_merging_seams_are_refused(merge: tuple[str, str], template: str, words: str):
    """Pitfall 8, where no blank keeps the stem apart."""
    digit = merge[1] if merge[0] == "v" else "0"
    blanks = (("Ġ", digit), ("Ċ", digit))
    tokenizer = bytes_with(template, merges=(merge, *blanks))
    with pytest.raises(ValueError, match=f"must be tokens of their own.*{words}"):
        asked(tokenizer)


@pytest.mark.parametrize(
    ("merges", "stem", "taken"),
    [
        ((), "v", "v"),
        ((("v", "0"),), "v", "v "),
        ((("v", "1"),), "v", "v "),
        ((("v", "0"), ("Ġ", "0")), "v", "v\n"),
        ((("Ġ", "0"),), "credit: ", "credit:"),
        ((("Ġ", "1"),), "credit: ", "credit:"),
        ((("Ġ", "0"), (":", "0")), "credit: ", "credit:\n"),
        ((("Ċ", "0"), (":", "0")), "credit:\n", "credit: "),
        # `v0` alone is merged in the middle of a text, not `Ġv0`
        ((("Ġ", "0"), ("Ċ", "0"), ("Ġ", "v"), ("v", "0")), "v", " v"),
    ],
)
@pytest.mark.parametrize("chat", ["auto", "plain"])
def test_the_stem_is_spaced_so_that_its_answers_stay_apart(merges, stem, taken, chat):
    tokenizer = bytes_with(merges=merges)
    template = QuestionTemplate("?{left}", "?{left}={reference}", stem)
    questions = asked(tokenizer, template, chat=chat)
    assert questions.template.stem == taken
    assert questions.stem_as_written == ("" if taken == stem else stem)
    context = questions.context(CriticQuery(Prompt(PROBLEM, (5,))), False)
    assert tokenizer.decode(context).endswith(taken)
    for k, answer in enumerate(questions.answers):
        text = f"{k / 10:.1f}"
        assert tokenizer.decode(answer) == text
        whole = ids(tokenizer, tokenizer.decode(context[1:]) + text)
        assert whole == (*context[1:], *answer)
        assert questions.parsed(answer) == k
    # A resumed run takes the same: it depends on template and tokenizer alone.
    again = asked(bytes_with(merges=merges), template, chat=chat)
    assert again.template == questions.template


def trained_bytes(*lines: str, vocabulary: int = 400):
    """A plain byte-level BPE, merges learned across words and numbers alike."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=False
    )
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<|end|>", "<|user|>", "<|assistant|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator([line for line in lines for _ in range(20)], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|end|>", clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = PLAIN_TURNS
    return tokenizer


@pytest.mark.parametrize("template", ["compact", "instruction"])
@pytest.mark.parametrize("seen", ["v0.{} ", "Expected credit: 0.{} ", "x: 0.{}v1.0 "])
def test_a_plain_byte_level_tokenizer_is_asked_all_the_same(template, seen):
    tokenizer = trained_bytes("".join(seen.format(digit) for digit in range(10)))
    questions = asked(tokenizer, template_named(template), max_new_tokens=500)
    assert [questions.parsed(answer) for answer in questions.answers] == [*range(11)]
    written = template_named(template).stem
    assert questions.template.stem.strip() == written.strip()
    context = questions.context(CriticQuery(Prompt(PROBLEM, (5,)), (7, 8)), False)
    for k, answer in enumerate(questions.answers):
        text = tokenizer.decode(context[3:]) + f"{k / 10:.1f}"
        assert ids(tokenizer, text) == (*context[3:], *answer)


def test_a_merge_within_an_answer_does_no_harm():
    tokenizer = bytes_with(merges=(("0", "."),))
    questions = asked(tokenizer)
    assert [len(answer) for answer in questions.answers] == [2] * 10 + [3]
    assert questions.parsed(questions.answers[4]) == 4


REFUSES = PLAIN_TURNS.replace(
    "{% for",
    "{% if messages | length > 2 %}{{ raise_exception('one') }}{% endif %}{% for",
)
FORGETS = PLAIN_TURNS.replace("for m in messages", "for m in messages[-1:]")
TURNS_ROUND = PLAIN_TURNS.replace("for m in messages", "for m in messages | reverse")


@pytest.mark.parametrize("template", [REFUSES, FORGETS, TURNS_ROUND])
def test_a_template_must_hold_two_user_turns(template: str):
    with pytest.raises(ValueError, match="cannot hold two user turns"):
        asked(bytes_with(template))


CALLS_ITSELF = "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}"


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        ("{{ 1 // 0 }}", "division"),
        (CALLS_ITSELF, "recursion"),
        ("{{ [1].index(2) }}", "list"),
        ("{{ messages[0].content.encode('utf-9') }}", "unknown encoding"),
    ],
)
def test_a_template_that_fails_in_any_way_is_one_error(template: str, fault: str):
    words = rf"^a prompted critic .*turns \(.*{fault}[^\n]*\); use another[^\n]*$"
    with pytest.raises(ValueError, match=words):
        asked(bytes_with(template))


def test_a_turn_must_end_with_a_stop_token():
    with pytest.raises(ValueError, match="must end the assistant's turn with a stop"):
        asked(stop_token_ids=[77])
    with pytest.raises(ValueError, match="must end with a stop token, got a model wi"):
        asked(stop_token_ids=[])


def test_an_end_of_turn_may_have_several_tokens():
    template = PLAIN_TURNS.replace("<|end|>", " <|end|>")
    questions = asked(bytes_with(template))
    assert questions.end_of_turn == ids(TOKENIZER, " <|end|>")


def test_without_a_chat_template_turns_are_paragraphs():
    for tokenizer, chat in ((bytes_with(None), "auto"), (bytes_with(), "plain")):
        questions = asked(tokenizer, chat=chat)
        query = CriticQuery(Prompt(PROBLEM, ids(tokenizer, "P")), ids(tokenizer, "ab"))
        text = tokenizer.decode(questions.context(query, False))
        assert text == "Pab\n\n?58\n\nv"
        assert questions.end_of_turn == (tokenizer.eos_token_id,)
    with pytest.raises(ValueError, match="needs a tokenizer with a chat template"):
        asked(bytes_with(None), chat="template")


class TestThinking:
    """A chat model that thinks, whose template takes thinking off past turns."""

    tokenizer = thinking_tokenizer()
    questions = asked(tokenizer, template_named("instruction"), max_new_tokens=5_000)
    prompt = render(PROBLEM, tokenizer)

    def text(self, written: str, reference: str | None = None) -> str:
        """The context, which begins with the very ids of prompt and completion."""
        shown = None if reference is None else ids(self.tokenizer, reference)
        query = CriticQuery(self.prompt, ids(self.tokenizer, written), shown)
        context = self.questions.context(query, shown is not None)
        sampled = (*self.prompt.token_ids, *ids(self.tokenizer, written))
        assert context[: len(sampled)] == sampled
        return self.tokenizer.decode(context)

    def test_open_thinking_is_closed_and_kept(self):
        text = self.text("Let me\nsee")
        begin, _, end = text.partition("</think>\n<|im_end|>\n<|im_start|>user\n")
        assert begin == (
            "<|im_start|>user\nS20G47<|im_end|>\n<|im_start|>assistant\n<think>\n"
            "Let me\nsee\n"
        )
        assert "its remaining 4990 tokens" in end
        assert end.endswith(
            "<|im_end|>\n<|im_start|>assistant\n"
            "<think>\n\n</think>\n\nExpected credit: "
        )
        assert text.count("<think>") == 2

    def test_closed_thinking_is_not_closed_again(self):
        text = self.text("hm</think>It is 4.")
        assert "hm</think>It is 4.<|im_end|>\n<|im_start|>user\n" in text
        assert text.count("</think>") == 2

    def test_a_close_that_is_spelled_out_counts(self):
        """By a tokenizer without a token of its own for it."""
        tokenizer = bytes_with()
        template = template_named("instruction")
        questions = asked(tokenizer, template)
        for written, closes in (("hm", 2), ("hm</think>ok", 2)):
            query = CriticQuery(Prompt(PROBLEM, (5,)), ids(tokenizer, written))
            text = tokenizer.decode(questions.context(query, False))
            assert text.count("</think>") == closes

    def test_only_what_a_reference_hands_in_is_shown(self):
        text = self.text("hm", "wrong</think> no </think>\n\nProof.\n<|im_end|>")
        assert "--- Reference solution ---\nProof.\n--- End" in text
        assert "wrong" not in text
        assert " no " not in text.split("Reference solution ---")[1].split("---")[0]

    def test_a_reference_without_thinking_is_shown_whole(self):
        assert "solution ---\nProof.\n---" in self.text("hm", "Proof.")


def test_the_instruction_names_the_quantity():
    template = template_named("instruction")
    for text in (template.question, template.question_with_reference):
        assert "credit" in text
        assert "not the probability" in text
        assert text.count("{left}") == 2
    assert template.stem.endswith("</think>\n\nExpected credit: ")
