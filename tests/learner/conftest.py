"""Tiny models and a learner to put them into."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from learner_cases import VOCAB
from transformers import AutoModelForCausalLM, PreTrainedModel

from accredit.learner.learner import Learner
from accredit.learner.options import LearnerOptions
from accredit.learner.schedules import Schedule
from tiny_models import tiny_gpt2, tiny_llama, tiny_qwen3


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
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
def model(originals: dict[str, PreTrainedModel]) -> Callable[[str], PreTrainedModel]:
    return lambda name="qwen3": copy.deepcopy(originals[name])


@pytest.fixture
def learner(model: Callable[..., PreTrainedModel]) -> Callable[..., Learner]:
    def build(name: str = "qwen3", rate: float = 1e-2, **changes: Any) -> Learner:
        options = LearnerOptions(schedule=Schedule(peak=rate))
        frozen = model(name)
        return Learner(model(name), replace(options, **changes), lambda: frozen)

    return build
