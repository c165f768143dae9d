"""Sets of real numbers: named ones, intervals, unions, where inequalities hold."""

from collections.abc import Sequence
from typing import Any

import sympy
from sympy import Symbol
from sympy.core.function import AppliedUndef

from accredit.verification.arithmetic import Unreadable, Value
from accredit.verification.readings import (
    Collection,
    Labelled,
    Quantity,
    Reading,
    Region,
    Relation,
)
from accredit.verification.tokens import Token, spelled

SET_SIGNS = (r"\cup", r"\cap", r"\setminus")
_POSITIVE = ("^+", "^{+}", "_+", "_{+}", "_{>0}", "^{>0}")
_NAMED = {
    "R": sympy.S.Reals,
    "Z": sympy.S.Integers,
    "Q": sympy.S.Rationals,
    "N": sympy.S.Naturals,
    "C": sympy.S.Complexes,
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_HOLDS = {
    "<": sympy.Lt,
    "<=": sympy.Le,
    ">": sympy.Gt,
    ">=": sympy.Ge,
    "!=": sympy.Ne,
}


def named_set(tokens: Sequence[Token]) -> sympy.Set | None:
    r"""`\mathbb{R}`, `\mathbb{Z}^+`, `\emptyset`; None for anything else."""
    text = spelled(tokens).replace(r"\mathbb ", r"\mathbb").replace("{}", "")
    if text in (r"\emptyset", r"\{\}"):
        return sympy.S.EmptySet
    if not text.startswith(r"\mathbb"):
        return None
    text = text.removeprefix(r"\mathbb")
    for letter, numbers in _NAMED.items():
        for name in (letter, f"{{{letter}}}"):
            if text == name:
                return numbers
            if text.removeprefix(name) in _POSITIVE and text.startswith(name):
                return _positive(letter)
    return None


def _positive(letter: str) -> sympy.Set:
    if letter == "R":
        return sympy.Interval.open(0, sympy.oo)
    if letter == "Z":
        return sympy.S.Naturals
    raise Unreadable(f"the positive part of {letter!r} has no name here")


def region(operands: Sequence[sympy.Set], signs: Sequence[str]) -> sympy.Set:
    """The operands joined from left to right."""
    whole = operands[0]
    for sign, operand in zip(signs, operands[1:], strict=True):
        if sign == r"\cup":
            whole = sympy.Union(whole, operand)
        elif sign == r"\cap":
            whole = sympy.Intersection(whole, operand)
        else:
            whole = sympy.Complement(whole, operand)
    return whole


def solutions(reading: Reading) -> sympy.Set | None:
    """The set of numbers a reading describes; None where it describes none.

    A pair in round brackets counts as an open interval, and inequalities in one
    variable as what they hold for.
    """
    if isinstance(reading, Region):
        return reading.numbers
    if isinstance(reading, Labelled):
        return solutions(reading.body)
    if isinstance(reading, Relation):
        return _holding(reading)
    if not isinstance(reading, Collection):
        return None
    if reading.brackets == "" and reading.joined in ("or", "and"):
        parts = [solutions(item) for item in reading.items]
        sets = [part for part in parts if part is not None]
        relations = all(isinstance(item, Relation) for item in reading.items)
        if len(sets) < len(parts) or not relations:
            return None
        join = sympy.Union if reading.joined == "or" else sympy.Intersection
        return join(*sets)
    values = [item.value for item in reading.items if isinstance(item, Quantity)]
    if len(values) < len(reading.items) or not all(map(_is_real, values)):
        return None
    if reading.brackets in (r"\{\}", "{}"):
        return sympy.FiniteSet(*values)
    if reading.brackets in ("()", "[]", "(]", "[)") and _are_ends(values):
        left_open, right_open = reading.brackets[0] == "(", reading.brackets[1] == ")"
        return sympy.Interval(values[0], values[1], left_open, right_open)
    return None


def _are_ends(values: Sequence[Value]) -> bool:
    return len(values) == 2 and bool(sympy.Lt(values[0], values[1]) == True)  # noqa: E712


def _is_real(value: object) -> bool:
    return isinstance(value, sympy.Expr) and value.is_extended_real is True


def _holding(relation: Relation) -> sympy.Set | None:
    """Where an inequality, or a chain of them, in one variable holds."""
    sides = [side.value for side in relation.sides]
    if not all(isinstance(side, sympy.Expr) for side in sides):
        return None
    if any(sign not in _HOLDS for sign in relation.signs):
        return None
    name = unknown(relation)
    if name is None:
        return None
    variable = Symbol("x", real=True)
    sides = [side.subs(name, variable) for side in sides]
    if set().union(*(side.free_symbols for side in sides)) != {variable}:
        return None
    pairs = zip(relation.signs, sides, sides[1:], strict=False)
    parts = [_where(sign, left, right, variable) for sign, left, right in pairs]
    sets = [part for part in parts if part is not None]
    return sympy.Intersection(*sets) if len(sets) == len(parts) else None


def unknown(relation: Relation) -> sympy.Basic | None:
    """The one variable of a relation, or f(x) in 0 < f(x) < 1, whatever x is."""
    sides = [side.value for side in relation.sides]
    applied = set().union(*(side.atoms(AppliedUndef) for side in sides))
    names = applied or set().union(*(side.free_symbols for side in sides))
    return names.pop() if len(names) == 1 else None


def _where(sign: str, left: Any, right: Any, variable: Symbol) -> sympy.Set | None:
    if right == variable and left.is_number:
        left, right, sign = right, left, _MIRRORED.get(sign, sign)
    if left == variable and right.is_number and right.is_extended_real:
        # Solving takes sympy a hundred times as long as writing down what is solved.
        if sign == "!=":
            return sympy.Complement(sympy.S.Reals, sympy.FiniteSet(right))
        is_open = len(sign) == 1
        if sign[0] == "<":
            return sympy.Interval(-sympy.oo, right, True, is_open)
        return sympy.Interval(right, sympy.oo, is_open, True)
    # Others may take sympy for ever.
    if not (_is_algebraic(left) and _is_algebraic(right)):
        return None
    try:
        part = _HOLDS[sign](left, right)
        if part in (True, False):
            return sympy.S.Reals if part else sympy.S.EmptySet
        return part.as_set()
    except (NotImplementedError, TypeError, ValueError):
        return None


def _is_algebraic(value: Any) -> bool:
    return value.atoms(sympy.Function) == value.atoms(sympy.Abs)
