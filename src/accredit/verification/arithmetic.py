"""Powers and factorials that stay small, and what an expression may not be."""

from math import log10
from typing import Any

import sympy
from sympy import Basic, Expr, Integer, MatrixBase, Rational, Symbol

Value = Basic | MatrixBase

MAX_DIGITS = 6000
"""Powers and factorials of more digits stay symbols, which equal themselves only."""
DEGREE = Symbol("°", positive=True)


class Unreadable(Exception):
    """The text is not an answer this module can read; the message says why."""


def power(base: Any, exponent: Any) -> Any:
    """`base**exponent`, a symbol of its own where it has too many digits."""
    if isinstance(base, Rational) and isinstance(exponent, Rational):
        size = max(abs(base.p), base.q)
        if size > 1 and abs(exponent) * log10(size) > MAX_DIGITS:
            return Symbol(f"({base})^({exponent})", positive=True)
    if isinstance(base, MatrixBase) and abs(exponent) > 64:
        raise Unreadable("a matrix to such a power")
    return base**exponent


def factorial(value: Any, double: bool) -> Any:
    """The factorial, or the double one."""
    if isinstance(value, Integer) and value > 2500:
        return Symbol(f"({value}){'!!' if double else '!'}", positive=True)
    return sympy.factorial2(value) if double else sympy.factorial(value)


def binomial(top: Expr, bottom: Expr) -> Any:
    """The binomial coefficient."""
    if isinstance(top, Integer) and abs(top) > 10_000:
        return Symbol(f"binomial({top}, {bottom})", positive=True)
    return sympy.binomial(top, bottom)
