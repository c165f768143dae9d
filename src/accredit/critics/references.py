"""One passing completion a problem, for a critic to be shown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from accredit.batches.replay import packed, unpacked


@dataclass(frozen=True)
class ReferenceBank:
    """The first passing completion of each problem, never replaced."""

    items: Mapping[str, str] = field(default_factory=dict)
    """Problem id -> packed ids of the completion."""

    def __len__(self) -> int:
        return len(self.items)

    def __contains__(self, problem_id: object) -> bool:
        return problem_id in self.items

    def reference(self, problem_id: str) -> tuple[int, ...] | None:
        """Ids of the problem's completion; None where none has passed."""
        written = self.items.get(problem_id)
        return None if written is None else unpacked(written)

    def added(
        self, passing: Sequence[tuple[str, Sequence[int]]], draw: np.random.Generator
    ) -> "ReferenceBank":
        """With the completions of problems that had none.

        Args:
            passing: Problem ids and completions of one step; a failed completion must
                never be among them. Of several of a problem one is drawn.
            draw: Used for the problems in the order of their ids, so that the order of
                `passing` decides nothing between problems.
        """
        candidates: dict[str, list[Sequence[int]]] = {}
        for problem_id, token_ids in passing:
            if problem_id not in self.items:
                candidates.setdefault(problem_id, []).append(token_ids)
        new = {
            problem_id: packed(found[int(draw.integers(len(found)))])
            for problem_id, found in sorted(candidates.items())
        }
        return ReferenceBank({**self.items, **new})
