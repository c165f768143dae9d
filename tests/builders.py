"""Small values that many tests need."""

import torch

from accredit.types import Problem, Prompt, Rollout, StopReason


def empty_rollout(problem: Problem) -> Rollout:
    """A rollout of one prompt token and nothing sampled."""
    return Rollout(
        Prompt(problem, (1,)),
        torch.tensor([1]),
        torch.tensor([False]),
        torch.zeros(1),
        StopReason.STOP,
    )
