"""Tiny policies to put critics on."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from critic_cases import VOCAB
from transformers import AutoModelForCausalLM, PreTrainedModel

from tiny_models import tiny_gpt2, tiny_llama, tiny_qwen3


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("policies")
    return {
        "qwen3": tiny_qwen3(root / "qwen3", vocab_size=VOCAB),
        "llama": tiny_llama(
            root / "llama", vocab_size=VOCAB, tie_word_embeddings=False
        ),
        # Its dropouts are .1, as in every GPT-2.
        "gpt2": tiny_gpt2(root / "gpt2", vocab_size=VOCAB),
    }


@pytest.fixture(scope="session")
def originals(folders: dict[str, Path]) -> dict[str, PreTrainedModel]:
    return {
        name: AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        for name, folder in folders.items()
    }


@pytest.fixture
def policy(originals: dict[str, PreTrainedModel]) -> Callable[..., PreTrainedModel]:
    return lambda name="qwen3": copy.deepcopy(originals[name])
