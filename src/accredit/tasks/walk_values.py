"""Values of walks under the policy that a language model shows on the map.

The model is read once a problem: its next tokens at every cell that a walk can visit
before the goal, along a breadth-first tree of true walks from the start. Dynamic
programming over that table gives V of every prefix:

    V(m, c) = sum_a pi(a | c) truth(c, a) V(m - 1, successor(c, a)) + stop(c) R(c)
    V(m, goal) = 1,    V(0, c) = R(c)

R is what a walk earns that ends at c: nothing, or the progress made. The rest of the
probability writes no action or a false cell, which earns 0. It is exact for a model
that looks at the cell it stands on and at nothing else; how far a trained one is from
that, `docs/ac2.md` says.

Knows the map; the model is a function from token ids to logits.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Float

from accredit.tasks.walk import (
    ACTIONS,
    TOKENS_PER_MOVE,
    WORLD,
    Cell,
    progress_reward,
    read_walk,
    success_reward,
)
from accredit.types import CriticQuery, Prompt

Logits = Callable[[Sequence[Sequence[int]]], Sequence[Float[np.ndarray, "_ vocab"]]]
"""Rows of token ids to what the model says after each of their tokens."""
SYMBOLS = ACTIONS + "0123456789"
REWARDS = {"success": success_reward, "progress": progress_reward}


@dataclass(frozen=True)
class ShownPolicy:
    """What a model does in one problem, cell by cell; 0 where no walk can be."""

    actions: Float[np.ndarray, "cell action"]
    """Probability of each action; they need not sum to 1."""
    stops: Float[np.ndarray, " cell"]
    """Probability to end the completion."""
    truths: Float[np.ndarray, "cell action digit"]
    """Probability of each true digit of the cell that an action leads to, given what
    is true before it; their mean over the tree where the tree has no such move."""


@dataclass(frozen=True, kw_only=True)
class WalkValues:
    """V of attempts at `walk`, under the model as it is when asked."""

    logits: Logits
    encode: Callable[[str], Sequence[int]]
    """Text as token ids, none added."""
    decode: Callable[[Sequence[Sequence[int]]], list[str]]
    """Completions as text; see `tasks.rendering.decoder`."""
    stop_token_ids: frozenset[int]
    reward: Literal["success", "progress"]
    num_moves: int
    max_new_tokens: int
    """Largest completion; a move that it cuts is no fault."""
    temperature: float = 1.0
    """Of sampling; `top_p` and `top_k` are taken to keep the whole vocabulary."""

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(
                "exact values are of a policy that samples: the temperature must be "
                f"> 0, got {self.temperature}"
            )

    def __call__(self, queries: Sequence[CriticQuery]) -> list[float]:
        """V of each attempt, reward units; the model reads each problem once.

        Raises:
            ValueError: A problem is not of `walk`, or a character is not one token.
        """
        prompts = {query.prompt.token_ids: query.prompt for query in queries}
        places = [ends_of(prompt) for prompt in prompts.values()]
        policies = self.policies(list(prompts.values()))
        tables = {
            ids: (policy, self.table(policy, start, goal))
            for ids, policy, (start, goal) in zip(
                prompts, policies, places, strict=True
            )
        }
        texts = self.decode([query.written for query in queries])
        return [
            self._value(query, text, *tables[query.prompt.token_ids])
            for query, text in zip(queries, texts, strict=True)
        ]

    def policies(self, prompts: Sequence[Prompt]) -> list[ShownPolicy]:
        """What the model shows in each problem, all read in one call of `logits`."""
        walks = [covering_walks(*ends_of(prompt)) for prompt in prompts]
        rows = [
            [*prompt.token_ids, *(self._ids[mark] for mark in text)]
            for prompt, texts in zip(prompts, walks, strict=True)
            for text in texts
        ]
        said = iter(self.logits(rows) if rows else [])
        policies = []
        for prompt, texts in zip(prompts, walks, strict=True):
            # What the last token of the prompt says is of the first cell.
            first = len(prompt.token_ids) - 1
            found = [self._probabilities(next(said)[first:]) for _ in texts]
            policies.append(self._shown(ends_of(prompt)[0], texts, found))
        return policies

    def table(
        self, policy: ShownPolicy, start: Cell, goal: Cell
    ) -> Float[np.ndarray, "left cell"]:
        """V of every cell by the number of moves that are left."""
        earned, there = self._earned(start, goal), WORLD.number[goal]
        chances = policy.actions * policy.truths.prod(axis=2)
        values = np.tile(earned, (self.num_moves + 1, 1))
        for left in range(1, self.num_moves + 1):
            following = values[left - 1][WORLD.successors]
            values[left] = (chances * following).sum(axis=1) + policy.stops * earned
            values[left, there] = 1.0
        return values

    def _value(
        self,
        query: CriticQuery,
        text: str,
        policy: ShownPolicy,
        values: Float[np.ndarray, "left cell"],
    ) -> float:
        """V of one attempt, also in the middle of a move."""
        start, goal = ends_of(query.prompt)
        written = query.written
        room = self.max_new_tokens - len(written)
        walk = read_walk(start, goal, text)
        done = len(walk.cells) - 1
        has_ended = room <= 0 or (written and written[-1] in self.stop_token_ids)
        if has_ended or walk.fault or walk.reached or done >= self.num_moves:
            return REWARDS[self.reward](start, goal, text, self.num_moves)
        fragment = text[TOKENS_PER_MOVE * done :]
        left = min(self.num_moves - done, (room + len(fragment)) // TOKENS_PER_MOVE)
        here = WORLD.number[walk.cells[-1]]
        if left == 0 or not fragment:
            return float(values[left, here])
        action = ACTIONS.index(fragment[0])
        after = int(WORLD.successors[here, action])
        digits = fragment[1:]
        if not WORLD.cells[after].startswith(digits):
            return 0.0
        truth = policy.truths[here, action, len(digits) :].prod()
        return float(truth * values[left - 1, after])

    def _earned(self, start: Cell, goal: Cell) -> Float[np.ndarray, " cell"]:
        """What a walk earns that ends at each cell."""
        distances = WORLD.distances[WORLD.goals.index(goal)]
        if self.reward == "success":
            return (distances == 0).astype(np.float64)
        whole = max(1, int(distances[WORLD.number[start]]))
        return np.maximum(0.0, 1.0 - distances / whole)

    def _probabilities(
        self, logits: Float[np.ndarray, "token vocab"]
    ) -> dict[str, Float[np.ndarray, " token"]]:
        """Of each symbol, and of a stop under the name of no symbol."""
        scaled = logits.astype(np.float64) / self.temperature
        weights = np.exp(scaled - scaled.max(axis=1, keepdims=True))
        shares = weights / weights.sum(axis=1, keepdims=True)
        named = {mark: shares[:, index] for mark, index in self._ids.items()}
        return {**named, "": shares[:, sorted(self.stop_token_ids)].sum(axis=1)}

    def _shown(
        self,
        start: Cell,
        walks: Sequence[str],
        found: Sequence[Mapping[str, Float[np.ndarray, " _"]]],
    ) -> ShownPolicy:
        """The table of one problem; a cell of several walks is read off the first."""
        num_cells = len(WORLD.cells)
        actions = np.zeros((num_cells, len(ACTIONS)))
        stops = np.zeros(num_cells)
        truths = np.full((num_cells, len(ACTIONS), TOKENS_PER_MOVE - 1), np.nan)
        for text, chances in zip(walks, found, strict=True):
            here = WORLD.number[start]
            for at in range(0, len(text) + 1, TOKENS_PER_MOVE):
                actions[here] = [chances[action][at] for action in ACTIONS]
                stops[here] = chances[""][at]
                if at == len(text):
                    break
                action, cell = ACTIONS.index(text[at]), text[at + 1 :][:2]
                truths[here, action] = [
                    chances[digit][at + place] for place, digit in enumerate(cell, 1)
                ]
                here = WORLD.number[cell]
        read = truths[~np.isnan(truths[:, :, 0])]
        mean = read.mean(axis=0) if len(read) else np.ones(TOKENS_PER_MOVE - 1)
        return ShownPolicy(actions, stops, np.where(np.isnan(truths), mean, truths))

    @cached_property
    def _ids(self) -> dict[str, int]:
        """Token of each symbol.

        Raises:
            ValueError: A symbol is not one token.
        """
        ids = {mark: tuple(self.encode(mark)) for mark in SYMBOLS}
        wide = {mark: found for mark, found in ids.items() if len(found) != 1}
        if wide or len(set(ids.values())) < len(SYMBOLS):
            raise ValueError(
                "exact values read one token a character of a walk, got "
                f"{wide or ids}; take the packaged model"
            )
        return {mark: found[0] for mark, found in ids.items()}


def ends_of(prompt: Prompt) -> tuple[Cell, Cell]:
    """Start and goal of a problem.

    Raises:
        ValueError: It is not one of `walk`.
    """
    metadata = prompt.problem.metadata
    if not {"start", "goal"} <= metadata.keys():
        raise ValueError(
            "exact values are of the task 'walk', whose problems name start and goal, "
            f"got {prompt.problem.id!r}; take another algorithm.critic.kind"
        )
    return metadata["start"], metadata["goal"]


def covering_walks(start: Cell, goal: Cell) -> tuple[str, ...]:
    """Shortest true walks that visit every cell one can be at before the goal.

    One for each leaf of a breadth-first tree that ends before the goal.
    """
    texts, queue, leaves = {start: ""}, deque([start]), []
    while queue:
        here = queue.popleft()
        num_known = len(texts)
        for action, there in zip(
            ACTIONS, WORLD.successors[WORLD.number[here]], strict=True
        ):
            cell = WORLD.cells[there]
            if cell not in texts and cell != goal:
                texts[cell] = texts[here] + action + cell
                queue.append(cell)
        if len(texts) == num_known:
            leaves.append(texts[here])
    return tuple(leaves)
