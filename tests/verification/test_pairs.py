"""The table `pairs.txt`: gold answer, answer, and 1 or 0; most are near misses."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from accredit.verification.equivalence import math_equal

TABLE = Path(__file__).with_name("pairs.txt")


def sections() -> Iterator[tuple[str, list[tuple[str, str, bool]]]]:
    for section in re.split(r"(?m)^# ", TABLE.read_text(encoding="utf-8"))[1:]:
        title, *lines = section.strip().splitlines()
        rows = [line.split(" || ") for line in lines]
        yield title, [(gold, answer, verdict == "1") for gold, answer, verdict in rows]


KINDS = dict(sections())


@pytest.mark.parametrize("kind", KINDS)
def test_every_pair_gets_its_verdict_and_a_wrong_one_its_reason(kind: str) -> None:
    for gold, answer, expected in KINDS[kind]:
        comparison = math_equal(gold, answer)
        assert (gold, answer, comparison.equal) == (gold, answer, expected)
        assert bool(comparison.reason) is not expected


def test_every_gold_answer_of_the_table_equals_itself() -> None:
    golds = {gold for rows in KINDS.values() for gold, _, _ in rows}
    assert {gold for gold in golds if not math_equal(gold, f" {gold}. ").equal} == set()


def test_the_table_is_large_and_mostly_wrong() -> None:
    verdicts = [expected for rows in KINDS.values() for _, _, expected in rows]
    assert len(verdicts) >= 300
    assert verdicts.count(False) > verdicts.count(True) >= 150
