"""What a worker of the math verifier runs. Knows `equivalence` and JSON.

Cheap to import, so that parent and worker share these names: sympy loads in `comparer`.
"""

from collections.abc import Callable
from typing import Any

FACTORY = "accredit.verification.comparing:comparer"
GOLD_READ = "gold read"
"""The milestone after which a hang is the answer's fault."""

Comparer = Callable[[Callable[[str], None], str, str], dict[str, Any]]


def comparer() -> Comparer:
    """The comparison as a pool's call, with all that it imports late imported."""
    from accredit.verification.equivalence import math_equal

    def compared(
        milestone: Callable[[str], None], gold: str, answer: str
    ) -> dict[str, Any]:
        comparison = math_equal(gold, answer, lambda: milestone(GOLD_READ))
        return {"equal": comparison.equal, "reason": comparison.reason}

    math_equal(r"\frac{1}{2}, x^{2}+1", r"\sqrt{2}, (x+1)^{2}-2x")
    math_equal(r"1\leq |x|", "(2, 3)")
    return compared
