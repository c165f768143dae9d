"""Two readings with one meaning: quantities, collections, relations, labels."""

import re
from collections.abc import Sequence
from typing import Any

import sympy
from sympy import Expr, MatrixBase, Rational, Symbol

from accredit.verification.readings import (
    Collection,
    Labelled,
    Numeral,
    Quantity,
    Ratio,
    Reading,
    Region,
    Relation,
    Rounded,
)
from accredit.verification.regions import solutions, unknown
from accredit.verification.values import equal, factor_between

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_SETS = (r"\{\}", "{}")
_MAX_PLACES = 30


def equal_readings(gold: Reading, answer: Reading) -> bool:
    """Whether they mean the same."""
    if isinstance(gold, Rounded):
        near = _is_near(gold) and equal_readings(gold.about, answer)
        return equal_readings(gold.exact, answer) or near
    if isinstance(answer, Rounded):
        near = _is_near(answer) and equal_readings(gold, answer.about)
        return equal_readings(gold, answer.exact) or near
    if isinstance(gold, Labelled) or isinstance(answer, Labelled):
        return _equal_labelled(gold, answer)
    if isinstance(gold, Relation) and isinstance(answer, Relation):
        return _equal_relations(gold, answer) or (
            unknown(gold) == unknown(answer) and _equal_regions(gold, answer)
        )
    if isinstance(gold, Relation) or isinstance(answer, Relation):
        return _equal_regions(gold, answer)
    if isinstance(gold, Numeral) or isinstance(answer, Numeral):
        return gold == answer
    if isinstance(gold, Ratio) or isinstance(answer, Ratio):
        return (
            isinstance(gold, Ratio)
            and isinstance(answer, Ratio)
            and _equal_ratios(gold, answer)
        )
    if isinstance(gold, Region) or isinstance(answer, Region):
        return _equal_regions(gold, answer)
    if isinstance(gold, Collection) or isinstance(answer, Collection):
        joined = _is_condition(gold) != _is_condition(answer)
        compared = _equal_regions if joined else _equal_collections
        return compared(gold, answer)
    return _equal_quantities(gold, answer)


def _is_condition(reading: Reading) -> bool:
    """Whether it is several inequalities joined by a word."""
    return (
        isinstance(reading, Collection)
        and reading.joined in ("and", "or")
        and all(isinstance(item, Relation) for item in reading.items)
    )


def _is_near(rounded: Rounded) -> bool:
    r"""Whether an approximation is a rounding: `41 \approx 42` is two answers."""
    exact, about = rounded.exact, rounded.about
    if isinstance(exact, Labelled):
        exact = exact.body
    if not (isinstance(exact, Quantity) and isinstance(about, Quantity)):
        return False
    number, rounding = exact.value, about.value
    if not (isinstance(number, Expr) and number.is_real):
        return False
    if not isinstance(rounding, Rational):
        return False
    places = (n for n in range(_MAX_PLACES) if (rounding * 10**n).is_integer)
    place = next(places, None)
    return place is not None and bool(abs(number - rounding) * 10**place * 2 <= 1)


def _equal_labelled(gold: Reading, answer: Reading) -> bool:
    if isinstance(gold, Collection) or isinstance(answer, Collection):
        gold, answer = _spread(gold), _spread(answer)
        if isinstance(gold, Collection) and isinstance(answer, Collection):
            return _equal_collections(gold, answer)
    if isinstance(gold, Labelled) and isinstance(answer, Labelled):
        if gold.label == answer.label:
            return equal_readings(gold.body, answer.body)
        if _renamed(gold.label, gold.letters) == _renamed(answer.label, answer.letters):
            return _equal_functions(gold, answer)
    pair = (_as_relation(gold), _as_relation(answer))
    if pair[0] is not None and pair[1] is not None:
        return _equal_relations(pair[0], pair[1])
    if isinstance(gold, Labelled) and isinstance(answer, Labelled):
        return False
    if isinstance(gold, Labelled):
        return _names_no_other(gold, answer) and equal_readings(gold.body, answer)
    assert isinstance(answer, Labelled)
    return _names_no_other(answer, gold) and equal_readings(gold, answer.body)


def _spread(reading: Reading) -> Reading:
    """`(x,y)=(2,3)` as `x=2, y=3`."""
    if not isinstance(reading, Labelled) or not isinstance(reading.body, Collection):
        return reading
    names, items = reading.parts, reading.body.items
    if reading.body.brackets != "()" or len(names) != len(items):
        return reading
    pairs = zip(names, items, strict=True)
    return Collection("", tuple(Labelled(name, (), item) for name, item in pairs))


