"""A critic that knows the truth: the ceiling that studies of critics compare with.

Its values come from a function of the policy as it is when asked, so that they are
never stale and nothing is learned. It is free in the ledger: what asking costs would
say nothing about any critic that one can have.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from accredit.models.micro_batches import row_parts
from accredit.records import CriticUpdate, Valuation
from accredit.types import CriticExample, CriticQuery

CARD_FILE = "exact_critic.json"


@dataclass(frozen=True)
class ExactCritic:
    """A `PrefixCritic` without parameters."""

    value_of: Callable[[Sequence[CriticQuery]], Sequence[float]]
    """V of each attempt under the policy as it is, reward units."""

    @property
    def learning_rate(self) -> float:
        """It has none."""
        return 0.0

    def values(self, queries: Sequence[CriticQuery]) -> Valuation:
        """V of each attempt; always valid, for nothing."""
        return Valuation(tuple(self.value_of(queries) if queries else ()))

    def update(
        self, examples: Sequence[CriticExample], learning_rate: float
    ) -> CriticUpdate | None:
        """Nothing is left to learn."""
        return None

    def add_gradient(self, examples: Sequence[CriticExample]) -> CriticUpdate:
        """Refused.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            "a joint update needs a critic with weights that it shares with the "
            "policy, got the exact one, which has none; give critic and policy steps "
            "of their own"
        )

    def save(self, folder: Path) -> None:
        """Writes a card, so that the folder says whose it is."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CARD_FILE).write_text('{"kind": "exact"}', encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Nothing but the card.

        Raises:
            ValueError: The folder is another critic's.
        """
        file = folder / CARD_FILE
        found = file.read_text(encoding="utf-8") if file.is_file() else "null"
        if json.loads(found) != {"kind": "exact"}:
            raise ValueError(
                f"{folder} must be an exact critic's, got one without its {CARD_FILE}; "
                "resume with the algorithm.critic.kind of the run"
            )


def model_logits(
    model: PreTrainedModel, micro_batch_tokens: int = 8192
) -> Callable[[Sequence[Sequence[int]]], list[Float[np.ndarray, "_ vocab"]]]:
    """The live model as a function from rows of token ids to its logits.

    What comes back of a row are the float32 logits after each of its tokens. Without a
    gradient and in evaluation mode, whatever mode the model is left in.
    """

    @torch.no_grad()
    def logits(
        rows: Sequence[Sequence[int]],
    ) -> list[Float[np.ndarray, "_ vocab"]]:
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        found: dict[int, Tensor] = {}
        kind, was_training = model.device.type, model.training
        model.eval()
        for chosen, width in row_parts(lengths, micro_batch_tokens):
            token_ids = torch.zeros(len(chosen), width, dtype=torch.int64)
            for place, row in enumerate(chosen.tolist()):
                token_ids[place, : len(rows[row])] = torch.tensor(rows[row])
            with torch.autocast(kind, dtype=torch.bfloat16, enabled=kind == "cuda"):
                said = model(
                    input_ids=token_ids.to(model.device), use_cache=False
                ).logits
            for row, one in zip(chosen.tolist(), said.float().cpu(), strict=True):
                found[row] = one[: len(rows[row])]
        model.train(was_training)
        return [found[row].numpy() for row in range(len(rows))]

    return logits
