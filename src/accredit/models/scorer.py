"""Log-probs of one model: the policy's, its reference's, a teacher's.

A scorer knows how its model is called and how many tokens fit at once. On CUDA the
backbone runs in bfloat16; the log-softmax is in float32 everywhere. Knows no loss.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from accredit.batches.rows import row_lengths
from accredit.functional.logprobs import TokenLogprobs
from accredit.models.forward import Scoring
from accredit.models.micro_batches import row_parts
from accredit.models.positions import row_limit
from accredit.types import Batch


@dataclass(frozen=True, eq=False)
class Scorer:
    """How one model is asked, micro-batch by micro-batch."""

    model: PreTrainedModel
    scoring: Scoring
    """See `forward.scoring_of`."""
    micro_batch_tokens: int
    """Padded tokens run at once: memory and speed, not the result."""
    temperature: float
    """Divides the logits."""

    def logprobs(self, batch: Batch) -> Float[Tensor, "rollout token"]:
        """Log-probs of every sampled token, 0 elsewhere; no gradient."""
        return self._sampled_scores(batch).logprobs

    def entropies(self, batch: Batch) -> Float[Tensor, "rollout token"]:
        """Nats of what every sampled token was drawn from, 0 elsewhere; no gradient."""
        return self._sampled_scores(batch).entropies

    def wanted_logprobs(
        self,
        token_ids: Int[Tensor, "rollout token"],
        wanted: Bool[Tensor, "rollout token"],
    ) -> Float[Tensor, "rollout token"]:
        """Log-probs of the wanted tokens on their own device, without gradient."""
        return self._wanted_scores(token_ids, wanted).logprobs

    def scores(
        self,
        token_ids: Int[Tensor, "rollout token"],
        wanted: Bool[Tensor, "rollout token"],
    ) -> TokenLogprobs:
        """One forward of rows that fit, with gradient where it is on.

        Raises:
            ValueError: Rows are longer than the model's log-probs hold.
        """
        limit = row_limit(self.model.config)
        if limit is not None and token_ids.shape[1] > limit:
            raise ValueError(
                f"rows must fit the {limit} positions for which the model's log-probs "
                f"hold, got {token_ids.shape[1]} tokens; shorten prompts or completions"
            )
        kind = self.model.device.type
        with torch.autocast(kind, dtype=torch.bfloat16, enabled=kind == "cuda"):
            return self.scoring(self.model, token_ids, wanted, self.temperature)

    def _sampled_scores(self, batch: Batch) -> TokenLogprobs:
        token_ids = torch.where(batch.token_mask, batch.token_ids, 0)
        return self._wanted_scores(token_ids, batch.sampled)

    @torch.no_grad()
    def _wanted_scores(
        self,
        token_ids: Int[Tensor, "rollout token"],
        wanted: Bool[Tensor, "rollout token"],
    ) -> TokenLogprobs:
        self.model.eval()
        device, home = self.model.device, token_ids.device
        logprobs = torch.zeros(token_ids.shape, device=home)
        entropies = torch.zeros_like(logprobs)
        for rows, width in row_parts(row_lengths(wanted), self.micro_batch_tokens):
            places = rows.to(home)
            part = token_ids[places, :width].to(device)
            scores = self.scores(part, wanted[places, :width].to(device))
            logprobs[places, :width] = scores.logprobs.to(home)
            entropies[places, :width] = scores.entropies.to(home)
        return TokenLogprobs(logprobs, entropies)
