"""A user's reward function: every way it can go wrong is a verdict that says so."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType

import pytest

from accredit.types import Message, Problem, StopReason
from accredit.verification.function import FunctionVerifier
from accredit.verification.user_function import MessageRecord, ProblemRecord

REWARDS = """
from fractions import Fraction
import numpy as np

VALUES = {
    "bool": True, "int": 3, "float": 0.25, "float32": np.float32(0.5),
    "int64": np.int64(2), "np_bool": np.bool_(True), "fraction": Fraction(1, 4),
    "none": None, "nan": float("nan"), "inf": np.float64("inf"), "list": [1.0],
    "pair": (1.0, 2.0), "text": "1.0", "array": np.array([1.0, 2.0]),
    "huge": 10**400, "complex": 1j,
}

def reward(completion, problem):
    return VALUES[completion]

def rewards(completion, problem):
    return [1.0]

def _hidden(completion, problem):
    return 1.0
"""

TEXTS = """
import os, sys, time

def length(completion, problem):
    if completion == "error":
        raise RuntimeError("judge \\ud835 down")
    if completion == "exit":
        sys.exit(1)
    if completion == "die":
        os._exit(1)
    if completion == "sleep":
        time.sleep(60)
    print("noise")
    return len(completion)

async def later(completion, problem):
    return 1.0

def about(completion, problem):
    parts = (problem.id, problem.messages[0].role, problem.messages[0].content,
             problem.answer, problem.split, problem.metadata["deep"]["list"][1])
    return float(parts == ("p1", "user", "2+2?", "4", "hard", 7))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("user")
    (path / "my_rewards.py").write_text(REWARDS)
    (path / "my_texts.py").write_text(TEXTS)
    (path / "no_dependency.py").write_text("import surely_not_installed\n")
    (path / "bad_syntax.py").write_text("def reward(:\n")
    return path


@pytest.fixture(scope="module")
def named(folder: Path) -> Iterator[Callable[..., FunctionVerifier]]:
    """Verifiers made in a user's folder, importable because it is the current one."""
    made: dict[str, FunctionVerifier] = {}

    def build(name: str, **fields: object) -> FunctionVerifier:
        key = f"{name} {fields}"
        if key not in made:
            with contextlib.chdir(folder):
                made[key] = FunctionVerifier(name, **fields)
        return made[key]

    yield build
    for verifier in made.values():
        verifier.close()


def test_one_number_of_any_kind_is_a_reward(named: Callable, item: Callable) -> None:
    kinds = ["bool", "int", "float", "float32", "int64", "np_bool", "fraction"]
    verdicts = named("my_rewards:reward").verify([item("4", kind) for kind in kinds])
    assert [v.reward for v in verdicts] == [1.0, 3.0, 0.25, 0.5, 2.0, 1.0, 0.25]


def test_b040_b142_anything_else_is_none_and_names_the_function(
    named: Callable, item: Callable
) -> None:
    """Cases B039, B040 and B142: None, NaN, wrong number of values."""
    said = {
        "none": "returned None",
        "nan": "must return a finite number or None, got nan",
        "inf": "must return a finite number or None, got inf",
        "list": "must return one number or None, got a list of 1 values",
        "pair": "must return one number or None, got a tuple of 2 values",
        "text": "must return one number or None, got str '1.0'",
        "array": "must return one number or None, got ndarray array([1., 2.])",
        "huge": "must return a number a float can hold",
        "complex": "must return one number or None, got complex 1j",
    }
    verdicts = named("my_rewards:reward").verify([item("4", kind) for kind in said])
    assert [verdict.reward for verdict in verdicts] == [None] * len(said)
    assert [verdict.reason for verdict in verdicts] == [
        f"reward function 'my_rewards:reward' {story}" for story in said.values()
    ]


def test_b128_a_raising_function_costs_its_own_item_only(
    named: Callable, item: Callable
) -> None:
    """Case B128: group [1, error, 0] keeps its other two."""
    verdicts = named("my_texts:length").verify(
        [item("4", text) for text in ("a", "error", "", "exit", "die", "bb")]
    )
    assert [v.reward for v in verdicts] == [1.0, None, 0.0, None, None, 2.0]
    assert "raised RuntimeError: judge \ufffd down" in verdicts[1].reason
    assert "raised SystemExit" in verdicts[3].reason
    assert "ended its process" in verdicts[4].reason


def test_b124_a_hanging_function_is_killed_and_the_next_item_served(
    named: Callable, item: Callable
) -> None:
    """Case B124."""
    verifier = named("my_texts:length", timeout_s=1.0)
    verifier.verify([item("4", "warm")])
    started = time.monotonic()
    verdicts = verifier.verify([item("4", "sleep"), item("4", "abc")])
    assert time.monotonic() - started < 5.0
    assert [verdict.reward for verdict in verdicts] == [None, 3.0]
    assert verdicts[0].reason.endswith("took longer than 1 s")


def test_an_awaitable_is_not_a_number(named: Callable, item: Callable) -> None:
    verdict = named("my_texts:later").verify([item("4", "x")])[0]
    assert verdict.reason.endswith("must return one number or None, got a coroutine")


def test_the_function_sees_the_whole_problem(named: Callable, item: Callable) -> None:
    metadata = MappingProxyType({"deep": MappingProxyType({"list": (1, 7)})})
    asked = item("4", "x", split="hard", metadata=metadata)
    assert named("my_texts:about").verify([asked])[0].reward == 1.0


def test_the_record_has_the_fields_of_a_problem() -> None:
    def names(kind: type) -> list[str]:
        return [field.name for field in dataclasses.fields(kind)]

    assert names(ProblemRecord) == names(Problem)
    assert names(MessageRecord) == names(Message)


def test_b168_the_function_gets_text_it_can_encode(
    named: Callable, item: Callable
) -> None:
    """Case B168: U+FFFD is one character, so the length stays."""
    assert named("my_texts:length").verify([item("4", "a\ud835b")])[0].reward == 3


def test_a_failed_rollout_is_not_shown_to_the_function(
    named: Callable, item: Callable
) -> None:
    asked = [item("4", "ab", StopReason.FAILURE), item("4", "ab")]
    verdicts = named("my_texts:length").verify(asked)
    assert [verdict.reward for verdict in verdicts] == [None, 2.0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "my_rewards.reward",
            "must be named 'module:function', got 'my_rewards.reward'",
        ),
        ("my_rewards:", "must be named 'module:function'"),
        ("os; x:reward", "must be named 'module:function'"),
    ],
)
def test_a_name_of_another_form_is_refused_at_once(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FunctionVerifier(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_rewads:reward", "needs a module 'my_rewads', which was not found"),
        (
            "my_rewards:rewrd",
            r"functions are \['reward', 'rewards'\]; did you ",
        ),
        ("my_rewards:VALUES", "must exist, got a module whose functions are"),
        ("no_dependency:reward", "ModuleNotFoundError: .*surely_not_installed"),
        ("bad_syntax:reward", "must import, got SyntaxError"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_explained(
    named: Callable, item: Callable, name: str, message: str
) -> None:
    verifier = named(name)
    with pytest.raises(ValueError, match=message):
        verifier.check()
    verdict = verifier.verify([item("4", "x")])[0]
    assert verdict.reward is None
    assert "could not be loaded" in verdict.reason


def test_a_function_that_loads_passes_the_check(named: Callable) -> None:
    verifier = named("my_rewards:reward")
    assert verifier.check() is None


def test_a_limit_must_be_positive() -> None:
    with pytest.raises(ValueError, match="timeout_s must be > 0, got -1"):
        FunctionVerifier("m:f", timeout_s=-1.0)
