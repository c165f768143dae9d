"""The nouns of the library: what travels from a problem to an update.

    Problem --tokenizer--> Prompt --engine, environment--> Rollout --verifier--> Verdict
    Prompt + (Rollout, Verdict) x group_size --> Group --collate--> Batch
    Prompt + the beginning of a rollout --> Prefix --environment--> Group
    Prefix + a reference --> CriticQuery --critic--> its value

What a step makes of a batch is in `records`.

Alignment law: index t of every per-token tensor speaks about `token_ids[t]`; `values`
has one more column, because a sequence of T tokens has T + 1 prefixes and `values[t]`
is V of the prefix `token_ids[:t]`. Masks are always True = keep. `None` is not 0.

Every type is frozen and checked when it is born. This module knows no model, no text
and no algorithm.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

EMPTY: Mapping[str, Any] = MappingProxyType({})
LARGEST_REWARD = 1e6


class StopReason(StrEnum):
    """Why a rollout ended, as told by the engine or the environment, never guessed."""

    STOP = "stop"
    """The policy sampled a stop token."""
    LENGTH = "length"
    """The token budget ran out: truncated, which is not finished."""
    CHUNK = "chunk"
    """Stopped at a chunk boundary on purpose; the critic values what follows."""
    ENVIRONMENT = "environment"
    """The environment ended the episode (solved, or no turns left)."""
    FAILURE = "failure"
    """The engine or the environment failed; the rollout is data for nobody."""

    @property
    def finished(self) -> bool:
        """True where nothing would have followed, so that no value is bootstrapped."""
        return self in (StopReason.STOP, StopReason.ENVIRONMENT)


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: str
    content: str


@dataclass(frozen=True)
class Problem:
    """One row of a data set: what is asked, and what its verifier needs to know."""

    id: str
    messages: tuple[Message, ...]
    answer: str | None = None
    split: str = "train"
    metadata: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """JSON values the task's own verifier or environment reads."""

    def __post_init__(self) -> None:
        if not self.id:
            raise ValueError("a problem needs a non-empty id, got ''")
        if not self.messages:
            raise ValueError(f"problem {self.id!r} must have a message, got none")


@dataclass(frozen=True)
class Prompt:
    """A problem as the token ids that are sent to the engine."""

    problem: Problem
    token_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.token_ids:
            raise ValueError(f"prompt of {self.problem.id!r} must not be empty")


@dataclass(frozen=True)
class Prefix:
    """Where a continuation begins: a prompt, and what is replayed behind it."""

    prompt: Prompt
    written: tuple[int, ...] = ()
    """The beginning of a completion that has not ended: without its stop token."""
    max_new_tokens: int | None = None
    """Most tokens of the chunk that follows; None goes on to the end."""

    def __post_init__(self) -> None:
        if self.max_new_tokens is not None and self.max_new_tokens < 1:
            raise ValueError(
                f"a chunk must hold a token or more, got {self.max_new_tokens}"
            )

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Prompt and replayed tokens."""
        return (*self.prompt.token_ids, *self.written)


@dataclass(frozen=True)
class CriticQuery:
    """The beginning of a completion, as a critic is asked about it."""

    prompt: Prompt
    written: tuple[int, ...] = ()
    """Tokens of the completion so far."""
    reference: tuple[int, ...] | None = None
    """A passing completion to the same problem; None shows the critic none."""


@dataclass(frozen=True)
class CriticExample:
    """What a critic should have said of an attempt."""

    query: CriticQuery
    target: float
    """Reward units."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. The log-probs are of exactly this distribution."""

    temperature: float = 1.0
    """Divides the logits; 0 means greedy, with log-probs taken at temperature 1."""
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps the whole vocabulary."""

    def __post_init__(self) -> None:
        if not (self.temperature >= 0 and math.isfinite(self.temperature)):
            raise ValueError(f"temperature must be >= 0, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be >= 0 (0 keeps all), got {self.top_k}")


@dataclass(frozen=True)
class Request:
    """One span to generate: continue `token_ids` by at most `max_new_tokens`."""

    token_ids: tuple[int, ...]
    max_new_tokens: int
    key: int
    """Seed of this request's draws; see `randomness.keyed_seed`."""


