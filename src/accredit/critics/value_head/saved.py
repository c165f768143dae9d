"""The files of a saved critic, apart from its trunk's.

    value_head.safetensors    weight and bias
    value_head.json           what kind of critic it is, and how far it has come
    critic_optimizer.safetensors

Beside them lies what of the trunk is the critic's (see `backbone`, `lora`). Nothing is
guessed: a missing part and a part of another shape are errors.
"""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from accredit.models.finite import not_finite, require_savable
from accredit.models.loading import CRITIC_CARD
from accredit.models.optimizer import load_optimizer, save_optimizer
from accredit.storage.checkpoint import latest_checkpoint
from accredit.storage.folders import CHECKPOINTS, CRITIC_FOLDER

HEAD_FILE = "value_head.safetensors"
CARD_FILE = CRITIC_CARD
OPTIMIZER_FILE = "critic_optimizer.safetensors"
SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a saved critic says about itself."""

    trunk: str
    output: str
    num_outputs: int
    bin_sigma: float
    reward_low: float
    reward_high: float
    template: str
    """The critic's own prompt, or nothing."""
    policy: str
    """Digest of the policy's weights that its trunk reads; nothing of an own trunk."""
    lora_rank: int
    lora_alpha: float
    num_updates: int
    num_consecutive_skips: int


def is_saved_critic(folder: Path) -> bool:
    """Whether the folder holds a value head."""
    return (folder / CARD_FILE).is_file() or (folder / HEAD_FILE).is_file()


def saved_critic_folder(path: Path) -> Path | None:
    """The critic that `path` names: itself, a checkpoint's, or a run's newest.

    None where it is neither of these, as a model directory.

    Raises:
        ValueError: it is a run or a checkpoint without a critic.
    """
    if is_saved_critic(path):
        return path
    if is_saved_critic(path / CRITIC_FOLDER):
        return path / CRITIC_FOLDER
    checkpoints = path / CHECKPOINTS
    if not checkpoints.is_dir() and not (path / "recipe.json").is_file():
        return None
    newest = latest_checkpoint(checkpoints)
    if newest is None or not is_saved_critic(newest / CRITIC_FOLDER):
        raise ValueError(
            f"a run must hold a checkpoint with a critic, got {path} with "
            f"{'none' if newest is None else newest.name + ' without one'}; name a "
            "run of an algorithm whose critic has parameters"
        )
    return newest / CRITIC_FOLDER


def begin(folder: Path, model: nn.Module) -> None:
    """Makes the folder of a critic that may be saved.

    Raises:
        RuntimeError: a weight is not finite.
    """
    require_savable("the critic", model.state_dict().items())
    folder.mkdir(parents=True, exist_ok=True)


def write_head(folder: Path, head: nn.Linear, card: Card) -> None:
    """Writes weight, bias and card."""
    tensors = {name: t.detach() for name, t in head.named_parameters()}
    save_file(tensors, folder / HEAD_FILE)
    content = json.dumps({"schema": SCHEMA, **asdict(card)}, indent=1)
    (folder / CARD_FILE).write_text(content, encoding="utf-8")


def read_card(folder: Path) -> Card:
    """What the critic in `folder` says about itself.

    Raises:
        ValueError: it says nothing, or not in this version's words.
    """
    file = folder / CARD_FILE
    if not file.is_file():
        raise ValueError(
            f"a saved critic must hold {CARD_FILE}, got {folder} without it; name a "
            "folder that a critic was saved to"
        )
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        schema = content.pop("schema", None)
    except (ValueError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{file} must hold a JSON object, got a damaged file; restore it"
        ) from error
    if schema != SCHEMA or set(content) != {part.name for part in fields(Card)}:
        raise ValueError(
            f"{file} must have schema {SCHEMA}, got {schema!r} with the keys "
            f"{sorted(content)}; another version of accredit wrote it"
        )
    for part in fields(Card):
        value = content[part.name]
        kinds = int | float if part.type is float else part.type
        if not isinstance(value, kinds) or isinstance(value, bool):  # type: ignore
            raise ValueError(
                f"{part.name} in {file} must be of another kind, got {value!r:.60}; "
                "restore the file"
            )
    return Card(**content)


