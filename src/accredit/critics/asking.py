"""What a critic says of token ids that come from no run."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from accredit.protocols import Critic
from accredit.types import Batch


def prefix_values(
    critic: Critic, rows: Sequence[Sequence[int]]
) -> list[Float[Tensor, " prefix"]]:
    """V of every prefix of each row of token ids, prompt and completion together.

    Index t is V of the first t ids, reward units, exactly 0 at the empty prefix: one
    number more than there are ids. Rows may differ in length.

    Args:
        critic: With parameters, and without a prompt of its own.
        rows: Token ids, each row with at least one.

    Raises:
        ValueError: there is no row, or one is empty.
    """
    lengths = [len(row) for row in rows]
    if not lengths or min(lengths) == 0:
        raise ValueError(
            f"a critic values rows of at least one token id, got lengths {lengths}"
        )
    batch = unrewarded(rows)
    values = critic.values(batch, batch.rewards)
    return [row[: n + 1] for row, n in zip(values, lengths, strict=True)]


def unrewarded(rows: Sequence[Sequence[int]]) -> Batch:
    """Rows of token ids that nobody sampled, of which nobody knows a reward."""
    lengths = torch.tensor([len(row) for row in rows])
    token_ids = torch.zeros(len(rows), int(lengths.max()), dtype=torch.int64)
    for place, row in enumerate(rows):
        token_ids[place, : len(row)] = torch.tensor(row)
    token_mask = torch.arange(token_ids.shape[1]) < lengths[:, None]
    unknown = torch.zeros(len(rows))
    return Batch(
        token_ids=token_ids,
        token_mask=token_mask,
        sampled=torch.zeros_like(token_mask),
        sampling_logprobs=torch.zeros(token_ids.shape),
        rewards=unknown,
        verified=unknown > 0,
        truncated=unknown > 0,
        group_index=torch.arange(len(rows)),
    )
