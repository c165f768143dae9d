"""Whether two expressions have one value, decided by exact and numeric evaluation.

Runs inside a killable worker. Numbers are compared exactly where rational, else to 100
digits. Expressions with letters are evaluated at points drawn from their own
text: fractions and whole numbers of both signs, at 60 digits, all of which must agree.
A point where a real square root or logarithm does not exist in either expression says
nothing, so that letters under a root may be positive.
"""

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import mpmath
import sympy
from mpmath import mp
from sympy import Basic, Expr, Rational
from sympy.core.function import AppliedUndef

_DIGITS = 150
_CLOSE_DIGITS = 100
_SAMPLE_DIGITS = 60
_SAMPLE_CLOSE_DIGITS = 40
_DECIMAL_DIGITS = 6
_MIN_POINTS = 3
_MAX_EXPONENT = 10**6
_MAX_MAGNITUDE = 20_000
"""Of decimal digits before the point."""
_MAX_TERMS = 500

Point = Mapping[Basic, Any]


class OutOfDomain(Exception):
    """The expression has no real value there, or none that can be evaluated."""


def equal(gold: Any, answer: Any, decimals: tuple[bool, bool]) -> bool:
    """Whether the two have one value.

    Args:
        gold: One expression.
        answer: Another.
        decimals: Which of them was written with a decimal point. A decimal is exact,
            unless the other side has no finite decimal: then one part in a million is
            enough.
    """
    if gold == answer:
        return True
    if gold.has(sympy.oo, -sympy.oo) or answer.has(sympy.oo, -sympy.oo):
        return False
    rounded = _is_rounded(gold, answer, decimals)
    if gold.free_symbols | answer.free_symbols or _applied(gold) | _applied(answer):
        return _equal_everywhere(gold, answer, rounded)
    return _equal_numbers(gold, answer, rounded)


def _is_rounded(gold: Expr, answer: Expr, decimals: tuple[bool, bool]) -> bool:
    if decimals[0] == decimals[1]:
        return False
    exact = answer if decimals[0] else gold
    numbers = exact.atoms(Rational)
    return not all(map(_is_terminating, numbers)) or any(
        not isinstance(part, Rational | sympy.Symbol | sympy.Add | sympy.Mul)
        for part in sympy.preorder_traversal(exact)
    )


def _is_terminating(value: Rational) -> bool:
    remainder = int(value.q)
    for prime in (2, 5):
        while remainder % prime == 0:
            remainder //= prime
    return remainder == 1


def _equal_numbers(gold: Expr, answer: Expr, rounded: bool) -> bool:
    difference = gold - answer
    if isinstance(difference, Rational) and not rounded:
        return difference == 0
    try:
        with mp.workdps(_DIGITS):
            size = max(abs(evaluated(side, {}, False)) for side in (gold, answer))
            magnitude = _magnitude(size)
        if magnitude > _MAX_MAGNITUDE:
            return False
        with mp.workdps(_DIGITS + magnitude):
            a, b = (evaluated(side, {}, False) for side in (gold, answer))
            return _close(a, b, _CLOSE_DIGITS, rounded)
    except (OutOfDomain, ValueError, ZeroDivisionError, OverflowError):
        return False


def _magnitude(size: Any) -> int:
    """Decimal digits before the point."""
    return 0 if size <= 1 else int(mpmath.log10(size))


