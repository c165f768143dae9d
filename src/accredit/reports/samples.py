"""Sample rollouts for a page: which to show, and each token with its credit.

Completions are untrusted: their text is made printable here and escaped by the
template.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accredit.randomness import generator
from accredit.reports.summary import decimal, signed
from accredit.text import without_lone_surrogates

MOST_TOKENS = 1200
"""Of one completion on the page; the rollout file keeps all."""
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
    """up, down or none by the sign of its credit; given where not sampled."""
    strength: float
    """Of the background, 0 to 1."""
    note: str
    """What hovering shows."""


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


def credit_scale(rows: Iterable[Row]) -> float:
    """|credit| drawn in full colour: exceeded by two of a hundred sampled tokens."""
    sizes = [
        abs(credit)
        for row in rows
        for credit, sampled in zip(row["advantages"], row["sampled"], strict=True)
        if sampled and credit is not None
    ]
    return max(float(np.quantile(sizes, 0.98)), 1e-9) if sizes else 1.0


def sample_view(title: str, row: Row, scale: float) -> Sample:
    """One row of a rollout file, ready for the template."""
    start = row["num_prompt_tokens"]
    end = min(len(row["tokens"]), start + MOST_TOKENS)
    reward = row["reward"]
    facts = [
        ("problem", str(row["problem_id"])),
        ("reward", "not verified" if reward is None else decimal(reward, 2)),
        ("verdict", row["reason"]),
        ("stopped by", row["stop_reason"]),
        ("tokens", str(sum(row["sampled"]))),
    ]
    return Sample(
        title=f"{title} of step {row['step']}",
        facts=tuple((name, printable(fact)) for name, fact in facts if fact),
        prompt=printable(row["prompt"]),
        tokens=tuple(_token_view(row, t, scale) for t in range(start, end)),
        num_hidden=len(row["tokens"]) - end,
    )


def printable(text: str) -> str:
    """Text without anything that hides, reorders or breaks a page."""
    return without_lone_surrogates(text).translate(HIDDEN)


def _token_view(row: Row, t: int, scale: float) -> TokenView:
    text = printable(row["tokens"][t]).replace("\n", "↵\n")
    if not row["sampled"][t]:
        return TokenView(text, "given", 0.0, "observation: not chosen by the policy")
    credit = row["advantages"][t] or 0.0
    kind = "up" if credit > 0 else "down" if credit < 0 else "none"
    return TokenView(text, kind, min(abs(credit) / scale, 1.0), _note(row, t, credit))


def _note(row: Row, t: int, credit: float) -> str:
    before, after = row["values"][t], row["values"][t + 1]
    lines = [f"credit {signed(credit)}", f"value {decimal(before)} before it"]
    if t + 1 < len(row["tokens"]):
        lines[-1] += f", {decimal(after)} after"
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
