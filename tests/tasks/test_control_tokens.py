"""Text that spells a control token stays text, in whatever tokenizer."""

from functools import cache, partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from accredit.models.loading import loaded_tokenizer, model_folder
from accredit.tasks.control_tokens import Spelling, control_tokens
from accredit.tasks.rendering import render, render_all, shown_prompt_ids
from accredit.types import Message, Problem
from asked_tokenizers import THINKING, bytes_with, thinking_tokenizer
from tiny_models import character_tokenizer

TURNS = (
    "{% for m in messages %}<s>{{ m.role }}\n{{ m.content | trim }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)
PIECES = ["▁", *"abcdefghijklmnopqrstuvwxyz<>/|_?0123456789 \n", "▁a", "er", "▁user"]


def wrapped(core: Tokenizer, template: str = TURNS) -> PreTrainedTokenizerFast:
    core.add_special_tokens(["<unk>", "<s>", "</s>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        chat_template=template,
    )


def sentencepiece_like(scheme: str) -> PreTrainedTokenizerFast:
    """Merges over words that begin with `▁`, as of Llama 2 and Mistral."""
    names = ["<unk>", "<s>", "</s>", *PIECES, "us", "use", "▁us", "▁use"]
    vocabulary = {name: index for index, name in enumerate(dict.fromkeys(names))}
    merges = [("e", "r"), ("▁", "a"), ("u", "s"), ("us", "e")]
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    core.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return wrapped(core)


def prepending() -> PreTrainedTokenizerFast:
    """The same by a normalizer, as older Llama tokenizers are converted."""
    tokenizer = sentencepiece_like("never")
    tokenizer.backend_tokenizer.pre_tokenizer = None
    tokenizer.backend_tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    return tokenizer


def unigram() -> PreTrainedTokenizerFast:
    """A model whose own pieces hold the control tokens, the cheapest of all."""
    pieces = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0)]
    core = Tokenizer(models.Unigram([*pieces, *((p, -2.0) for p in PIECES)], 0, False))
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    core.decoder = decoders.Metaspace(prepend_scheme="always")
    return wrapped(core)


MERGES = ((">", "Ċ"), ("Ċ", "Ċ"), ("<", "|"), ("|", ">"), ("|>", "Ċ"), ("Ġ", "<|"))
MAKERS = {
    "packaged": lambda: loaded_tokenizer(model_folder("packaged")),
    "tiny": character_tokenizer,
    "tiny with bos": partial(character_tokenizer, prepend_bos=True),
    "bytes": bytes_with,
    "bytes, merged": partial(bytes_with, merges=MERGES),
    "bytes, plain": partial(bytes_with, template=None),
    "thinking": thinking_tokenizer,
    "thinking, tags special": lambda: bytes_with(
        THINKING, ("<|im_end|>", "<|im_start|>", "<think>", "</think>"), merges=MERGES
    ),
    "words, first": lambda: sentencepiece_like("first"),
    "words, always": lambda: sentencepiece_like("always"),
    "words, normalized": prepending,
    "unigram": unigram,
}


@cache
def made(name):
    return MAKERS[name]()


def problem(text, *before):
    return Problem("p", (*before, Message("user", text)), "a")


def control_of(tokenizer, ids):
    unknown = tokenizer.unk_token_id
    known = set(control_tokens(tokenizer).values()) - {unknown}
    return [index for index in ids if index in known]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(
    "around", ["{}", "a {} b", "{}{}", "\n\n{}\n", "x{}user", " {} ", "<{}>", "{} a{}"]
)
def test_a_spelled_control_token_is_text_and_the_templates_are_real(name, around):
    tokenizer = made(name)
    usual = render(problem("a"), tokenizer, system="a").token_ids
    for spelled in control_tokens(tokenizer):
        text = around.replace("{}", spelled)
        asked = render(problem(text), tokenizer, system=f"a{spelled}")
        ids = asked.token_ids
        assert control_of(tokenizer, ids) == control_of(tokenizer, usual)
        said = tokenizer.decode(ids)
        if tokenizer.unk_token_id not in ids and "words, n" not in name:
            squeezed = said.replace(" ", "")
            assert squeezed.count(spelled) == ids_spelled(tokenizer, ids, spelled) + (
                around.count("{}") + 1
            )
            assert text.strip().replace(" ", "") in squeezed


