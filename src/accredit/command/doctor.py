"""What `accredit doctor` looks at. Every check is its own function and cannot raise."""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

EXTRAS = {
    "tasks": "reasoning_gym",
    "trackers": "tensorboard",
    "lora": "peft",
}
"""Extra of pyproject.toml -> the module that says whether it is installed."""


@dataclass(frozen=True)
class Check:
    """One line of the table."""

    name: str
    ok: bool | None
    """None where nothing is wrong, only absent."""
    found: str


def checks() -> Iterator[Check]:
    """All checks, one after the other."""
    yield Check("python", sys.version_info >= (3, 11), sys.version.split()[0])
    for package in ("accredit", "torch", "transformers", "tokenizers", "pydantic"):
        yield _attempt(package, lambda package=package: version(package))
    yield _attempt("threads", _threads)
    yield _accelerator()
    for extra, module in EXTRAS.items():
        present = find_spec(module) is not None
        hint = module if present else f"pip install 'accredit[{extra}]'"
        yield Check(f"extra {extra}", True if present else None, hint)
    yield _attempt("packaged model", _packaged_model)


def _attempt(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, True, look())
    except (PackageNotFoundError, ValueError, OSError, RuntimeError) as error:
        return Check(name, False, str(error))


def _threads() -> str:
    import torch

    return f"torch {torch.get_num_threads()}, cores {os.cpu_count()}"


def _accelerator() -> Check:
    import torch

    if not torch.cuda.is_available():
        return Check("accelerator", None, "none; runs on the CPU in float32")
    return Check("accelerator", True, torch.cuda.get_device_name())


def _packaged_model() -> str:
    """Loads it and samples from it."""
    import time

    from accredit.engines.local.engine import TransformersEngine
    from accredit.models.loading import load_model
    from accredit.types import Request, Sampling

    loaded = load_model("packaged", device="cpu")
    engine = TransformersEngine(loaded.model, loaded.stop_token_ids)
    prompt = tuple(loaded.tokenizer("S20G47")["input_ids"])
    started = time.perf_counter()
    requests = [Request(prompt, 64, key) for key in range(64)]
    completions = engine.generate(requests, Sampling())
    seconds = time.perf_counter() - started
    num_tokens = sum(len(completion.token_ids) for completion in completions)
    size = sum(parameter.numel() for parameter in loaded.model.parameters())
    speed = f"{num_tokens / seconds:,.0f} tokens/s in a first call"
    return f"{size / 1e6:.2f}M parameters, {speed}"
