"""The rollouts of a run, packed into its page within a bound.

A group of siblings is one JSON object, deflated and in base64, which the page's script
unpacks when somebody opens it; base64 cannot end the element that holds it. Steps share
the room: the newest and the first one come first, then those between, and of a step the
groups that the policy was paid for.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from accredit.reports.quantities import Palette, carries_credit, mean_paid
from accredit.reports.rollouts import sound_rollouts
from accredit.reports.samples import Row, facts_of, sample, worth
from accredit.storage.run_directory import RunDirectory
from accredit.text import printable

MOST_CHARACTERS = 6_000_000
"""Of all packed rollouts of a page, so that a browser opens it at once."""
MOST_FILE_BYTES = 16_000_000
"""Of rollout files read for a page, compressed; the newest is always read."""


@dataclass(frozen=True)
class Packed:
    """One group of siblings as the page holds it."""

    blob: str
    indices: tuple[int, ...]
    """Of its rollouts in the step's file."""
    carries_credit: bool


@dataclass(frozen=True)
class PackedStep:
    """What the page holds of one kept step."""

    step: int
    blobs: tuple[str, ...]
    num_shown: int
    num_rollouts: int


@dataclass(frozen=True)
class PackedRun:
    """What the page holds of a run."""

    steps: tuple[PackedStep, ...]
    """Ascending; those that were not read are left out."""
    palette: Palette
    num_kept: int
    """Steps whose rollouts the run kept."""

    @property
    def left_out(self) -> str:
        """What the page does not hold, in a sentence; empty where it holds all."""
        parts = []
        missing = self.num_kept - len(self.steps)
        if missing:
            parts.append(f"{missing} of {self.num_kept} kept steps")
        lost = sum(step.num_rollouts - step.num_shown for step in self.steps)
        if lost:
            whole = sum(step.num_rollouts for step in self.steps)
            parts.append(f"{lost:,} of {whole:,} rollouts of the other steps")
        if not parts:
            return ""
        return f"For want of room {' and '.join(parts)} are not in this page."


def pack_run(run: RunDirectory, first_groups: Sequence[tuple[int, int]]) -> PackedRun:
    """Packs as much of a run as the page has room for.

    `first_groups` are (step, index of a rollout) whose groups come before all others.
    """
    kept = run.rollout_steps()
    palette = Palette()
    steps: list[PackedStep] = []
    room, bytes_left = MOST_CHARACTERS, MOST_FILE_BYTES
    order = by_importance(kept)
    for number, step in enumerate(order):
        bytes_left -= run.rollout_file(step).stat().st_size
        if steps and bytes_left < 0:
            break
        wanted = {index for at, index in first_groups if at == step}
        share = room // (len(order) - number)
        packed = pack_step(step, sound_rollouts(run, step), share, wanted, palette)
        room -= sum(map(len, packed.blobs))
        steps.append(packed)
    return PackedRun(tuple(sorted(steps, key=lambda s: s.step)), palette, len(kept))


def by_importance(steps: Sequence[int]) -> list[int]:
    """The last, the first, the one in the middle, those in the middle of the halves."""
    if not steps:
        return []
    spans = [(0, len(steps) - 1)]
    found = [steps[-1], steps[0]] if len(steps) > 1 else [steps[0]]
    for low, high in spans:
        middle = (low + high) // 2
        if middle not in (low, high):
            found.append(steps[middle])
            spans += [(low, middle), (middle, high)]
    return found


def pack_step(
    step: int, rows: Iterable[Row], room: int, wanted: set[int], palette: Palette
) -> PackedStep:
    """One step's groups, in their order, as far as `room` characters reach."""
    groups: list[Packed] = []
    num_rollouts = 0
    for _, members in groupby(enumerate(rows), key=lambda pair: pair[1].get("group")):
        siblings = list(members)
        num_rollouts += len(siblings)
        groups.append(pack_group(siblings, palette))
    order = sorted(
        range(len(groups)),
        key=lambda i: (
            not wanted.intersection(groups[i].indices),
            not groups[i].carries_credit,
            i,
        ),
    )
    taken = set()
    for i in order:
        room -= len(groups[i].blob)
        if room < 0 and not wanted.intersection(groups[i].indices):
            break
        taken.add(i)
    shown = [groups[i] for i in sorted(taken)]
    return PackedStep(
        step,
        tuple(group.blob for group in shown),
        sum(len(group.indices) for group in shown),
        num_rollouts,
    )


def pack_group(siblings: Sequence[tuple[int, Row]], palette: Palette) -> Packed:
    """Siblings with their indices, as one deflated object."""
    first = siblings[0][1]
    content = {
        "problem": printable(str(first["problem_id"])),
        "answer": printable(str(first.get("answer") or "")),
        "prompt": printable(first["prompt"], keep_layout=True),
        "rollouts": [packed_rollout(index, row, palette) for index, row in siblings],
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    blob = base64.b64encode(zlib.compress(text.encode(), 9)).decode("ascii")
    paid = any(carries_credit(row) for _, row in siblings)
    return Packed(blob, tuple(index for index, _ in siblings), paid)


def packed_rollout(index: int, row: Row, palette: Palette) -> dict[str, Any]:
    """One rollout for the page's script; a column without change is one number."""
    shown = sample(index, row)
    palette.add(shown.columns)
    return {
        "index": index,
        "reward": row["reward"],
        "worth": printable(worth(row)),
        "paid": mean_paid(row),
        "facts": [
            fact for fact in facts_of(row) if fact[0] not in ("problem", "answer")
        ],
        "pieces": shown.pieces,
        "kinds": shown.kinds,
        "boundaries": shown.boundaries,
        "first": shown.first,
        "hidden": shown.num_hidden,
        "columns": {
            key: column[0] if len(set(column)) == 1 else column
            for key, column in shown.columns.items()
        },
    }