def _close(a: Any, b: Any, digits: int, rounded: bool) -> bool:
    size = max(abs(a), abs(b))
    if rounded:
        # A third is exactly this far from 0.333333; the last factor is for rounding.
        return abs(a - b) * 10**_DECIMAL_DIGITS <= size * (1 + mpmath.mpf(10) ** -12)
    # Relative to small numbers: a tiny one equals no other; to 0, absolute.
    scale = min(size, 1) if a and b and size > mpmath.mpf(10) ** -digits else 1
    if a and b and size <= mpmath.mpf(10) ** -digits:
        return abs(a / b - 1) <= mpmath.mpf(10) ** (-digits // 2)
    return abs(a - b) <= mpmath.mpf(10) ** -digits * scale


def _applied(value: Expr) -> set[Basic]:
    return set(value.atoms(AppliedUndef))


def _equal_everywhere(gold: Expr, answer: Expr, rounded: bool) -> bool:
    agreed = 0
    for a, b in _sampled(gold, answer):
        if not _close(a, b, _SAMPLE_CLOSE_DIGITS, rounded):
            return False
        agreed += 1
    return agreed >= _MIN_POINTS


def factor_between(gold: Expr, answer: Expr) -> int:
    """The sign of the constant c with gold = c * answer everywhere; 0 without one."""
    ratio: Any = None
    agreed = 0
    for a, b in _sampled(gold, answer):
        zeros = [abs(side) < mpmath.mpf(10) ** -20 for side in (a, b)]
        if all(zeros):
            continue
        if any(zeros):
            return 0
        ratio = a / b if ratio is None else ratio
        if not _close(a / b, ratio, _SAMPLE_CLOSE_DIGITS - 5, False):
            return 0
        agreed += 1
    if agreed < _MIN_POINTS or mpmath.im(ratio) != 0:
        return 0
    return 1 if mpmath.re(ratio) > 0 else -1


def _sampled(gold: Expr, answer: Expr) -> Iterator[tuple[Any, Any]]:
    """Both values at all points where both are defined."""
    is_real = not (gold.has(sympy.I) or answer.has(sympy.I))
    for point in _points(gold, answer):
        try:
            with mp.workdps(_SAMPLE_DIGITS):
                values = [evaluated(e, point, is_real) for e in (gold, answer)]
                size = max(map(abs, values))
                magnitude = (
                    0 if size <= 1 else min(int(mpmath.log10(size)), _MAX_MAGNITUDE)
                )
            with mp.workdps(_SAMPLE_DIGITS + magnitude):
                a, b = (evaluated(e, point, is_real) for e in (gold, answer))
                yield a, b
        except (OutOfDomain, ValueError, ZeroDivisionError, OverflowError):
            continue


def _points(gold: Expr, answer: Expr) -> Iterator[Point]:
    """Where to evaluate; nobody who writes an answer knows where that is."""
    letters = (
        gold.free_symbols | answer.free_symbols | _applied(gold) | _applied(answer)
    )
    names = sorted(letters, key=str)
    digest = hashlib.sha256(f"{gold}\n{answer}".encode()).digest()
    draw = random.Random(int.from_bytes(digest[:8], "big"))
    kinds: list[Callable[[], Fraction]] = [
        *[lambda: Fraction(draw.randrange(101, 499), 97)] * 3,
        *[lambda: Fraction(draw.randrange(11, 89), 89)] * 3,
        *[lambda: -Fraction(draw.randrange(101, 499), 97)] * 2,
        *[lambda: draw.choice((-1, 1)) * Fraction(draw.randrange(51, 299), 83)] * 3,
        *[lambda: Fraction(draw.randrange(3, 14))] * 4,
        *[lambda: Fraction(draw.randrange(14, 60))] * 3,
    ]
    for kind in kinds:
        yield {name: _positive(name, kind()) for name in names}


def _positive(name: Basic, number: Fraction) -> Fraction:
    return abs(number) if name.is_positive else number


def evaluated(value: Basic, point: Point, is_real: bool) -> Any:
    """`value` at `point`, to mpmath's precision.

    Args:
        value: The expression.
        point: A number for every symbol and every unknown function's value in it.
        is_real: Whether roots of negative numbers and the like are `OutOfDomain`.

    Raises:
        OutOfDomain: It has no such value.
    """
    if value in point:
        number = point[value]
        return mpmath.mpf(number.numerator) / number.denominator
    if isinstance(value, Rational):
        return mpmath.mpf(value.p) / value.q
    if value in (sympy.pi, sympy.E):
        return mpmath.pi() if value is sympy.pi else mpmath.e()
    if value is sympy.I:
        return mpmath.mpc(0, 1)
    if isinstance(value, sympy.Sum | sympy.Product):
        return _series(value, point, is_real)
    arguments = [evaluated(part, point, is_real) for part in value.args]
    if isinstance(value, sympy.Add):
        return mpmath.fsum(arguments)
    if isinstance(value, sympy.Mul):
        return mpmath.fprod(arguments)
    if isinstance(value, sympy.Pow):
        return _power(arguments[0], arguments[1], is_real)
    function = _FUNCTIONS.get(value.func)
    if function is None:
        raise OutOfDomain(str(value.func))
    result = function(*arguments)
    if is_real and isinstance(result, mpmath.mpc):
        raise OutOfDomain("not real")
    return result


def _power(base: Any, exponent: Any, is_real: bool) -> Any:
    if abs(exponent) > _MAX_EXPONENT:
        raise OutOfDomain("too large")
    whole = mpmath.isint(exponent)
    if base == 0 and mpmath.re(exponent) <= 0:
        raise OutOfDomain("a power of 0")
    if whole:
        return mpmath.power(base, int(mpmath.re(exponent)))
    if is_real and base < 0:
        raise OutOfDomain("a root of a negative number")
    return mpmath.power(base, exponent)


def _exponential(exponent: Any) -> Any:
    if abs(exponent) > _MAX_EXPONENT:
        raise OutOfDomain("too large")
    return mpmath.exp(exponent)


def _series(value: sympy.Sum | sympy.Product, point: Point, is_real: bool) -> Any:
    body, (index, lower, upper) = value.function, value.limits[0]
    first, last = (evaluated(limit, point, is_real) for limit in (lower, upper))
    if not (mpmath.isint(first) and mpmath.isint(last)):
        raise OutOfDomain("a sum between fractions")
    if last - first > _MAX_TERMS:
        raise OutOfDomain("too many terms")
    terms = [
        evaluated(body, {**point, index: Fraction(n)}, is_real)
        for n in range(int(first), int(last) + 1)
    ]
    return mpmath.fsum(terms) if isinstance(value, sympy.Sum) else mpmath.fprod(terms)


def _whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function where its arguments are whole numbers >= -1 only."""

    def limited(*arguments: Any) -> Any:
        if not all(mpmath.isint(n) and -1 <= n <= 10_000 for n in arguments):
            raise OutOfDomain("not whole numbers")
        return function(*arguments)

    return limited


def _real_only(function: Callable[..., Any]) -> Callable[..., Any]:
    def limited(*arguments: Any) -> Any:
        if any(isinstance(argument, mpmath.mpc) for argument in arguments):
            raise OutOfDomain("not real")
        return function(*arguments)

    return limited


def _logarithm(value: Any) -> Any:
    if value == 0:
        raise OutOfDomain("a logarithm of 0")
    return mpmath.log(value)


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    sympy.sin: mpmath.sin,
    sympy.cos: mpmath.cos,
    sympy.tan: mpmath.tan,
    sympy.cot: mpmath.cot,
    sympy.sec: mpmath.sec,
    sympy.csc: mpmath.csc,
    sympy.asin: mpmath.asin,
    sympy.acos: mpmath.acos,
    sympy.atan: mpmath.atan,
    sympy.sinh: mpmath.sinh,
    sympy.cosh: mpmath.cosh,
    sympy.tanh: mpmath.tanh,
    sympy.exp: _exponential,
    sympy.log: _logarithm,
    sympy.Abs: abs,
    sympy.floor: _real_only(mpmath.floor),
    sympy.ceiling: _real_only(mpmath.ceil),
    sympy.factorial: _whole(mpmath.factorial),
    sympy.factorial2: _whole(mpmath.fac2),
    sympy.binomial: _whole(mpmath.binomial),
    sympy.Max: _real_only(max),
    sympy.Min: _real_only(min),
}
