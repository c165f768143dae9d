"""Reads a plain Hugging Face directory: a causal LM, its tokenizer, its stop tokens.

Only local files, only safetensors, and never code that came with the weights. Whatever
is wrong with the directory is said in one line that names it.
"""

import json
import logging
import re
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

PACKAGED = "packaged"
"""The name of the model that ships with this library."""

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
)


CRITIC_CARD = "value_head.json"
"""Marks the directory of a critic: its backbone writes no text any more."""


class Pretrained(NamedTuple):
    """What a directory holds."""

    model: Any
    tokenizer: Any
    stop_token_ids: tuple[int, ...]
    """Everything that any of the three configurations ends a completion with."""


def load_model(
    path: str | Path,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
) -> Pretrained:
    """The model in evaluation mode, on `device` and in `dtype`.

    None takes CUDA where there is one, and then bfloat16; float32 on a CPU.
    """
    folder = model_folder(path)
    if (folder / CRITIC_CARD).is_file():
        raise ValueError(
            f"a model that writes must be a causal language model, got {folder} with "
            f"the {CRITIC_CARD} of a critic; name the `model` folder beside it"
        )
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if dtype is None:
        on_gpu = torch.device(device).type == "cuda"
        dtype = torch.bfloat16 if on_gpu else torch.float32
    with quiet_transformers():
        config = loaded_config(folder)
        tokenizer = loaded_tokenizer(folder)
        model = loaded_weights(folder, config, dtype).to(device).eval()
    require_rows(model, tokenizer, folder)
    return Pretrained(model, tokenizer, stop_token_ids(model, tokenizer))


class Backbone(NamedTuple):
    """A causal LM without its output head, and the tokenizer whose ids it reads."""

    model: Any
    tokenizer: Any


def load_backbone(path: str | Path, device: str | torch.device) -> Backbone:
    """The backbone that a directory of a causal LM, or of a backbone alone, holds.

    In float32 and evaluation mode. Only an output head may be left unread, and only in
    a causal LM's directory; every parameter of the backbone must be there.
    """
    folder = model_folder(path)
    with quiet_transformers():
        config = loaded_config(folder)
        tokenizer = loaded_tokenizer(folder)
        kind, head_names = backbone_kind(config)
        model = loaded_weights(folder, config, torch.float32, kind, head_names)
    require_rows(model, tokenizer, folder)
    return Backbone(model.to(device).eval(), tokenizer)


