"""How a model is asked what an attempt is worth, as token ids.

    prompt  completion so far | end of turn  user: question  assistant: stem | answer

The left part is taken as it was sampled and never encoded again, so that an engine may
find it in its prefix cache. All that could go wrong later is tried when `Questions` is
built: the chat template, the seams between stem, answer and end of turn, the grid.
Knows no model and no loss.
"""

import difflib
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from accredit.critics.question_templates import BUILT_IN
from accredit.functional.grids import grid_values
from accredit.types import Attempt

Tokenizer: TypeAlias = Any
"""A tokenizer of transformers, whose own annotations are too wide to check against."""

MAX_ANSWER_TOKENS = 4
ON_GRID = 1e-6
"""Rounding by which a number may miss its grid value."""
PLACEHOLDER = re.compile(r"\{(?:left|reference)\}")
FORMAT = re.compile(r"\s?\{:(?:\.[0-9])?[fg]\}")
NUMBER = re.compile(r"\s*(?>([0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?![\w%/,])")
"""Leading, and not the beginning of a fraction, a percentage or a word."""
OPENING_TAG = re.compile(r"<[^<>/]+>\s*")
ATTEMPT, QUESTION = "accreditAttempt0x5a", "accreditQuestion0x5a"


@dataclass(frozen=True)
class QuestionTemplate:
    """The texts of a question."""

    question: str
    """{left} stands for the tokens that are left to the attempt."""
    question_with_reference: str
    """{reference} stands for the text of a passing completion beside it."""
    stem: str
    """How the answer begins, up to its number."""
    thinking_close: str = ""
    """Ends the attempt's thinking where it has not ended; nothing where none thinks."""
    answer_format: str = "{:.1f}"
    """Of a grid value."""

    def __post_init__(self) -> None:
        needed = {"question": "{left}", "question_with_reference": "{left}{reference}"}
        for key, names in needed.items():
            found = set(PLACEHOLDER.findall(getattr(self, key)))
            expected = set(PLACEHOLDER.findall(names))
            if found != expected:
                raise ValueError(
                    f"{key} of a template must hold {' and '.join(sorted(expected))}, "
                    f"and no other placeholder, got {sorted(found)}; the critic must "
                    "know the budget that is left, and sees a reference in the second "
                    "text alone"
                )
        if not FORMAT.fullmatch(self.answer_format):
            raise ValueError(
                "answer_format of a template must be that of one number, as '{:.1f}', "
                f"got {self.answer_format!r}"
            )


def template_named(name: str) -> QuestionTemplate:
    """A built-in template, or that of a TOML file.

    Raises:
        ValueError: there is neither, or the file does not hold one.
    """
    if name in BUILT_IN:
        return QuestionTemplate(**BUILT_IN[name])
    file = Path(name)
    if not file.is_file():
        raise ValueError(
            f"a template must be {', '.join(BUILT_IN)} or a TOML file, got {name!r}, "
            f"which does not exist{_nearest(name, BUILT_IN)}"
        )
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ValueError(f"{name} must be a TOML file, got {error}") from error
    return _template_of(content, name)


def _template_of(content: Mapping[str, Any], name: str) -> QuestionTemplate:
    known = [part.name for part in fields(QuestionTemplate)]
    for key, text in content.items():
        if key not in known:
            raise ValueError(
                f"keys of {name} must be of {', '.join(known)}, got {key!r}"
                f"{_nearest(key, known)}"
            )
        if not isinstance(text, str):
            raise ValueError(f"{key} in {name} must be text, got {text!r}; quote it")
    for part in fields(QuestionTemplate):
        if part.default is MISSING and part.name not in content:
            raise ValueError(f"{name} must hold the key {part.name!r}; add it")
    return QuestionTemplate(**content)


