"""Byte-level tokenizers with chosen merges, control tokens and chat templates."""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PLAIN_TURNS = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
THINKING = (
    "{%- for m in messages %}{%- set text = m.content %}"
    "{%- if m.role == 'assistant' and '</think>' in text %}"
    "{%- set text = text.split('</think>')[-1].lstrip('\n') %}{%- endif %}"
    "{{- '<|im_start|>' + m.role + '\n' + text + '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}"
    "{{- '<|im_start|>assistant\n<think>\n' }}{%- endif %}"
)
"""Takes thinking off past turns and opens a block of it, as Qwen3-Thinking does."""


def bytes_with(
    template: str | None = PLAIN_TURNS,
    control: tuple[str, ...] = ("<|end|>", "<|user|>", "<|assistant|>"),
    marks: tuple[str, ...] = (),
    merges: tuple[tuple[str, str], ...] = (),
) -> PreTrainedTokenizerFast:
    """One token a byte, save for merges; `marks` are tokens that text may show."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    joined = ["".join(pair) for pair in merges]
    names = dict.fromkeys((*control, *marks, *alphabet, *joined))
    vocabulary = {name: index for index, name in enumerate(names)}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=False
    )
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(list(control))
    inner.add_tokens([AddedToken(mark, special=False) for mark in marks])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token=control[0],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = template
    return tokenizer


def thinking_tokenizer() -> PreTrainedTokenizerFast:
    """As of a model that thinks before it answers."""
    return bytes_with(
        THINKING, ("<|im_end|>", "<|im_start|>"), marks=("<think>", "</think>")
    )
