"""Values read off a model: against every completion it can write, and exact beliefs."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from accredit.tasks import walk
from accredit.tasks.walk import ACTIONS, WORLD, belief_policy
from accredit.tasks.walk_values import SYMBOLS, WalkValues, covering_walks, ends_of
from accredit.types import CriticQuery, Message, Problem, Prompt

VOCABULARY = "^$SG" + SYMBOLS + "?"
STOP, OTHER = VOCABULARY.index("$"), VOCABULARY.index("?")
BELIEFS = belief_policy()
Said = Callable[[str, str], dict[str, float]]
"""(start and goal, what is written) -> probability of each next character."""


def encoded(text: str) -> list[int]:
    return [VOCABULARY.index(mark) for mark in text]


def decoded(rows: Sequence[Sequence[int]]) -> list[str]:
    return ["".join(VOCABULARY[i] for i in row).removesuffix("$") for row in rows]


def prompt(start: str, goal: str) -> Prompt:
    text = walk.prompt_text(start, goal)
    metadata = {"start": start, "goal": goal}
    problem = Problem(text, (Message("user", text),), metadata=metadata)
    return Prompt(problem, tuple(encoded("^" + text)))


def attempt(start: str, goal: str, text: str = "") -> CriticQuery:
    return CriticQuery(prompt(start, goal), tuple(encoded(text)))


def tabular(stop: float = 0.0, other: float = 0.0, truths=(1.0, 1.0)) -> Said:
    """The beliefs, with some probability of a stop, of nonsense and of false digits."""

    def said(problem: str, written: str) -> dict[str, float]:
        start, goal = problem[1:3], problem[4:]
        whole = written[: len(written) // 3 * 3]
        here = whole[-2:] or start
        fragment = written[len(whole) :]
        if not fragment:
            shares = BELIEFS[WORLD.goals.index(goal), WORLD.number[here]]
            found = dict(zip(ACTIONS, (1 - stop - other) * shares, strict=True))
            return {**found, "$": stop, "?": other}
        after = WORLD.successors[WORLD.number[here], ACTIONS.index(fragment[0])]
        digit = WORLD.cells[after][len(fragment) - 1]
        truth = truths[len(fragment) - 1]
        return {digit: truth, "?": 1 - truth}

    return said


def values_of(said: Said, **keys) -> tuple[WalkValues, list[int]]:
    """A model that says so, read by `WalkValues`; and the tokens it was shown."""
    shown: list[int] = []

    def logits(rows: Sequence[Sequence[int]]) -> list[np.ndarray]:
        shown.append(len(rows))
        found = []
        for row in rows:
            text = "".join(VOCABULARY[i] for i in row)
            table = np.full((len(row), len(VOCABULARY)), np.nan, dtype=np.float32)
            for at in range(6, len(row)):
                table[at] = -1e9
                for mark, share in said(text[1:7], text[7 : at + 1]).items():
                    if share > 0:
                        table[at, VOCABULARY.index(mark)] = np.log(share) + 3.0
            found.append(table)
        return found

    settings = {"reward": "success", "num_moves": 2, "max_new_tokens": 6} | keys
    return WalkValues(
        logits=logits,
        encode=encoded,
        decode=decoded,
        stop_token_ids=frozenset([STOP]),
        **settings,
    ), shown


def enumerated(
    said: Said, start: str, goal: str, text: str, pays, budget: int
) -> float:
    """V by writing every completion there is: the oracle of the recursion.

    Past the goal nothing matters, and past a fault.
    """
    num_moves = budget // 3
    read = walk.read_walk(start, goal, text)
    if len(text) >= budget or text.endswith("$") or read.reached or read.fault:
        return pays(start, goal, text.removesuffix("$"), num_moves)
    if "?" in text:
        # A false digit: no fault until its move is whole.
        return enumerated(said, start, goal, text + "?", pays, budget)
    return sum(
        share * enumerated(said, start, goal, text + mark, pays, budget)
        for mark, share in said(walk.prompt_text(start, goal), text).items()
        if share > 0
    )


PAYS = {"success": walk.success_reward, "progress": walk.progress_reward}
START, GOAL = "02", "04"
"""Row 0 is `#.......`: two moves to the right."""


@pytest.mark.parametrize("reward", ["success", "progress"])
@pytest.mark.parametrize("moves", [1, 2, 3])
def test_every_prefix_has_the_mean_reward_of_all_its_completions(
    reward: str, moves: int
):
    """At boundaries, in the middle of moves, after faults, at goals and at stops."""
    said, budget = tabular(0.07, 0.05, (0.9, 0.8)), 3 * moves
    values, _ = values_of(said, reward=reward, num_moves=moves, max_new_tokens=budget)
    texts = ["", "R", "R0", "R03", "R03R", "R03R0", "R03R04", "R03L", "R03L02", "L01"]
    texts += ["U", "U02", "U0", "R1", "R13", "?", "4", "R03?", "R03R1", "R03$", "$"]
    texts += ["R03R04L", "R03R04?", "R03R04R05"]
    texts = [text for text in texts if len(text) <= budget]
    found = values([attempt(START, GOAL, text) for text in texts])
    expected = [enumerated(said, START, GOAL, t, PAYS[reward], budget) for t in texts]
    assert found == pytest.approx(expected, abs=1e-6)
    # In one move the goal is out of reach: only progress earns.
    num_between = {"success": 0, "progress": 2}[reward] if moves == 1 else 4
    assert sum(0 < value < 1 for value in found) >= num_between
    assert moves == 1 or found[0] > 0.02


def test_one_move_by_hand():
    """Three moves of four do not stop; of them, the right one, then two true digits."""
    g, here = WORLD.goals.index("04"), WORLD.number["03"]
    right = BELIEFS[g, here, ACTIONS.index("R")]
    settings = {"num_moves": 1, "max_new_tokens": 3}
    values, _ = values_of(tabular(0.25, 0.0, (0.9, 0.8)), **settings)
    texts = ["", "R", "R0", "R04", "L", "L0", "R1"]
    found = values([attempt("03", "04", text) for text in texts])
    # The tree ends before the goal: a digit of it is as true as the others.
    assert found == pytest.approx(
        [0.75 * right * 0.72, 0.72, 0.8, 1.0, 0.0, 0.0, 0.0], abs=1e-6
    )


@pytest.mark.parametrize("reward", ["success", "progress"])
def test_under_the_beliefs_they_are_the_tables_of_the_task(reward: str):
    problems = walk.walk_problems("hard").train[:3]
    values, shown = values_of(tabular(), reward=reward, num_moves=20, max_new_tokens=60)
    queries, expected = [], []
    for problem in problems:
        start, goal = problem.metadata["start"], problem.metadata["goal"]
        table = {
            "success": walk.success_values(BELIEFS),
            "progress": walk.progress_values(BELIEFS, start),
        }[reward][WORLD.goals.index(goal)]
        text = walk.shortest_walk(start, goal)
        for done in range(len(text) // 3 + 1):
            queries.append(attempt(start, goal, text[: 3 * done]))
            cell = walk.read_walk(start, goal, text[: 3 * done]).cells[-1]
            expected.append(table[20 - done, WORLD.number[cell]])
    assert values(queries) == pytest.approx(expected, abs=1e-6)
    assert 0.0 < min(expected) < 0.25 < max(expected)
    # Each problem is read once, all of them in one call.
    ends = {ends_of(one.prompt) for one in queries}
    assert shown == [sum(len(covering_walks(*both)) for both in ends)]


def test_the_budget_of_tokens_counts_as_that_of_moves():
    """Seven tokens are two moves and the fragment of a third, which earns nothing."""
    one, _ = values_of(tabular(), num_moves=2, max_new_tokens=6)
    more, _ = values_of(tabular(), num_moves=20, max_new_tokens=7)
    less, _ = values_of(tabular(), num_moves=2, max_new_tokens=20)
    asked = [attempt(START, GOAL), attempt(START, GOAL, "U02"), attempt("03", "04")]
    assert more(asked) == pytest.approx(one(asked))
    assert less(asked) == pytest.approx(one(asked))
    assert one(asked)[0] > 0.05
    assert one(asked)[1] == 0.0
    # What is written past the last move that counts is too late.
    assert less([attempt(START, GOAL, "U02U02U02"[:n]) for n in (6, 7, 9)]) == [0.0] * 3


def test_a_move_that_the_budget_cuts_earns_what_stands_before_it():
    """Eight tokens: two moves, and a third that no digit can finish."""
    values, _ = values_of(tabular(), reward="progress", num_moves=20, max_new_tokens=8)
    texts = ["U02R03", "U02R03R", "U02R03R0"]
    assert values([attempt(START, GOAL, text) for text in texts]) == [0.5] * 3


def test_the_temperature_is_that_of_sampling():
    """At .5 every share is squared and normalised again."""
    start, goal = "03", "04"
    shares = BELIEFS[WORLD.goals.index(goal), WORLD.number[start]] ** 2
    sharp, _ = values_of(tabular(), num_moves=1, max_new_tokens=3, temperature=0.5)
    expected = shares[ACTIONS.index("R")] / shares.sum()
    assert sharp([attempt(start, goal)]) == pytest.approx([expected], abs=1e-6)


@pytest.mark.parametrize("start", ["01", "44", "05", "74"])
@pytest.mark.parametrize("goal", ["04", "47", "61"])
def test_the_walks_are_true_short_and_visit_all_that_can_be_visited(
    start: str, goal: str
):
    walks = covering_walks(start, goal)
    visited = set()
    for text in walks:
        read = walk.read_walk(start, goal, text)
        assert not read.fault and not read.reached
        assert len(read.cells) == len(set(read.cells))
        visited.update(read.cells)
    # Whatever a long random walk sees before the goal.
    draw, seen, here = np.random.default_rng(0), {start}, WORLD.number[start]
    for action in draw.integers(0, 4, 4000):
        there = WORLD.successors[here, action]
        if WORLD.cells[there] != goal:
            here = int(there)
            seen.add(WORLD.cells[here])
    assert visited == seen
    assert len(walks) < 20


def test_every_problem_has_a_walk_that_reads_its_first_cell():
    for start, goal in itertools.product(WORLD.cells, WORLD.goals):
        if start != goal:
            assert covering_walks(start, goal)


def test_nothing_asked_reads_nothing():
    values, shown = values_of(tabular())
    assert values([]) == []
    assert shown == []


def test_a_problem_of_another_task_is_refused():
    one = attempt(START, GOAL)
    problem = replace(one.prompt.problem, id="other", metadata={})
    values, _ = values_of(tabular())
    with pytest.raises(ValueError, match=r"task 'walk'.*got 'other'; take another"):
        values([replace(one, prompt=replace(one.prompt, problem=problem))])


@pytest.mark.parametrize("encode", [lambda text: [1, 2], lambda text: [7]])
def test_a_tokenizer_that_is_not_one_of_characters_is_refused(encode):
    values, _ = values_of(tabular())
    with pytest.raises(ValueError, match=r"one token a character of a walk, got \{"):
        replace(values, encode=encode)([attempt(START, GOAL)])


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_greedy_decoding_has_no_exact_values(temperature: float):
    with pytest.raises(ValueError, match=r"temperature must be > 0, got"):
        values_of(tabular(), temperature=temperature)
