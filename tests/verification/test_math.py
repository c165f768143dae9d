"""The math verifier: gold first, last box, and never an exception into the loop."""

import csv
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from accredit.types import StopReason
from accredit.verification.boxed import box_or_label
from accredit.verification.comparing import FACTORY
from accredit.verification.math import MathVerifier
from accredit.verification.pool import Failure, Outcome, Pool, Task

ANSWERBENCH = Path(__file__).parents[3] / "shared" / "data" / "imo_answerbench_v2.csv"
TOWER = r"\dfrac{5^{\left(5^{\left(5^{\left(5^5\right)}\right)} - 4\right)} - 5}{16}"

EQUAL_PAIRS = {("imo-bench-algebra-016", "imo-bench-geometry-017")}
r"""Of the shuffled pairs below, those equal in value: `\frac{1}{2}` and `0.5`."""


@pytest.fixture(scope="module")
def verifier() -> Iterator[MathVerifier]:
    shared = MathVerifier(num_workers=2)
    yield shared
    shared.close()


def gold_answers() -> dict[str, str]:
    if not ANSWERBENCH.exists():
        pytest.skip("needs ../shared/data/imo_answerbench_v2.csv")
    with ANSWERBENCH.open(encoding="utf-8") as file:
        return {r["Problem ID"]: r["Short Answer"] for r in csv.DictReader(file)}


def test_right_is_1_and_wrong_is_0(verifier: MathVerifier, item: Callable) -> None:
    verdicts = verifier.verify(
        [
            item(r"\frac{1}{2}", r"so \boxed{0.5}"),
            item(r"\frac{1}{2}", r"first \boxed{0.5}, no: \boxed{0.4}"),
            item(r"\frac{1}{2}", "it is 0.5"),
            item(r"\frac{1}{2}", r"\boxed{}"),
            item(r"\frac{1}{2}", r"\boxed{0.5}"),
        ]
    )
    assert [verdict.reward for verdict in verdicts] == [1, 0, 0, 0, 1]
    assert verdicts[2].reason == "no answer was given"
    assert verdicts[3].reason == "the answer is empty"


def test_nothing_to_score_is_none_with_a_reason(
    verifier: MathVerifier, item: Callable
) -> None:
    """Case B128: a failure of the world is not a wrong answer."""
    verdicts = verifier.verify(
        [
            item("3", r"\boxed{3}", StopReason.FAILURE),
            item(None, r"\boxed{3}"),
            item("$$", r"\boxed{3}"),
            item("$$", r"\boxed{$$}"),
            item("3", r"\boxed{3}", StopReason.LENGTH),
        ]
    )
    assert [verdict.reward for verdict in verdicts] == [None, None, None, None, 1]
    assert all(verdict.reason for verdict in verdicts[:4])


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        ("Monday", "monday", "Tuesday"),
        ("Yes", r"\text{yes}", "No"),
        ("Smith", "**Smith**", "Smyth"),
        ("3:30 pm", "3:30 PM", "3:30 am"),
        (r"1,2,\ldots,9", "1,2,...,9", "1,2,9"),
        ("x>3", "3<x", "x^2"),
        ("odd n", "odd $n$", "even n"),
        ("7", "7.0", r"7 \unknown"),
        ("7", "7 m", "seven"),
        ("(0,1)", "0<x<1", r"\begin{cases} 0 \\ 1 \end{cases}"),
        ("x" * 3000, "x" * 3000, "y"),
    ],
)
def test_what_cannot_be_told_is_0_and_no_escape(
    verifier: MathVerifier, item: Callable, gold: str, right: str, wrong: str
) -> None:
    items = [item(gold, rf"\boxed{{{text}}}") for text in (right, wrong)]
    verdicts = verifier.verify(items)
    assert [verdict.reward for verdict in verdicts] == [1, 0]
    assert verdicts[1].reason


def test_b122_a_power_tower_is_0_within_six_seconds(
    verifier: MathVerifier, item: Callable
) -> None:
    """Case B122, and the pool is alive afterwards."""
    started = time.monotonic()
    verdicts = verifier.verify(
        [item("3", rf"\boxed{{{TOWER}}}"), item(TOWER, r"\boxed{3}")]
    )
    assert time.monotonic() - started < 6.0
    assert [verdict.reward for verdict in verdicts] == [0, 0]
    assert verifier.verify([item("3", r"\boxed{6/2}")])[0].reward == 1


def test_b123_a_right_answer_scores_1_in_a_thread(
    verifier: MathVerifier, item: Callable
) -> None:
    """Case B123."""
    rewards: list[float | None] = []
    thread = threading.Thread(
        target=lambda: rewards.append(
            verifier.verify([item("8", r"\boxed{2^3}")])[0].reward
        )
    )
    thread.start()
    thread.join()
    assert rewards == [1.0]


