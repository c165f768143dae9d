"""One prompt, one completion, one verdict.

All completions of a call are generated together and verified together. What the world
gets wrong (a completion the engine calls failed, a NaN log-prob, a prompt that leaves
no room) becomes a rollout without a reward and with a reason. An engine that raises is
a fault of the program and ends the run.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from accredit.protocols import Engine, Verifier
from accredit.randomness import keyed_seed
from accredit.types import (
    Completion,
    Group,
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

LOWEST, HIGHEST = -3e38, 1e-4
"""Log-probs, nats, that float32 and rounding allow; NaN lies in no range."""


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
        if group_size < 1:
            raise ValueError(f"group_size must be >= 1, got {group_size}")
        members = [
            self._member(prompt, occurrence, sample, key)
            for prompt, occurrence in _occurrences(prompts)
            for sample in range(group_size)
        ]
        outcomes = self._sampled(members, sampling)
        verdicts = self._verified(outcomes)
        return [
            Group(
                prompt,
                tuple(rollout for rollout, _ in outcomes[first : first + group_size]),
                tuple(verdicts[first : first + group_size]),
            )
            for prompt, first in zip(
                prompts, range(0, len(members), group_size), strict=True
            )
        ]

    def _member(
        self, prompt: Prompt, occurrence: int, sample: int, key: tuple[int | str, ...]
    ) -> "_Member":
        room = self.max_new_tokens
        if self.max_context_tokens is not None:
            room = min(room, self.max_context_tokens - len(prompt.token_ids))
        problem = prompt.problem.id
        seed = keyed_seed(self.seed, "sample", *key, problem, occurrence, sample)
        return _Member(prompt, sample, max(room, 0), seed)

    def _sampled(
        self, members: Sequence["_Member"], sampling: Sampling
    ) -> list[tuple[Rollout, str]]:
        """A rollout of each member, with the reason why it cannot be verified."""
        asked = [member for member in members if member.room > 0]
        requests = [
            Request(member.prompt.token_ids, member.room, member.seed)
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

    prompt: Prompt
    sample: int
    room: int
    """Tokens that may follow the prompt."""
    seed: int


def _occurrences(prompts: Sequence[Prompt]) -> list[tuple[Prompt, int]]:
    """Each prompt with how many of the same problem came before it."""
    seen: Counter[str] = Counter()
    numbered: list[tuple[Prompt, int]] = []
    for prompt in prompts:
        numbered.append((prompt, seen[prompt.problem.id]))
        seen[prompt.problem.id] += 1
    return numbered


def _rollout(
    member: _Member, completion: Completion | None, version: int
) -> tuple[Rollout, str]:
    """The record of one completion, and why it is no data ('' where it is).

    Tokens whose log-probs are unusable are not recorded: the prompt alone remains.
    """
    if completion is None:
        return _recorded(member, (), (), StopReason.LENGTH, version), NO_ROOM
    if not all(LOWEST <= p <= HIGHEST for p in completion.logprobs):
        return _recorded(member, (), (), StopReason.FAILURE, version), BAD_LOGPROBS
    overrun = len(completion.token_ids) > member.room
    stop_reason = StopReason.FAILURE if overrun else completion.stop_reason
    rollout = _recorded(
        member, completion.token_ids, completion.logprobs, stop_reason, version
    )
    if overrun:
        return rollout, OVERRUN
    if stop_reason is StopReason.FAILURE:
        return rollout, ENGINE_FAILURE
    return rollout, "" if completion.token_ids else NOTHING_SAMPLED


def _recorded(
    member: _Member,
    token_ids: tuple[int, ...],
    logprobs: tuple[float, ...],
    stop_reason: StopReason,
    version: int,
) -> Rollout:
    num_prompt = len(member.prompt.token_ids)
    sampled = torch.zeros(num_prompt + len(token_ids), dtype=torch.bool)
    sampled[num_prompt:] = True
    sampling_logprobs = torch.zeros(len(sampled), dtype=torch.float32)
    sampling_logprobs[num_prompt:] = torch.tensor(logprobs, dtype=torch.float32)
    return Rollout(
        prompt=member.prompt,
        token_ids=torch.tensor((*member.prompt.token_ids, *token_ids)),
        sampled=sampled,
        sampling_logprobs=sampling_logprobs,
        stop_reason=stop_reason,
        sample=member.sample,
        policy_versions=(version, version),
    )
