"""Where completions end, for engines that do not say.

An engine's own stop reason is better: a stop token sampled as the very last of the
budget and one that was never sampled look alike to nobody but it.
"""

from collections.abc import Collection

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def completion_mask(
    token_ids: Int[Tensor, "rollout token"], stop_token_ids: Collection[int]
) -> tuple[Bool[Tensor, "rollout token"], Bool[Tensor, " rollout"]]:
    """Which tokens were sampled, and which rollouts were truncated.

    A completion is everything up to its first stop token, which belongs to it. What
    follows is padding, whatever its id: no pad token is looked at. A rollout without a
    stop token is truncated.
    """
    stops = torch.tensor(sorted(stop_token_ids), dtype=token_ids.dtype)
    is_stop = torch.isin(token_ids, stops.to(token_ids.device))
    num_stops_before = is_stop.cumsum(dim=1) - is_stop.long()
    return num_stops_before == 0, ~is_stop.any(dim=1)
