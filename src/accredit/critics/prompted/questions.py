"""How a model is asked what an attempt is worth, as token ids.

    prompt  completion so far | end of turn  user: question  assistant: stem | answer

The left part is taken as it was sampled and never encoded again, so that an engine may
find it in its prefix cache. All that could go wrong later is tried when `Questions` is
built: the chat template, the seams between stem, answer and end of turn, the grid,
the room. Knows no model and no loss.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import MISSING, fields, replace
from functools import lru_cache
from itertools import pairwise, takewhile
from typing import Any, Literal, TypeAlias

from accredit.critics.prompted.replies import number_of
from accredit.critics.prompted.templates import (
    PLACEHOLDER,
    QuestionTemplate,
    nearest,
    spaced_stems,
    texts_named,
)
from accredit.functional.grids import grid_values
from accredit.tasks.control_tokens import control_tokens, spelling_of
from accredit.types import CriticQuery

Tokenizer: TypeAlias = Any
"""A tokenizer of transformers, whose own annotations are too wide to check against."""

MAX_ANSWER_TOKENS = 4
MAX_GRID = 1001
"""Every answer is tried by itself behind the whole question."""
ON_GRID = 1e-6
"""Rounding by which a number may miss its grid value."""
OPENING_TAG = re.compile(r"<[^<>/]+>\s*")
NO_THINKING = re.compile(r"<(\w+)>\s*</\1>")
ATTEMPT, QUESTION = "accreditAttempt0x5a", "accreditQuestion0x5a"


def template_named(name: str) -> QuestionTemplate:
    """A built-in template, or that of a TOML file.

    Raises:
        ValueError: there is neither, or the file does not hold one.
    """
    content = texts_named(name)
    known = [part.name for part in fields(QuestionTemplate)]
    for key, text in content.items():
        if key not in known:
            raise ValueError(
                f"keys of {name} must be of {', '.join(known)}, got {key[:60]!r}"
                f"{nearest(key[:60], known)}"
            )
        if not isinstance(text, str):
            raise ValueError(
                f"{key} in {name} must be text, got {repr(text)[:60]}; quote it"
            )
    for part in fields(QuestionTemplate):
        if part.default is MISSING and part.name not in content:
            raise ValueError(f"{name} must hold the key {part.name!r}; add it")
    try:
        return QuestionTemplate(**content)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


class StemMerges(ValueError):
    """A tokenizer that makes one token of the end of a stem and its answer."""


class Questions:
    """A template in the words of one tokenizer."""

    def __init__(
        self,
        template: QuestionTemplate,
        tokenizer: Tokenizer,
        *,
        stop_token_ids: Collection[int],
        max_new_tokens: int,
        grid_size: int,
        chat: Literal["auto", "template", "plain"] = "auto",
        max_context_tokens: int | None = None,
    ) -> None:
        """`max_new_tokens`: a completion's budget; `chat`: as the policy is asked.

        `max_context_tokens`: largest prompt and completion together; None leaves it to
        the budget.

        Raises:
            ValueError: the tokenizer cannot be asked this way, or answer on this grid,
                or the question leaves no room for an attempt.
        """
        if grid_size > MAX_GRID:
            raise ValueError(
                f"grid_size of a prompted critic must be <= {MAX_GRID}, got "
                f"{grid_size}; take a coarser grid"
            )
        self.template = template
        self.stop_token_ids = frozenset(stop_token_ids)
        self.max_new_tokens = max_new_tokens
        self.max_context_tokens = max_context_tokens
        self.grid = tuple(grid_values(grid_size))
        """The values of the answers, in ascending order."""
        self.tokenizer = tokenizer
        self._texts = _answer_texts(template.answer_format, self.grid)
        if chat == "template" and not tokenizer.chat_template:
            raise ValueError(
                "chat = 'template' needs a tokenizer with a chat template, got one "
                "without; use 'auto' or 'plain'"
            )
        self._is_plain = chat == "plain" or not tokenizer.chat_template
        self._spelling = spelling_of(tokenizer)
        self._control = frozenset(control_tokens(tokenizer))
        self._require_text(template.stem)
        self._before, self._after = self._around_question()
        self.end_of_turn = self._end_of_turn()
        """Ids that end an answer."""
        self.stem_as_written = ""
        """The template's own, where another spacing of it had to be taken."""
        self.answers = self._seamed_answers()
        """Ids of each grid value."""
        self._closing = template.thinking_close.strip()
        closing_ids = self._ids(self._closing)
        self._closing_id = closing_ids[0] if len(closing_ids) == 1 else None
        self._require_room()
        self._question_ids = lru_cache(maxsize=256)(self._encoded_question)

    def context(self, query: CriticQuery, with_reference: bool) -> tuple[int, ...]:
        """All that stands before the answer.

        Raises:
            ValueError: a reference is to be shown and there is none.
        """
        if with_reference and query.reference is None:
            raise ValueError(
                "a question with a reference needs an attempt that has one, got none "
                f"for {query.prompt.problem.id!r}; ask without"
            )
        written = query.written
        left = self._num_left(query)
        if written and written[-1] in self.stop_token_ids:
            written = written[:-1]
        reference = query.reference if with_reference else None
        asked = self._question_ids(left, reference, self._is_thinking(written))
        return (*query.prompt.token_ids, *written, *asked)

    def answer_ids(self, k: int) -> tuple[int, ...]:
        """Ids of the grid's value number `k`, without the end of the turn."""
        return self.answers[k]

    def parsed(self, ids: Sequence[int]) -> int | None:
        """Number of the grid value that a reply is; None where it is none.

        All of it counts, up to the end of the turn: see `replies.number_of`.
        """
        said = takewhile(lambda token: token not in self.stop_token_ids, ids)
        number = number_of(self._text(tuple(said)))
        if number is None:
            return None
        for k, text in enumerate(self._texts):
            if abs(number - float(text)) <= ON_GRID:
                return k
        return None

    def shown_reference(self, reference: Sequence[int]) -> str:
        """A completion as the critic reads it: what it handed in, without its thinking.

        A control token that the text spells out stays text: it opens no turn.
        """
        ids = list(reference)
        if self._closing_id is not None and self._closing_id in ids:
            ids = ids[len(ids) - ids[::-1].index(self._closing_id) :]
        text = self._text(ids, skip_special_tokens=True)
        if self._closing:
            text = text.rpartition(self._closing)[2]
        return text.strip()

    def _num_left(self, query: CriticQuery) -> int:
        """Tokens that may follow before the attempt is truncated."""
        left = self.max_new_tokens - len(query.written)
        if self.max_context_tokens is not None:
            begun = len(query.prompt.token_ids) + len(query.written)
            left = min(left, self.max_context_tokens - begun)
        return max(0, left)

    def _is_thinking(self, written: Sequence[int]) -> bool:
        """Whether the attempt has not closed its thinking, where attempts think."""
        if not self._closing or self._closing_id in written:
            return False
        return self._closing not in self._text(written)

    def _encoded_question(
        self, left: int, reference: tuple[int, ...] | None, is_thinking: bool
    ) -> tuple[int, ...]:
        """From the end of the attempt to the stem."""
        shown = None if reference is None else self.shown_reference(reference)
        return self._ids(self._asked(left, shown, is_thinking))

    def _asked(self, left: int, shown: str | None, is_thinking: bool = False) -> str:
        """The same as text."""
        template = self.template
        question = template.question
        if shown is not None:
            question = template.question_with_reference
        texts = {"{left}": str(left), "{reference}": shown or ""}
        question = PLACEHOLDER.sub(lambda match: texts[match[0]], question)
        question = self._spelling.marked(question)
        closing = template.thinking_close if is_thinking else ""
        return f"{closing}{self._before}{question}{self._after}"

    def _around_question(self) -> tuple[str, str]:
        """Text between attempt and question, and from the question to the stem."""
        stem = self.template.stem
        if self._is_plain:
            return "\n\n", f"\n\n{stem}"
        text = self._three_turns()
        _, _, rest = text.partition(ATTEMPT)
        before, _, after = rest.partition(QUESTION)
        tag = OPENING_TAG.match(stem)
        # A template for thinking models opens the block that the stem brings itself.
        if tag and after.rstrip().endswith(tag[0].rstrip()):
            after = after.rstrip().removesuffix(tag[0].rstrip())
        return before, after + stem

    def _three_turns(self) -> str:
        """A user's turn, the assistant's and the next user's, as the template says."""
        turns = [("user", "?"), ("assistant", ATTEMPT), ("user", QUESTION)]
        try:
            text = self.tokenizer.apply_chat_template(
                [{"role": role, "content": content} for role, content in turns],
                add_generation_prompt=True,
                tokenize=False,
            )
        except Exception as error:  # A template is a program: it may raise anything.
            fault = " ".join(str(error).split())[:80] or type(error).__name__
            raise ValueError(
                "a prompted critic asks in a second user turn, got a chat template "
                f"that cannot hold two user turns ({fault}); use another template or "
                "chat = 'plain'"
            ) from error
        parts = re.findall(f"{ATTEMPT}|{QUESTION}", text)
        if parts != [ATTEMPT, QUESTION]:
            raise ValueError(
                "a prompted critic asks in a second user turn, got a chat template "
                "that cannot hold two user turns: of attempt and question it shows "
                f"{len(parts)} texts, in its own order; use another template or chat "
                "= 'plain'"
            )
        return text

    def _end_of_turn(self) -> tuple[int, ...]:
        """What ends an answer: as the template ends the attempt's turn, else a stop."""
        if not self.stop_token_ids:
            raise ValueError(
                "an answer must end with a stop token, got a model without any; name "
                "one in generation_config.json"
            )
        if self._is_plain:
            eos = self.tokenizer.eos_token_id
            return (eos if eos in self.stop_token_ids else min(self.stop_token_ids),)
        ids = self._ids(self._before)
        for place, token in enumerate(ids):
            if token in self.stop_token_ids:
                return ids[: place + 1]
        raise ValueError(
            "the chat template must end the assistant's turn with a stop token of the "
            f"model, one of {sorted(self.stop_token_ids)}, got {self._before!r}; name "
            "its end of turn as eos_token_id in generation_config.json"
        )

    def _seamed_answers(self) -> tuple[tuple[int, ...], ...]:
        """Ids of the answers, behind the first spacing of the stem that lets them be.

        Raises:
            ValueError: none does, in the words for the stem as it was written.
        """
        template, refused = self.template, None
        for stem in spaced_stems(template.stem):
            self.template = replace(template, stem=stem)
            self._before, self._after = self._around_question()
            try:
                answers = self._answers()
            except StemMerges as error:
                refused = refused or error
                continue
            self.stem_as_written = template.stem if stem != template.stem else ""
            return answers
        assert refused is not None
        raise refused

    def _answers(self) -> tuple[tuple[int, ...], ...]:
        """Ids of each grid value, none of which begins another."""
        texts: dict[tuple[int, ...], str] = {}
        for text in self._texts:
            ids = self._answer(text)
            if not 0 < len(ids) <= MAX_ANSWER_TOKENS:
                raise ValueError(
                    f"an answer must have 1 to {MAX_ANSWER_TOKENS} tokens, got "
                    f"{len(ids)} for {text!r}; take a coarser grid or a shorter "
                    "answer_format"
                )
            if ids in texts:
                raise ValueError(
                    "answers must have different tokens, got the same for "
                    f"{texts[ids]!r} and {text!r}; take another answer_format"
                )
            texts[ids] = text
        for ids in texts:
            for begun in (ids[:end] for end in range(1, len(ids))):
                if begun in texts:
                    raise ValueError(
                        f"no answer may begin another, got {texts[begun]!r} "
                        f"({list(begun)}) and {list(ids)}; give all the same digits, "
                        "as '{:.1f}'"
                    )
        return tuple(texts)

    def _answer(self, text: str) -> tuple[int, ...]:
        """Ids of one grid value, proved to stay apart behind every kind of question."""
        found: set[tuple[int, ...]] = set()
        for left, shown in ((self.max_new_tokens, None), (0, "x")):
            question = self._asked(left, shown)
            asked, answered = self._ids(question), self._ids(question + text)
            found.add(answered[len(asked) :])
            if answered[: len(asked)] != asked or len(found) > 1:
                raise StemMerges(self._merged(self.template.stem, text))
            if self._is_plain:
                continue
            expected = (*answered, *self.end_of_turn)
            ended = self._ids(question + text + self._before)
            if ended[: len(expected)] != expected:
                raise ValueError(self._merged(text, self._before))
        return found.pop()

    def _require_text(self, stem: str) -> None:
        """Save for a closed block of thinking, whose tags may be control tokens."""
        begun = NO_THINKING.match(stem)
        said = stem[begun.end() :] if begun else stem
        for token in sorted(self._control):
            if token in said:
                raise ValueError(
                    "stem of a template must hold no control token of the model, got "
                    f"{token!r} in {stem!r}; the chat template writes the turns"
                )

    def _require_room(self) -> None:
        """Of the shortest question, whatever the prompt before it."""
        limit = self.max_context_tokens
        length = len(self._ids(self._asked(0, None)))
        if limit is not None and length + MAX_ANSWER_TOKENS > limit:
            raise ValueError(
                f"a question and its answer must fit the model's {limit} positions, "
                f"got {length} + {MAX_ANSWER_TOKENS} tokens before any prompt; take a "
                "shorter template"
            )

    def _merged(self, left: str, right: str) -> str:
        return (
            "stem, answer and end of turn must be tokens of their own, got a tokenizer "
            f"that merges {left!r} with {right!r}, however the stem is spaced; let it "
            "end otherwise, or move a space into answer_format"
        )

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._spelling.ids(text))

    def _text(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        return self.tokenizer.decode(
            list(ids),
            skip_special_tokens=skip_special_tokens,
            clean_up_tokenization_spaces=False,
        )


def _answer_texts(answer_format: str, grid: Sequence[float]) -> tuple[str, ...]:
    """Each grid value in words.

    Raises:
        ValueError: two look the same.
    """
    texts = tuple(answer_format.format(value) for value in grid)
    # The grid ascends: what looks the same is side by side.
    for text, other in pairwise(texts):
        if text == other:
            raise ValueError(
                f"a grid of {len(texts)} values must have as many different answers, "
                f"got {text!r} more than once by answer_format {answer_format!r}; give "
                "it more digits or take a smaller grid_size"
            )
    return texts
