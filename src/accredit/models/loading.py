"""Reads a plain Hugging Face directory: a causal LM, its tokenizer, its stop tokens.

Only local files, only safetensors, and never code that came with the weights. Whatever
is wrong with the directory is said in one line that names it.
"""

import logging
import re
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from accredit.functional.flops import ModelShape
from accredit.models.chat_templates import bound_template
from accredit.models.checks import (
    MALFORMED,
    require_running,
    require_sane,
    require_size,
    without_weights,
)
from accredit.models.files import (
    ADAPTER,
    TOKENIZER_FILES,
    Told,
    json_object,
    loading,
    require_plain_files,
)
from accredit.models.positions import row_limit
from accredit.text import shortened

PACKAGED = "packaged"
"""The name of the model that ships with this library."""

OPTIONAL_FILES = (
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
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
        require_size(folder, config, dtype)
        model = loaded_weights(folder, config, dtype)
        require_rows(model, tokenizer, folder)
        with loading("the model", folder, MALFORMED):
            model = model.to(device).eval()
            require_running(model, folder)
    return Pretrained(model, tokenizer, stop_token_ids(model, tokenizer, folder))


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
        require_size(folder, config, torch.float32)
        kind, head_names = backbone_kind(config)
        model = loaded_weights(folder, config, torch.float32, kind, head_names)
    require_rows(model, tokenizer, folder)
    return Backbone(model.to(device).eval(), tokenizer)


def backbone_kind(config: Any) -> tuple[type, set[str]]:
    """The class of a causal LM's backbone, and the names of what lies outside it."""
    whole = without_weights(config)
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
    if (folder / ADAPTER).is_file():
        raise ValueError(
            f"a model directory must hold a whole model, got {folder} with the "
            f"{ADAPTER} of an adapter; merge the adapter and save the model"
        )
    require_plain_files(folder)
    return folder


def download_advice(path: str) -> str:
    """What to do where no folder is; a name as the hub has them gets its command."""
    if re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", path) is None:
        return "download the model first, or give the path of its folder"
    return f"download it first with: hf download {path} --local-dir {path}"


def loaded_config(folder: Path) -> Any:
    """The configuration of a causal LM that transformers itself implements."""
    from transformers import CONFIG_MAPPING, AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    written = json_object(folder / "config.json")
    for name in OPTIONAL_FILES:  # Which transformers passes over where they are torn.
        if (folder / name).is_file():
            json_object(folder / name)
    kind = written.get("model_type")
    if written.get("quantization_config") is not None:
        raise ValueError(
            f"weights must be stored as numbers, got {folder} with a "
            "quantization_config; take the model that was not quantized"
        )
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        raise unsupported(folder, kind)
    with loading("config.json", folder, MALFORMED):
        config = AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
            raise unsupported(folder, kind)
        ModelShape.from_config(config)
        require_sane(config, folder)
    return config


def unsupported(folder: Path, kind: Any) -> Told:
    """What to say of an architecture that cannot be loaded."""
    return Told(
        "the architecture must be a causal language model of transformers, got "
        f"model_type {shortened(kind)} in {folder}; code that ships with weights is "
        "never run"
    )


def loaded_tokenizer(folder: Path) -> Any:
    """The tokenizer of a checked directory."""
    from transformers import AutoTokenizer

    with loading("the tokenizer", folder, "save it there again with save_pretrained"):
        tokenizer = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        template = tokenizer.chat_template
        texts = template.values() if isinstance(template, dict) else [template or ""]
        if not all(isinstance(text, str) for text in texts):
            raise Told(
                f"a chat template in {folder} must be text, got {shortened(template)}; "
                "correct it in tokenizer_config.json"
            )
        tokenizer.decode(tokenizer("a 1\n")["input_ids"])
    bound_template(tokenizer)
    return tokenizer


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
    from transformers import AutoModelForCausalLM

    source: Any = kind or AutoModelForCausalLM
    with loading("the weights", folder, "copy the directory again"):
        loaded: Any = source.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
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


def stop_token_ids(model: Any, tokenizer: Any, folder: Path) -> tuple[int, ...]:
    """The union of what the generation config, the config and the tokenizer name.

    Raises:
        ValueError: one of them names what is no token of the model.
    """
    named: set[int] = set()
    rows = model.get_input_embeddings().num_embeddings
    for source in (model.generation_config, model.config, tokenizer):
        ids = getattr(source, "eos_token_id", None)
        for id in ids if isinstance(ids, list | tuple) else [ids]:
            if id is None or (id == -1 and not isinstance(id, bool)):
                continue
            if not isinstance(id, int) or isinstance(id, bool) or not 0 <= id < rows:
                raise ValueError(
                    f"eos_token_id in {folder} must be one of the model's {rows} "
                    f"tokens, got {shortened(id)} in {type(source).__name__}; correct "
                    "it there"
                )
            named.add(id)
    return tuple(sorted(named))


def context_tokens(config: Any) -> int | None:
    """Longest sequence whose log-probs hold; None where the model does not say."""
    return row_limit(config)


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
