r"""Whether an answer is worth what the gold answer is worth: yes or no, with a reason.

Runs inside a killable worker. A gold answer that is no mathematics is text: equal words
equal it and nothing else does. Conventions, each of them a choice:

- A bare list is unordered, a parenthesised one ordered; either may omit its brackets.
  In braces, and among tuples, repeats do not count. Values of differently named
  quantities without their names keep the gold answer's order.
- `(a,b)` is a pair or an open interval, whichever the gold answer meant, and never
  `[a,b]`. An inequality in one variable is its interval: `0<x<1` is `(0,1)`.
- `x=5` and `5` are equal, `x=5` and `y=5` are not. Letters keep their case.
- 50% is 50 and 0.5, but 0.5 is not 0.5%. A unit may be left out; two units are
  converted where they measure the same, and differ otherwise.
- A numeral with a base equals such numerals only, a ratio ratios, and a time times.
- A letter of a multiple choice may be followed by its text.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from accredit.verification.arithmetic import Unreadable
from accredit.verification.choices import choice, names_another
from accredit.verification.comparison import equal_readings
from accredit.verification.reading import read_tokens
from accredit.verification.readings import Reading
from accredit.verification.tokens import Token, spelled, tokenize


@dataclass(frozen=True)
class Comparison:
    """`equal` is None for an empty gold answer only; on a no, `reason` says why."""

    equal: bool | None
    reason: str = ""


def math_equal(
    gold: str, answer: str, gold_read: Callable[[], None] = lambda: None
) -> Comparison:
    """Whether `answer` equals `gold`, which comes first: the gold answer's form rules.

    Reflexive by spelling. What cannot be read, or cannot be shown to be equal, is not
    equal. May hang or exhaust memory: call it in a worker.

    Args:
        gold: The answer to compare with.
        answer: What a completion claims.
        gold_read: Called once `gold` is evaluated: a later hang is the answer's fault.
    """
    gold_tokens, answer_tokens = tokenize(gold), tokenize(answer)
    if not gold_tokens:
        return Comparison(None, "the gold answer is empty")
    gold_reading, story = _gold_reading(gold_tokens)
    gold_read()
    if spelled(gold_tokens) == spelled(answer_tokens):
        return Comparison(True)
    try:
        if _equal(gold_tokens, gold_reading, answer_tokens):
            return Comparison(True)
        if gold_reading is None:
            return Comparison(False, f"not the gold answer's text, {story}")
        return Comparison(False, "not equal to the gold answer")
    except Unreadable as error:
        return Comparison(False, f"cannot read the answer: {error}")
    except (MemoryError, OverflowError, RecursionError):
        return Comparison(False, "the answer's value is too large")
    except Exception as error:
        return Comparison(False, f"the comparison failed: {type(error).__name__}")


def _gold_reading(tokens: Sequence[Token]) -> tuple[Reading | None, str]:
    """None, and why, where it is text."""
    try:
        return read_tokens(tokens), ""
    except Unreadable as error:
        return None, f"which is no mathematics: {error}"
    except RecursionError:
        return None, "which is nested too deep"


def _equal(
    gold: Sequence[Token], gold_reading: Reading | None, answer: Sequence[Token]
) -> bool:
    of_gold, of_answer = choice(gold), choice(answer)
    if of_gold is not None and of_answer is not None:
        if of_gold.letter != of_answer.letter:
            return False
        if not of_gold.rest or not of_answer.rest:
            return not names_another(of_answer)
        return _equal_parts(of_gold.rest, of_answer.rest)
    if of_gold is not None and of_gold.rest:
        return _equal_parts(of_gold.rest, answer)
    if of_answer is not None and of_answer.rest:
        if names_another(of_answer):
            return False
        return _equal_parts(gold, of_answer.rest)
    if gold_reading is None:
        return False
    return equal_readings(gold_reading, read_tokens(answer))


def _equal_parts(gold: Sequence[Token], answer: Sequence[Token]) -> bool:
    if spelled(gold) == spelled(answer):
        return True
    gold_reading, _ = _gold_reading(gold)
    return gold_reading is not None and equal_readings(
        gold_reading, read_tokens(answer)
    )