def _names_no_other(labelled: Labelled, other: Reading) -> bool:
    """False for a relation in another variable than the label."""
    if not isinstance(other, Relation):
        return True
    name = re.sub(r"[\\{} ]", "", labelled.label)
    return name == re.sub(r"[\\{} ]", "", str(unknown(other)))


def _as_relation(reading: Reading) -> Relation | None:
    return (
        reading.equation
        if isinstance(reading, Labelled)
        else (reading if isinstance(reading, Relation) else None)
    )


def _renamed(name: str, letters: Sequence[str]) -> str:
    """A function's label without the names of its variables; unique without any."""
    if not letters:
        return name
    return f"{name.partition('(')[0]}({len(letters)}"


def _equal_functions(gold: Labelled, answer: Labelled) -> bool:
    if not (isinstance(gold.body, Quantity) and isinstance(answer.body, Quantity)):
        return equal_readings(gold.body, answer.body)
    others = {Symbol(letter) for letter in gold.letters} - {
        Symbol(letter) for letter in answer.letters
    }
    value = answer.body.value
    if others & value.free_symbols:
        return False
    names = zip(answer.letters, gold.letters, strict=True)
    value = value.subs({Symbol(a): Symbol(b) for a, b in names}, simultaneous=True)
    return equal_readings(gold.body, Quantity(value, answer.body.is_decimal))


def _equal_ratios(gold: Ratio, answer: Ratio) -> bool:
    if len(gold.parts) != len(answer.parts):
        return False
    if gold.is_clock and answer.is_clock:
        return all(
            a.value == b.value for a, b in zip(gold.parts, answer.parts, strict=True)
        )
    first = (gold.parts[0].value, answer.parts[0].value)
    if any(isinstance(part.value, MatrixBase) for part in gold.parts + answer.parts):
        return False
    if first[0] == 0 or first[1] == 0:
        return False
    return all(
        equal(a.value * first[1], b.value * first[0], (a.is_decimal, b.is_decimal))
        for a, b in zip(gold.parts, answer.parts, strict=True)
    )


def _equal_quantities(gold: Quantity, answer: Quantity) -> bool:
    products = (
        gold.product or (gold if gold.unit is None else None),
        answer.product or (answer if answer.unit is None else None),
    )
    if (
        products[0] is not None
        and products[1] is not None
        and (gold.product or answer.product)
    ):
        as_products = _same(products[0], products[1])
        if as_products:
            return True
    if gold.unit is None and answer.unit is None:
        return _same(gold, answer)
    if gold.unit is not None and answer.unit is not None:
        if gold.unit.dimensions != answer.unit.dimensions:
            return False
        return _same(
            gold,
            answer,
            Rational(gold.unit.factor.numerator, gold.unit.factor.denominator),
            Rational(answer.unit.factor.numerator, answer.unit.factor.denominator),
        )
    if gold.unit is not None:
        if gold.unit.is_percent:
            return _equal_share(gold, answer)
        return gold.unit.is_certain and _same(gold, answer)
    assert answer.unit is not None
    if answer.unit.is_percent:
        return _equal_share(answer, gold)
    return not answer.unit.is_glued and _same(gold, answer)


def _equal_share(share: Quantity, number: Quantity) -> bool:
    """A percentage and a number: the sign may be left out above 1 only."""
    if _same(share, number, Rational(1, 100)):
        return True
    size = number.value
    small = isinstance(size, Expr) and size.is_real and bool(abs(size) <= 1)
    return not small and _same(share, number)


def _same(
    gold: Quantity,
    answer: Quantity,
    gold_factor: Any = 1,
    answer_factor: Any = 1,
) -> bool:
    a, b = gold.value, answer.value
    decimals = (gold.is_decimal, answer.is_decimal)
    if isinstance(a, MatrixBase) or isinstance(b, MatrixBase):
        if not (isinstance(a, MatrixBase) and isinstance(b, MatrixBase)):
            return False
        return a.shape == b.shape and all(
            equal(x, y, decimals) for x, y in zip(a.flat(), b.flat(), strict=True)
        )
    if not (isinstance(a, Expr) and isinstance(b, Expr)):
        return a == b
    return equal(a * gold_factor, b * answer_factor, decimals)


def _equal_regions(gold: Reading, answer: Reading) -> bool:
    sets = (solutions(gold), solutions(answer))
    if sets[0] is None or sets[1] is None:
        return False
    if sets[0] == sets[1]:
        return True
    parts = [_parts_of(one) for one in sets]
    if parts[0] is None or parts[1] is None or len(parts[0]) != len(parts[1]):
        return False
    return all(
        (x is y) if isinstance(x, bool) else equal(x, y, (False, False))
        for a, b in zip(parts[0], parts[1], strict=True)
        for x, y in zip(a, b, strict=True)
    )


