"""What is known of each sampled token, and which of it a rollout is coloured by.

Every quantity has a level that is blank and a distance from it that is full colour. By
default a rollout is coloured by what tells its tokens apart: in this project's study
(docs/credit.md) that is the credit of an exact critic, of fresh rollouts or of a
teacher, not the credit of a learned critic or of a group's rewards. Where none of these
is at hand the log-prob is shown, which is measured and not estimated.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from accredit.types import StopReason

Row = Mapping[str, Any]
Column = Sequence[float | None]

MOST_PROBED = 256
"""Tokens of a rollout that take part in the scale of a colour."""
FULL_COLOUR = 0.98
"""Quantile, over the tokens that are not blank, of the distance in full colour."""
TOKEN_LEVEL = {
    "vine": "Fresh rollouts from every boundary told tokens apart in this project's "
    "study (docs/credit.md), better the shorter the chunks.",
    "opd": "A teacher's advantage found the tokens that mattered in this project's "
    "study (docs/credit.md).",
}
"""Algorithms whose advantage says something about single tokens, and why."""
ALIKE = "Every token of a rollout is paid the same here, which stands beside it."
LEARNED = (
    "In this project's study (docs/credit.md) what a learned critic's value changed by "
    "from token to token carried nothing of the exact credit, and outcome minus value "
    "next to nothing: choose credit or advantage to look, not to trust a token."
)
MEASURED = "The colour is how likely the policy found each token, which is measured."
EXACT = "The critic is exact: its credit is what each token changed."


@dataclass(frozen=True)
class Quantity:
    """One number a token."""

    key: str
    name: str
    words: str
    """What it says, as a legend puts it."""
    centre: float = 0.0
    """Where nothing is coloured."""


QUANTITIES = (
    Quantity(
        "credit",
        "credit",
        "credit V(t) − V(t−1), what the token changed, in reward units; the outcome "
        "follows the last",
    ),
    Quantity("paid", "advantage", "advantage, what the policy was paid for the token"),
    Quantity("value", "value", "V before the token, as the critic said"),
    Quantity("baseline", "baseline", "baseline that the reward is compared with"),
    Quantity("target", "value target", "what the critic was taught before the token"),
    Quantity(
        "logprob", "log-prob", "log-prob when it was sampled, nats: strong is unlikely"
    ),
    Quantity("entropy", "entropy", "entropy of what could have come, nats"),
    Quantity(
        "engine",
        "trainer / engine",
        "ratio of the trainer's probability to the engine's, for the same policy",
        1.0,
    ),
    Quantity(
        "ratio", "new / old", "ratio of the policy after the update to the old one", 1.0
    ),
)


@dataclass(frozen=True)
class Legend:
    """A quantity as a run has it."""

    quantity: Quantity
    scale: float
    """Distance from the centre in full colour."""
    low: float
    """Where the colours begin: the centre where nothing lies below it."""
    high: float

    def strength(self, value: float | None) -> float:
        """Signed depth of the colour, -1 to 1."""
        distance = 0.0 if value is None else value - self.quantity.centre
        return float(np.clip(distance / self.scale, -1.0, 1.0))


class Palette:
    """Collects columns, and knows afterwards what can be coloured, and by how much."""

    def __init__(self) -> None:
        self._distances: dict[str, list[np.ndarray]] = {}
        self._varying: set[str] = set()

    def add(self, columns: Mapping[str, Column]) -> None:
        """One rollout's columns, as `columns_of` gives them."""
        for quantity in QUANTITIES:
            column = columns.get(quantity.key)
            if not column:
                continue
            probed = column[:: -(-len(column) // MOST_PROBED)]
            known = np.array([x for x in probed if x is not None], dtype=float)
            distances = known - quantity.centre
            self._distances.setdefault(quantity.key, []).append(distances)
            if len(known) and float(np.ptp(known)) > 1e-4:
                self._varying.add(quantity.key)

    def legends(self) -> list[Legend]:
        """Quantities that differ from their blank level somewhere."""
        found = []
        for quantity in QUANTITIES:
            parts = self._distances.get(quantity.key, [])
            distances = np.concatenate(parts) if parts else np.zeros(0)
            seen = distances[np.abs(distances) > 1e-4]
            if len(seen):
                scale = float(np.quantile(np.abs(seen), FULL_COLOUR))
                low = scale if bool((seen < 0.0).any()) else 0.0
                high = scale if bool((seen > 0.0).any()) else 0.0
                ends = (quantity.centre - low, quantity.centre + high)
                found.append(Legend(quantity, scale, *ends))
        return found

    def preferred(self, recipe: Row) -> tuple[str, str]:
        """Key of the default colour, and why it is that one; empty without a token."""
        shown = [legend.quantity.key for legend in self.legends()]
        algorithm = recipe.get("algorithm")
        algorithm = algorithm if isinstance(algorithm, Mapping) else {"name": algorithm}
        critic, name = algorithm.get("critic"), str(algorithm.get("name"))
        kind = critic.get("kind") if isinstance(critic, Mapping) else None
        if kind == "exact" and "credit" in self._varying:
            return "credit", EXACT
        if name in TOKEN_LEVEL and "paid" in self._varying:
            return "paid", TOKEN_LEVEL[name]
        if "logprob" in shown:
            reasons = [] if "paid" in self._varying else [ALIKE]
            reasons += [LEARNED] if self._varying & {"credit", "paid"} else []
            return "logprob", " ".join([*reasons, MEASURED])
        return (shown[0], "") if shown else ("", "")


def columns_of(row: Row) -> dict[str, Column]:
    """Quantity -> a number for each sampled token, rounded as it is shown.

    A quantity that the row does not know is left out.
    """
    sampled = [t for t, chosen in enumerate(row["sampled"]) if chosen]
    whole = {
        "credit": step_credits(row),
        "paid": row.get("advantages"),
        ("value" if is_valued(row) else "baseline"): row.get("values"),
        "target": row.get("value_targets"),
        "logprob": row.get("sampling_logprobs"),
        "entropy": row.get("entropies"),
        "engine": _engine_ratios(row),
        "ratio": row.get("ratios"),
    }
    columns = {
        key: [column[t] for t in sampled]
        for key, column in whole.items()
        if column is not None
    }
    if "baseline" in columns and not any(columns["baseline"]):
        del columns["baseline"]
    return {key: _rounded(column) for key, column in columns.items()}


def step_credits(row: Row) -> list[float] | None:
    """V before the next sampled token, or the outcome, minus V before each.

    0 at tokens that were not sampled, and at the last one where nothing was verified,
    nor valued where it was stopped. None where no critic valued the rollout.
    """
    if not is_valued(row):
        return None
    values = [value or 0.0 for value in row["values"]]
    sampled = [t for t, chosen in enumerate(row["sampled"]) if chosen]
    credits = [0.0] * len(row["sampled"])
    for t, following in pairwise(sampled):
        credits[t] = values[following] - values[t]
    if sampled and has_outcome(row):
        credits[sampled[-1]] = row["shaped_reward"] - values[sampled[-1]]
    return credits


def is_valued(row: Row) -> bool:
    """Whether a critic valued the rollout, or the prefix that it goes on from."""
    return bool(row.get("share_f")) or row.get("prefix_value") is not None


def is_stopped(row: Row) -> bool:
    """Whether a chunk boundary ended it on purpose."""
    return row["stop_reason"] == StopReason.CHUNK


def has_outcome(row: Row) -> bool:
    """Whether what followed is known: judged, or said by the critic at a boundary."""
    return row["reward"] is not None or row.get("endpoint_value") is not None


def carries_credit(row: Row) -> bool:
    """Whether the policy was paid anything for it."""
    return any(row.get("advantages") or ())


def mean_paid(row: Row) -> float | None:
    """Mean advantage of its sampled tokens."""
    return mean_known(
        [
            paid
            for paid, chosen in zip(row["advantages"], row["sampled"], strict=False)
            if chosen
        ]
    )


def mean_known(column: Iterable[float | None]) -> float | None:
    """Of the numbers among the entries; None where there is none."""
    known = [x for x in column if x is not None]
    return sum(known) / len(known) if known else None


def _engine_ratios(row: Row) -> Column | None:
    old, sampling = row.get("old_logprobs"), row.get("sampling_logprobs")
    if old is None or sampling is None:
        return None
    return [
        None if a is None or b is None else float(np.exp(min(a - b, 50.0)))
        for a, b in zip(old, sampling, strict=True)
    ]


def _rounded(column: Column) -> Column:
    """Four decimals, six where all is small: what hovering shows."""
    known = [abs(x) for x in column if x is not None]
    digits = 4 if max(known, default=1.0) >= 0.05 else 6
    return [None if x is None else round(float(x), digits) for x in column]
