"""Tabular policies on `walk`: sampled in bulk, improved from their own walks, exact.

What `pact_alignment.py` needs where nothing may be estimated but what is studied. A
step is a move, the only thing a tabular policy chooses; V is known for every state.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from accredit.functional import baselines
from accredit.tasks.walk import WORLD, Policy, success_values

SUCCESSORS = WORLD.successors
GOAL_CELLS = np.array([WORLD.number[goal] for goal in WORLD.goals])


class Problems(NamedTuple):
    """Goal and start of each walk to be, siblings side by side."""

    goals: np.ndarray
    starts: np.ndarray
    groups: np.ndarray


@dataclass(frozen=True)
class Walks:
    """Walks of one policy, right-padded; one row a walk, one column a move."""

    problems: Problems
    cells: np.ndarray
    """Before each move, and after the last column."""
    actions: np.ndarray
    mask: np.ndarray
    """True at moves that were made: the goal ends a walk."""
    outcomes: np.ndarray

    @property
    def states(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Goal, moves left and cell before each move, and after the last column."""
        num_moves = self.actions.shape[1]
        goals = np.broadcast_to(self.problems.goals[:, None], self.cells.shape)
        left = np.broadcast_to(num_moves - np.arange(num_moves + 1), self.cells.shape)
        return goals, left, self.cells

    def along(self, table: np.ndarray) -> np.ndarray:
        """What a table of (goal, left, cell) says of every state."""
        return table[self.states]

    def chosen(self, policy: Policy) -> np.ndarray:
        """Probability of each move under a policy; 1 at padding."""
        goals, _, cells = self.states
        found = policy[goals[:, :-1], cells[:, :-1], self.actions]
        return np.where(self.mask, found, 1.0)


def mixed_problems(
    policy: Policy,
    num_moves: int,
    draw: np.random.Generator,
    num_goals: int = 8,
    num_problems: int = 64,
    group_size: int = 8,
) -> Problems:
    """Problems of a few goals, neither hopeless nor solved: V in [.05, .95]."""
    starts = success_values(policy, num_moves)[:, -1]
    goals = draw.choice(len(WORLD.goals), num_goals, replace=False)
    inside = [
        (goal, cell)
        for goal in goals
        for cell in range(len(WORLD.cells))
        if cell != GOAL_CELLS[goal] and 0.05 <= starts[goal, cell] <= 0.95
    ]
    chosen = draw.choice(len(inside), num_problems, replace=len(inside) < num_problems)
    rows = np.array(inside)[chosen].repeat(group_size, axis=0)
    return Problems(rows[:, 0], rows[:, 1], np.arange(num_problems).repeat(group_size))


def sampled_walks(
    policy: Policy, problems: Problems, num_moves: int, draw: np.random.Generator
) -> Walks:
    """One walk a row."""
    shape = (len(problems.goals), num_moves)
    ends = GOAL_CELLS[problems.goals]
    cells = np.empty((shape[0], num_moves + 1), dtype=np.int64)
    cells[:, 0] = problems.starts
    actions = np.zeros(shape, dtype=np.int64)
    mask = np.zeros(shape, dtype=bool)
    cumulative = policy.cumsum(axis=-1)
    for move in range(num_moves):
        here = cells[:, move]
        walking = here != ends
        chances = cumulative[problems.goals, here]
        u = draw.random((shape[0], 1))
        action = np.minimum((chances < u).sum(axis=1), policy.shape[-1] - 1)
        actions[:, move], mask[:, move] = action, walking
        cells[:, move + 1] = np.where(walking, SUCCESSORS[here, action], here)
    return Walks(problems, cells, actions, mask, (cells[:, -1] == ends).astype(float))


def softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def improvement(policy: Policy, walks: Walks) -> np.ndarray:
    """GRPO's gradient in the logits of the table, from these walks alone."""
    groups = torch.from_numpy(walks.problems.groups)
    rewards = torch.from_numpy(walks.outcomes)
    verified = torch.ones_like(rewards, dtype=torch.bool)
    centred = rewards - baselines.group_mean_baseline(rewards, verified, groups)
    deviation = baselines.group_deviation(rewards, verified, groups)
    scaled = baselines.scaled_by_deviation(centred, deviation, 1e-6).numpy()
    per_token = scaled / walks.mask.sum(axis=1).clip(1)
    goals, _, cells = walks.states
    rows, columns = np.nonzero(walks.mask)
    states = goals[rows, columns], cells[rows, columns]
    weight = per_token[rows, None]
    scores = np.eye(policy.shape[-1])[walks.actions[rows, columns]] - policy[states]
    gradient = np.zeros_like(policy)
    np.add.at(gradient, states, weight * scores)
    return gradient


def changed_policy(policy: Policy, walks: Walks, size: float) -> Policy:
    """One step along GRPO's gradient, as long as makes mean |ratio - 1| the size.

    The mean is over the moves of the walks that the gradient was made from.
    """
    logits, direction = np.log(policy), improvement(policy, walks)
    old = walks.chosen(policy)

    def mean_change(length: float) -> float:
        new = walks.chosen(softmax(logits + length * direction))
        return float(np.abs(new / old - 1)[walks.mask].mean())

    low, high = 0.0, 1.0
    while mean_change(high) < size and high < 1e9:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if mean_change(middle) < size else (low, middle)
    return softmax(logits + high * direction)


class TableCritic(torch.nn.Module):
    """A smooth critic of (goal, moves left, cell): two hidden layers, sigmoid."""

    def __init__(self, num_moves: int, seed: int, width: int = 64) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            sizes = (len(WORLD.goals), num_moves + 1, len(WORLD.cells))
            self.parts = torch.nn.ModuleList(
                torch.nn.Embedding(size, width) for size in sizes
            )
            self.body = torch.nn.Sequential(
                torch.nn.SiLU(),
                torch.nn.Linear(width, width),
                torch.nn.SiLU(),
                torch.nn.Linear(width, 1),
            )

    def forward(self, states: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """Logits of the states."""
        summed = sum(part(s) for part, s in zip(self.parts, states, strict=True))
        return self.body(summed).squeeze(-1)

    @torch.no_grad()
    def values(self, walks: Walks) -> Tensor:
        """V of every state of the walks, those at and past the goal not told apart."""
        return self(tensors(walks.states)).sigmoid().double()


def tensors(states: tuple[np.ndarray, ...]) -> tuple[Tensor, ...]:
    """The same indices for torch."""
    return tuple(torch.from_numpy(np.ascontiguousarray(part)) for part in states)
