"""What is stored between steps: judged rollouts to go on from, examples of a critic.

Frozen values in, frozen values out; every buffer is a queue that forgets its oldest.
Token ids are packed into short texts, which are read when somebody asks for the ids,
not when a buffer is. Knows no model and no algorithm.
"""

import base64
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LARGEST_NUM_TOKENS = 1 << 22
"""More are refused, so that a short text cannot fill the memory."""
ID_BYTES = 4


def packed(token_ids: Sequence[int]) -> str:
    """Token ids as a short text: base64 of zlib of little-endian int32.

    Raises:
        ValueError: An id is not in 0..2^31-1, or there are too many.
    """
    if len(token_ids) > LARGEST_NUM_TOKENS:
        raise ValueError(
            f"at most {LARGEST_NUM_TOKENS} token ids are packed, got "
            f"{len(token_ids)}; shorten the completion"
        )
    least, most = min(token_ids, default=0), max(token_ids, default=0)
    if least < 0 or most >= 1 << 31:
        raise ValueError(
            f"token ids must be in 0..2^31-1, got {least}..{most}; "
            "pack what the engine sampled"
        )
    raw = np.array(token_ids, dtype="<i4").tobytes()
    return base64.b64encode(zlib.compress(raw, 6)).decode()


def unpacked(text: str) -> tuple[int, ...]:
    """The token ids that were `packed`.

    Raises:
        ValueError: The text is nothing that `packed` wrote.
    """
    most = LARGEST_NUM_TOKENS * ID_BYTES
    reader = zlib.decompressobj()
    try:
        raw = reader.decompress(base64.b64decode(text, validate=True), most + 1)
    except (ValueError, zlib.error) as error:
        raise _not_packed(text, str(error)) from error
    if len(raw) > most:
        raise _not_packed(text, f"more than {LARGEST_NUM_TOKENS} ids")
    if not reader.eof or reader.unused_data or len(raw) % ID_BYTES:
        raise _not_packed(text, "too little or too much")
    ids = np.frombuffer(raw, dtype="<i4")
    if ids.size and ids.min() < 0:
        raise _not_packed(text, f"the id {ids.min()}")
    return tuple(ids.tolist())


def _not_packed(text: str, found: str) -> ValueError:
    return ValueError(
        f"stored token ids must be base64 of zlib of int32, got {found} in "
        f"{text!r:.80}; the buffer is torn, resume from an older checkpoint"
    )


@dataclass(frozen=True)
class StoredRollout:
    """A complete, judged rollout."""

    problem_id: str
    written: str
    """Packed ids of the completion, its stop token included."""
    num_tokens: int
    reward: float

    def __post_init__(self) -> None:
        if self.num_tokens < 0:
            raise ValueError(
                f"num_tokens must be >= 0, got {self.num_tokens} for "
                f"{self.problem_id!r}; count the completion"
            )
        _require_finite("reward", self.reward, self.problem_id)

    @classmethod
    def of(
        cls, problem_id: str, token_ids: Sequence[int], reward: float
    ) -> "StoredRollout":
        """From the ids of the completion."""
        return cls(problem_id, packed(token_ids), len(token_ids), reward)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Of the completion, its stop token included.

        Raises:
            ValueError: What is stored is torn.
        """
        ids = unpacked(self.written)
        if len(ids) != self.num_tokens:
            raise _not_packed(self.written, f"{len(ids)} of {self.num_tokens} ids")
        return ids


@dataclass(frozen=True)
class StoredExample:
    """A prefix, and what the critic should have said of it."""

    problem_id: str
    written: str
    """Packed ids of the prefix."""
    target: float
    """Reward units."""
    reference: str | None
    """Packed completion of the rollout that the prefix is from, where it passed."""

    def __post_init__(self) -> None:
        _require_finite("target", self.target, self.problem_id)

    @classmethod
    def of(
        cls,
        problem_id: str,
        token_ids: Sequence[int],
        target: float,
        reference_ids: Sequence[int] | None,
    ) -> "StoredExample":
        """From the ids of the prefix and of its reference."""
        reference = None if reference_ids is None else packed(reference_ids)
        return cls(problem_id, packed(token_ids), target, reference)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Of the prefix."""
        return unpacked(self.written)

    @property
    def reference_ids(self) -> tuple[int, ...] | None:
        """Of the passing completion, if there is one."""
        return None if self.reference is None else unpacked(self.reference)


