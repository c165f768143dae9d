"""Batches drawn with letters, and two rows that the tests of credit share."""

import torch

from accredit.types import Batch

F64 = torch.float64


def batch_of(*rows, verified=None, truncated=(), groups=None):
    """A batch from rows of marks: s sampled, o observed or prompt, . padding."""
    count = len(rows)
    marks = [list(row) for row in rows]
    sampled = torch.tensor([[mark == "s" for mark in row] for row in marks])
    real = torch.tensor([[mark != "." for mark in row] for row in marks])
    return Batch(
        token_ids=torch.zeros_like(sampled, dtype=torch.int64),
        token_mask=real,
        sampled=sampled,
        sampling_logprobs=torch.zeros(sampled.shape, dtype=F64),
        rewards=torch.zeros(count, dtype=F64),
        verified=torch.tensor(verified or [1] * count, dtype=torch.bool),
        truncated=torch.tensor([i in truncated for i in range(count)]),
        group_index=torch.tensor(groups or [0] * count),
    )


def vector(*numbers):
    return torch.tensor(numbers, dtype=F64)


def matrix(*rows):
    return torch.tensor(rows, dtype=F64)


# Two rows, one across an observation and with a trailing one, one short.
BATCH = batch_of("ossoosso", "osss....")
VALUES = matrix(
    [9, 0.1, 0.2, 9, 9, 0.5, 0.7, 9, 0.4], [9, 0.3, 0.6, 0.8, 0.9, 9, 9, 9, 9]
)