def require_same_kind(found: Card, expected: Card, folder: Path) -> None:
    """A head means nothing but in the critic it was trained in.

    Raises:
        ValueError: trunk, output, bins, range of rewards or prompt differ.
    """
    names = ["trunk", "output", "num_outputs", "reward_low", "reward_high", "template"]
    if expected.output == "categorical":
        names.append("bin_sigma")
    if expected.trunk == "lora":
        names += ["lora_rank", "lora_alpha"]
    for name in names:
        key = "num_bins" if name == "num_outputs" else name
        require_same(key, getattr(found, name), getattr(expected, name), folder)


def require_same(key: str, saved: Any, wanted: Any, folder: Path) -> None:
    """A key of the recipe is what it was when the critic was trained.

    Raises:
        ValueError: it is not.
    """
    if saved != wanted:
        raise ValueError(
            f"{folder} holds a critic checkpoint of another shape: {key} must be "
            f"{wanted!r}, got {saved!r}; set algorithm.critic.{key} as it was "
            "trained, or begin with a fresh head"
        )


def read_head(folder: Path, head: nn.Linear) -> None:
    """Puts the saved weight and bias into a head of the same width.

    Raises:
        ValueError: a tensor is missing, too many or of another shape.
    """
    saved = tensors_of(folder / HEAD_FILE)
    expected = {name: tuple(t.shape) for name, t in head.state_dict().items()}
    found = {name: tuple(t.shape) for name, t in saved.items()}
    if found.keys() != expected.keys():
        raise ValueError(
            f"{folder / HEAD_FILE} must hold {sorted(expected)} and nothing else, got "
            f"{sorted(found)}; restore the file"
        )
    if found != expected:
        raise ValueError(
            f"{folder} holds a critic checkpoint of another shape: its head must be "
            f"{expected}, got {found}; name a critic of the same backbone and output"
        )
    with torch.no_grad():
        for name, parameter in head.named_parameters():
            parameter.copy_(saved[name])


def require_finite(module: nn.Module, folder: Path | str) -> None:
    """What a critic starts from says something of every prefix.

    Raises:
        ValueError: a weight is NaN or infinite.
    """
    name = not_finite(module.state_dict().items())
    if name is not None:
        raise ValueError(
            f"the weights of a critic must be finite, got NaN or infinity in "
            f"{name} of {folder}; name a checkpoint from before it diverged"
        )


def write_optimizer(
    folder: Path, optimizer: torch.optim.Optimizer, model: nn.Module
) -> None:
    """Writes the optimizer's state by parameter name.

    Raises:
        RuntimeError: a moment is not finite.
    """
    save_optimizer(folder / OPTIMIZER_FILE, optimizer, model, "the critic")


def read_optimizer(
    folder: Path, optimizer: torch.optim.Optimizer, model: nn.Module
) -> None:
    """Puts the optimizer where `write_optimizer` found it.

    Raises:
        ValueError: a moment is missing or not finite.
    """
    load_optimizer(folder / OPTIMIZER_FILE, optimizer, model)


def tensors_of(file: Path) -> dict[str, Tensor]:
    """The tensors of a file that must be there.

    Raises:
        ValueError: it is missing or damaged.
    """
    if not file.is_file():
        raise ValueError(
            f"a saved critic must hold {file.name}, got {file.parent} without it; "
            "a new one is not made in its place: name a whole critic"
        )
    try:
        content: Any = load_file(file)
    except SafetensorError as error:
        raise ValueError(
            f"{file} must hold tensors, got a damaged file ({error}); restore it"
        ) from error
    return content