def _require_finite(name: str, value: float, problem_id: str) -> None:
    if not math.isfinite(value):
        raise ValueError(
            f"a stored {name} must be finite, got {value} for {problem_id!r}; "
            "store only what was judged"
        )


@dataclass(frozen=True)
class RolloutBuffer:
    """Judged rollouts, oldest first."""

    capacity: int
    items: tuple[StoredRollout, ...] = ()

    def __post_init__(self) -> None:
        _require_room(self.capacity, len(self.items))

    def added(self, rollouts: Sequence[StoredRollout]) -> "RolloutBuffer":
        """With these behind it; the oldest go where there is no room."""
        items = (*self.items, *rollouts)[-self.capacity :]
        return RolloutBuffer(self.capacity, items)


@dataclass(frozen=True)
class ExampleBuffer:
    """Lessons of a critic, oldest first."""

    capacity: int
    items: tuple[StoredExample, ...] = ()

    def __post_init__(self) -> None:
        _require_room(self.capacity, len(self.items))

    def added(self, examples: Sequence[StoredExample]) -> "ExampleBuffer":
        """With these behind it; the oldest go where there is no room."""
        items = (*self.items, *examples)[-self.capacity :]
        return ExampleBuffer(self.capacity, items)

    def drawn(self, count: int, draw: np.random.Generator) -> list[StoredExample]:
        """That many of them without replacement, in random order; all where fewer."""
        _require_count(count)
        order = draw.permutation(len(self.items))[:count]
        return [self.items[i] for i in order.tolist()]


def _require_room(capacity: int, num_items: int) -> None:
    if capacity < 1 or num_items > capacity:
        raise ValueError(
            "a buffer needs a capacity of 1 or more and no more items than that, got "
            f"{num_items} items and a capacity of {capacity}; add them with `added`"
        )


def _require_count(count: int) -> None:
    if count < 0:
        raise ValueError(f"count must be >= 0, got {count}; draw nothing with 0")


def drawn_rollouts(
    buffer: RolloutBuffer, count: int, draw: np.random.Generator
) -> list[StoredRollout]:
    """Stored rollouts to go on from, their problems as evenly often as can be.

    The distinct problems are permuted and gone through in that order, round after
    round; each time one of the problem's rollouts is taken, all equally likely.

    Raises:
        ValueError: The buffer is empty, or `count` is negative.
    """
    _require_count(count)
    if not buffer.items:
        raise ValueError(
            "rollouts can be drawn from a buffer that holds some, got an empty one; "
            "roll out fresh problems"
        )
    of_problem: dict[str, list[StoredRollout]] = {}
    for item in buffer.items:
        of_problem.setdefault(item.problem_id, []).append(item)
    problems = list(of_problem.values())
    order = draw.permutation(len(problems)).tolist()
    chosen = [problems[order[i % len(order)]] for i in range(count)]
    return [stored[int(draw.integers(len(stored)))] for stored in chosen]


def cut_points(num_tokens: int, grid: int, largest_share: float) -> list[int]:
    """Where a stored completion may be cut: how many tokens the prefix can have.

        {0, grid, 2 grid, ...},    at most largest_share num_tokens and < num_tokens

    A product that is a multiple up to rounding is one. 0 is always among them, and the
    last token, which may be a stop token, is in no prefix.

    Args:
        num_tokens: Of the completion, its stop token included.
        grid: Tokens between cuts.
        largest_share: In [0, 1].

    Raises:
        ValueError: An argument is outside its range.
    """
    if num_tokens < 0 or grid < 1 or not 0.0 <= largest_share <= 1.0:
        raise ValueError(
            "cuts need num_tokens >= 0, grid >= 1 and largest_share in [0, 1], got "
            f"{num_tokens}, {grid} and {largest_share}; mend the recipe"
        )
    largest = math.floor(largest_share * num_tokens / grid + 1e-9)
    return [0, *(k * grid for k in range(1, largest + 1) if k * grid < num_tokens)]


def drawn_cut(
    num_tokens: int, grid: int, largest_share: float, draw: np.random.Generator
) -> int:
    """One of the `cut_points`, all equally likely."""
    points = cut_points(num_tokens, grid, largest_share)
    return points[int(draw.integers(len(points)))]
