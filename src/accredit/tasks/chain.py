"""`chain`: a long chain of small arithmetic facts modulo 10, boxed answer at the end.

The prompt is a start digit and labelled operations (`3a+4b*2c-1`), a completion states
one fact a line of thought, each restating its operands (`a3+4=7;b7*2=4;c4-1=3;`), and
boxes the trail of all results (`\\boxed{743}`). The reward is 1 if the trail is true,
so that no later luck heals a mistake; and a mistake stays hidden in the history, which
is the hard case for a critic. Under any tabular policy every value is exact.

Knows numpy and arithmetic; no model, no tokens.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from jaxtyping import Float

from accredit.randomness import generator
from accredit.types import Message, Problem, Rollout, Verdict
from accredit.verification.answered import answer_reader

OPERATORS = "+-*"
LABELS = "abcdefghijklmnopqrstuvwx"
NUM_STEPS = 12
BASE = 10

Facts = Float[np.ndarray, "operator left right result"]
STEP = re.compile(r"([a-x])(\d)([-+*])(\d)=(\d);")
PROMPT = re.compile(r"(\d)((?:[a-x][-+*]\d)+)")


@dataclass(frozen=True)
class Chain:
    """A start digit and the operations applied to it, left to right, modulo 10."""

    start: int
    operations: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.operations) <= len(LABELS):
            raise ValueError(
                f"a chain needs 1 to {len(LABELS)} operations, "
                f"got {len(self.operations)}"
            )

    @property
    def text(self) -> str:
        """`3a+4b*2`."""
        steps = zip(LABELS, self.operations, strict=False)
        return f"{self.start}" + "".join(f"{k}{op}{n}" for k, (op, n) in steps)

    @property
    def results(self) -> tuple[int, ...]:
        """True value before the first operation and after each one."""
        values = [self.start]
        for operator, right in self.operations:
            values.append(true_result(operator, values[-1], right))
        return tuple(values)


def true_result(operator: str, left: int, right: int) -> int:
    """One fact modulo 10."""
    if operator == "+":
        return (left + right) % BASE
    return (left - right) % BASE if operator == "-" else (left * right) % BASE


def parse_chain(text: str) -> Chain:
    """A chain from its prompt text."""
    found = PROMPT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"a chain reads like 3a+4b*2, got {text!r}")
    operations = re.findall(r"[a-x]([-+*])(\d)", found[2])
    return Chain(int(found[1]), tuple((op, int(n)) for op, n in operations))


def belief_facts(seed: int = 0) -> Facts:
    """What the packaged model believes each fact to be: a distribution over results.

    In 20% of the facts the likeliest result (60%) is wrong and the right one has 28%;
    in the others the right one has 78% to 99.5%. The rest is spread evenly.
    """
    draw = generator(seed, "chain beliefs")
    shape = (len(OPERATORS), BASE, BASE, BASE)
    facts = np.empty(shape)
    for o, left, right in product(*map(range, shape[:3])):
        truth = true_result(OPERATORS[o], left, right)
        wrong = draw.random() < 0.20
        right_share = 0.28 if wrong else draw.uniform(0.78, 0.995)
        rest = 1.0 - right_share - (0.60 if wrong else 0.0)
        share = np.full(BASE, rest / (8 if wrong else 9))
        if wrong:
            share[(truth + int(draw.integers(1, BASE))) % BASE] = 0.60
        share[truth] = right_share
        facts[o, left, right] = share
    return facts


def chain_values(chain: Chain, facts: Facts) -> Float[np.ndarray, " prefix"]:
    """V after each number of steps while every result so far is true.

        V(n) = 1,    V(i) = pi(truth | d_i op_i n_i) V(i + 1)

    After a mistake V is 0, because the trail in the box must be true throughout.
    """
    values = np.ones(len(chain.operations) + 1)
    for i in reversed(range(len(chain.operations))):
        operator, right = chain.operations[i]
        row = facts[OPERATORS.index(operator), chain.results[i], right]
        values[i] = row[chain.results[i + 1]] * values[i + 1]
    return values


def prefix_value(chain: Chain, facts: Facts, text: str) -> float:
    """V of a partial completion; 0 once it holds a mistake or is not a derivation."""
    digits = read_results(chain, text)
    if digits is None or digits != chain.results[: len(digits)]:
        return 0.0
    return float(chain_values(chain, facts)[len(digits) - 1])


def success(chain: Chain, facts: Facts) -> float:
    """Chance that a tabular policy solves the chain from its start."""
    return float(chain_values(chain, facts)[0])


def sample_chain(draw: np.random.Generator, num_steps: int = NUM_STEPS) -> Chain:
    """A random chain with operands 1 to 9."""
    operators = draw.integers(0, len(OPERATORS), num_steps)
    operands = draw.integers(1, BASE, num_steps)
    operations = zip(operators.tolist(), operands.tolist(), strict=True)
    return Chain(
        int(draw.integers(0, BASE)), tuple((OPERATORS[o], n) for o, n in operations)
    )


def sample_results(
    chain: Chain, facts: Facts, draw: np.random.Generator
) -> tuple[int, ...]:
    """The digits a tabular policy writes, start included."""
    digits = [chain.start]
    for (operator, right), u in zip(
        chain.operations, draw.random(len(chain.operations)), strict=True
    ):
        row = facts[OPERATORS.index(operator), digits[-1], right]
        digits.append(min(int(np.searchsorted(row.cumsum(), u)), BASE - 1))
    return tuple(digits)


def derivation_text(chain: Chain, digits: tuple[int, ...], num_steps: int) -> str:
    """`a3+4=7;b7*2=4;` for the first `num_steps` steps with the given results."""
    text = ""
    for i in range(num_steps):
        operator, right = chain.operations[i]
        text += f"{LABELS[i]}{digits[i]}{operator}{right}={digits[i + 1]};"
    return text


def solution_text(chain: Chain, digits: tuple[int, ...]) -> str:
    """A whole completion with the given results."""
    trail = "".join(map(str, digits[1:]))
    return derivation_text(chain, digits, len(digits) - 1) + f"\\boxed{{{trail}}}"


def read_results(chain: Chain, text: str) -> tuple[int, ...] | None:
    """Digits written so far, start included; None where it is no derivation.

    A step must carry the next label, the digit reached so far and the operation asked.
    A trailing fragment of a step is no fault, because a budget may cut there.
    """
    digits = [chain.start]
    for found in STEP.finditer(text):
        done = len(digits) - 1
        if done == len(chain.operations):
            break
        expected = (LABELS[done], digits[-1], *chain.operations[done])
        if (found[1], int(found[2]), found[3], int(found[4])) != expected:
            return None
        digits.append(int(found[5]))
    return tuple(digits)


BOXED = answer_reader()
SPLITS = {"easy": (0.20, 0.35), "hard": (0.05, 0.08), "very_hard": (0.005, 0.015)}
"""Start success under the beliefs, as exact values."""
NUM_TRAIN, NUM_HELD_OUT = 96, 32


@dataclass(frozen=True)
class ChainProblems:
    """Problems of one split, some held out for evaluation."""

    train: tuple[Problem, ...]
    evaluation: tuple[Problem, ...]


def chain_problems(split: str, num_steps: int = NUM_STEPS) -> ChainProblems:
    """Random chains whose start success lies in the split's range.

    Raises:
        ValueError: the split is unknown, or chains of that length do not fall in it.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    low, high = SPLITS[split]
    facts = belief_facts()
    draw = generator(0, "chain problems", split, num_steps)
    found: dict[str, Problem] = {}
    for _ in range(50 * (NUM_TRAIN + NUM_HELD_OUT)):
        chain = sample_chain(draw, num_steps)
        chance = success(chain, facts)
        if low <= chance <= high:
            found[chain.text] = Problem(
                id=f"chain-{chain.text}",
                messages=(Message("user", chain.text),),
                answer="".join(map(str, chain.results[1:])),
                split=split,
                metadata={"success": chance},
            )
        if len(found) == NUM_TRAIN + NUM_HELD_OUT:
            problems = tuple(found.values())
            return ChainProblems(problems[:NUM_TRAIN], problems[NUM_TRAIN:])
    raise ValueError(
        f"split {split!r} needs {NUM_TRAIN + NUM_HELD_OUT} chains, got {len(found)} at "
        f"num_steps={num_steps}; the default is {NUM_STEPS}"
    )


@dataclass(frozen=True)
class ChainVerifier:
    """Pays for the true trail in the last complete box."""

    def verify(self, items: Sequence[tuple[Problem, str, Rollout]]) -> list[Verdict]:
        """One verdict a completion; no box is wrong, not unverifiable."""
        verdicts = []
        for problem, text, _ in items:
            trail = BOXED.answer(text)
            reason = "no complete box" if trail is None else ""
            verdicts.append(Verdict(float(trail == problem.answer), reason))
        return verdicts

    def close(self) -> None:
        """Nothing to let go of."""
