"""Batched sampling from any causal LM module in this process.

Knows batches, caches, stop tokens and budgets; knows no text and no reward. Nothing is
kept from one call to the next but the module itself, so that no cache outlives the
weights that filled it.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from accredit.engines.local import lean_decoder
from accredit.engines.local.lean_decoder import LeanDecoder
from accredit.engines.local.module_decoder import ModuleDecoder, evaluation_mode
from accredit.engines.local.sampling import Uniforms, sampled_tokens
from accredit.models.positions import counts_columns, row_limit
from accredit.types import Completion, Request, Sampling, StopReason

COMPACT_BELOW = 7 / 8
"""Share of unfinished rows under which the finished ones leave the batch."""


class TransformersEngine:
    """Samples from a transformers module that it shares with whoever trains it."""

    def __init__(
        self,
        model: Any,
        stop_token_ids: Collection[int],
        max_batch_tokens: int = 131_072,
        max_batch_rows: int = 256,
        version: int = 0,
        watch: Callable[[int, int, int], None] | None = None,
    ) -> None:
        """`max_batch_tokens` bounds rows times (longest prompt + largest budget).

        `watch` is told of rollouts done, rollouts asked for and tokens sampled of the
        call that goes on, once a token step.
        """
        if max_batch_tokens < 1 or max_batch_rows < 1:
            raise ValueError(
                "max_batch_tokens and max_batch_rows must be >= 1, got "
                f"{max_batch_tokens} and {max_batch_rows}"
            )
        self.model = model
        self.stop_token_ids = tuple(sorted(set(stop_token_ids)))
        self.max_batch_tokens = max_batch_tokens
        self.max_batch_rows = max_batch_rows
        self.version = version
        self.watch = watch

    def load(self, model: Any, version: int) -> None:
        """Samples from `model` from here on; the same object is shared, not copied."""
        self.model = model
        self.version = version

    def generate(
        self, requests: Sequence[Request], sampling: Sampling
    ) -> list[Completion]:
        """One completion a request, in order.

        A request that leaves no room in the model's context is cut there, and its
        completion ends by length, empty if need be.
        """
        vocabulary = self.model.get_input_embeddings().num_embeddings
        check_requests(requests, vocabulary)
        budgets = [self._budget(request) for request in requests]
        completions = [Completion((), (), StopReason.LENGTH)] * len(requests)
        waiting = [index for index, budget in enumerate(budgets) if budget > 0]
        tally = Tally(len(requests), len(requests) - len(waiting), self.watch)
        kind = self.model.device.type
        # As the learner scores: float32 masters, bfloat16 passes on a GPU.
        precision = torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda")
        with evaluation_mode(self.model), precision:
            for batch in self._batches(requests, budgets, waiting):
                members = [requests[index] for index in batch]
                limits = [budgets[index] for index in batch]
                sampled = self._sample(members, limits, sampling, tally)
                for index, completion in zip(batch, sampled, strict=True):
                    completions[index] = completion
        return completions

    def _budget(self, request: Request) -> int:
        context = row_limit(self.model.config)
        if context is None:
            return request.max_new_tokens
        return min(request.max_new_tokens, context - len(request.token_ids))

    def _batches(
        self, requests: Sequence[Request], budgets: list[int], waiting: list[int]
    ) -> list[list[int]]:
        """Indices by batch: longest prompts first, equal prompts side by side."""

        def rank(index: int) -> tuple[int, tuple[int, ...], int]:
            prompt = requests[index].token_ids
            return -len(prompt), prompt, index

        batches: list[list[int]] = []
        longest = budget = 0
        unpadded = counts_columns(self.model.config)
        for index in sorted(waiting, key=rank):
            budget = max(budget, budgets[index])
            if batches:
                num_rows = len(batches[-1]) + 1
                fits = num_rows * (longest + budget) <= self.max_batch_tokens
                fits &= not unpadded or len(requests[index].token_ids) == longest
                if fits and num_rows <= self.max_batch_rows:
                    batches[-1].append(index)
                    continue
            batches.append([index])
            longest, budget = len(requests[index].token_ids), budgets[index]
        return batches

    def _sample(
        self,
        requests: list[Request],
        budgets: list[int],
        sampling: Sampling,
        tally: "Tally",
    ) -> list[Completion]:
        """Completions of one batch; equal prompts are prefilled once."""
        device = self.model.device
        prompts = list(dict.fromkeys(request.token_ids for request in requests))
        place = {prompt: row for row, prompt in enumerate(prompts)}
        module = ModuleDecoder(self.model)
        rows, logits = module.prefill(prompts)
        siblings = torch.tensor(
            [place[request.token_ids] for request in requests], device=device
        )
        rows.select(siblings)
        logits = logits[siblings]
        lean = lean_decoder.supports(self.model)
        next_logits = LeanDecoder(self.model) if lean else module
        uniforms = Uniforms([request.key for request in requests], device)
        transcript = Transcript(budgets, self.stop_token_ids, logits)
        while True:
            tokens, logprobs = sampled_tokens(logits, uniforms.draw(), sampling)
            num_open = transcript.num_open
            transcript.append(tokens, logprobs)
            tally.sampled(num_open, transcript.num_open)
            if transcript.num_open == 0:
                return transcript.completions()
            if transcript.num_open < COMPACT_BELOW * len(tokens):
                unfinished = transcript.compact()
                rows.select(unfinished)
                uniforms.select(unfinished)
                tokens = tokens[unfinished]
            logits = next_logits(rows, tokens)


@dataclass
class Tally:
    """How far one call has come, told to whoever watches."""

    num_asked: int
    num_done: int
    watch: Callable[[int, int, int], None] | None
    num_tokens: int = 0

    def sampled(self, num_open: int, num_left: int) -> None:
        """One token for each of the open rows, after which so many go on."""
        if self.watch is not None:
            self.num_tokens += num_open
            self.num_done += num_open - num_left
            self.watch(self.num_done, self.num_asked, self.num_tokens)


class Transcript:
    """What each request of a batch has sampled so far, and why it ended."""

    def __init__(
        self,
        budgets: list[int],
        stop_token_ids: Sequence[int],
        logits: Float[Tensor, "row vocab"],
    ) -> None:
        device, num_requests = logits.device, len(budgets)
        shape = (max(budgets), num_requests)
        self._token_ids = torch.empty(shape, dtype=torch.long, device=device)
        self._logprobs = torch.empty(shape, dtype=torch.float32, device=device)
        self._lengths = list(budgets)
        self._reasons = [StopReason.LENGTH] * num_requests
        self._stops = torch.zeros(logits.shape[1], dtype=torch.bool, device=device)
        self._stops[[i for i in stop_token_ids if i < logits.shape[1]]] = True
        self._step = 0
        self._members = torch.arange(num_requests, device=device)
        """Request of each row still in the batch."""
        self._budgets = torch.tensor(budgets, device=device)
        self._open = torch.ones(num_requests, dtype=torch.bool, device=device)
        self.num_open = num_requests
        """Rows that go on."""

    def append(
        self, tokens: Int[Tensor, " row"], logprobs: Float[Tensor, " row"]
    ) -> None:
        """Records one token a row and closes the rows that it ends."""
        self._token_ids[self._step].index_copy_(0, self._members, tokens)
        self._logprobs[self._step].index_copy_(0, self._members, logprobs)
        self._step += 1
        failed = ~logprobs.isfinite()
        ended = self._stops[tokens] | failed | (self._budgets <= self._step)
        ended &= self._open
        if bool(ended.any()):
            self._close(ended, failed, tokens)

    def _close(
        self,
        ended: Bool[Tensor, " row"],
        failed: Bool[Tensor, " row"],
        tokens: Int[Tensor, " row"],
    ) -> None:
        members = self._members[ended].tolist()
        stopped = self._stops[tokens[ended]].tolist()
        broken = failed[ended].tolist()
        for member, stop, failure in zip(members, stopped, broken, strict=True):
            if failure:
                self._lengths[member] = self._step - 1
                self._reasons[member] = StopReason.FAILURE
            elif stop:
                self._lengths[member] = self._step
                self._reasons[member] = StopReason.STOP
        self._open &= ~ended
        self.num_open -= len(members)

    def compact(self) -> Int[Tensor, " open_row"]:
        """Drops the closed rows; returns the rows that stay."""
        unfinished = self._open.nonzero().squeeze(1)
        self._members = self._members[unfinished]
        self._budgets = self._budgets[unfinished]
        self._open = self._open[unfinished]
        return unfinished

    def completions(self) -> list[Completion]:
        """One a request, in order."""
        token_ids = self._token_ids[: self._step].t().tolist()
        logprobs = self._logprobs[: self._step].t().tolist()
        return [
            Completion(tuple(ids[:length]), tuple(numbers[:length]), reason)
            for ids, numbers, length, reason in zip(
                token_ids, logprobs, self._lengths, self._reasons, strict=True
            )
        ]


def check_requests(requests: Sequence[Request], vocabulary: int) -> None:
    """Refuses what no engine could answer, by the index of the request."""
    for index, request in enumerate(requests):
        ids = request.token_ids
        if not ids:
            raise ValueError(
                f"request {index} must continue at least one token, got none; "
                "start it with the prompt"
            )
        if request.max_new_tokens < 0:
            raise ValueError(
                f"request {index} must ask for max_new_tokens >= 0, "
                f"got {request.max_new_tokens}"
            )
        if min(ids) < 0 or max(ids) >= vocabulary:
            raise ValueError(
                f"token ids of request {index} must be in [0, {vocabulary}), got "
                f"{min(ids)} to {max(ids)}; use the model's own tokenizer"
            )
