"""Which prompts come when: an endless order, epoch by epoch, each epoch shuffled anew.

The order depends on the seed and the data alone, so a run resumes from one number, the
count of prompts drawn so far, and workers that draw disjoint ranges share no work.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from accredit.randomness import generator
from accredit.types import Prompt


class ShuffledPrompts:
    """A `ProblemSource`: position `n` of the order is prompt `n mod N` of epoch
    `n div N`, and an epoch is a permutation keyed by (seed, "epoch", epoch).
    """

    def __init__(self, prompts: Sequence[Prompt], seed: int) -> None:
        if not prompts:
            raise ValueError("a source needs at least one prompt, got none")
        self.prompts = tuple(prompts)
        self.seed = seed
        self.fingerprint = fingerprint(self.prompts)
        """Of the data, to be saved beside the number of prompts drawn."""
        self._order = lru_cache(maxsize=2)(self._permutation)

    def draw(self, start: int, count: int) -> list[Prompt]:
        """The prompts at positions start, ..., start + count - 1 of the order."""
        if start < 0 or count < 0:
            raise ValueError(
                f"start and count must be >= 0, got start {start} and count {count}"
            )
        return [self._at(position) for position in range(start, start + count)]

    def resumed_start(self, num_drawn: int, saved_fingerprint: str) -> int:
        """Where to go on after `num_drawn` prompts of the data that were saved.

        Other data have another order, so they begin at 0.
        """
        return num_drawn if saved_fingerprint == self.fingerprint else 0

    def _at(self, position: int) -> Prompt:
        epoch, place = divmod(position, len(self.prompts))
        return self.prompts[self._order(epoch)[place]]

    def _permutation(self, epoch: int) -> list[int]:
        shuffled = generator(self.seed, "epoch", epoch).permutation(len(self.prompts))
        return shuffled.tolist()


def data_fingerprints(
    train: Sequence[Prompt], held_out: Sequence[Prompt]
) -> dict[str, str]:
    """SHA-256 of each part of the data that sets what is drawn, paid or evaluated."""
    return {
        "prompts": fingerprint(train),
        "answers": _digest(prompt.problem.answer for prompt in train),
        "metadata": _digest(plain(prompt.problem.metadata) for prompt in train),
        "held_out": _digest(
            [
                prompt.problem.id,
                list(prompt.token_ids),
                prompt.problem.answer,
                plain(prompt.problem.metadata),
            ]
            for prompt in held_out
        ),
    }


def _digest(parts: Iterable[object]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(json.dumps(part, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


def plain(value: object) -> object:
    """JSON containers in place of the read-only ones that a problem may hold."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value


def fingerprint(prompts: Sequence[Prompt]) -> str:
    """SHA-256 over ids and token ids, in order."""
    digest = hashlib.sha256()
    for prompt in prompts:
        name = prompt.problem.id.encode("utf-8", "surrogatepass")
        ids = ",".join(map(str, prompt.token_ids)).encode()
        digest.update(len(name).to_bytes(8, "big") + name)
        digest.update(len(ids).to_bytes(8, "big") + ids)
    return digest.hexdigest()
