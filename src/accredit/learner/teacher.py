"""A frozen model that says how likely it finds what the policy wrote.

Reads the policy's very token ids, so both must have one vocabulary; whoever loads a
teacher checks it (`engines.models.require_same_vocabulary`). Architecture and size are
its own.
"""

from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from accredit.batches.rows import row_lengths
from accredit.functional.flops import ModelShape, training_flops
from accredit.models.forward import scoring_of, without_dropout
from accredit.models.positions import row_limit
from accredit.models.scorer import Scorer
from accredit.storage.checkpoint import latest_checkpoint
from accredit.storage.folders import CHECKPOINTS, MODEL_FOLDER
from accredit.types import Batch


class Teacher:
    """A model that is asked and never trained."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        micro_batch_tokens: int = 2048,
        temperature: float = 1.0,
    ) -> None:
        """Takes the model over and freezes it.

        Args:
            model: In float32, on its device.
            micro_batch_tokens: Padded tokens run at once; not the result.
            temperature: The policy's, so that both speak of one kind of distribution.
        """
        frozen = without_dropout(model).eval().requires_grad_(False)
        self._scorer = Scorer(
            frozen, scoring_of(frozen), micro_batch_tokens, temperature
        )
        self._shape = ModelShape.from_config(frozen.config)
        self._longest = row_limit(frozen.config)

    def logprobs(self, batch: Batch) -> Float[Tensor, "rollout token"]:
        """Of every sampled token, nats, without gradient; 0 elsewhere.

        Raises:
            ValueError: A row is longer than the teacher's context.
        """
        longest = int(row_lengths(batch.sampled).max())
        if self._longest is not None and longest > self._longest:
            raise ValueError(
                f"a teacher's context of {self._longest} tokens must hold its prompt "
                f"and a completion, got {longest}; shorten algorithm.template or "
                "sampling.max_new_tokens"
            )
        return self._scorer.logprobs(batch)

    def logprobs_flops(self, batch: Batch) -> float:
        """Of one pass up to the last sampled tokens."""
        lengths: Any = row_lengths(batch.sampled).tolist()
        return training_flops(self._shape, lengths, sum(lengths), 0)


def teacher_folder(path: str) -> str:
    """The model directory that `path` names: its own, or a run's newest checkpoint's.

    Raises:
        ValueError: A run has no whole checkpoint.
    """
    is_run = (Path(path) / "recipe.json").is_file()
    if not is_run and not (Path(path) / CHECKPOINTS).is_dir():
        return path
    newest = latest_checkpoint(Path(path) / CHECKPOINTS)
    if newest is None:
        raise ValueError(
            f"a run must have a whole checkpoint to be a teacher, got none in {path}; "
            "train it further, or give a model directory"
        )
    return str(newest / MODEL_FOLDER)
