"""Rollouts for a person: which to show, what is said of them, and their tokens.

Completions are untrusted: their text is made printable here; whoever shows it escapes
it for where it is shown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accredit.randomness import generator
from accredit.reports.quantities import (
    Column,
    carries_credit,
    columns_of,
    is_stopped,
    mean_paid,
)
from accredit.reports.summary import decimal, signed
from accredit.text import printable

MOST_TOKENS = 4096
"""Of one completion that is shown; the rollout file keeps all."""
MOST_REPLAYED = 200
"""Of a replayed prefix in front of what was sampled: its end."""
SAMPLED, GIVEN, REPLAYED, REFUSED = "s", "g", "r", "m"
"""Kinds of tokens: sampled, an observation, a replayed prefix's, sampled but masked."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Sample:
    """One rollout as it is shown."""

    index: int
    """Of its row in the step's file, from 0."""
    facts: tuple[tuple[str, str], ...]
    prompt: str
    pieces: tuple[str, ...]
    """Text of each token that is shown."""
    kinds: str
    """One letter a token."""
    boundaries: tuple[int, ...]
    """Tokens in front of which a chunk begins; their number where it ends there."""
    columns: Mapping[str, Column]
    """Of `quantities`, a number for each token shown that was sampled."""
    first: int
    """Tokens of a replayed prefix left out at the front."""
    num_hidden: int
    """Tokens left out at the end."""

    @property
    def text(self) -> str:
        """What is shown of the completion."""
        return "".join(self.pieces)


def chosen_rollouts(rows: Iterable[Row], seed: int) -> dict[str, tuple[int, Row]]:
    """Best, worst and a random other rollout of one step, read one row at a time.

    Those that the policy was paid for come first: the others teach nothing.
    """
    paid, others = _Choice(seed), _Choice(seed)
    for index, row in enumerate(rows):
        (paid if carries_credit(row) else others).offer(index, row)
    shown: dict[str, tuple[int, Row]] = {}
    for title in ("Best", "Worst", "Random"):
        found = paid.kept.get(title) or others.kept.get(title)
        if found is not None and all(found[0] != other for other, _ in shown.values()):
            shown[title] = found
    return shown


class _Choice:
    """The best, the worst and a random one of the rows that it is offered."""

    def __init__(self, seed: int) -> None:
        self.kept: dict[str, tuple[int, Row]] = {}
        self._count = 0
        self._rng = generator(seed, "sample rollouts")

    def offer(self, index: int, row: Row) -> None:
        self._count += 1
        if row["reward"] is not None:
            best, worst = self.kept.get("Best"), self.kept.get("Worst")
            if best is None or row["reward"] > best[1]["reward"]:
                self.kept["Best"] = (index, row)
            if worst is None or row["reward"] < worst[1]["reward"]:
                self.kept["Worst"] = (index, row)
        if self._rng.random() * self._count < 1.0:
            self.kept["Random"] = (index, row)


def sample(index: int, row: Row) -> Sample:
    """One row of a rollout file, ready to be shown."""
    num_prompt, num_replayed = row["num_prompt_tokens"], row.get("num_replayed", 0)
    start = num_prompt + max(0, num_replayed - MOST_REPLAYED)
    end = min(len(row["tokens"]), start + MOST_TOKENS)
    pieces = aligned_pieces(row["tokens"][num_prompt:], row["completion"])
    num_before = sum(map(bool, row["sampled"][:start]))
    num_shown = sum(map(bool, row["sampled"][start:end]))
    return Sample(
        index=index,
        facts=facts_of(row),
        prompt=printable(row["prompt"], keep_layout=True),
        pieces=tuple(
            printable(piece, keep_layout=True)
            for piece in pieces[start - num_prompt : end - num_prompt]
        ),
        kinds=_kinds(row, start, end),
        boundaries=tuple(t - start for t in _boundaries(row) if start <= t <= end),
        columns={
            key: column[num_before : num_before + num_shown]
            for key, column in columns_of(row).items()
        },
        first=start - num_prompt,
        num_hidden=len(row["tokens"]) - end,
    )


def facts_of(row: Row) -> tuple[tuple[str, str], ...]:
    """What is said of a rollout in words, empty parts left out."""
    num_replayed, paid = row.get("num_replayed", 0), mean_paid(row)
    shown = "" if num_replayed <= MOST_REPLAYED else f", the last {MOST_REPLAYED} shown"
    unit = row.get("advantage_unit", "reward")
    facts = [
        ("problem", str(row["problem_id"])),
        ("answer", str(row.get("answer") or "")),
        ("reward", worth(row)),
        ("verdict", "" if is_stopped(row) else str(row["reason"] or "")),
        ("stopped by", "a chunk boundary" if is_stopped(row) else row["stop_reason"]),
        ("replayed tokens", f"{num_replayed}{shown}" if num_replayed else ""),
        ("tokens", str(sum(map(bool, row["sampled"])))),
        ("mean advantage", "" if paid is None else signed(paid)),
        ("in", "nats" if unit == "nats" else ""),
    ]
    return tuple((name, printable(fact)) for name, fact in facts if fact)


def worth(row: Row) -> str:
    """Its reward, or what stands in for one where it was stopped on purpose."""
    if not is_stopped(row):
        return "not verified" if row["reward"] is None else decimal(row["reward"], 2)
    value = row.get("endpoint_value")
    if value is None:
        return "stopped, no valid value"
    return f"stopped, valued {decimal(value, 2)}"


def aligned_pieces(pieces: Sequence[str], completion: str) -> list[str]:
    """Each token's own part of the text, where decoding it alone said something else.

    A token by itself loses the space in front of it with some tokenizers, and with
    others is a part of a character; the first token of such a character gets it whole.
    """
    aligned: list[str] = []
    broken: list[int] = []
    position = 0
    for piece in pieces:
        if "\ufffd" in piece:
            broken.append(len(aligned))
            aligned.append("")
            continue
        at = completion.find(piece, position)
        between = completion[position : max(at, 0)]
        if at < 0 or (between.strip() and not broken):
            return list(pieces)
        if broken:
            aligned[broken[0]], between, broken = between, "", []
        aligned.append(between + piece)
        position = at + len(piece)
    if broken:
        aligned[broken[0]], position = completion[position:], len(completion)
    return aligned if position == len(completion) else list(pieces)


def _kinds(row: Row, start: int, end: int) -> str:
    sampling = row["num_prompt_tokens"] + row.get("num_replayed", 0)
    accepted = row.get("accepted")
    kinds = []
    for t in range(start, end):
        if t < sampling:
            kinds.append(REPLAYED)
        elif not row["sampled"][t]:
            kinds.append(GIVEN)
        else:
            is_refused = accepted is not None and not accepted[t]
            kinds.append(REFUSED if is_refused else SAMPLED)
    return "".join(kinds)


def _boundaries(row: Row) -> list[int]:
    """Where chunks begin, and the end where the last one was stopped at a boundary."""
    sampling, length = row["num_prompt_tokens"], len(row["tokens"])
    boundaries = []
    if row.get("num_replayed"):
        sampling += row["num_replayed"]
        boundaries.append(sampling)
    if row.get("boundary_reached"):
        values = row["values"]
        changed = (t for t in range(sampling + 1, length) if values[t] != values[t - 1])
        boundaries += list(changed)[:1]
    return [*boundaries, length] if is_stopped(row) else boundaries
