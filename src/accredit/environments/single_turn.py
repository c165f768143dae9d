"""One prompt, one completion, one verdict; also from the middle of a completion.

All completions of a call are generated together and verified together. A continuation
replays what is written, which nobody samples, and goes on with the budget that is left;
its verdict is that of the whole completion. Where a prefix asks for a chunk only, a
completion that the chunk ends is not judged, unless its answer is there already; one
that ends with the budget is judged like any other. What the world gets wrong (a
completion the engine calls failed, a NaN log-prob, a prompt that leaves no room)
becomes a rollout without a reward and with a reason. An engine that raises is a fault
of the program and ends the run.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from accredit.protocols import Engine, Verifier
from accredit.randomness import keyed_seed
from accredit.types import (
    Completion,
    Group,
    Prefix,
    Problem,
    Prompt,
    Request,
    Rollout,
    Sampling,
    StopReason,
    Verdict,
)

NO_ROOM = "the prompt leaves no room for a completion"
ENGINE_FAILURE = "the engine failed"
BAD_LOGPROBS = "the engine gave a log-prob that is not finite and <= 0"
OVERRUN = "the engine sampled more tokens than it was asked for"
NOTHING_SAMPLED = "nothing was sampled"
CHUNK_ENDED = "stopped at a chunk boundary: not judged"

LOWEST, HIGHEST = -3e38, 1e-4
"""Log-probs, nats, that float32 and rounding allow; NaN lies in no range."""


def never_answered(problem: Problem, text: str) -> bool:
    """A completion is done when it has ended."""
    return False


@dataclass(frozen=True)
class SingleTurn:
    """An `Environment` whose episode is one completion."""

    engine: Engine
    verifier: Verifier
    decode: Callable[[Sequence[Sequence[int]]], list[str]]
    """Completions as text; see `tasks.rendering.decoder`."""
    max_new_tokens: int
    """Largest completion, stop token included."""
    seed: int
    max_context_tokens: int | None = None
    """Largest prompt and completion together; None leaves it to `max_new_tokens`."""
    answered: Callable[[Problem, str], bool] = never_answered
    """Whether a text that goes on holds its whole answer; see `verification.answered`.
    """
    read: Callable[[Sequence[int], Sequence[int]], str] | None = None
    """Prompt and completion as the text that `answered` is asked about; None takes the
    completion alone, by `decode`. See `verification.answered.Turns`."""

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be >= 1, got {self.max_new_tokens}")
        if self.max_context_tokens is not None and self.max_context_tokens < 2:
            raise ValueError(
                "max_context_tokens must hold a prompt and a token, so be >= 2, got "
                f"{self.max_context_tokens}"
            )

    def roll_out(
        self,
        prompts: Sequence[Prompt],
        group_size: int,
        sampling: Sampling,
        key: tuple[int | str, ...],
    ) -> list[Group]:
        """`group_size` verified rollouts of each prompt, in the order of the prompts.

        A prompt that comes twice gives two groups with draws of their own, as long as
        both come in one call: `key` must differ between calls.
        """
        prefixes = [Prefix(prompt) for prompt in prompts]
        return self.continue_from(prefixes, group_size, sampling, key)

    def continue_from(
        self,
        prefixes: Sequence[Prefix],
        group_size: int,
        sampling: Sampling,
        key: tuple[int | str, ...],
    ) -> list[Group]:
        """`group_size` verified rollouts of each prefix, in the order of the prefixes.

        Draws follow `key`, problem and what is written, so that they do not depend on
        the other prefixes; one that comes twice in a call has draws of its own. Where
        no room is left, what is written is the rollout, truncated, and verified so.
        """
        if group_size < 1:
            raise ValueError(f"group_size must be >= 1, got {group_size}")
        members = [
            _Member(
                prefix,
                sample,
                self._room(prefix),
                keyed_seed(self.seed, *own, sample),
                prefix.max_new_tokens,
            )
            for prefix, own in _keyed(prefixes, key)
            for sample in range(group_size)
        ]
        sampled = self._sampled(members, sampling)
        outcomes = [
            self._stopped(rollout, reason, member)
            for (rollout, reason), member in zip(sampled, members, strict=True)
        ]
        verdicts = self._verified(outcomes)
        return [
            Group(
                prefix.prompt,
                tuple(rollout for rollout, _ in outcomes[first : first + group_size]),
                tuple(verdicts[first : first + group_size]),
            )
            for prefix, first in zip(
                prefixes, range(0, len(members), group_size), strict=True
            )
        ]

    def has_answer(self, prompt: Prompt, written: Sequence[int]) -> bool:
        """Whether a completion that goes on has said its whole answer already."""
        if self.read is None:
            (text,) = self.decode([written])
        else:
            text = self.read(prompt.token_ids, written)
        return self.answered(prompt.problem, text)

    def _stopped(
        self, rollout: Rollout, reason: str, member: "_Member"
    ) -> tuple[Rollout, str]:
        """The rollout as the chunk ended it, where it was the chunk that did.

        With its answer there already, the episode is over and is judged.
        """
        chunk = member.chunk
        ended_by_length = rollout.stop_reason is StopReason.LENGTH and not reason
        if chunk is None or chunk >= member.room or not ended_by_length:
            return rollout, reason
        if rollout.num_sampled < chunk:
            return rollout, reason
        if self.has_answer(rollout.prompt, rollout.completion_ids):
            return replace(rollout, stop_reason=StopReason.ENVIRONMENT), ""
        return replace(rollout, stop_reason=StopReason.CHUNK), CHUNK_ENDED

    def _room(self, prefix: Prefix) -> int:
        """Tokens that may follow the prefix before the budget is spent."""
        room = self.max_new_tokens - len(prefix.written)
        if self.max_context_tokens is not None:
            room = min(room, self.max_context_tokens - len(prefix.token_ids))
        return max(room, 0)

    def _sampled(
        self, members: Sequence["_Member"], sampling: Sampling
    ) -> list[tuple[Rollout, str]]:
        """A rollout of each member, with the reason why it cannot be verified."""
        asked = [member for member in members if member.room > 0]
        requests = [
            Request(member.prefix.token_ids, member.num_asked, member.seed)
            for member in asked
        ]
        completions = self.engine.generate(requests, sampling) if requests else []
        if len(completions) != len(requests):
            raise ValueError(
                "an engine must answer every request, got "
                f"{len(completions)} completions for {len(requests)} requests"
            )
        answers = iter(completions)
        version = self.engine.version
        return [
            _rollout(member, next(answers) if member.room > 0 else None, version)
            for member in members
        ]

    def _verified(self, outcomes: Sequence[tuple[Rollout, str]]) -> list[Verdict]:
        sound = [rollout for rollout, reason in outcomes if not reason]
        texts = self.decode([rollout.completion_ids for rollout in sound])
        items: list[tuple[Problem, str, Rollout]] = [
            (rollout.prompt.problem, text, rollout)
            for rollout, text in zip(sound, texts, strict=True)
        ]
        verdicts = self.verifier.verify(items) if items else []
        if len(verdicts) != len(items):
            raise ValueError(
                "a verifier must give one verdict a rollout, got "
                f"{len(verdicts)} verdicts for {len(items)} rollouts"
            )
        given = iter(verdicts)
        return [
            Verdict(None, reason) if reason else next(given) for _, reason in outcomes
        ]


@dataclass(frozen=True)
class _Member:
    """One sibling to be: what to ask the engine for."""

    prefix: Prefix
    sample: int
    room: int
    """Tokens that may follow the prefix before the budget is spent."""
    seed: int
    chunk: int | None = None
    """Tokens after which it is stopped; None goes on to the end."""

    @property
    def num_asked(self) -> int:
        """Tokens to sample at most."""
        return self.room if self.chunk is None else min(self.room, self.chunk)


def _keyed(
    prefixes: Sequence[Prefix], key: tuple[int | str, ...]
) -> list[tuple[Prefix, tuple[int | str, ...]]]:
    """Each prefix with the key of its draws; the same one again gets another key."""
    seen: Counter[tuple[int | str, ...]] = Counter()
    keyed: list[tuple[Prefix, tuple[int | str, ...]]] = []
    for prefix in prefixes:
        problem, written = prefix.prompt.problem.id, prefix.written
        own: tuple[int | str, ...] = ("sample", *key, problem)
        if written:
            own = ("continue", *key, problem, keyed_seed(*written))
        keyed.append((prefix, (*own, seen[own])))
        seen[own] += 1
    return keyed


def _rollout(
    member: _Member, completion: Completion | None, version: int
) -> tuple[Rollout, str]:
    """The record of one completion, and why it is no data ('' where it is).

    Tokens whose log-probs are unusable are not recorded: the prefix alone remains.
    """
    if completion is None:
        reason = "" if member.prefix.written else NO_ROOM
        return _recorded(member, (), (), StopReason.LENGTH, version), reason
    if not all(LOWEST <= p <= HIGHEST for p in completion.logprobs):
        return _recorded(member, (), (), StopReason.FAILURE, version), BAD_LOGPROBS
    reason = ""
    if len(completion.token_ids) > member.num_asked:
        reason = OVERRUN
    elif completion.stop_reason is StopReason.FAILURE:
        reason = ENGINE_FAILURE
    elif not completion.token_ids:
        reason = NOTHING_SAMPLED
    # Nothing behind what is written would look like no room, which is verified.
    fails = reason == OVERRUN or (reason == NOTHING_SAMPLED and member.prefix.written)
    rollout = _recorded(
        member,
        completion.token_ids,
        completion.logprobs,
        StopReason.FAILURE if fails else completion.stop_reason,
        version,
    )
    return rollout, reason


def _recorded(
    member: _Member,
    token_ids: tuple[int, ...],
    logprobs: tuple[float, ...],
    stop_reason: StopReason,
    version: int,
) -> Rollout:
    replayed = member.prefix.token_ids
    sampled = torch.zeros(len(replayed) + len(token_ids), dtype=torch.bool)
    sampled[len(replayed) :] = True
    sampling_logprobs = torch.zeros(len(sampled), dtype=torch.float32)
    sampling_logprobs[len(replayed) :] = torch.tensor(logprobs, dtype=torch.float32)
    return Rollout(
        prompt=member.prefix.prompt,
        token_ids=torch.tensor((*replayed, *token_ids)),
        sampled=sampled,
        sampling_logprobs=sampling_logprobs,
        stop_reason=stop_reason,
        sample=member.sample,
        policy_versions=(version, version),
    )
