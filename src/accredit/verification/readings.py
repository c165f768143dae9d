"""What an answer can be: the nouns between `reading` and `equivalence`."""

from dataclasses import dataclass
from typing import Any

import sympy

from accredit.verification.units import Unit


@dataclass(frozen=True)
class Quantity:
    """One expression and the unit written beside it."""

    value: Any
    """Sympy's expression or matrix."""
    is_decimal: bool = False
    """Whether it was written with a decimal point."""
    unit: Unit | None = None
    product: "Quantity | None" = None
    """The same with its unit read as a letter, where it may be one: `3 m`."""


@dataclass(frozen=True)
class Numeral:
    """Digits with their base: `1011_2`."""

    value: int


@dataclass(frozen=True)
class Ratio:
    """`7:32`; also a time of day."""

    parts: tuple[Quantity, ...]
    is_clock: bool
    """Whether it can be a time, which is no multiple of another."""


@dataclass(frozen=True)
class Region:
    """A set of numbers that has a name or was put together from others."""

    numbers: sympy.Set


@dataclass(frozen=True)
class Collection:
    """Several readings, and how they were put together."""

    brackets: str
    r"""One of "()", "[]", "(]", "[)", `\{\}`; "{}" of bare braces, "" of a list."""
    items: tuple["Reading", ...]
    joined: str = ","
    """`and`, `or`, or a comma."""


@dataclass(frozen=True)
class Relation:
    """Sides and the signs between them: `0<x<1` has three and two."""

    sides: tuple[Quantity, ...]
    signs: tuple[str, ...]


@dataclass(frozen=True)
class Labelled:
    """What is given a name: `x=5`, `f(x)=x+1`, `(a,b)=(1,2)`, `|AB|=1`."""

    label: str
    letters: tuple[str, ...]
    """The variables of a function's label."""
    body: "Reading"
    parts: tuple[str, ...] = ()
    """The names in a tuple of them."""
    equation: Relation | None = None
    """The same as a relation, where the label has a value of its own."""


@dataclass(frozen=True)
class Rounded:
    r"""`1/3 \approx 0.33`: a claim, and what it is about."""

    exact: "Reading"
    about: "Reading"


Reading = (
    Quantity | Numeral | Ratio | Region | Collection | Relation | Labelled | Rounded
)
