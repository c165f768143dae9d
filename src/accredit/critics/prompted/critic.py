"""A critic without a head: a new user turn asks the model what a prefix is worth.

    V(query) = grid value that it writes, or sum_k p_k v_k / sum_k p_k over the grid

    loss = 1/N sum_records sum_prompts weight -log p(value tokens, end of turn) / 4

AC2, arXiv:2609.39247: the answer follows a prefilled stem; a record with a reference is
taught under both prompts, half each. The reference stands in the question alone, and
only the value's tokens and the end of the turn have loss. Ours: the read-out by
expectation, a target between two grid values that is taught as both by their shares,
and one prompt that has all the weight where the other has no room. N counts the records
that fit the model's context; micro-batches only sum.

The weights are the policy's, moved by an AdamW of the critic's own, or its own copy.
Nothing is dropped out and nothing drawn. Knows no algorithm: which reference is shown
is the caller's.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from accredit.critics.prefix_configs import PromptedConfig
from accredit.critics.prompted.card import read_card, require_same, write_card
from accredit.critics.prompted.questions import MAX_ANSWER_TOKENS, Questions
from accredit.critics.prompted.replies import MAX_REPLY_TOKENS
from accredit.critics.value_head import saved
from accredit.engines.local.answers import answer_logprobs, inner_levels
from accredit.engines.local.engine import TransformersEngine
from accredit.functional.flops import (
    ModelShape,
    decode_flops,
    prefill_flops,
    training_flops,
)
from accredit.functional.grids import POINT_NOISE, grid_shares
from accredit.models.backbone import take_weights
from accredit.models.descent import Descent
from accredit.models.forward import read, without_dropout
from accredit.models.loading import context_tokens, load_model, quiet_transformers
from accredit.models.micro_batches import micro_batches
from accredit.models.optimizer import AdamWOptions, adamw
from accredit.models.probe import is_due
from accredit.models.scorer import Scorer
from accredit.protocols import Engine
from accredit.records import CriticUpdate, Valuation, nothing_fitted
from accredit.types import CriticExample, CriticQuery, Request, Sampling, StopReason

LOSS_DIVISOR = 4
"""Of the summed NLL of an answer, as in AC2."""
LEAST_MASS = 0.5
"""Probability of the grid under which an expectation over it says nothing."""


class Row(NamedTuple):
    """One answer that is taught behind one prompt."""

    context: tuple[int, ...]
    answer: tuple[int, ...]
    """With the end of the turn."""
    weight: float


class TokenizedExamples(NamedTuple):
    """All rows of an update, and who had none."""

    rows: list[Row]
    num_records: int
    num_left_out: int


class PromptedCritic:
    """Asks and teaches one model on one device."""

    def __init__(
        self,
        model: PreTrainedModel,
        questions: Questions,
        config: PromptedConfig,
        *,
        engine: Engine | None,
        grid_size: int,
        target_rounding: Literal["nearest", "none"],
        micro_batch_tokens: int = 4096,
        max_batch_tokens: int = 131_072,
        max_batch_rows: int = 256,
        max_consecutive_skips: int = 10,
        is_tied: bool,
        tokenizer: Any = None,
    ) -> None:
        """`model` is the policy's where `is_tied`, and otherwise nobody else's.

        `engine` samples from it; with None, and with a model of its own, the critic
        makes one. `max_batch_tokens` and `max_batch_rows` bound what it reads at once.
        `tokenizer` is written beside a model of its own; None takes that of the
        questions.

        Raises:
            ValueError: the questions are of another grid.
        """
        if len(questions.answers) != grid_size:
            raise ValueError(
                f"questions must have {grid_size} answers (grid_size), got "
                f"{len(questions.answers)}; build them with the critic's grid"
            )
        if not is_tied:
            without_dropout(model).requires_grad_(True)
        self.model = model
        self.questions = questions
        self.config = config
        self._engine = engine
        if engine is None or not is_tied:
            self._engine = TransformersEngine(
                model, questions.stop_token_ids, max_batch_tokens, max_batch_rows
            )
        self._max_batch_tokens = max_batch_tokens
        self._max_batch_rows = max_batch_rows
        self._grid_size = grid_size
        self._target_rounding = target_rounding
        self._is_tied = is_tied
        self._tokenizer = tokenizer or questions.tokenizer
        self._reading, self._num_updates = read(model), 0
        self._scorer = Scorer(model, self._reading.scoring, micro_batch_tokens, 1.0)
        self._descent = Descent(
            adamw(model, AdamWOptions(weight_decay=config.weight_decay)),
            [p for p in model.parameters() if p.requires_grad],
            max_gradient_norm=config.max_gradient_norm,
            max_consecutive_skips=max_consecutive_skips,
            owner="the critic",
        )
        self._shape = ModelShape.from_config(model.config)
        levels = inner_levels(questions.answers)
        self._inner = [ids for level in levels[1:] for ids in level]
        """What is written between the stem and the last tokens of the answers."""

    @property
    def learning_rate(self) -> float:
        """That it begins with."""
        return self.config.learning_rate

    def values(self, queries: Sequence[CriticQuery]) -> Valuation:
        """The value of each attempt; None for no valid answer, and for no room.

        Where the question with the reference has no room, the plain one is asked.
        FLOPs are the prefill of every question, as if no two shared a prefix, and the
        decoding of what is written behind it: the answer as far as the model wrote it,
        or by expectation every token between stem and leaves of the tree of answers.
        """
        contexts = [self._fitting(query) for query in queries]
        read = self._greedy if self.config.readout == "greedy" else self._expected
        found, flops = read([ids for ids in contexts if ids is not None])
        answers = iter(found)
        values = [None if ids is None else next(answers) for ids in contexts]
        left_out = tuple(ids is None for ids in contexts)
        return Valuation(tuple(values), float(flops), left_out)

    def update(
        self, examples: Sequence[CriticExample], learning_rate: float
    ) -> CriticUpdate | None:
        """One step towards the targets; none where no record fits, None without any.

        A step whose loss or gradient is not finite is skipped and counted.

        Raises:
            ValueError: A target does not lie on the grid, where none is to be rounded.
            RuntimeError: Too many steps in a row were not finite.
        """
        tokenized = self._tokenized(examples)
        if not tokenized.rows:
            left_out = tokenized.num_left_out
            return nothing_fitted(left_out, learning_rate) if left_out else None
        optimizer = self._descent.optimizer
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        optimizer.zero_grad(set_to_none=True)
        loss, flops = self._backward(tokenized)
        norm = self._descent.step(loss)
        self._num_updates += 1
        if is_due(self._num_updates):
            self._reading = self._reading.and_now(self.model)
            self._scorer = replace(self._scorer, scoring=self._reading.scoring)
        return CriticUpdate(
            losses=(loss,),
            gradient_norms=(norm,),
            learning_rate=learning_rate,
            num_skipped=int(math.isnan(norm)),
            num_nonfinite=int(math.isnan(norm)),
            train_flops=flops,
            displacement=self._descent.displacement,
            num_left_out=tokenized.num_left_out,
            num_policy_steps=int(self._is_tied and not math.isnan(norm)),
        )

    def add_gradient(self, examples: Sequence[CriticExample]) -> CriticUpdate:
        """Adds the gradient of the same loss to the weights'; whoever steps clips it.

        Without a record that fits it adds nothing, and the loss is NaN.

        Raises:
            ValueError: A target does not lie on the grid, where none is to be rounded.
        """
        tokenized = self._tokenized(examples)
        loss, flops = self._backward(tokenized) if tokenized.rows else (math.nan, 0.0)
        return CriticUpdate(
            losses=(loss,),
            gradient_norms=(),
            learning_rate=0.0,
            num_skipped=int(not tokenized.rows),
            train_flops=flops,
            num_left_out=tokenized.num_left_out,
        )

    def save(self, folder: Path) -> None:
        """Writes card and optimizer; a model of its own as a Hugging Face directory."""
        saved.begin(folder, self.model)
        if not self._is_tied:
            with quiet_transformers():
                self.model.save_pretrained(folder)
                self._tokenizer.save_pretrained(folder)
        saved.write_optimizer(folder, self._descent.optimizer, self.model)
        content = self._card() | {
            "num_consecutive_skips": self._descent.num_consecutive_skips
        }
        write_card(folder, content)

    def load(self, folder: Path) -> None:
        """Continues exactly where `save` was called; tied weights are the learner's.

        Raises:
            ValueError: The folder is another critic's, or lacks a part of this one.
        """
        card = read_card(folder)
        require_same(folder, card, self._card(), self.config.template)
        if not self._is_tied:
            found = load_model(folder, torch.float32, "cpu").model
            saved.require_finite(found, folder)
            take_weights(self.model, found.state_dict(), folder)
        saved.read_optimizer(folder, self._descent.optimizer, self.model)
        self._descent.num_consecutive_skips = card["num_consecutive_skips"]

    def _shows(self, query: CriticQuery) -> bool:
        return query.reference is not None and self.config.reference != "none"

    def _fitting(self, query: CriticQuery) -> tuple[int, ...] | None:
        """What is asked, with the reference where that has room; None where nothing
        has."""
        limit = context_tokens(self.model.config)
        room = math.inf if limit is None else limit - MAX_ANSWER_TOKENS
        for with_reference in (True, False) if self._shows(query) else (False,):
            ids = self.questions.context(query, with_reference)
            if len(ids) <= room:
                return ids
        return None

    def _greedy(
        self, contexts: Sequence[tuple[int, ...]]
    ) -> tuple[list[float | None], int]:
        """What the model writes, and its FLOPs."""
        assert self._engine is not None
        limit = context_tokens(self.model.config) or math.inf
        rooms = [int(min(MAX_REPLY_TOKENS, limit - len(ids))) for ids in contexts]
        requests = [
            Request(ids, room, key=0) for ids, room in zip(contexts, rooms, strict=True)
        ]
        completions = self._engine.generate(requests, Sampling(temperature=0.0))
        values: list[float | None] = []
        flops = 0
        for ids, completion in zip(contexts, completions, strict=True):
            failed = completion.stop_reason is StopReason.FAILURE
            k = None if failed else self.questions.parsed(completion.token_ids)
            values.append(None if k is None else self.questions.grid[k])
            flops += prefill_flops(self._shape, len(ids))
            flops += decode_flops(self._shape, len(ids), len(completion.token_ids))
        return values, flops

    def _expected(
        self, contexts: Sequence[tuple[int, ...]]
    ) -> tuple[list[float | None], int]:
        """The mean over the grid by each value's probability, and its FLOPs."""
        logprobs = answer_logprobs(
            self.model,
            contexts,
            self.questions.answers,
            max_batch_tokens=self._max_batch_tokens,
            max_batch_rows=self._max_batch_rows,
        )
        chances = logprobs.double().exp()
        mass = chances.sum(1)
        grid = torch.tensor(self.questions.grid, dtype=torch.float64)
        means = (chances @ grid.to(chances.device) / mass).tolist()
        values = [
            mean if total >= LEAST_MASS and math.isfinite(mean) else None
            for mean, total in zip(means, mass.tolist(), strict=True)
        ]
        flops = 0
        for ids in contexts:
            flops += prefill_flops(self._shape, len(ids))
            # A second token is the first that costs: each node past the stem is one.
            for node in self._inner:
                flops += decode_flops(self._shape, len(ids) + len(node) - 1, 2)
        return values, flops

    def _tokenized(self, examples: Sequence[CriticExample]) -> TokenizedExamples:
        """What is taught; a record of which no prompt fits is left out."""
        found = [self._record_rows(record) for record in examples]
        num_left_out = sum(not rows for rows in found)
        rows = [row for rows in found for row in rows]
        return TokenizedExamples(rows, len(examples) - num_left_out, num_left_out)

    def _record_rows(self, record: CriticExample) -> list[Row]:
        """One row a prompt that fits and grid value; their weights sum to 1.

        As in `values`, where the prompt with the reference has no room, the plain one
        is taught.
        """
        limit = context_tokens(self.model.config) or math.inf
        questions = self.questions
        answers = {
            (*questions.answer_ids(k), *questions.end_of_turn): share
            for k, share in self._shares(record.target).items()
        }
        longest = max(map(len, answers))
        shown = self._shows(record.query)
        prompts = [
            context
            for with_reference in ((True, False) if shown else (False,))
            for context in [questions.context(record.query, with_reference)]
            if len(context) + longest <= limit
        ]
        if not self.config.both_prompts:
            prompts = prompts[:1]
        return [
            Row(context, answer, share / len(prompts))
            for context in prompts
            for answer, share in answers.items()
        ]

    def _shares(self, target: float) -> dict[int, float]:
        """Of the grid values in what is taught."""
        shares = grid_shares(target, self._grid_size)
        if self._target_rounding == "none":
            return shares
        nearest = min(abs(target - self.questions.grid[k]) for k in shares)
        if len(shares) > 1 or nearest > POINT_NOISE:
            raise ValueError(
                f"a target must lie on the grid of {self._grid_size} values, got "
                f"{target}; round it, or set target_rounding = 'none'"
            )
        return shares

    def _backward(self, tokenized: TokenizedExamples) -> tuple[float, float]:
        """Loss and FLOPs of all rows; their gradient is added to the weights'."""
        device = self.model.device
        lengths = [len(row.context) + len(row.answer) for row in tokenized.rows]
        total, was_training = torch.zeros((), device=device), self.model.training
        # Gradient checkpointing happens in training mode only.
        self.model.train()
        for chosen in micro_batches(lengths, self._scorer.micro_batch_tokens):
            token_ids, wanted, weights = padded([tokenized.rows[i] for i in chosen])
            scores = self._scorer.scores(token_ids.to(device), wanted.to(device))
            losses = -weights.to(device) * scores.logprobs.sum(1)
            loss = losses.sum() / (LOSS_DIVISOR * tokenized.num_records)
            loss.backward()
            total += loss.detach()
        self.model.train(was_training)
        # The last token predicts nothing that is wanted: it is not run.
        run = [length - 1 for length in lengths]
        num_forwards = 2 if self.model.is_gradient_checkpointing else 1
        flops = training_flops(self._shape, run, num_forwards * sum(run), sum(run))
        return float(total), flops

    def _card(self) -> dict[str, Any]:
        """What a saved critic must have in common with this one."""
        return {
            "kind": self.config.kind,
            "template": asdict(self.questions.template),
            "grid_size": self._grid_size,
            "is_tied": self._is_tied,
        }


def padded(
    rows: Sequence[Row],
) -> tuple[Int[Tensor, "row token"], Bool[Tensor, "row token"], Float[Tensor, " row"]]:
    """Rows padded on the right, True where a token has loss, and their weights."""
    width = max(len(row.context) + len(row.answer) for row in rows)
    token_ids = torch.zeros((len(rows), width), dtype=torch.long)
    wanted = torch.zeros((len(rows), width), dtype=torch.bool)
    for i, row in enumerate(rows):
        start, end = len(row.context), len(row.context) + len(row.answer)
        token_ids[i, :end] = torch.tensor([*row.context, *row.answer])
        wanted[i, start:end] = True
    return token_ids, wanted, torch.tensor([row.weight for row in rows])
