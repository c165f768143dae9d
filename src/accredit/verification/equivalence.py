r"""Whether an answer is worth what the gold answer is worth: yes, no, or cannot tell.

Runs inside a killable worker. Structure is compared here; symbolic equality is
math-verify's. Conventions, each of them a choice:

- A bare list is unordered, a parenthesised one ordered; either may omit its brackets.
- `(a,b)` is a pair or an open interval, whichever the gold answer meant, and never
  `[a,b]`. An inequality in one variable is its interval: `0<x<1` is `(0,1)`.
- `x=5` and `5` are equal, `x=5` and `y=5` are not. Letters keep their case.
- A decimal is exact, unless the other side has no finite decimal: then one part in a
  million decides, so that 0.333333 is 1/3 and 0.333 is not.
- 50% is 50 and 0.5; 90 degrees is 90. A unit may be left out, but not exchanged.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

import sympy
from math_verify import verify
from sympy import Expr, Float, MatrixBase, Rational, Symbol

from accredit.verification.normalize import spelling
from accredit.verification.reading import (
    Collection,
    Quantity,
    Reading,
    Relation,
    Unreadable,
    Unsupported,
    Value,
    expression,
    read,
)

_DECIMAL_TOLERANCE = Rational(1, 10**6)
_EXACT_TOLERANCE = Rational(1, 10**40)
_DIGITS = 50
_IMAGINARY = Symbol("i", real=True)
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}


class CannotTell(Exception):
    """Both answers are readable, but not comparable; the message says why."""


@dataclass(frozen=True)
class Comparison:
    """`equal` is None where nobody can tell; then, and on a no, `reason` says why."""

    equal: bool | None
    reason: str = ""


def math_equal(
    gold: str, answer: str, gold_read: Callable[[], None] = lambda: None
) -> Comparison:
    """Whether `answer` equals `gold`, which comes first: the gold answer's form rules.

    Reflexive by spelling. A gold answer that is prose equals its own words only, and
    anything else gives None. May hang or exhaust memory: call it in a worker.

    Args:
        gold: The answer to compare with.
        answer: What a completion claims.
        gold_read: Called once `gold` is evaluated: a later hang is the answer's fault.
    """
    if spelling(gold) == spelling(answer):
        return Comparison(True)
    try:
        gold_reading = read(gold)
    except Unreadable as error:
        if spelling(gold).casefold() == spelling(answer).casefold():
            return Comparison(True)
        return Comparison(None, f"cannot compare with the gold answer: {error}")
    for value in _values(gold_reading):
        _exact(value)
    gold_read()
    try:
        equal = _equal(gold_reading, read(answer))
        return Comparison(equal, "" if equal else "not equal to the gold answer")
    except Unsupported as error:
        if _is_plain(gold_reading):
            return Comparison(False, f"not a plain value: {error}")
        return Comparison(None, f"cannot read the answer: {error}")
    except Unreadable as error:
        return Comparison(False, f"cannot read the answer: {error}")
    except CannotTell as error:
        return Comparison(None, str(error))
    except (MemoryError, OverflowError, RecursionError):
        return Comparison(False, "the answer's value is too large")
    except Exception as error:
        return Comparison(False, f"the comparison failed: {type(error).__name__}")


def _values(reading: Reading) -> Iterator[Value]:
    """Every expression in it."""
    if isinstance(reading, Collection):
        for item in reading.items:
            yield from _values(item)
    elif isinstance(reading, Relation):
        yield from reading.operands
    else:
        yield reading.value


def _is_plain(reading: Reading) -> bool:
    return not any(value.free_symbols for value in _values(reading))


def _equal(gold: Reading, answer: Reading) -> bool:
    if isinstance(gold, Relation) or isinstance(answer, Relation):
        return _equal_relations(gold, answer)
    if gold.label and answer.label and gold.label != answer.label:
        return False
    if isinstance(gold, Collection) or isinstance(answer, Collection):
        return _equal_collections(gold, answer)
    if gold.unit and answer.unit and gold.unit.rstrip("s") != answer.unit.rstrip("s"):
        raise CannotTell(f"the units {gold.unit!r} and {answer.unit!r} differ")
    if _equal_values(gold.value, answer.value):
        return True
    if gold.percent == answer.percent:
        return False
    if gold.percent:
        return _equal_values(_hundredth(gold.value), answer.value)
    return _equal_values(gold.value, _hundredth(answer.value))


def _hundredth(value: Any) -> Any:
    return value / 100


def _equal_collections(
    gold: Quantity | Collection, answer: Quantity | Collection
) -> bool:
    gold_brackets, gold_items = _parts(gold)
    answer_brackets, answer_items = _parts(answer)
    pair = {gold_brackets, answer_brackets}
    if r"\cup" in pair or _is_set(gold) or _is_set(answer):
        return _equal_sets(gold, answer)
    if pair <= {"", r"\{\}"}:
        return _equal_unordered(gold_items, answer_items)
    if gold_brackets != answer_brackets and pair != {"", "()"}:
        return False
    return len(gold_items) == len(answer_items) and all(
        _equal(a, b) for a, b in zip(gold_items, answer_items, strict=True)
    )


def _parts(reading: Quantity | Collection) -> tuple[str, tuple[Reading, ...]]:
    if isinstance(reading, Collection):
        return reading.brackets, reading.items
    return "", (reading,)


def _is_set(reading: Quantity | Collection) -> bool:
    return isinstance(reading, Quantity) and isinstance(reading.value, sympy.Set)


def _equal_unordered(gold: tuple[Reading, ...], answer: tuple[Reading, ...]) -> bool:
    if len(gold) != len(answer):
        return False
    left = list(answer)
    for item in gold:
        match = next((other for other in left if _equal(item, other)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _equal_sets(gold: Quantity | Collection, answer: Quantity | Collection) -> bool:
    values = [expression(_without_label(reading)) for reading in (gold, answer)]
    if not all(isinstance(value, sympy.Set) for value in values):
        return False
    return _verified(values[0], values[1])


def _without_label(reading: Quantity | Collection) -> str:
    if not reading.label:
        return reading.text
    return re.split(r"=|\\in(?![a-zA-Z])", reading.text)[-1]


def _equal_relations(gold: Reading, answer: Reading) -> bool:
    pair = (_as_relation(gold), _as_relation(answer))
    if pair[0] is not None and pair[1] is not None:
        return _equal_signed(pair[0], pair[1])
    if _is_equation(gold) or _is_equation(answer):
        return _equal_to_last_side(gold, answer)
    intervals = [_as_interval(reading) for reading in (gold, answer)]
    if intervals[0] is None or intervals[1] is None:
        raise CannotTell("one answer is a relation, the other is not")
    return _equal_collections(intervals[0], intervals[1])


def _is_equation(reading: Reading) -> bool:
    return isinstance(reading, Relation) and set(reading.signs) == {"="}


def _as_relation(reading: Reading) -> Relation | None:
    """A relation as it is, and `y = 2x` as one too, although `y` reads as a label."""
    if isinstance(reading, Relation):
        return reading
    if isinstance(reading, Quantity) and "=" in reading.text:
        sides = (expression(reading.label), reading.value)
        return Relation(reading.text, sides, (reading.label, ""), ("=",))
    return None


def _equal_to_last_side(gold: Reading, answer: Reading) -> bool:
    """An answer such as `10/2 = 5` counts as 5 where its sides are one number."""
    if not isinstance(answer, Relation) or not isinstance(gold, Quantity):
        return False
    sides = answer.operands
    if any(side.free_symbols for side in sides):
        return False
    consistent = all(_equal_values(sides[0], side) for side in sides[1:])
    return consistent and _equal_values(gold.value, sides[-1])


def _as_interval(reading: Reading) -> Quantity | Collection | None:
    """The interval an inequality in one variable describes; others as they are."""
    if not isinstance(reading, Relation):
        return reading
    operands, signs = list(reading.operand_texts), list(reading.signs)
    if any(sign in ("=", "!=") for sign in signs):
        return None
    if all(sign in (">", ">=") for sign in signs):
        operands, signs = operands[::-1], [_MIRRORED[sign] for sign in signs[::-1]]
    if any(sign in (">", ">=") for sign in signs):
        return None
    if len(operands) == 2:
        if isinstance(expression(operands[0]), Symbol):
            operands, signs = [r"-\infty", *operands], ["<", *signs]
        else:
            operands, signs = [*operands, r"\infty"], [*signs, "<"]
    if len(operands) != 3 or not isinstance(expression(operands[1]), Symbol):
        return None
    opening = "(" if signs[0] == "<" else "["
    closing = ")" if signs[1] == "<" else "]"
    interval = read(f"{opening}{operands[0]},{operands[2]}{closing}")
    return None if isinstance(interval, Relation) else interval


def _equal_signed(gold: Relation, answer: Relation) -> bool:
    if len(gold.operands) != len(answer.operands):
        return False
    if len(gold.operands) > 2:
        return _equal_chains(gold, answer) or _equal_chains(gold, _mirrored(answer))
    if gold.signs != answer.signs:
        answer = _mirrored(answer)
    if gold.signs != answer.signs:
        return False
    if any(isinstance(side, MatrixBase) for side in gold.operands + answer.operands):
        return _equal_chains(gold, answer)
    ratio = sympy.simplify(_difference(gold) / _difference(answer))
    if not ratio.is_number or ratio.is_zero or not ratio.is_finite:
        return False
    return gold.signs[0] in ("=", "!=") or bool(ratio > 0)


def _difference(relation: Relation) -> Expr:
    left, right = relation.operands
    return _exact(left) - _exact(right)


def _mirrored(relation: Relation) -> Relation:
    return Relation(
        relation.text,
        relation.operands[::-1],
        relation.operand_texts[::-1],
        tuple(_MIRRORED[sign] for sign in relation.signs[::-1]),
    )


def _equal_chains(gold: Relation, answer: Relation) -> bool:
    return gold.signs == answer.signs and all(
        _equal_values(a, b) for a, b in zip(gold.operands, answer.operands, strict=True)
    )


def _equal_values(gold: Value, answer: Value) -> bool:
    if gold == answer:
        return True
    if _is_number(gold) and _is_number(answer):
        return _equal_numbers(gold, answer)
    a, b = _exact(gold), _exact(answer)
    if _equal_somewhere(a, b) and _verified(a, b):
        return True
    if _IMAGINARY not in a.free_symbols & b.free_symbols:
        return False
    return _equal_values(a.subs(_IMAGINARY, sympy.I), b.subs(_IMAGINARY, sympy.I))


def _verified(gold: Value, answer: Value) -> bool:
    return bool(verify(gold, answer, timeout_seconds=None))


def _equal_somewhere(gold: Value, answer: Value) -> bool:
    """False where one numeric sample proves two expressions different.

    It spares the proof, which takes math-verify up to half a minute for a wrong answer.
    The sample is whole, since many formulas are meant for whole numbers only.
    """
    if not (isinstance(gold, Expr) and isinstance(answer, Expr)):
        return True
    symbols = sorted(gold.free_symbols | answer.free_symbols, key=str)
    sample: dict[Any, Any] = dict(zip(symbols, sympy.primerange(7, None), strict=False))
    a, b = (value.evalf(_DIGITS, subs=sample) for value in (gold, answer))
    if not (a.is_number and b.is_number and a.is_finite and b.is_finite):
        return True
    return bool(abs(a - b) <= _DECIMAL_TOLERANCE * max(abs(a), abs(b)))


def _is_number(value: Value) -> TypeGuard[Expr]:
    return isinstance(value, Expr) and bool(value.is_number)


def _equal_numbers(gold: Expr, answer: Expr) -> bool:
    decimals = [value.has(Float) for value in (gold, answer)]
    a, b = _exact(gold), _exact(answer)
    if a == b:
        return True
    if a.is_infinite or b.is_infinite:
        return False
    rational = isinstance(a, Rational) and isinstance(b, Rational)
    if rational and (all(decimals) or not any(decimals)):
        return False
    if rational and _is_terminating(a) and _is_terminating(b):
        return False
    tolerance = _DECIMAL_TOLERANCE if any(decimals) else _EXACT_TOLERANCE
    if not rational:
        a, b = sympy.N(a, _DIGITS), sympy.N(b, _DIGITS)
    if abs(a - b) <= tolerance * max(abs(a), abs(b)):
        return True
    return (a == 0 or b == 0) and _verified(gold, answer)


def _exact(value: Value) -> Any:
    """`value` evaluated, with every decimal as the fraction it is written as."""
    floats = {number: Rational(str(number)) for number in value.atoms(Float)}
    return value.xreplace(floats).doit()


def _is_terminating(value: Rational) -> bool:
    remainder = int(value.q)
    for prime in (2, 5):
        while remainder % prime == 0:
            remainder //= prime
    return remainder == 1
