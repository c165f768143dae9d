"""What runs of letters mean in mathematics: functions, products, one name, or a word.

Standard library only.
"""

_SHORT_WORDS = """
if is or and for all odd the of no any not are to an be yes one two six ten at in it on
as so we he me my us up do go by am pm
"""
SHORT_WORDS = frozenset(_SHORT_WORDS.split())
_FUNCTION_WORDS = """
arcsin arccos arctan asin acos atan sinh cosh tanh log ln lg exp sqrt cbrt abs floor
ceil max min
"""
_GREEK_WORDS = """
alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron rho
sigma tau upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi
Psi Omega
"""
_UNIT_WORDS = """
cm mm km dm nm kg mg ml cl dl hr min sec ft in yd mi lb oz mph kph kmh rad deg hz kw
pct usd eur gbp
"""
TRIGONOMETRIC = frozenset(("sin", "cos", "tan", "cot", "sec", "csc"))
FUNCTIONS = TRIGONOMETRIC | frozenset(_FUNCTION_WORDS.split())
CONSTANTS = frozenset(("pi", "infty", "infinity", "oo", "inf"))
GREEK = frozenset(_GREEK_WORDS.split())
_UNITS = frozenset(_UNIT_WORDS.split())
_VARIABLES = tuple(map(frozenset, ("pqrst", "uvwxyz", "klmn", "ijk")))
_VOWELS = frozenset("aeiouy")


def factors(run: str, alone: bool) -> list[str] | None:
    """The symbols a run of letters is a product of; None where it is a word.

    `ab` and `xyz` are products, `AB` is one name, `cat`, `bad` and `Monday` are words.

    Args:
        run: Letters only.
        alone: Whether it is the whole answer: `Rr` is a product elsewhere only.
    """
    if not run.isascii():
        return None
    if len(run) == 1:
        return [run]
    if run.lower() in SHORT_WORDS or run.lower() in _UNITS:
        return None
    if run.isupper():
        return [run]
    if len(run) == 2 and (run.islower() or not alone):
        return list(run)
    if run.islower() and _is_product(run):
        return list(run)
    return None


def _is_product(run: str) -> bool:
    if len(set(run)) < len(run) or len(run) > 4:
        return False
    if run in "abcd" or any(variables.issuperset(run) for variables in _VARIABLES):
        return True
    return len(run) == 3 and _VOWELS.isdisjoint(run)