def backbone_kind(config: Any) -> tuple[type, set[str]]:
    """The class of a causal LM's backbone, and the names of what lies outside it."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        whole = AutoModelForCausalLM.from_config(config)
    prefix = f"{whole.base_model_prefix}."
    return type(whole.base_model), {
        name for name in whole.state_dict() if not name.startswith(prefix)
    }


def require_rows(model: Any, tokenizer: Any, folder: Path) -> None:
    """Every token of the tokenizer has an embedding.

    Raises:
        ValueError: it has more tokens.
    """
    rows = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > rows:
        raise ValueError(
            f"the tokenizer in {folder} must fit the model's {rows} embeddings, got "
            f"{len(tokenizer)} tokens; use the tokenizer the model was trained with"
        )


def require_same_vocabulary(tokenizer: Any, policy_tokenizer: Any, owner: str) -> None:
    """Both tokenizers mean the same by every id.

    Raises:
        ValueError: they do not; `owner` says whose the first one is.
    """
    found, expected = tokenizer.get_vocab(), policy_tokenizer.get_vocab()
    if found == expected:
        return
    strangers = sorted(set(found.items()) ^ set(expected.items()), key=lambda x: x[1])
    text, index = strangers[0]
    raise ValueError(
        f"{owner} must have the policy's vocabulary, got {len(found)} tokens beside "
        f"the policy's {len(expected)}, the first that differs {text!r} (id {index}); "
        "it reads the policy's very ids, so take a model of the same tokenizer"
    )


def model_folder(path: str | Path) -> Path:
    """The directory that `path` names, checked for what it must hold."""
    packaged = str(path) == PACKAGED
    folder = Path(__file__).parent.parent / PACKAGED if packaged else Path(path)
    if not folder.is_dir():
        advice = (
            "make it with scripts/make_tiny_model.py"
            if packaged
            else download_advice(str(path))
        )
        raise ValueError(f"the model must be a directory, got {path}; {advice}")
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"a model directory must hold config.json, got {folder} without one; "
            "save the model with save_pretrained"
        )
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise ValueError(
            f"a model directory must hold a tokenizer (one of "
            f"{', '.join(TOKENIZER_FILES)}), got {folder} without one; "
            "save the tokenizer there with save_pretrained"
        )
    if not any(folder.glob("*.safetensors")):
        raise ValueError(
            f"a model directory must hold *.safetensors, got {folder} without one; "
            "save the model with save_pretrained (pickled weights are not read)"
        )
    return folder


def download_advice(path: str) -> str:
    """What to do where no folder is; a name as the hub has them gets its command."""
    if re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", path) is None:
        return "download the model first, or give the path of its folder"
    return f"download it first with: hf download {path} --local-dir {path}"


def loaded_config(folder: Path) -> Any:
    """The configuration of a causal LM that transformers itself implements."""
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    try:
        written = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"config.json of {folder} must be JSON, got {one_line(error)}; "
            "copy the directory again"
        ) from error
    kind = written.get("model_type") if isinstance(written, dict) else None
    try:
        config = AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except (ValueError, KeyError, OSError, TypeError) as error:
        raise unsupported(folder, kind) from error
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise unsupported(folder, kind)
    return config


def unsupported(folder: Path, kind: Any) -> ValueError:
    """What to say of an architecture that cannot be loaded."""
    return ValueError(
        "the architecture must be a causal language model of transformers, got "
        f"model_type {kind!r} in {folder}; code that ships with weights is never run"
    )


def loaded_tokenizer(folder: Path) -> Any:
    """The tokenizer of a checked directory."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    # The Rust tokenizers raise bare Exception on a malformed file.
    except Exception as error:
        raise ValueError(
            f"the tokenizer in {folder} must load, got {one_line(error)}; "
            "save it there again with save_pretrained"
        ) from error


def loaded_weights(
    folder: Path,
    config: Any,
    dtype: torch.dtype,
    kind: type | None = None,
    unread: Collection[str] | None = None,
) -> Any:
    """The model with every parameter read from disk, none left at random.

    None is the causal LM of the configuration. Nothing in the directory is left unread
    but what `unread` names; None does not ask.
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    try:
        source: Any = kind or AutoModelForCausalLM
        loaded: Any = source.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError) as error:
        raise ValueError(
            f"the weights in {folder} must load, got {one_line(error)}; "
            "copy the directory again"
        ) from error
    model, report = loaded
    missing = sorted(report["missing_keys"])
    if missing:
        raise ValueError(
            f"the weights in {folder} must hold every parameter, got none for "
            f"{', '.join(missing[:3])} ({len(missing)} in all); "
            "save the whole model with save_pretrained"
        )
    strangers = sorted(set(report["unexpected_keys"]).difference(unread or ()))
    if unread is not None and strangers:
        raise ValueError(
            f"the weights in {folder} must be a causal language model's, got also "
            f"{', '.join(strangers[:3])} ({len(strangers)} in all); "
            "take the directory of a model without other heads"
        )
    return model


def stop_token_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """The union of what the generation config, the config and the tokenizer name."""
    named: set[int] = set()
    for source in (model.generation_config, model.config, tokenizer):
        ids = getattr(source, "eos_token_id", None)
        if ids is not None:
            named.update([ids] if isinstance(ids, int) else ids)
    return tuple(sorted(named))


def context_tokens(config: Any) -> int | None:
    """Longest sequence that the model was made for; None where it does not say."""
    return getattr(config, "max_position_embeddings", None)


def one_line(error: Exception) -> str:
    """The first line of a library's message, cut to what a terminal shows."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No warnings and no progress bars inside; the user's settings come back."""
    from transformers.utils import logging as transformers_logging

    verbosity = transformers_logging.get_verbosity()
    had_bar = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity(logging.CRITICAL)
    transformers_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if had_bar:
            transformers_logging.enable_progress_bar()