def ids_spelled(tokenizer, ids, spelled):
    """How often the token itself stands there."""
    return list(ids).count(control_tokens(tokenizer)[spelled])


CLEAN = st.text(alphabet="ab<|>/se_\n ?er▁\ue0f1\ue0f2", max_size=24).filter(str.strip)


@settings(deadline=None, max_examples=60)
@given(CLEAN, st.sampled_from(sorted(MAKERS)))
def test_text_that_spells_none_has_the_ids_it_always_had(text, name):
    tokenizer = made(name)
    if any(token in text for token in control_tokens(tokenizer)):
        return
    if tokenizer.chat_template:
        turns = [{"role": "user", "content": text}]
        whole = tokenizer.apply_chat_template(
            turns, add_generation_prompt=True, tokenize=False
        )
    else:
        whole = text
    (ids,) = tokenizer([whole], add_special_tokens=False)["input_ids"]
    asked = render_all([problem(text)], tokenizer, 1000).prompts[0].token_ids
    assert list(asked)[-len(ids) :] == ids
    assert len(asked) <= len(ids) + 1


@pytest.mark.parametrize("name", MAKERS)
def test_the_twin_differs_in_the_spelling_alone(name):
    """A text with and without a spelling: ids before it and after it are the same."""
    tokenizer = made(name)
    spelling = Spelling(tokenizer)
    token = tokenizer.eos_token
    (plain,) = spelling.encoded(["user a"])
    # The mark of no token: the text is the same, and the twin encodes it.
    own = f"user a{spelling.marked(chr(0xE0F0))}"
    with_mark = spelling.ids(own)
    assert with_mark[: len(plain)] == plain
    real = spelling.ids(f"user{token}user a")
    both = spelling.ids(f"user{token}{own}")
    assert both[: len(real)] == real


def test_marks_and_secret_names_in_user_text_are_text():
    tokenizer = made("bytes")
    spelling = Spelling(tokenizer)
    for text in ("\ue0f0", "\ue0f00\ue0f2", "\ue0f10\ue0f2", "\ue0f0\ue0f2<|end|>"):
        assert spelling.plain(spelling.marked(text)) == text
        ids = spelling.ids(spelling.marked(text))
        assert tokenizer.decode(ids) == text
        assert control_of(tokenizer, ids) == []


@pytest.mark.parametrize("template", ["{prompt} {answer}", "<|end|>{prompt}"])
def test_what_a_judge_is_shown_spells_no_control_token(template):
    tokenizer = made("bytes")
    asked = Problem("p", (Message("user", "a<|end|>"),), "<|assistant|>7<|end|>")
    prompt = render(asked, tokenizer)
    ids = shown_prompt_ids(template, prompt, tokenizer=tokenizer)
    text = template.format(prompt="a<|end|>", answer=asked.answer)
    assert tokenizer.decode(ids) == f"<|user|>{text}<|end|><|assistant|>"
    assert control_of(tokenizer, ids) == control_of(
        tokenizer, render(problem("a"), tokenizer).token_ids
    )


def test_a_tag_that_is_no_control_token_is_what_it_was():
    """`<think>` of models whose tokenizer does not call it special."""
    tokenizer = made("thinking")
    ids = render(problem("<think>a</think>"), tokenizer).token_ids
    tags = tokenizer.convert_tokens_to_ids(["<think>", "</think>"])
    assert [i for i in ids if i in tags] == [*tags, tags[0]]


def test_a_tokenizer_that_cannot_spell_it_leaves_the_problem_out(monkeypatch):
    """Alone, and the reason names the token."""
    tokenizer = bytes_with()
    monkeypatch.setattr(Spelling, "_twin", None)
    rows = [
        Problem("bad", (Message("user", "a<|end|>"),)),
        Problem("good", (Message("user", "a"),)),
    ]
    found = render_all(rows, tokenizer, 100)
    assert [prompt.problem.id for prompt in found.prompts] == ["good"]
    assert "it spells the control token '<|end|>', which" in found.dropped["bad"]