def _nearest(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


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
            ValueError: the tokenizer cannot be asked this way, or answer on this grid.
        """
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
        self._before, self._after = self._around_question()
        self.end_of_turn = self._end_of_turn()
        """Ids that end an answer."""
        self.answers = self._answers()
        """Ids of each grid value."""
        self._closing = template.thinking_close.strip()
        closing_ids = self._ids(self._closing)
        self._closing_id = closing_ids[0] if len(closing_ids) == 1 else None
        self._control = frozenset(
            token.content
            for token in tokenizer.added_tokens_decoder.values()
            if token.special
        )
        self._question_ids = lru_cache(maxsize=256)(self._encoded_question)

    def context(self, attempt: Attempt, with_reference: bool) -> tuple[int, ...]:
        """All that stands before the answer.

        Raises:
            ValueError: a reference is to be shown and there is none.
        """
        if with_reference and attempt.reference is None:
            raise ValueError(
                "a question with a reference needs an attempt that has one, got none "
                f"for {attempt.prompt.problem.id!r}; ask without"
            )
        written = attempt.written
        left = self._num_left(attempt)
        if written and written[-1] in self.stop_token_ids:
            written = written[:-1]
        reference = attempt.reference if with_reference else None
        asked = self._question_ids(left, reference, self._is_thinking(written))
        return (*attempt.prompt.token_ids, *written, *asked)

    def answer_ids(self, k: int) -> tuple[int, ...]:
        """Ids of the grid's value number `k`, without the end of the turn."""
        return self.answers[k]

    def parsed(self, ids: Sequence[int]) -> int | None:
        """Number of the grid value that an answer begins with; None where it has none.

        At most the first four tokens are read, up to the end of the turn.
        """
        said: list[int] = []
        for token in ids[:MAX_ANSWER_TOKENS]:
            if token in self.stop_token_ids:
                break
            said.append(token)
        found = NUMBER.match(self._text(said))
        if found is None:
            return None
        number = float(found[1])
        for k, text in enumerate(self._texts):
            if abs(number - float(text)) <= ON_GRID:
                return k
        return None

    def shown_reference(self, reference: Sequence[int]) -> str:
        """A completion as the critic reads it: what it handed in, without its thinking.

        A control token that the text spells out is taken off, or it would open a turn.
        """
        ids = list(reference)
        if self._closing_id is not None and self._closing_id in ids:
            ids = ids[len(ids) - ids[::-1].index(self._closing_id) :]
        text = self._text(ids, skip_special_tokens=True)
        if self._closing:
            text = text.rpartition(self._closing)[2]
        while found := [token for token in self._control if token in text]:
            for token in found:
                text = text.replace(token, "")
        return text.strip()

    def _num_left(self, attempt: Attempt) -> int:
        """Tokens that may follow before the attempt is truncated."""
        left = self.max_new_tokens - len(attempt.written)
        if self.max_context_tokens is not None:
            begun = len(attempt.prompt.token_ids) + len(attempt.written)
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
        from jinja2 import TemplateError

        turns = [("user", "?"), ("assistant", ATTEMPT), ("user", QUESTION)]
        try:
            text = self.tokenizer.apply_chat_template(
                [{"role": role, "content": content} for role, content in turns],
                add_generation_prompt=True,
                tokenize=False,
            )
        except (TemplateError, TypeError, ValueError, KeyError) as error:
            raise ValueError(
                "a prompted critic asks in a second user turn, got a chat template "
                f"that cannot hold two user turns ({str(error)[:80]}); use another "
                "template or chat = 'plain'"
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

    def _answers(self) -> tuple[tuple[int, ...], ...]:
        """Ids of each grid value, none of which begins another."""
        answers = tuple(map(self._answer, self._texts))
        for text, ids in zip(self._texts, answers, strict=True):
            if not 0 < len(ids) <= MAX_ANSWER_TOKENS:
                raise ValueError(
                    f"an answer must have 1 to {MAX_ANSWER_TOKENS} tokens, got "
                    f"{len(ids)} for {text!r}; take a coarser grid or a shorter "
                    "answer_format"
                )
            for other in answers:
                if len(ids) < len(other) and other[: len(ids)] == ids:
                    raise ValueError(
                        f"no answer may begin another, got {text!r} ({list(ids)}) and "
                        f"{list(other)}; give all the same digits, as '{{:.1f}}'"
                    )
        return answers

    def _answer(self, text: str) -> tuple[int, ...]:
        """Ids of one grid value, proved to stay apart behind every kind of question."""
        found: set[tuple[int, ...]] = set()
        for left, shown in ((self.max_new_tokens, None), (0, "x")):
            question = self._asked(left, shown)
            asked, answered = self._ids(question), self._ids(question + text)
            found.add(answered[len(asked) :])
            if answered[: len(asked)] != asked or len(found) > 1:
                raise self._merged(self.template.stem, text)
            if self._is_plain:
                continue
            expected = (*answered, *self.end_of_turn)
            ended = self._ids(question + text + self._before)
            if ended[: len(expected)] != expected:
                raise self._merged(text, self._before)
        return found.pop()

    def _merged(self, left: str, right: str) -> ValueError:
        return ValueError(
            "stem, answer and end of turn must be tokens of their own, got a tokenizer "
            f"that merges {left!r} with {right!r}; let the stem end otherwise (without "
            "a space, or with one), or move the space into answer_format"
        )

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

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
    if len(set(texts)) != len(texts):
        twice = next(text for text in texts if texts.count(text) > 1)
        raise ValueError(
            f"a grid of {len(texts)} values must have as many different answers, got "
            f"{twice!r} more than once by answer_format {answer_format!r}; give it "
            "more digits or take a smaller grid_size"
        )
    return texts
