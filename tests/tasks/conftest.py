"""Tiny tokenizers made on the spot: one token a character, BOS, EOS and a template."""

from collections.abc import Callable

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

SPECIAL = ["<unk>", "<bos>", "<eos>", "<user>", "<assistant>", "<system>"]
CHARACTERS = "abcdefghijklmnopqrstuvwxyzABC0123456789+=? \n"
TEMPLATE = (
    "<bos>{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="session")
def make_tokenizer() -> Callable[..., PreTrainedTokenizerFast]:
    """A tokenizer; `around` is what it puts around every text, e.g. "<bos> $A"."""

    def make(template: str | None = None, around: str = "$A"):
        vocabulary = {token: i for i, token in enumerate([*SPECIAL, *CHARACTERS])}
        core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
        core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        core.decoder = decoders.Fuse()
        core.add_special_tokens(SPECIAL)
        core.post_processor = processors.TemplateProcessing(
            single=around,
            special_tokens=[("<bos>", vocabulary["<bos>"]), ("<eos>", 2)],
        )
        return PreTrainedTokenizerFast(
            tokenizer_object=core,
            unk_token="<unk>",
            bos_token="<bos>",
            eos_token="<eos>",
            chat_template=template,
        )

    return make


@pytest.fixture(scope="session")
def template() -> str:
    return TEMPLATE
