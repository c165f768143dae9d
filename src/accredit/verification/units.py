r"""Units behind or before a number: which tokens they are, and how they convert.

Standard library only. A unit is its dimensions with their powers and a factor; a noun
such as `chickens` is a dimension of its own, and so are unknown currencies.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from accredit.verification.names import CONSTANTS, FUNCTIONS, GREEK, SHORT_WORDS
from accredit.verification.tokens import Kind, Token

_TABLE = """
length 1 m meter metre meters metres
length 1/100 cm centimeter centimetre centimeters centimetres
length 1/10 dm decimeter decimetre decimeters decimetres
length 1/1000 mm millimeter millimetre millimeters millimetres
length 1000 km kilometer kilometre kilometers kilometres
length 381/1250 ft foot feet
length 127/5000 in inch inches
length 1143/1250 yd yard yards
length 201168/125 mi mile miles
volume 1/1000 L l liter litre liters litres
volume 1/1000000 mL ml milliliter millilitre milliliters millilitres cc
time 1 s sec secs second seconds
time 60 min mins minute minutes
time 3600 h hr hrs hour hours
time 86400 day days
time 604800 week weeks
month 1 month months
month 12 yr year years
mass 1 g gram grams gramme grammes
mass 1000 kg kilogram kilograms kilo kilos
mass 1/1000 mg milligram milligrams
mass 1000000 tonne tonnes
pound 1 lb lbs pound pounds
pound 1/16 oz ounce ounces
degree 1 ° deg degree degrees
radian 1 rad radian radians
percent 1 % percent pct percentage
dollar 1 \\$ dollar dollars usd USD
dollar 1/100 cent cents ¢
euro 1 € euro euros eur EUR
sterling 1 £ gbp GBP
yen 1 ¥ yen JPY
yuan 1 yuan RMB CNY
rupee 1 ₹ rupee rupees INR
newton 1 N newton newtons
joule 1 J joule joules
watt 1 W watt watts
volt 1 V volt volts
hertz 1 Hz hertz
"""
_SPEEDS = {
    "mph": ("length", Fraction(201168, 125 * 3600)),
    "kph": ("length", Fraction(1000, 3600)),
    "kmh": ("length", Fraction(1000, 3600)),
}
_KNOWN = {
    name: (dimension, Fraction(factor))
    for dimension, factor, *names in map(str.split, _TABLE.strip().splitlines())
    for name in names
}
CURRENCIES = frozenset(("\\$", "€", "£", "¥", "₹"))
_SIGNS = CURRENCIES | {"%", "¢"}
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_BEHIND = {"squared": 2, "cubed": 3}
_OTHER_WORDS = """
more less than least most over under half halves third thirds quarter quarters fewer
about around mod modulo factorial times plus minus negative positive hundred thousand
million billion trillion dozen score base where otherwise when but nor with without
given such that does infinite infinitely many noon midnight clock even integer integers
real complex prime false true undefined from then has have exactly every each both only
also see maybe unknown wrong right three four five seven eight nine eleven twelve binary
octal decimal hexadecimal hex
"""
_NO_UNITS = SHORT_WORDS | CONSTANTS | FUNCTIONS | GREEK | set(_OTHER_WORDS.split())


@dataclass(frozen=True)
class Unit:
    """Dimensions with powers, by name, and how many base units one of it is."""

    dimensions: tuple[tuple[str, int], ...]
    factor: Fraction
    is_certain: bool = True
    r"""False for one letter outside `\text{}`, which may be a variable."""
    is_noun: bool = False
    is_glued: bool = False
    """Whether that letter follows its number without a space."""

    @property
    def is_percent(self) -> bool:
        return self.dimensions == (("percent", 1),)


def unit(tokens: Sequence[Token]) -> Unit | None:
    """The unit that all of the tokens spell; None where they spell none."""
    powers: dict[str, int] = {}
    factor, sign, place = Fraction(1), 1, 0
    is_certain, is_noun = True, False
    prefix = 1
    while place < len(tokens):
        token = tokens[place]
        place += 1
        if token.text in ("/", "per") and powers and sign == 1:
            sign = -1
            continue
        if token.text == "\\cdot" and powers:
            continue
        if token.text in _POWERS and prefix == 1:
            prefix = _POWERS[token.text]
            continue
        found = _dimensions(token)
        if token.text == "°" and place < len(tokens) and tokens[place].text in "CF":
            found = [(f"degree {tokens[place].text}", Fraction(1), 1)]
            place += 1
        if found is None:
            return None
        is_noun = is_noun or token.text not in _KNOWN
        if place == 1:
            is_certain = token.kind is not Kind.WORD or len(token.text) > 1
        power, place = _power(tokens, place)
        for name, value, exponent in found:
            total = sign * exponent * power * prefix
            powers[name] = powers.get(name, 0) + total
            factor *= value ** (sign * power * prefix)
        prefix = 1
    if not powers or prefix != 1 or (is_noun and len(powers) > 3):
        return None
    if "volume" in powers and set(powers) == {"volume"}:
        powers = {"length": 3 * powers["volume"]}
    dimensions = tuple(sorted((name, n) for name, n in powers.items() if n))
    return Unit(dimensions, factor, is_certain, is_noun)


def _dimensions(token: Token) -> list[tuple[str, Fraction, int]] | None:
    text = token.text
    if text in _SPEEDS:
        _, factor = _SPEEDS[text]
        return [("length", factor, 1), ("time", Fraction(1), -1)]
    if text in _KNOWN:
        return [(*_KNOWN[text], 1)]
    if text.lower() in _KNOWN and len(text) > 2:
        return [(*_KNOWN[text.lower()], 1)]
    noun = token.is_letters and len(text) > 2 and text.lower() not in _NO_UNITS
    if not noun:
        return None
    return [(re.sub(r"(?<=[^s])s$", "", text.lower()), Fraction(1), 1)]


def _power(tokens: Sequence[Token], place: int) -> tuple[int, int]:
    """The exponent behind a unit, 1 without one, and where it ends."""
    texts = [token.text for token in tokens[place : place + 4]]
    if texts[:1] == ["^"] and texts[1:2] and texts[1] in ("2", "3"):
        return int(texts[1]), place + 2
    if texts[:2] == ["^", "{"] and texts[2:] in (["2", "}"], ["3", "}"]):
        return int(texts[2]), place + 4
    if texts and texts[0] in _BEHIND:
        return _BEHIND[texts[0]], place + 1
    return 1, place


def unit_start(tokens: Sequence[Token]) -> tuple[int, Unit | None]:
    """Where the unit at the end of the tokens begins; their number where none does."""
    for start in range(1, len(tokens)):
        token = tokens[start]
        scale = token.text == "°" and start + 1 < len(tokens)
        if token.is_letters or token.text in _SIGNS or scale:
            found = unit(tokens[start:])
            if found is not None:
                single = token.kind is Kind.WORD and len(token.text) == 1
                # 3.5m is a length; 3m may be a product.
                glued = (
                    single and not token.spaced and "." not in tokens[start - 1].text
                )
                return start, replace(found, is_glued=glued)
    return len(tokens), None
