"""`walk`: find a goal on a small fixed map with walls, writing every state reached.

The prompt names start and goal (`S20G47`), a completion writes moves, each an action
and the cell it leads to (`D30R31...`); bumping into a wall leaves one where one was.
The reward is 1 if the goal is reached within the budget of moves and every cell written
on the way is true. The text shows the state, wrong moves can be recovered, and under
any tabular policy every value and every credit is exact by dynamic programming.

Knows numpy and the map; no model, no token ids.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from jaxtyping import Float, Int

from accredit.randomness import generator
from accredit.types import Message, Problem, Rollout, Verdict

MAP = """\
#.......
..#...#.
.###..##
.#.##..#
##......
.....#..
#.....#.
##...###"""
GOALS = (
    "01", "04", "07", "10", "17", "20", "25", "30", "32", "36",
    "42", "47", "50", "53", "57", "61", "65", "67", "72", "73",
)  # fmt: skip
ACTIONS = "UDLR"
OFFSETS = ((-1, 0), (1, 0), (0, -1), (0, 1))
NUM_MOVES = 20
TOKENS_PER_MOVE = 3

Cell = str
Policy = Float[np.ndarray, "goal cell action"]


@dataclass(frozen=True)
class WalkMap:
    """Cells, moves and distances of one map. Cells are two digits, row and column."""

    rows: tuple[str, ...]
    goals: tuple[Cell, ...]

    def __post_init__(self) -> None:
        walled = [goal for goal in self.goals if goal not in self.cells]
        if walled:
            raise ValueError(f"goals must be free cells, got walls at {walled}")
        if (self.distances >= len(self.cells)).any():
            raise ValueError("every cell must reach every goal; the map has islands")

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Free cells in reading order."""
        return tuple(
            f"{row}{column}"
            for row, line in enumerate(self.rows)
            for column, mark in enumerate(line)
            if mark == "."
        )

    @cached_property
    def number(self) -> dict[Cell, int]:
        """Position of each free cell in `cells`."""
        return {cell: i for i, cell in enumerate(self.cells)}

    @cached_property
    def successors(self) -> Int[np.ndarray, "cell action"]:
        """Cell number after each action; walls and borders leave one in place."""
        table = np.empty((len(self.cells), len(ACTIONS)), dtype=np.int64)
        for i, cell in enumerate(self.cells):
            for a, (down, right) in enumerate(OFFSETS):
                there = (int(cell[0]) + down, int(cell[1]) + right)
                name = f"{there[0]}{there[1]}" if min(there) >= 0 else ""
                table[i, a] = self.number.get(name, i)
        return table

    @cached_property
    def distances(self) -> Int[np.ndarray, "goal cell"]:
        """Fewest moves from each cell to each goal; the number of cells if none."""
        far = len(self.cells)
        table = np.full((len(self.goals), far), far, dtype=np.int64)
        for g, goal in enumerate(self.goals):
            table[g, self.number[goal]] = 0
            queue = deque([self.number[goal]])
            while queue:
                here = queue.popleft()
                for before in np.flatnonzero((self.successors == here).any(axis=1)):
                    if table[g, before] == far:
                        table[g, before] = table[g, here] + 1
                        queue.append(int(before))
        return table


WORLD = WalkMap(tuple(MAP.splitlines()), GOALS)


def belief_policy(world: WalkMap = WORLD, seed: int = 0) -> Policy:
    """What the packaged model believes: often noisy, in four situations of ten wrong.

    In 40% of the (goal, cell) situations the likeliest action (60%) leads away and a
    right one has 28%; in the others a right action has 68%. The rest is spread evenly,
    so that greedy decoding fails where beliefs are wrong and a lower temperature does
    not solve the task.
    """
    draw = generator(seed, "walk beliefs")
    policy = np.empty((len(world.goals), len(world.cells), len(ACTIONS)))
    for g, c in product(range(len(world.goals)), range(len(world.cells))):
        ahead = world.distances[g, world.successors[c]] < world.distances[g, c]
        right = draw.permutation(np.flatnonzero(ahead) if ahead.any() else [0])[0]
        others = draw.permutation(np.flatnonzero(~ahead & (np.arange(4) != right)))
        wrong = draw.random() < 0.40 and len(others) > 0
        share = np.zeros(len(ACTIONS))
        share[right] = 0.28 if wrong else 0.68
        if wrong:
            share[others[0]] = 0.60
        rest = share == 0
        share[rest] = (1 - share.sum()) / rest.sum()
        policy[g, c] = share / share.sum()
    return policy


def success_values(
    policy: Policy, num_moves: int = NUM_MOVES, world: WalkMap = WORLD
) -> Float[np.ndarray, "goal left cell"]:
    """V of every state under a tabular policy: chance to reach the goal in time.

        V(m, c) = sum_a pi(a | c) V(m - 1, successor(c, a))
        V(m, goal) = 1,    V(0, c) = 0 elsewhere

    Indexed by the number of moves that are left. Exact, by dynamic programming.
    """
    values = np.zeros((len(world.goals), num_moves + 1, len(world.cells)))
    for g, goal in enumerate(world.goals):
        values[g, :, world.number[goal]] = 1.0
        for m in range(1, num_moves + 1):
            following = values[g, m - 1][world.successors]
            values[g, m] = (policy[g] * following).sum(axis=1)
            values[g, m, world.number[goal]] = 1.0
    return values


def progress_values(
    policy: Policy, start: Cell, num_moves: int = NUM_MOVES, world: WalkMap = WORLD
) -> Float[np.ndarray, "goal left cell"]:
    """V of every state when the reward is the progress made from `start`.

        R = max(0, 1 - distance(last cell) / distance(start)),    R = 1 at the goal

    Same recursion as `success_values`, with V(0, c) = R(c).
    """
    values = np.zeros((len(world.goals), num_moves + 1, len(world.cells)))
    for g, goal in enumerate(world.goals):
        farthest = max(1, int(world.distances[g, world.number[start]]))
        values[g, 0] = np.maximum(0.0, 1.0 - world.distances[g] / farthest)
        for m in range(1, num_moves + 1):
            values[g, m] = (policy[g] * values[g, m - 1][world.successors]).sum(axis=1)
            values[g, m, world.number[goal]] = 1.0
    return values


def walk_credits(
    values: Float[np.ndarray, "goal left cell"],
    start: Cell,
    goal: Cell,
    text: str,
    world: WalkMap = WORLD,
) -> Float[np.ndarray, " character"]:
    """Exact credit of every character of a walk: what it changed in V.

        C_t = V_t - V_{t-1}

    An action earns V of the cell it leads to minus V of the cell it left; a cell that
    is written truly earns 0, because it had to follow; the first false character loses
    all that V was. What stands after a fault, the goal or the budget earns 0. Over a
    whole walk the credits sum to the outcome minus V of the start.

    Args:
        values: As of `success_values`, for as many moves as the budget allows.
        start: Where the walk begins.
        goal: Where it should end.
        text: The completion, one character a token.
        world: The map.
    """
    g, left = world.goals.index(goal), values.shape[1] - 1
    here = world.number[start]
    credits = np.zeros(len(text))
    for at in range(0, len(text), TOKENS_PER_MOVE):
        if left == 0 or world.cells[here] == goal:
            break
        before = values[g, left, here]
        if text[at] not in ACTIONS:
            credits[at] = -before
            break
        here = int(world.successors[here, ACTIONS.index(text[at])])
        left -= 1
        after = values[g, left, here]
        credits[at] = after - before
        for place, true in enumerate(world.cells[here], start=at + 1):
            if place < len(text) and text[place] != true:
                credits[place] = -after
                return credits
    return credits


def prompt_text(start: Cell, goal: Cell) -> str:
    """`S20G47`."""
    return f"S{start}G{goal}"


@dataclass(frozen=True)
class Walk:
    """A completion read as moves, up to the first fault or the goal."""

    cells: tuple[Cell, ...]
    """Start, then the cell after each true move."""
    reached: bool
    fault: str
    """Why reading stopped early; empty where every move was true."""


def read_walk(start: Cell, goal: Cell, text: str, world: WalkMap = WORLD) -> Walk:
    """The moves of a completion, each checked against the map.

    Reading ends at the goal: what follows can neither help nor harm. A trailing
    fragment of a move is no fault, because a budget may cut there.
    """
    cells = [start]
    for at in range(0, len(text), TOKENS_PER_MOVE):
        if cells[-1] == goal:
            break
        move = text[at : at + TOKENS_PER_MOVE]
        if len(move) < TOKENS_PER_MOVE and move[0] in ACTIONS:
            break
        if move[0] not in ACTIONS:
            return Walk(tuple(cells), False, f"no action at character {at}: {move!r}")
        here = world.number[cells[-1]]
        there = world.cells[world.successors[here, ACTIONS.index(move[0])]]
        if move[1:] != there:
            fault = f"{move[0]} from {cells[-1]} leads to {there}, not {move[1:]!r}"
            return Walk(tuple(cells), False, fault)
        cells.append(there)
    return Walk(tuple(cells), cells[-1] == goal, "")


def success_reward(start: Cell, goal: Cell, text: str, num_moves: int) -> float:
    """1 if the goal is reached by true moves within the budget, else 0."""
    walk = read_walk(start, goal, text)
    return float(walk.reached and len(walk.cells) - 1 <= num_moves)


def progress_reward(start: Cell, goal: Cell, text: str, num_moves: int) -> float:
    """Share of the way made good at the last true cell within the budget."""
    walk = read_walk(start, goal, text)
    if walk.fault:
        return 0.0
    last = walk.cells[min(len(walk.cells) - 1, num_moves)]
    distances = WORLD.distances[WORLD.goals.index(goal)]
    whole = max(1, int(distances[WORLD.number[start]]))
    return max(0.0, 1.0 - float(distances[WORLD.number[last]]) / whole)


def sample_walk(
    policy: Policy,
    start: Cell,
    goal: Cell,
    draw: np.random.Generator,
    num_moves: int = NUM_MOVES,
    world: WalkMap = WORLD,
) -> str:
    """Text of one walk under a tabular policy, ended by the goal or the budget."""
    g, here = world.goals.index(goal), world.number[start]
    cumulative = policy[g].cumsum(axis=1)
    text = ""
    for u in draw.random(num_moves):
        action = min(int(np.searchsorted(cumulative[here], u)), len(ACTIONS) - 1)
        here = int(world.successors[here, action])
        text += ACTIONS[action] + world.cells[here]
        if world.cells[here] == goal:
            break
    return text


def successes(values: Float[np.ndarray, "goal left cell"]) -> dict[str, float]:
    """Start success of every (start, goal) problem, by prompt text."""
    return {
        prompt_text(cell, goal): float(values[g, -1, c])
        for g, goal in enumerate(WORLD.goals)
        for c, cell in enumerate(WORLD.cells)
        if cell != goal
    }


def shortest_walk(start: Cell, goal: Cell, world: WalkMap = WORLD) -> str:
    """A text that succeeds in the fewest moves."""
    g, here, text = world.goals.index(goal), world.number[start], ""
    while world.cells[here] != goal:
        nearer: Sequence[int] = world.distances[g, world.successors[here]].tolist()
        action = int(np.argmin(nearer))
        here = int(world.successors[here, action])
        text += ACTIONS[action] + world.cells[here]
    return text


SPLITS = {"easy": (0.20, 0.35), "hard": (0.05, 0.08), "very_hard": (0.004, 0.02)}
"""Start success under the beliefs, as exact values."""
HELD_OUT_EVERY = 3


@dataclass(frozen=True)
class WalkProblems:
    """Problems of one split, some held out for evaluation."""

    train: tuple[Problem, ...]
    evaluation: tuple[Problem, ...]


def walk_problems(split: str, num_moves: int = NUM_MOVES) -> WalkProblems:
    """All (start, goal) pairs whose start success lies in the split's range.

    Ordered by success, every third one is held out, so that both parts are equally
    hard.

    Raises:
        ValueError: the split is unknown, or the budget leaves it empty.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    low, high = SPLITS[split]
    starts = successes(success_values(belief_policy(), num_moves))
    inside = [(text, p) for text, p in starts.items() if low <= p <= high]
    inside.sort(key=lambda item: (item[1], item[0]))
    if len(inside) < HELD_OUT_EVERY:
        raise ValueError(
            f"split {split!r} must hold at least {HELD_OUT_EVERY} problems, got "
            f"{len(inside)} at num_moves={num_moves}; the default is {NUM_MOVES}"
        )
    problems = [
        Problem(
            id=f"walk-{text}",
            messages=(Message("user", text),),
            answer=text[4:],
            split=split,
            metadata={"start": text[1:3], "goal": text[4:], "success": success},
        )
        for text, success in inside
    ]
    held_out = [i % HELD_OUT_EVERY == HELD_OUT_EVERY - 1 for i in range(len(problems))]
    return WalkProblems(
        tuple(p for p, held in zip(problems, held_out, strict=True) if not held),
        tuple(p for p, held in zip(problems, held_out, strict=True) if held),
    )


def has_arrived(problem: Problem, text: str) -> bool:
    """Whether a walk that goes on has reached its goal already."""
    walk = read_walk(problem.metadata["start"], problem.metadata["goal"], text)
    return walk.reached


@dataclass(frozen=True)
class WalkVerifier:
    """Reads a walk and pays for the goal, or for the progress made towards it."""

    reward: Callable[[Cell, Cell, str, int], float] = success_reward
    num_moves: int = NUM_MOVES

    def verify(self, items: Sequence[tuple[Problem, str, Rollout]]) -> list[Verdict]:
        """One verdict a completion; a false move is wrong, not unverifiable."""
        verdicts = []
        for problem, text, _ in items:
            start, goal = problem.metadata["start"], problem.metadata["goal"]
            reward = self.reward(start, goal, text, self.num_moves)
            verdicts.append(Verdict(reward, read_walk(start, goal, text).fault))
        return verdicts

    def close(self) -> None:
        """Nothing to let go of."""
