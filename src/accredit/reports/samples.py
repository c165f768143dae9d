"""Sample rollouts for a page: which to show, and what each token was worth.

Two numbers a token: its advantage, which the policy was paid, and its credit, V before
the next token minus V before it, with the outcome after the last. The second exists
only where a critic valued the rollout.

Completions are untrusted: their text is made printable here and escaped by the
template.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from accredit.randomness import generator
from accredit.reports.summary import decimal, signed
from accredit.text import without_lone_surrogates
from accredit.types import StopReason

MOST_TOKENS = 1200
"""Of one completion on the page; the rollout file keeps all."""
MOST_REPLAYED = 200
"""Of a replayed prefix in front of what was sampled: its end."""
HIDDEN = {i: 0x2400 + i for i in range(0x20) if chr(i) not in "\n\t"}
HIDDEN |= dict.fromkeys([*range(0x7F, 0xA0), *range(0x202A, 0x202F)], 0xFFFD)
HIDDEN |= dict.fromkeys([*range(0x2066, 0x206A), 0x200E, 0x200F], 0xFFFD)
"""Control characters and direction overrides, which could hide or reorder text."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class TokenView:
    """One token as the page shows it."""

    text: str
    kind: str
    """up, down or none by the sign of its advantage; given where not sampled, replayed
    where it belongs to the prefix of another rollout."""
    strength: float
    """Of the background, 0 to 1."""
    note: str
    """What hovering shows."""
    credit_kind: str = "none"
    """gain, loss or none by the sign of its credit."""
    credit_strength: float = 0.0
    """Of the background where tokens are coloured by credit, 0 to 1."""


@dataclass(frozen=True)
class Sample:
    """One rollout as the page shows it."""

    title: str
    facts: tuple[tuple[str, str], ...]
    prompt: str
    tokens: tuple[TokenView, ...]
    num_hidden: int
    """Tokens left out at the end."""


def chosen_rollouts(rows: Iterable[Row], seed: int) -> dict[str, Row]:
    """Best, worst and a random other rollout of one step, read one row at a time."""
    best: Row | None = None
    worst: Row | None = None
    drawn: Row | None = None
    rng = generator(seed, "sample rollouts")
    for count, row in enumerate(rows, start=1):
        if row["reward"] is not None:
            best = row if best is None or row["reward"] > best["reward"] else best
            worst = row if worst is None or row["reward"] < worst["reward"] else worst
        drawn = row if rng.random() * count < 1.0 else drawn
    chosen = {"Best": best, "Worst": worst, "Random": drawn}
    shown: dict[str, Row] = {}
    for title, row in chosen.items():
        if row is not None and all(row is not other for other in shown.values()):
            shown[title] = row
    return shown


def advantage_scale(rows: Iterable[Row]) -> float:
    """|advantage| drawn in full colour: exceeded by two of a hundred tokens."""
    return _full_colour((row, row["advantages"]) for row in rows)


def credit_scale(rows: Iterable[Row]) -> float | None:
    """|credit| drawn in full colour; None where no critic valued a rollout."""
    columns = [(row, step_credits(row)) for row in rows]
    known = [(row, credits) for row, credits in columns if credits is not None]
    return _full_colour(known) if known else None


def advantage_unit(rows: Iterable[Row]) -> str:
    """The one unit of all rows, where they have one that the reward does not set."""
    units = {row.get("advantage_unit", "reward") for row in rows}
    return units.pop() if len(units) == 1 else "reward"


def step_credits(row: Row) -> list[float] | None:
    """V before the next sampled token, or the outcome, minus V before each.

    0 at tokens that were not sampled, and at the last one where nothing was verified,
    nor valued where it was stopped. None where no critic valued the rollout.
    """
    if not row.get("share_f") and row.get("prefix_value") is None:
        return None
    values = [value or 0.0 for value in row["values"]]
    sampled = [t for t, chosen in enumerate(row["sampled"]) if chosen]
    credits = [0.0] * len(row["sampled"])
    for t, following in pairwise(sampled):
        credits[t] = values[following] - values[t]
    if sampled and _has_outcome(row):
        credits[sampled[-1]] = row["shaped_reward"] - values[sampled[-1]]
    return credits