FAULTY = """
import os, time

def comparer():
    return call

def call(milestone, gold, answer):
    if gold == "fatal":
        os._exit(9)
    if gold == "endless":
        time.sleep(60)
    milestone("gold read")
    if answer == "hang":
        time.sleep(60)
    if answer == "die":
        os._exit(9)
    if answer == "eat":
        raise SystemExit("no memory is left")
    return {"equal": answer == "14/2", "reason": "by a stand-in"}
"""


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MathVerifier]:
    """One whose checker hangs or ends at certain texts."""
    (tmp_path / "faulty.py").write_text(FAULTY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("accredit.verification.math.FACTORY", "faulty:comparer")
    made = MathVerifier(num_workers=1, timeout_s=1.0)
    yield made
    made.close()


def test_b126_a_hanging_simplify_is_0_at_the_limit(
    faulty: MathVerifier, item: Callable
) -> None:
    """Case B126."""
    verdict = faulty.verify([item("7", r"\boxed{hang}")])[0]
    assert verdict.reward == 0.0
    assert verdict.reason == "the answer took longer than 1 s"


def test_an_answer_that_ends_the_checker_is_0_and_a_gold_answer_none(
    faulty: MathVerifier, item: Callable
) -> None:
    verdicts = faulty.verify(
        [
            item("7", r"\boxed{die}"),
            item("7", r"\boxed{eat}"),
            item("fatal", r"\boxed{7}"),
            item("endless", r"\boxed{7}"),
            item("7", r"\boxed{14/2}"),
        ]
    )
    assert [verdict.reward for verdict in verdicts] == [0, 0, None, None, 1]
    assert "ended the checker twice" in verdicts[0].reason
    assert all(verdict.reason for verdict in verdicts[:4])


def test_a_worker_that_the_world_kills_is_asked_again(
    faulty: MathVerifier, item: Callable
) -> None:
    assert faulty.verify([item("7", r"\boxed{8}")])[0].reward == 0
    for answer, reward in (("14/2", 1), ("15/2", 0)):
        for worker in faulty._pool.worker_ids():
            os.kill(worker, 9)
        verdict = faulty.verify([item("7", rf"\boxed{{{answer}}}")])[0]
        assert (verdict.reward, verdict.reason != "") == (reward, True)


def test_a_world_that_kills_every_worker_gives_none(
    verifier: MathVerifier, item: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killing(calls: list, timeout_s: float) -> list[Outcome]:
        return [Outcome(None, Failure.CRASH, "the process died") for _ in calls]

    monkeypatch.setattr(verifier._pool, "run", killing)
    verdict = verifier.verify([item("3", r"\boxed{6/2}")])[0]
    assert verdict.reward is None
    assert "the process died" in verdict.reason


def test_b135_where_the_answer_is_said_can_be_chosen(item: Callable) -> None:
    """Case B135."""
    labelled = MathVerifier(extract=box_or_label)
    assert labelled.verify([item("73", "Final Answer: **73**")])[0].reward == 1
    labelled.close()


def test_hostile_texts_get_verdicts(verifier: MathVerifier, item: Callable) -> None:
    texts = [
        "a\ud835b",
        "9" * 100_000,
        r"\sqrt{" * 300 + "2" + "}" * 300,
        r"\frac" * 300,
        "\x00\x01",
        "__import__('os').system('true')",
        r"\text{" * 200 + "}" * 200,
        "*" * 1900,
    ]
    verdicts = verifier.verify([item("7", rf"\boxed{{{text}}}") for text in texts])
    assert [verdict.reward for verdict in verdicts] == [0.0] * len(texts)


def test_all_400_gold_answers_verify_against_themselves(
    verifier: MathVerifier, item: Callable
) -> None:
    golds = list(gold_answers().values())
    noisy = [item(gold, rf"Thus \boxed{{ {gold.strip()}. }} QED") for gold in golds]
    verdicts = verifier.verify(noisy)
    assert len(golds) == 400
    assert [g for g, v in zip(golds, verdicts, strict=True) if v.reward != 1] == []


def test_400_shuffled_answers_do_not_verify(
    verifier: MathVerifier, item: Callable
) -> None:
    golds = gold_answers()
    ids = list(golds)
    draw, shuffled = random.Random(8), list(ids)
    while any(a == b for a, b in zip(ids, shuffled, strict=True)):
        draw.shuffle(shuffled)
    pairs = list(zip(ids, shuffled, strict=True))
    verdicts = verifier.verify(
        [item(golds[a], rf"\boxed{{{golds[b]}}}") for a, b in pairs]
    )
    rewards = {p: v.reward for p, v in zip(pairs, verdicts, strict=True)}
    assert {p for p, reward in rewards.items() if reward == 1} == EQUAL_PAIRS
    assert None not in rewards.values()


def test_a_worker_imports_no_torch(tmp_path: Path) -> None:
    (tmp_path / "looking.py").write_text(
        "import sys\n"
        "from accredit.verification.comparing import comparer\n"
        "def looking():\n"
        "    comparer()\n"
        "    heavy = {'torch', 'transformers', 'sympy'}\n"
        "    return lambda _: sorted(heavy & {*sys.modules})\n"
    )
    assert FACTORY == "accredit.verification.comparing:comparer"
    task = Task("looking:looking", import_path=(str(tmp_path), *sys.path))
    with Pool(task, 1) as pool:
        assert pool.run([[]], 20.0)[0].value == ["sympy"]


def test_a_limit_must_be_positive() -> None:
    with pytest.raises(ValueError, match="timeout_s must be > 0, got 0"):
        MathVerifier(timeout_s=0.0)
