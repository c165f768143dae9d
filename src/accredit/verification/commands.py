"""The cursor over an expression's tokens, and what its commands and functions take.

Runs inside a killable worker. How terms, factors and powers are put together is
`expressions`' business; it fills in the abstract methods.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy
from sympy import Integer, Rational, Symbol

from accredit.verification.arithmetic import DEGREE, Unreadable, binomial, power
from accredit.verification.names import CONSTANTS, FUNCTIONS, GREEK, TRIGONOMETRIC
from accredit.verification.tokens import Kind, Token, spelled

_DERIVATIVE = re.compile(r"\{d[^}]*\}\{d[a-z]")
_MATRICES = frozenset(("matrix", "pmatrix", "bmatrix", "smallmatrix", "array"))
FENCES = {
    r"\lfloor": (r"\rfloor", sympy.floor),
    r"\lceil": (r"\rceil", sympy.ceiling),
}
_INVERSE = {"sin": sympy.asin, "cos": sympy.acos, "tan": sympy.atan}
_NAMED: dict[str, Callable[..., Any]] = {
    "sin": sympy.sin,
    "cos": sympy.cos,
    "tan": sympy.tan,
    "cot": sympy.cot,
    "sec": sympy.sec,
    "csc": sympy.csc,
    "arcsin": sympy.asin,
    "arccos": sympy.acos,
    "arctan": sympy.atan,
    "asin": sympy.asin,
    "acos": sympy.acos,
    "atan": sympy.atan,
    "sinh": sympy.sinh,
    "cosh": sympy.cosh,
    "tanh": sympy.tanh,
    "exp": sympy.exp,
    "abs": sympy.Abs,
    "floor": sympy.floor,
    "ceil": sympy.ceiling,
}


def constant(name: str) -> Any:
    """The value of a name in `CONSTANTS`."""
    return sympy.pi if name == "pi" else sympy.oo


@dataclass
class Commands(ABC):
    """A cursor that reads one command or function with its arguments."""

    tokens: list[Token]
    sign: int = 1
    r"""What `\pm` means; `\mp` means the opposite."""
    bound: frozenset[str] = frozenset()
    place: int = 0
    depth: int = 0
    bars: int = 0
    decimal: bool = False
    """Whether a number with a decimal point was met."""

    @abstractmethod
    def sum(self) -> Any:
        """The terms from here on."""

    @abstractmethod
    def product(self) -> Any:
        """The factors from here on."""

    @abstractmethod
    def factor(self) -> Any:
        """A mixed number, or one atom with its powers."""

    @abstractmethod
    def starts_factor(self) -> bool:
        """Whether the next token begins a factor without a sign before it."""

    @abstractmethod
    def argument(self, what: str) -> Any:
        """A group in brackets, or one atom."""

    @abstractmethod
    def group(self, opening: str) -> Any:
        """The sum up to the bracket that closes `opening`, which is taken."""

    @abstractmethod
    def arguments(self) -> list[Any]:
        """A function's arguments up to the closing bracket, which is taken."""

    @abstractmethod
    def exponent(self) -> Any:
        """What stands behind `^`."""

    @abstractmethod
    def fenced(self, closing: str, function: Callable[..., Any]) -> Any:
        """The function of the sum up to `closing`, which is taken."""

    @abstractmethod
    def symbol(self, name: str) -> Any:
        """A symbol, with its index or its arguments."""

    def next(self, ahead: int = 0) -> str:
        """The text of the next token, or of one behind it; "" at the end."""
        place = self.place + ahead
        return self.tokens[place].text if place < len(self.tokens) else ""

    def peek(self) -> Token | None:
        """The next token; None at the end."""
        return self.tokens[self.place] if self.place < len(self.tokens) else None

    def take(self) -> Token:
        """The next token, which is passed."""
        token = self.peek()
        if token is None:
            raise Unreadable("it ends too early")
        self.place += 1
        return token

    def expect(self, text: str) -> None:
        """Passes the next token, which must be `text`."""
        found = self.next()
        if found != text:
            raise Unreadable(f"{text!r} is missing")
        self.place += 1

    def index(self) -> str:
        """The spelling of an index: a group in braces, or one token."""
        token = self.take()
        if token.text != "{":
            if token.kind is Kind.NUMBER or token.is_letters:
                return token.text
            if token.kind is Kind.COMMAND and token.text[1:] in GREEK:
                return token.text
            raise Unreadable("an index must be in braces")
        start, depth = self.place, 1
        while depth:
            text = self.take().text
            depth += (text == "{") - (text == "}")
        return spelled(self.tokens[start : self.place - 1])

    def command(self, token: Token) -> Any:
        """The value of a command that was taken, with its arguments."""
        name = token.text[1:]
        if name in FUNCTIONS and name != "sqrt":
            return self._function(name)
        if name in CONSTANTS:
            return constant(name)
        if name in GREEK:
            return self.symbol(name)
        if token.text in (r"\sqrt", r"\radical"):
            return self._root()
        if token.text == r"\frac":
            texts = [token.text for token in self.tokens[self.place :]]
            if _DERIVATIVE.match("".join(texts[:20])):
                raise Unreadable("a derivative has no value here")
            top, bottom = self._fraction_arguments()
            return top / bottom
        if token.text == r"\binom":
            return binomial(*self._fraction_arguments())
        if token.text in FENCES:
            closing, function = FENCES[token.text]
            return self.fenced(closing, function)
        if token.text in (r"\sum", r"\prod"):
            return self._series(token.text)
        if token.text == r"\begin":
            return self._matrix()
        if token.text in (r"\overline", r"\bar", r"\vec", r"\hat", r"\angle"):
            start = self.place
            self.index()
            inner = spelled(self.tokens[start : self.place])
            return Symbol(f"{token.text}{{{inner.strip('{}')}}}")
        raise Unreadable(f"{token.text!r} is not understood")

    def _root(self) -> Any:
        degree: Any = Integer(2)
        if self.next() == "[":
            self.place += 1
            degree = self.group("[")
        value = self.argument("what a root is taken of")
        if self.tokens[self.place - 1].text not in ("}", ")") and self.next() == "^":
            raise Unreadable("a root and a power without braces")
        odd = isinstance(degree, Integer) and degree.is_odd
        if odd and value.is_number and value.is_negative:
            return -power(-value, 1 / degree)
        return power(value, 1 / degree)

    def _fraction_arguments(self) -> tuple[Any, Any]:
        r"""As TeX reads them, but for what nobody means: `\frac123` is refused."""
        token = self.peek()
        if token is not None and token.text != "{" and len(token.text) == 2:
            letters = token.kind is Kind.WORD
            if letters or (token.kind is Kind.NUMBER and token.text.isdigit()):
                pieces = [Token(token.kind, sign) for sign in token.text]
                self.tokens[self.place : self.place + 1] = pieces
        return self._fraction_argument(), self._fraction_argument()

    def _fraction_argument(self) -> Any:
        token = self.peek()
        if token is None or token.text == "(":
            raise Unreadable("braces are missing in a fraction")
        if len(token.text) > 1 and token.kind is not Kind.COMMAND:
            raise Unreadable(f"braces are missing around {token.text!r}")
        return self.argument("a part of a fraction")

    def _function(self, name: str) -> Any:
        exponent: Any = None
        base: Any = None
        while self.next() in ("^", "_"):
            if self.take().text == "^":
                exponent = self.exponent()
            else:
                base = self.argument("a base")
        if name == "sqrt":
            return self._root()
        if name == "cbrt":
            return power(self.argument("what a root is taken of"), Rational(1, 3))
        arguments = self._function_arguments()
        if name in ("max", "min"):
            return (sympy.Max if name == "max" else sympy.Min)(*arguments)
        if len(arguments) != 1 or (base is not None and name != "log"):
            raise Unreadable(f"{name!r} takes one argument")
        value = arguments[0]
        if name in TRIGONOMETRIC:
            value = value.subs(DEGREE, sympy.pi / 180)
        if exponent == -1 and name in _INVERSE:
            return _INVERSE[name](value)
        if name in ("log", "ln", "lg"):
            result = sympy.log(value)
            base = Integer(10) if name == "lg" else base
            result = result if base is None else result / sympy.log(base)
        else:
            result = _NAMED[name](value)
        return result if exponent is None else power(result, exponent)

    def _function_arguments(self) -> list[Any]:
        """In brackets, or else all factors up to a sign or another function."""
        if self.next() in ("(", "[", "{"):
            opening = self.take().text
            if opening == "(":
                return self.arguments()
            return [self.group(opening)]
        value = self.factor()
        while self.starts_factor() and self.next().lstrip("\\") not in FUNCTIONS:
            if self.next() in ("(", "["):
                raise Unreadable("a function's argument must be in brackets")
            value = value * self.factor()
        return [value]

    def _series(self, command: str) -> Any:
        self.expect("_")
        self.expect("{")
        index = self.take()
        if not index.is_letters or len(index.text) != 1:
            raise Unreadable("a sum must name its index")
        self.expect("=")
        lower = self.group("{")
        self.expect("^")
        upper = self.argument("a limit")
        outer, self.bound = self.bound, self.bound | {index.text}
        body = self.product()
        self.bound = outer
        limits = (Symbol(index.text), lower, upper)
        kind = sympy.Sum if command == r"\sum" else sympy.Product
        return kind(body, limits)

    def _matrix(self) -> Any:
        name = self._environment()
        if name == "array" and self.next() == "{":
            self.index()
        rows: list[list[Any]] = [[]]
        while self.next() != r"\end":
            if rows[-1]:
                rows.append([])
            rows[-1].append(self.sum())
            while self.next() == "&":
                self.place += 1
                rows[-1].append(self.sum())
            if self.next() == "\\\\":
                self.place += 1
        self.place += 1
        if self._environment() != name or name not in _MATRICES:
            raise Unreadable(f"an environment {name!r} is not understood")
        return sympy.ImmutableMatrix(rows)

    def _environment(self) -> str:
        self.expect("{")
        name = self.take().text
        self.expect("}")
        return name