def sample_view(
    title: str, row: Row, scale: float, scale_of_credit: float | None = None
) -> Sample:
    """One row of a rollout file, ready for the template.

    Args:
        scale: |advantage| in full colour.
        scale_of_credit: |credit| in full colour; None colours nothing by it.
    """
    credits = step_credits(row)
    num_replayed = row.get("num_replayed", 0)
    start = row["num_prompt_tokens"] + max(0, num_replayed - MOST_REPLAYED)
    end = min(len(row["tokens"]), start + MOST_TOKENS)
    shown = "" if num_replayed <= MOST_REPLAYED else f", the last {MOST_REPLAYED} shown"
    facts = [
        ("problem", str(row["problem_id"])),
        ("reward", _worth(row)),
        ("verdict", "" if _is_stopped(row) else row["reason"]),
        ("stopped by", "a chunk border" if _is_stopped(row) else row["stop_reason"]),
        ("replayed tokens", f"{num_replayed}{shown}" if num_replayed else ""),
        ("tokens", str(sum(row["sampled"]))),
    ]
    return Sample(
        title=f"{title} of step {row['step']}",
        facts=tuple((name, printable(fact)) for name, fact in facts if fact),
        prompt=printable(row["prompt"]),
        tokens=tuple(
            _token_view(row, t, scale, credits, scale_of_credit)
            for t in range(start, end)
        ),
        num_hidden=len(row["tokens"]) - end,
    )


def _is_stopped(row: Row) -> bool:
    return row["stop_reason"] == StopReason.CHUNK


def _has_outcome(row: Row) -> bool:
    """Whether what followed is known: judged, or said by the critic at a border."""
    return row["reward"] is not None or row.get("endpoint_value") is not None


def _worth(row: Row) -> str:
    """Its reward, or what stands in for one where it was stopped on purpose."""
    if not _is_stopped(row):
        return "not verified" if row["reward"] is None else decimal(row["reward"], 2)
    value = row.get("endpoint_value")
    if value is None:
        return "stopped, no valid value"
    return f"stopped, valued {decimal(value, 2)}"


def printable(text: str) -> str:
    """Text without anything that hides, reorders or breaks a page."""
    return without_lone_surrogates(text).translate(HIDDEN)


def _full_colour(columns: Iterable[tuple[Row, Sequence[float | None]]]) -> float:
    sizes = [
        abs(amount)
        for row, column in columns
        for amount, sampled in zip(column, row["sampled"], strict=True)
        if sampled and amount is not None
    ]
    return max(float(np.quantile(sizes, 0.98)), 1e-9) if sizes else 1.0


def _token_view(
    row: Row,
    t: int,
    scale: float,
    credits: Sequence[float] | None,
    scale_of_credit: float | None,
) -> TokenView:
    text = printable(row["tokens"][t]).replace("\n", "↵\n")
    if t < row["num_prompt_tokens"] + row.get("num_replayed", 0):
        note = "replayed prefix: conditioning, nobody learns from it"
        return TokenView(text, "replayed", 0.0, note)
    if not row["sampled"][t]:
        return TokenView(text, "given", 0.0, "observation: not chosen by the policy")
    paid = row["advantages"][t] or 0.0
    kind = "up" if paid > 0 else "down" if paid < 0 else "none"
    strength = min(abs(paid) / scale, 1.0)
    note = _note(row, t, paid, None if credits is None else credits[t])
    if credits is None or scale_of_credit is None:
        return TokenView(text, kind, strength, note)
    gained = "gain" if credits[t] > 0 else "loss" if credits[t] < 0 else "none"
    depth = min(abs(credits[t]) / scale_of_credit, 1.0)
    return TokenView(text, kind, strength, note, gained, depth)


def _note(row: Row, t: int, paid: float, credit: float | None) -> str:
    unit = row.get("advantage_unit", "reward")
    lines = [f"advantage {signed(paid)}" + (f" {unit}" if unit != "reward" else "")]
    before = row["values"][t]
    if credit is not None:
        last = not any(row["sampled"][t + 1 :])
        ending = "value" if _is_stopped(row) else "outcome"
        then = (
            f", then {ending} {decimal(row['shaped_reward'])}"
            if last and _has_outcome(row)
            else f", {decimal((before or 0.0) + credit)} after"
        )
        lines.append(
            f"credit {signed(credit)}: value {decimal(before)} before it{then}"
        )
    elif any(row["values"]):
        lines.append(f"baseline {decimal(before)}")
    target, ratio = (_entry(row.get(key), t) for key in ("value_targets", "ratios"))
    if target is not None:
        lines.append(f"value target {decimal(target)}")
    if ratio is not None:
        refused = "" if _entry(row.get("accepted"), t) else ", not accepted"
        lines.append(f"ratio {decimal(ratio)} of new policy to old{refused}")
    logprob = _entry(row["logprobs"], t)
    logprob = _entry(row["sampling_logprobs"], t) if logprob is None else logprob
    if logprob is not None:
        chance = decimal(float(np.exp(min(logprob, 0.0))), 2)
        lines.append(f"log-prob {decimal(logprob)} (probability {chance})")
    return "\n".join([*lines, f"token {t - row['num_prompt_tokens'] + 1}"])


def _entry(column: Sequence[float | int] | None, t: int) -> float | int | None:
    return None if column is None else column[t]