@dataclass(frozen=True)
class Completion:
    """What the engine sampled for one request, stop token included."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Nats, of each sampled token under the distribution it was drawn from."""
    stop_reason: StopReason

    def __post_init__(self) -> None:
        if len(self.token_ids) != len(self.logprobs):
            raise ValueError(
                "a completion needs one log-prob a token, got "
                f"{len(self.token_ids)} tokens and {len(self.logprobs)} log-probs"
            )


@dataclass(frozen=True, eq=False)
class Rollout:
    """One trajectory and the record of how it was sampled."""

    prompt: Prompt
    token_ids: Int[Tensor, " token"]
    """Prompt, completion and observations, as sampled and sent; never re-encoded."""
    sampled: Bool[Tensor, " token"]
    """True where the policy chose the token."""
    sampling_logprobs: Float[Tensor, " token"]
    """The engine's log-probs, nats; exactly 0 where nothing was sampled."""
    stop_reason: StopReason
    sample: int = 0
    """Index among the siblings of its prompt."""
    policy_versions: tuple[int, int] = (0, 0)
    """Oldest and newest policy that sampled a token of it."""

    def __post_init__(self) -> None:
        lengths = [len(self.token_ids), len(self.sampled), len(self.sampling_logprobs)]
        if len(set(lengths)) != 1:
            raise ValueError(
                "token_ids, sampled and sampling_logprobs must have one length, "
                f"got {lengths} for {self.prompt.problem.id!r}"
            )
        logprobs = self.sampling_logprobs
        if not bool(torch.isfinite(logprobs).all()) or bool((logprobs > 1e-4).any()):
            raise ValueError(
                "sampling_logprobs must be finite and <= 0, got "
                f"[{float(logprobs.min())}, {float(logprobs.max())}] "
                f"for {self.prompt.problem.id!r}"
            )
        if bool(logprobs[~self.sampled].any()):
            raise ValueError("sampling_logprobs must be 0 where nothing was sampled")
        if self.policy_versions[0] > self.policy_versions[1]:
            raise ValueError(f"oldest version exceeds newest: {self.policy_versions}")

    @property
    def completion_ids(self) -> list[int]:
        """Everything after the prompt, observations included."""
        return _integers(self.token_ids[len(self.prompt.token_ids) :])

    @property
    def num_sampled(self) -> int:
        """Number of tokens the policy chose."""
        return int(self.sampled.sum())

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """(prefix length, new tokens) of each request, for the FLOP ledgers."""
        outside = torch.zeros(1, dtype=torch.int8)
        flags = torch.cat([outside, self.sampled.to(torch.int8), outside])
        edges = _integers(flags.diff().nonzero()[:, 0])
        starts, ends = edges[::2], edges[1::2]
        return tuple((s, e - s) for s, e in zip(starts, ends, strict=True))


def _integers(x: Int[Tensor, " element"]) -> list[int]:
    # torch's stubs leave open what `tolist` gives.
    return x.tolist()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


@dataclass(frozen=True)
class Verdict:
    """What a verifier says of one rollout. None is 'cannot tell', which is not 0."""

    reward: float | None
    reason: str = ""
    parts: Mapping[str, float] = field(default_factory=lambda: EMPTY)
    """Named components of the reward, for the report."""

    def __post_init__(self) -> None:
        if self.reward is not None and not abs(self.reward) <= LARGEST_REWARD:
            raise ValueError(
                f"a reward must be finite or None, got {self.reward}; at most "
                f"+-{LARGEST_REWARD:g}, or it drowns its siblings in float32"
            )
        if self.reward is None and not self.reason:
            raise ValueError("a verdict without a reward needs a reason")


