"""What the packaged model is taught: writing, valuing, proof-reading, calling tools.

A lesson is a token sequence with a weight for each token and, where the world knows the
whole distribution (a belief, a value between two grid points), soft targets instead of
the token that happens to stand there.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from accredit.tasks import chain, walk
from accredit.tasks.walk import ACTIONS, TOKENS_PER_MOVE, WORLD

MAX_MOVES = 40
VALUE_WEIGHT = 4.0


@dataclass
class Lesson:
    """Text under construction; tokens are characters or special tokens."""

    tokens: list[str] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    soft: dict[int, dict[str, float]] = field(default_factory=dict)

    def add(self, text: str, weight: float = 0.0) -> "Lesson":
        """Characters with one weight."""
        self.tokens += list(text)
        self.weights += [weight] * len(text)
        return self

    def mark(self, token: str, weight: float = 0.0) -> "Lesson":
        """One special token."""
        self.tokens.append(token)
        self.weights.append(weight)
        return self

    def add_soft(self, token: str, targets: dict[str, float], weight: float) -> None:
        """One character whose whole distribution is known."""
        self.soft[len(self.tokens)] = targets
        self.tokens.append(token)
        self.weights.append(weight)

    def user(self, text: str) -> "Lesson":
        """A user turn, then the opening of the assistant's."""
        return self.mark("<|user|>").add(text).mark("<|end|>").mark("<|assistant|>")

    def value(self, value: float, draw: np.random.Generator) -> "Lesson":
        """The stem and the grid point nearest to `value`, softly between two."""
        self.add("v")
        low = min(int(value * 10), 9)
        share = value * 10 - low
        point = low + int(draw.random() < share)
        one = share if low == 9 else 0.0
        self.add_soft(str(point // 10), {"1": one, "0": 1 - one}, VALUE_WEIGHT)
        self.add(".", VALUE_WEIGHT / 4)
        if point == 10:
            self.add("0", VALUE_WEIGHT)
        else:
            digits = {str(low): 1.0 if low == 9 else 1 - share}
            if low < 9:
                digits[str(low + 1)] = share
            self.add_soft(str(point), digits, VALUE_WEIGHT)
        return self.mark("<|end|>", VALUE_WEIGHT / 4)


def held_out(*state: int) -> bool:
    """One state in ten is never asked about while learning."""
    return hashlib.blake2b(repr(state).encode(), digest_size=1).digest()[0] < 26


class WalkLessons:
    """Writing walks and valuing prefixes of walks."""

    def __init__(self) -> None:
        self.beliefs = walk.belief_policy()
        self.values = walk.success_values(self.beliefs, MAX_MOVES)
        self.progress: dict[str, np.ndarray] = {}
        shape = self.beliefs.shape
        nearer = WORLD.distances[:, WORLD.successors] < WORLD.distances[:, :, None]
        sharp = np.where(nearer, 1.0, 0.05)
        self.policies = {
            "beliefs": self.beliefs,
            "uniform": np.full(shape, 0.25),
            "sharp": sharp / sharp.sum(axis=2, keepdims=True),
        }

    def problem(self, draw: np.random.Generator) -> tuple[str, str]:
        """Any start and any goal."""
        goal = WORLD.goals[draw.integers(len(WORLD.goals))]
        while (start := WORLD.cells[draw.integers(len(WORLD.cells))]) == goal:
            pass
        return start, goal

    def writing(self, draw: np.random.Generator) -> Lesson:
        """A walk under the beliefs, or one that only teaches where moves lead."""
        start, goal = self.problem(draw)
        believed = draw.random() < 0.7
        kind = "beliefs" if believed else str(draw.choice(["uniform", "sharp"]))
        num_moves = MAX_MOVES if draw.random() < 0.1 else walk.NUM_MOVES
        text = walk.sample_walk(self.policies[kind], start, goal, draw, num_moves)
        lesson = Lesson().user(walk.prompt_text(start, goal))
        g, here = WORLD.goals.index(goal), WORLD.number[start]
        for at in range(0, len(text), TOKENS_PER_MOVE):
            targets = dict(zip(ACTIONS, self.beliefs[g, here].tolist(), strict=True))
            lesson.add_soft(text[at], targets, 1.0 if believed else 0.0)
            lesson.add(text[at + 1 : at + 3], 1.0)
            here = WORLD.number[text[at + 1 : at + 3]]
        if WORLD.cells[here] == goal:
            lesson.mark("<|end|>", 1.0)
        return lesson

    def question(self, draw: np.random.Generator) -> Lesson:
        """The critic's question about a partial walk, with or without a reference."""
        while True:
            start, goal = self.problem(draw)
            kind = str(draw.choice(["beliefs", "uniform", "sharp"], p=[0.6, 0.2, 0.2]))
            text = walk.sample_walk(
                self.policies[kind], start, goal, draw, walk.NUM_MOVES
            )
            done = int(draw.integers(0, len(text) // TOKENS_PER_MOVE + 1))
            text = text[: done * TOKENS_PER_MOVE]
            left = walk.NUM_MOVES - done
            if draw.random() < 0.2:
                left = int(draw.integers(0, MAX_MOVES + 1))
            g, here = WORLD.goals.index(goal), WORLD.number[text[-2:] or start]
            if not held_out(g, here, left):
                break
        partial = draw.random() < 0.2
        if partial:
            if start not in self.progress:
                self.progress[start] = walk.progress_values(
                    self.beliefs, start, MAX_MOVES
                )
            value = float(self.progress[start][g, left, here])
        else:
            value = float(self.values[g, left, here])
        lesson = Lesson().user(walk.prompt_text(start, goal)).add(text).mark("<|end|>")
        question = ("%" if partial else "?") + str(left * TOKENS_PER_MOVE)
        if draw.random() < 0.25:
            question += "=" + walk.sample_walk(
                self.policies["sharp"], start, goal, draw, walk.NUM_MOVES
            )
        return lesson.user(question).value(value, draw)


class ChainLessons:
    """Deriving, valuing and proof-reading chains, and calling the calculator."""

    def __init__(self) -> None:
        self.facts = chain.belief_facts()

    def digits(
        self, problem: chain.Chain, draw: np.random.Generator
    ) -> tuple[int, ...]:
        """Results to be read: believed, or true up to one slip or none."""
        if draw.random() < 0.5:
            return chain.sample_results(problem, self.facts, draw)
        slip = int(draw.integers(0, 2 * len(problem.operations)))
        digits = [problem.start]
        for i, (operator, right) in enumerate(problem.operations):
            result = chain.true_result(operator, digits[-1], right)
            shift = int(draw.integers(1, 10)) if i == slip else 0
            digits.append((result + shift) % 10)
        return tuple(digits)

    def writing(self, draw: np.random.Generator) -> Lesson:
        """A derivation under the beliefs, with the belief at every result."""
        problem = chain.sample_chain(draw, int(draw.integers(4, chain.NUM_STEPS + 1)))
        digits = chain.sample_results(problem, self.facts, draw)
        lesson = Lesson().user(problem.text)
        for i, (operator, right) in enumerate(problem.operations):
            step = chain.derivation_text(problem, digits, i + 1)
            lesson.add(step[-7:-2], 1.0)
            row = self.facts[chain.OPERATORS.index(operator), digits[i], right]
            targets = {str(z): float(p) for z, p in enumerate(row)}
            lesson.add_soft(step[-2], targets, 1.0)
            lesson.add(";", 1.0)
        trail = "".join(map(str, digits[1:]))
        return lesson.add(f"\\boxed{{{trail}}}", 1.0).mark("<|end|>", 1.0)

    def attempt(self, draw: np.random.Generator) -> tuple[chain.Chain, str, Lesson]:
        """A problem, a partial derivation and the lesson up to its end."""
        num_steps = int(draw.integers(4, chain.NUM_STEPS + 1))
        problem = chain.sample_chain(draw, num_steps)
        done = int(draw.integers(0, num_steps + 1))
        text = chain.derivation_text(problem, self.digits(problem, draw), done)
        lesson = Lesson().user(problem.text).add(text).mark("<|end|>")
        return problem, text, lesson

    def reference(self, problem: chain.Chain, draw: np.random.Generator) -> str:
        """`=` and a true solution, half of the time."""
        if draw.random() < 0.4:
            return ""
        return "=" + chain.solution_text(problem, problem.results)

    def question(self, draw: np.random.Generator) -> Lesson:
        """The critic's question about a partial derivation."""
        problem, text, lesson = self.query(draw)
        value = chain.prefix_value(problem, self.facts, text)
        budget = len(chain.solution_text(problem, problem.results)) + 1
        question = f"?{budget - len(text)}" + self.reference(problem, draw)
        return lesson.user(question).value(value, draw)

    def review(self, draw: np.random.Generator) -> Lesson:
        """One mark a step: is the chain still true after it?"""
        problem, text, lesson = self.query(draw)
        lesson.user("!" + self.reference(problem, draw))
        digits = chain.read_results(problem, text) or ()
        for i in range(1, len(digits)):
            good = digits[: i + 1] == problem.results[: i + 1]
            lesson.add(chain.LABELS[i - 1], 0.2).add("+" if good else "-", 1.0)
        return lesson.mark("<|end|>", 0.2)

    def tools(self, draw: np.random.Generator) -> Lesson:
        """A short chain solved with the calculator, one call a step."""
        problem = chain.sample_chain(draw, int(draw.integers(2, 5)))
        lesson = Lesson().mark("<|system|>").add("calc;").mark("<|end|>")
        lesson.user(problem.text)
        for i, (operator, right) in enumerate(problem.operations):
            fact = f"{problem.results[i]}{operator}{right}"
            lesson.mark("<tool_call>", 1.0)
            lesson.add(f'{{"name":"calc","arguments":{{"e":"{fact}"}}}}', 1.0)
            lesson.mark("</tool_call>", 1.0).mark("<|end|>", 1.0)
            lesson.mark("<|tool|>").add(str(problem.results[i + 1])).mark("<|end|>")
            lesson.mark("<|assistant|>")
        trail = "".join(map(str, problem.results[1:]))
        return lesson.add(f"\\boxed{{{trail}}}", 1.0).mark("<|end|>", 1.0)


def curriculum() -> list[tuple[Callable[[np.random.Generator], Lesson], int]]:
    """Lesson makers and how many of each an update holds."""
    walks, chains = WalkLessons(), ChainLessons()
    return [
        (walks.writing, 40),
        (walks.question, 48),
        (chains.writing, 20),
        (chains.question, 24),
        (chains.review, 12),
        (chains.tools, 4),
    ]