def _parts_of(numbers: sympy.Set | None) -> list[tuple[Any, ...]] | None:
    """Intervals and points in order, each as ends and whether they are open."""
    members = numbers.args if isinstance(numbers, sympy.Union) else (numbers,)
    parts: list[tuple[Any, ...]] = []
    for member in members:
        if isinstance(member, sympy.Interval):
            parts.append(tuple(member.args[:2]) + tuple(map(bool, member.args[2:])))
        elif isinstance(member, sympy.FiniteSet):
            parts += [(point, point, False, False) for point in member.args]
        else:
            return None
    if not all(isinstance(p[0], Expr) and p[0].is_extended_real for p in parts):
        return None
    return sorted(parts, key=lambda part: sympy.N(part[0], 30))


def _equal_collections(gold: Reading, answer: Reading) -> bool:
    (left, gold_items), (right, answer_items) = _parts(gold), _parts(answer)
    pair = {left, right}
    if pair <= {"", *_SETS}:
        if _keeps_order(gold_items, answer_items):
            return _equal_in_order(gold_items, answer_items)
        return _equal_unordered(
            _distinct(gold_items, left), _distinct(answer_items, right)
        )
    if left != right and pair not in ({"", "()"}, {"{}", "()"}):
        return False
    return _equal_in_order(gold_items, answer_items)


def _parts(reading: Reading) -> tuple[str, tuple[Reading, ...]]:
    if isinstance(reading, Collection):
        return reading.brackets, reading.items
    return "", (reading,)


def _distinct(items: tuple[Reading, ...], brackets: str) -> list[Reading]:
    """Without repeats, in a set and in a list of tuples."""
    tuples = all(isinstance(i, Collection) and i.brackets == "()" for i in items)
    if brackets not in _SETS and not tuples:
        return list(items)
    kept: list[Reading] = []
    for item in items:
        if not any(equal_readings(other, item) for other in kept):
            kept.append(item)
    return kept


def _keeps_order(gold: tuple[Reading, ...], answer: tuple[Reading, ...]) -> bool:
    """Whether the gold answer's names or units tell its values apart, bare ones not."""
    names = {
        re.split(r"[_({]", item.label)[0] for item in gold if isinstance(item, Labelled)
    }
    units = {item.unit for item in gold if isinstance(item, Quantity)}
    named = len(names) > 1 and not any(isinstance(i, Labelled) for i in answer)
    measured = len(units) > 1 and not any(
        isinstance(i, Quantity) and i.unit is not None for i in answer
    )
    return named or measured


def _equal_in_order(gold: Sequence[Reading], answer: Sequence[Reading]) -> bool:
    return len(gold) == len(answer) and all(
        equal_readings(a, b) for a, b in zip(gold, answer, strict=True)
    )


def _equal_unordered(gold: Sequence[Reading], answer: Sequence[Reading]) -> bool:
    if len(gold) != len(answer):
        return False
    left = list(answer)
    for item in gold:
        place = next(
            (n for n, other in enumerate(left) if equal_readings(item, other)), None
        )
        if place is None:
            return False
        del left[place]
    return True


def _equal_relations(gold: Relation, answer: Relation) -> bool:
    if len(gold.sides) != len(answer.sides):
        return False
    if len(gold.sides) > 2:
        return _equal_chains(gold, answer) or _equal_chains(gold, _mirrored(answer))
    if gold.signs != answer.signs:
        answer = _mirrored(answer)
    if gold.signs != answer.signs:
        return False
    sides = [side.value for side in gold.sides + answer.sides]
    if any(isinstance(side, MatrixBase) for side in sides):
        return _equal_chains(gold, answer)
    if any(side.unit is not None for side in gold.sides + answer.sides):
        return _equal_chains(gold, answer)
    sign = factor_between(sides[0] - sides[1], sides[2] - sides[3])
    return sign != 0 and (gold.signs[0] in ("=", "!=") or sign > 0)


def _mirrored(relation: Relation) -> Relation:
    signs = tuple(_MIRRORED[sign] for sign in relation.signs[::-1])
    return Relation(relation.sides[::-1], signs)


def _equal_chains(gold: Relation, answer: Relation) -> bool:
    return gold.signs == answer.signs and all(
        _equal_quantities(a, b) for a, b in zip(gold.sides, answer.sides, strict=True)
    )