@dataclass(frozen=True)
class Group:
    """Siblings of one prompt, each with its verdict."""

    prompt: Prompt
    rollouts: tuple[Rollout, ...]
    verdicts: tuple[Verdict, ...]

    def __post_init__(self) -> None:
        if not self.rollouts or len(self.rollouts) != len(self.verdicts):
            raise ValueError(
                "a group needs as many verdicts as rollouts and at least one, got "
                f"{len(self.rollouts)} rollouts and {len(self.verdicts)} verdicts"
            )
        strangers = {r.prompt.problem.id for r in self.rollouts}
        if strangers != {self.prompt.problem.id}:
            raise ValueError(
                f"all rollouts of a group answer {self.prompt.problem.id!r}, "
                f"got {sorted(strangers)}"
            )

    @property
    def votes(self) -> tuple[float | None, ...]:
        """The reward of each rollout that may stand in a baseline, None elsewhere.

        A rollout without a sampled token chose nothing: whatever its verdict, it
        teaches nobody and so is no sibling to be compared with.
        """
        return tuple(
            verdict.reward if bool(rollout.sampled.any()) else None
            for rollout, verdict in zip(self.rollouts, self.verdicts, strict=True)
        )


@dataclass(frozen=True, eq=False)
class Batch:
    """Rollouts of many groups as right-padded tensors."""

    token_ids: Int[Tensor, "rollout token"]
    token_mask: Bool[Tensor, "rollout token"]
    """True at real tokens, False at right padding."""
    sampled: Bool[Tensor, "rollout token"]
    sampling_logprobs: Float[Tensor, "rollout token"]
    rewards: Float[Tensor, " rollout"]
    """As verified; 0 where `verified` is False, and never read there."""
    verified: Bool[Tensor, " rollout"]
    """True where a rollout votes: it has a reward, and a token that was sampled."""
    truncated: Bool[Tensor, " rollout"]
    """True where something would have followed: out of tokens, or cut at a chunk."""
    group_index: Int[Tensor, " rollout"]
    """Which group each rollout belongs to, 0..num_groups-1, in order."""
    prompts: tuple[Prompt, ...] = ()
    """Of each rollout; empty where nobody asks."""

    def __post_init__(self) -> None:
        shapes = {
            "token_ids": self.token_ids.shape,
            "token_mask": self.token_mask.shape,
            "sampled": self.sampled.shape,
            "sampling_logprobs": self.sampling_logprobs.shape,
        }
        if len(set(shapes.values())) != 1:
            raise ValueError(f"per-token tensors must have one shape, got {shapes}")
        rows = {
            "token_ids": len(self.token_ids),
            "rewards": len(self.rewards),
            "verified": len(self.verified),
            "truncated": len(self.truncated),
            "group_index": len(self.group_index),
            "prompts": len(self.prompts) or len(self.token_ids),
        }
        if len(set(rows.values())) != 1:
            raise ValueError(f"a batch needs one row a rollout, got {rows}")
        if bool((self.sampled & ~self.token_mask).any()):
            raise ValueError("padding cannot be sampled: sampled must imply token_mask")
        idle = self.verified & ~self.sampled.any(1)
        if bool(idle.any()):
            rows_found = _integers(idle.nonzero()[:, 0])
            raise ValueError(
                "a verified rollout must hold a sampled token, or it shifts its "
                f"group's baseline for nothing, got rows {rows_found} "
                "without one; collate their groups, which gives them no vote"
            )

    @property
    def num_rollouts(self) -> int:
        """Rows."""
        return len(self.token_ids)

    @property
    def trainable(self) -> Bool[Tensor, "rollout token"]:
        """Sampled tokens of verified rollouts: what a policy loss may touch."""
        return self.sampled & self.verified[:, None]

    def rows(self, index: Int[Tensor, " row"]) -> "Batch":
        """The named rows, with their padding."""
        return Batch(
            self.token_ids[index],
            self.token_mask[index],
            self.sampled[index],
            self.sampling_logprobs[index],
            self.rewards[index],
            self.verified[index],
            self.truncated[index],
            self.group_index[index],
            tuple(self.prompts[i] for i in _integers(index)) if self.prompts else (),
        )
