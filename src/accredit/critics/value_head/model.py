"""A backbone and a value head as one module: V of no prefix but through it."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from accredit.functional.logprobs import at_prefixes
from accredit.models.backbone import hidden_states


class ValueModel(nn.Module):
    """Backbone and head as one module; V of no prefix but through it."""

    def __init__(self, backbone: PreTrainedModel, num_outputs: int) -> None:
        super().__init__()
        self.backbone = backbone
        hidden = backbone.config.get_text_config().hidden_size
        # No draw is spent on weights that are 0.
        head: Any = nn.utils.skip_init(
            nn.Linear, hidden, num_outputs, device=backbone.device
        )
        self.head: nn.Linear = head
        nn.init.zeros_(self.head.weight)

    def forward(
        self, token_ids: Int[Tensor, "rollout position"], head_only: bool = False
    ) -> Float[Tensor, "rollout prefix output"]:
        """What the head says of each prefix; one prefix more than positions.

        `head_only` leaves the backbone without a gradient.
        """
        with torch.set_grad_enabled(torch.is_grad_enabled() and not head_only):
            hidden = hidden_states(self.backbone, token_ids)
        with torch.autocast(token_ids.device.type, enabled=False):
            return at_prefixes(self.head(hidden.float()))
