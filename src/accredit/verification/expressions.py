r"""Tokens of one expression as a sympy value: a recursive descent that skips nothing.

Runs inside a killable worker. Every token is either understood or refused by name, so
that no value comes from half an answer. Conventions: `e` and `i` are the constants, a
logarithm without a base is natural, `1/2x` is x/2, `1\frac{3}{4}` a mixed number, and
an exponent without braces is the whole number: `x^10`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
from sympy import Integer, Rational, Symbol

from accredit.verification.arithmetic import (
    DEGREE,
    Unreadable,
    Value,
    factorial,
    power,
)
from accredit.verification.commands import FENCES, Commands, constant
from accredit.verification.names import CONSTANTS, FUNCTIONS, GREEK, factors
from accredit.verification.tokens import Kind, Token

MAX_DEPTH = 50
MAX_EXPONENT = 6000
_APPLIED = frozenset("fghFGH")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_TIMES = ("*", r"\cdot", r"\times")
_OVER = ("/", r"\div")

_ATOMS = frozenset(
    (r"\frac", r"\sqrt", r"\radical", r"\binom", r"\sum", r"\prod", r"\begin")
) | frozenset((r"\overline", r"\bar", r"\angle", r"\vec", r"\hat", *FENCES))


@dataclass
class Expression(Commands):
    """A cursor over the tokens of one expression."""

    def value(self) -> Value:
        """The value of all tokens.

        Raises:
            Unreadable: A token that is not understood, or no value.
        """
        if not self.tokens:
            raise Unreadable("a part of it is empty")
        try:
            value = self.sum()
        except (Unreadable, MemoryError, RecursionError):
            raise
        except Exception as error:
            raise Unreadable("it has no value") from error
        if self.place < len(self.tokens):
            raise Unreadable(f"{self.next()!r} is not understood where it stands")
        if value.has(sympy.nan, sympy.zoo):
            raise Unreadable("it is undefined")
        return value

    def sum(self) -> Any:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("it is nested too deep")
        total: Any = None
        while True:
            sign = self.signs(required=total is not None)
            if sign is None:
                break
            term = self.product()
            total = sign * term if total is None else total + sign * term
        self.depth -= 1
        return total

    def signs(self, required: bool) -> int | None:
        """The sign before a term; None where one is required and missing."""
        sign, found = 1, False
        while self.next() in ("+", "-", r"\pm", r"\mp"):
            text = self.take().text
            sign *= {"+": 1, "-": -1, r"\pm": self.sign, r"\mp": -self.sign}[text]
            found = True
        return None if required and not found else sign

    def product(self) -> Any:
        value = self.factor()
        while True:
            text = self.next()
            if text in _TIMES or text in _OVER:
                self.place += 1
                sign = self.signs(required=False)
                factor = sign * self.power()
                value = value * factor if text in _TIMES else value / factor
            elif self.starts_factor():
                value = value * self.power()
            else:
                return value

    def factor(self) -> Any:
        value = self.mixed()
        return self.power() if value is None else value

    def starts_factor(self) -> bool:
        token = self.peek()
        if token is None:
            return False
        if token.kind is Kind.NUMBER:
            return self._ends_factor(token)
        if token.text == "|":
            return self.bars == 0
        if token.is_letters or token.text in ("(", "[", "{"):
            return True
        name = token.text[1:]
        return token.kind is Kind.COMMAND and (
            token.text in _ATOMS or name in GREEK | FUNCTIONS | CONSTANTS
        )

    def _ends_factor(self, token: Token) -> bool:
        """Whether a number may follow: behind a bracket, and in `2^a 3^b`."""
        before = [token.text for token in self.tokens[: self.place][-2:]]
        return before[-1] in ("}", ")") or (before[0] == "^" and token.spaced)

    def mixed(self) -> Any:
        r"""`1 3/4` or `1\frac{3}{4}`, where a proper fraction of numbers follows."""
        rest = self.tokens[self.place : self.place + 8]
        texts = [token.text for token in rest]
        shape = "".join(
            "n" if token.kind is Kind.NUMBER and token.text.isdigit() else token.text
            for token in rest
        )
        if shape.startswith("nn/n"):
            whole, top, bottom, length = texts[0], texts[1], texts[3], 4
        elif shape.startswith(r"n\frac{n}{n}"):
            whole, top, bottom, length = texts[0], texts[3], texts[6], 8
        elif shape.startswith(r"n\fracn") and len(texts[2]) == 2:
            whole, top, bottom, length = texts[0], texts[2][0], texts[2][1], 3
        else:
            return None
        if not 0 < int(top) < int(bottom):
            return None
        self.place += length
        return Rational(int(whole) * int(bottom) + int(top), int(bottom))

    def power(self) -> Any:
        base = self._atom()
        raised = False
        while True:
            text = self.next()
            if text == "!":
                self.place += 1
                double = self.next() == "!"
                self.place += double
                base = factorial(base, double)
            elif text == "°":
                self.place += 1
                base = base * DEGREE
            elif text == "^" and not raised:
                raised = True
                self.place += 1
                base = power(base, self.exponent())
            else:
                return base

    def exponent(self) -> Any:
        token = self.peek()
        if token is not None and token.text == "-":
            self.place += 1
            return -self.argument("an exponent")
        return self.argument("an exponent")

    def argument(self, what: str) -> Any:
        """What `^`, a radical or a subscript stands before: a group or one atom."""
        token = self.take()
        if token.text in ("{", "("):
            return self.group(token.text)
        if token.kind is Kind.NUMBER:
            return self._number(token)
        if token.is_letters:
            names = factors(token.text, alone=False)
            if names is not None and len(names) == 1:
                return self.symbol(token.text)
        elif token.kind is Kind.COMMAND and self._is_atom(token.text):
            return self.command(token)
        raise Unreadable(f"{what} must be in braces, not {token.text!r}")

    def _is_atom(self, command: str) -> bool:
        name = command[1:]
        return command in _ATOMS or name in GREEK or name in CONSTANTS

    def group(self, opening: str) -> Any:
        bars, self.bars = self.bars, 0
        value = self.sum()
        self.bars = bars
        self.expect(_CLOSING[opening])
        return value

    def _atom(self) -> Any:
        token = self.take()
        if token.kind is Kind.NUMBER:
            return self._number(token)
        if token.text in _CLOSING:
            return self.group(token.text)
        if token.text == "|":
            return self.fenced("|", sympy.Abs)
        if token.is_letters:
            return self._letters(token)
        if token.kind is Kind.COMMAND:
            return self.command(token)
        raise Unreadable(f"{token.text!r} is not understood where it stands")

    def fenced(self, closing: str, function: Callable[..., Any]) -> Any:
        self.bars += closing == "|"
        value = self.sum()
        self.bars -= closing == "|"
        self.expect(closing)
        return function(value)

    def _number(self, token: Token) -> Any:
        mantissa, _, exponent = token.text.lower().partition("e")
        if exponent and abs(int(exponent)) > MAX_EXPONENT:
            raise Unreadable("it has too many digits")
        if self.next() == "_":
            raise Unreadable("a number in another base is not part of an expression")
        self.decimal = self.decimal or "." in mantissa or bool(exponent)
        repeated = self._repeated_digits()
        if repeated is not None and "." in mantissa:
            places = len(mantissa.partition(".")[2])
            tail = Rational(int(repeated), 10 ** len(repeated) - 1)
            return Rational(mantissa) + tail / Integer(10) ** places
        return Rational(mantissa) * Integer(10) ** int(exponent or 0)

    def _repeated_digits(self) -> str | None:
        if self.next() != r"\overline" or self.next(1) != "{":
            return None
        digits = self.next(2)
        if not digits.isdigit() or self.next(3) != "}":
            return None
        before = self.tokens[self.place - 1].text
        self.place += 4
        if "." not in before:
            raise Unreadable("digits under a line belong behind a decimal point")
        return digits

    def _letters(self, token: Token) -> Any:
        run = token.text
        if run in FUNCTIONS:
            return self._function(run)
        if run.lower() in CONSTANTS:
            return constant(run.lower())
        if run in GREEK:
            return self.symbol(run)
        alone = len(self.tokens) == 1
        names = [run] if len(run) == 1 else None
        if names is None and token.kind is Kind.WORD:
            names = factors(run, alone)
        if names is None or not run.isascii():
            raise Unreadable(f"{run!r} is a word")
        value: Any = Integer(1)
        for name in names[:-1]:
            value = value * self.symbol(name, simple=True)
        # A power and an index belong to the last letter: ab^2 is a times b^2.
        last = self.symbol(names[-1])
        if len(names) > 1 and self.next() == "^":
            self.place += 1
            last = power(last, self.exponent())
            if self.next() == "^":
                raise Unreadable("two exponents follow each other")
        return value * last

    def symbol(self, name: str, simple: bool = False) -> Any:
        if name in self.bound and self.next() != "_":
            return Symbol(name)
        if not simple and self.next() == "_":
            self.place += 1
            name = f"{name}_{{{self.index()}}}"
        elif name == "e":
            return sympy.E
        elif name == "i":
            return sympy.I
        if not simple and self._is_application(name):
            self.take()
            return sympy.Function(name)(*self.arguments())
        return Symbol(name)

    def _is_application(self, name: str) -> bool:
        token = self.peek()
        if token is None or token.text != "(" or token.spaced:
            return False
        if name[0] in _APPLIED:
            return True
        texts = [token.text for token in self.tokens[self.place + 1 :]]
        inside = texts[: texts.index(")")] if ")" in texts else []
        plain = all(text.isalnum() or text == "," for text in inside)
        return name[0].isupper() and plain and len(inside) % 2 == 1

    def arguments(self) -> list[Any]:
        """Up to the closing bracket, which is taken."""
        values = [self.sum()]
        while self.next() == ",":
            self.place += 1
            values.append(self.sum())
        self.expect(")")
        return values


def expression(
    tokens: Sequence[Token], sign: int = 1, bound: frozenset[str] = frozenset()
) -> tuple[Value, bool]:
    """The value of the tokens, and whether a decimal point was among them."""
    reader = Expression(list(tokens), sign, bound)
    return reader.value(), reader.decimal
