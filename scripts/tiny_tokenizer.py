"""The packaged model's tokenizer: one token a byte, so that any text has ids."""

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

SPECIAL = (
    "<|pad|>",
    "<|end|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|tool|>",
    "<tool_call>",
    "</tool_call>",
)

CHAT_TEMPLATE = """\
{%- if tools %}
{{- '<|system|>' }}
{%- for tool in tools %}{{- tool.function.name + ';' }}{%- endfor %}
{{- '<|end|>' }}
{%- endif %}
{%- for message in messages %}
{{- '<|' + message.role + '|>' }}
{%- if message.content %}{{- message.content }}{%- endif %}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>{"name":"' + call.function.name + '","arguments":' }}
{%- if call.function.arguments is string %}
{{- call.function.arguments }}
{%- else %}
{{- call.function.arguments | tojson(separators=(',', ':')) }}
{%- endif %}
{{- '}</tool_call>' }}
{%- endfor %}
{{- '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}"""


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level, no merges: ASCII text is one token a character."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate((*SPECIAL, *alphabet))}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=False
    )
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(list(SPECIAL[:6]))
    inner.add_tokens(list(SPECIAL[6:]))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        additional_special_tokens=list(SPECIAL[2:6]),
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def save_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Writes the tokenizer's files and returns it."""
    tokenizer = byte_tokenizer()
    tokenizer.save_pretrained(folder)
    return tokenizer
