"""Numbers of several seeds as a mean and its 95% interval."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import stats


def spread(numbers: list[float]) -> dict[str, Any]:
    """Mean and half of the 95% interval (Student's t over seeds)."""
    x = np.array(numbers)
    found = {"mean": round(float(x.mean()), 5), "seeds": [round(v, 5) for v in numbers]}
    if len(x) > 1:
        half = stats.t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x))
        found["half"] = round(float(half), 5)
    return found


def in_words(found: Mapping[str, Mapping[str, Any]]) -> str:
    """`quantity mean ± half` of each, the half where there is one."""
    return ", ".join(
        f"{quantity} {x['mean']:+.4f}" + (f" ± {x['half']:.4f}" if "half" in x else "")
        for quantity, x in found.items()
    )
