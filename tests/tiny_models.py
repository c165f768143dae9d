"""Random tiny models in plain Hugging Face directories, for tests.

Each function writes config, weights, generation config, a character tokenizer with
special tokens and a chat template into `folder`, and returns it. Weights depend on
`seed` only. The stop tokens are spread on purpose, as they are in the wild: the model
config names `<eos>`, the tokenizer `<|end|>`, the generation config both.

The Llama tokenizer prepends `<bos>` on its own and its template writes `<bos>` too, so
that a text which is templated and then tokenized with special tokens has two.
"""

import string
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.utils import logging as transformers_logging

SPECIALS = (
    "<pad>",
    "<bos>",
    "<eos>",
    "<unk>",
    "<|end|>",
    "<|user|>",
    "<|assistant|>",
    "<|system|>",
)
CHARACTERS = "\n" + "".join(chr(code) for code in range(32, 127))
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def tiny_qwen3(
    folder: Path | str, vocab_size: int = 104, seed: int = 0, **config: Any
) -> Path:
    """A Qwen3 of two layers with grouped queries, about 25k parameters."""
    settings = decoder_settings(vocab_size) | {"head_dim": 8} | config
    model = seeded(Qwen3ForCausalLM, Qwen3Config(**settings), seed)
    return saved(folder, model, character_tokenizer(vocab_size))


def tiny_llama(
    folder: Path | str, vocab_size: int = 104, seed: int = 0, **config: Any
) -> Path:
    """A Llama of two layers whose tokenizer prepends `<bos>`."""
    settings = decoder_settings(vocab_size) | config
    model = seeded(LlamaForCausalLM, LlamaConfig(**settings), seed)
    tokenizer = character_tokenizer(vocab_size, prepend_bos=True)
    tokenizer.chat_template = "{{ bos_token }}" + TEMPLATE
    return saved(folder, model, tokenizer)


def tiny_gpt2(
    folder: Path | str, vocab_size: int = 104, seed: int = 0, **config: Any
) -> Path:
    """A GPT-2 of two layers: learned absolute positions, biases, LayerNorm."""
    settings: dict[str, Any] = {
        "vocab_size": vocab_size,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 512,
        "initializer_range": 0.2,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    model = seeded(GPT2LMHeadModel, GPT2Config(**settings | config), seed)
    return saved(folder, model, character_tokenizer(vocab_size))


def decoder_settings(vocab_size: int) -> dict[str, Any]:
    """What the Qwen3 and the Llama share; weights large enough to have opinions."""
    return {
        "vocab_size": vocab_size,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "initializer_range": 0.2,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }


def seeded(kind: type, config: Any, seed: int) -> PreTrainedModel:
    """The model of this seed; the global generator stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind(config).eval()


def character_tokenizer(
    vocab_size: int = 104, prepend_bos: bool = False
) -> PreTrainedTokenizerFast:
    """One token a character; the most usual characters come first when few fit."""
    usual = string.digits + string.ascii_lowercase + string.ascii_uppercase
    ordered = dict.fromkeys("\n " + usual + "+-*/=().,;:?'" + CHARACTERS)
    names = [*SPECIALS, *ordered][:vocab_size]
    vocabulary = {name: index for index, name in enumerate(names)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    if prepend_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<bos> $A", pair="<bos> $A $B", special_tokens=[("<bos>", 1)]
        )
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<|end|>",
        unk_token="<unk>",
        additional_special_tokens=["<eos>", "<|user|>", "<|assistant|>", "<|system|>"],
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = TEMPLATE
    return wrapped


def saved(
    folder: Path | str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast
) -> Path:
    """Writes everything a Hugging Face directory holds."""
    folder = Path(folder)
    model.generation_config.eos_token_id = [2, 4]
    transformers_logging.disable_progress_bar()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
