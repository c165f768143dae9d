"""Between text and token ids: problems to prompts, completions to text.

A prompt is rendered once, by the tokenizer's chat template or as plain text, and its
length is measured on the very ids that are sent to the engine. Nothing is cut: what
does not fit is left out, with a reason. A policy's text is never encoded again. What a
user's text spells of a control token stays text; see `control_tokens`.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias

from accredit.tasks.control_tokens import control_tokens, spelling_of
from accredit.tasks.problems import shortened
from accredit.text import without_lone_surrogates
from accredit.types import Message, Problem, Prompt

Tokenizer: TypeAlias = Any
"""A tokenizer of transformers, whose own annotations are too wide to check against."""

Chat = Literal["auto", "template", "plain"]
"""auto: through the chat template where the tokenizer has one, else plain text."""

Reads = Literal["sampled", "clean"]
"""sampled: every token but those that end or pad; clean: without special tokens."""

PLACEHOLDER = re.compile(r"\{(?:prompt|answer)\}")
"""Of a template; both in one pass, so that a text put in is not read again."""


class Rendered(NamedTuple):
    """Prompts in the order of their problems, and what was left out."""

    prompts: tuple[Prompt, ...]
    dropped: dict[str, str]
    """Reason by problem id."""
    num_unknown: int = 0
    """Prompts in which the tokenizer met text that it has no token for."""


class DoesNotFit(ValueError):
    """A problem that the tokenizer or its chat template cannot express."""


def render(
    problem: Problem, tokenizer: Tokenizer, chat: Chat = "auto", system: str = ""
) -> Prompt:
    """One problem as token ids.

    Ids come straight from the tokenizer: of the template's text, with the opening of
    the assistant's turn, or of the messages' texts joined by a blank line. A tokenizer
    that puts BOS before every text puts exactly one here, whether or not its template
    writes it.

    Args:
        problem: Whose messages to render.
        tokenizer: Of the policy.
        chat: Which of the two ways; "template" demands a template.
        system: Opens the conversation, unless the problem brings its own system turn.

    Raises:
        DoesNotFit: the template refuses the messages, or nothing is left of them.
    """
    (ids,) = _token_ids([_turns(problem, system)], tokenizer, chat)
    if isinstance(ids, str):
        raise DoesNotFit(f"problem {problem.id!r} cannot be rendered: {ids}")
    return Prompt(problem, ids)


def shown_prompt_ids(
    template: str,
    prompt: Prompt,
    *,
    tokenizer: Tokenizer,
    chat: Chat = "auto",
    system: str = "",
) -> tuple[int, ...]:
    """Token ids of a prompt whose last user message is another text.

    For whoever may see what the policy does not, as a critic or a teacher. Everything
    else of the conversation stays.

    Args:
        template: The text, in which {prompt} stands for that message and {answer} for
            the problem's answer. Nothing else is replaced, in what is put in neither.
        prompt: The policy's.
        tokenizer: Of the policy.
        chat: As the policy is asked.
        system: As the policy is asked.

    Raises:
        DoesNotFit: the problem has no answer to show, or cannot be rendered.
    """
    problem = prompt.problem
    if "{answer}" in template and problem.answer is None:
        raise DoesNotFit(
            f"problem {problem.id!r} must have an answer to be shown, got none; take "
            "{answer} out of the template"
        )
    turns = list(problem.messages)
    spoken = [place for place, turn in enumerate(turns) if turn.role == "user"]
    last = spoken[-1] if spoken else len(turns) - 1
    texts = {"{prompt}": turns[last].content, "{answer}": problem.answer or ""}
    text = PLACEHOLDER.sub(lambda match: texts[match[0]], template)
    turns[last] = Message(turns[last].role, text)
    shown = replace(problem, messages=tuple(turns))
    return render(shown, tokenizer, chat, system).token_ids


def render_all(
    problems: Sequence[Problem],
    tokenizer: Tokenizer,
    max_prompt_tokens: int,
    chat: Chat = "auto",
    system: str = "",
) -> Rendered:
    """All problems as token ids, in batches; what does not fit is left out.

    Raises:
        ValueError: nothing fits.
    """
    if max_prompt_tokens < 1:
        raise ValueError(f"max_prompt_tokens must be >= 1, got {max_prompt_tokens}")
    turns = [_turns(problem, system) for problem in problems]
    prompts: list[Prompt] = []
    dropped: dict[str, str] = {}
    for problem, ids in zip(problems, _token_ids(turns, tokenizer, chat), strict=True):
        if isinstance(ids, str):
            dropped[problem.id] = ids
        elif len(ids) > max_prompt_tokens:
            dropped[problem.id] = f"{len(ids)} tokens, limit {max_prompt_tokens}"
        else:
            prompts.append(Prompt(problem, ids))
    if not prompts:
        first = next(iter(dropped.items()), ("none", "there are no problems"))
        raise ValueError(
            f"at least one of {len(problems)} problems must fit as a prompt, got none "
            f"(problem {first[0]!r}: {first[1]}); raise max_prompt_tokens or check the "
            "data and the tokenizer"
        )
    ends = (tokenizer.bos_token_id, tokenizer.eos_token_id)
    unknown = {tokenizer.unk_token_id}.difference(ends)
    num_unknown = sum(not unknown.isdisjoint(prompt.token_ids) for prompt in prompts)
    return Rendered(tuple(prompts), dropped, num_unknown)


def decode_completion(
    tokenizer: Tokenizer,
    token_ids: Sequence[int],
    stop_token_ids: Collection[int],
    reads: Reads = "clean",
) -> str:
    """What a completion says: without its stop token, and as `reads` has it."""
    return decode_completions(tokenizer, [token_ids], stop_token_ids, reads)[0]


def decode_completions(
    tokenizer: Tokenizer,
    completions: Sequence[Sequence[int]],
    stop_token_ids: Collection[int],
    reads: Reads = "clean",
) -> list[str]:
    """`decode_completion` of many.

    Only a stop token at the very end is taken off; one in the middle was the policy's
    text and shows unless it is special. Spaces are never tidied.
    """
    return decoder(tokenizer, stop_token_ids, reads)(completions)


def decoder(
    tokenizer: Tokenizer, stop_token_ids: Collection[int], reads: Reads = "clean"
) -> Callable[[Sequence[Sequence[int]]], list[str]]:
    """`decode_completions` with everything but the completions filled in."""
    stops = frozenset(stop_token_ids)
    hidden = frozenset[int]()
    if reads == "sampled":
        ends = {tokenizer.eos_token_id, tokenizer.pad_token_id, *stops}
        hidden = ends.intersection(control_tokens(tokenizer).values())

    def decoded(completions: Sequence[Sequence[int]]) -> list[str]:
        if not completions:
            return []
        said = [
            ids[:-1] if len(ids) and ids[-1] in stops else ids for ids in completions
        ]
        texts = tokenizer.batch_decode(
            [[token for token in ids if token not in hidden] for ids in said],
            skip_special_tokens=reads == "clean",
            clean_up_tokenization_spaces=False,
        )
        return [without_lone_surrogates(text) for text in texts]

    return decoded


def _turns(problem: Problem, system: str) -> tuple[Message, ...]:
    opened = problem.messages[0].role in ("system", "developer")
    if not system or opened:
        return problem.messages
    return (Message("system", system), *problem.messages)


def _token_ids(
    conversations: Sequence[Sequence[Message]], tokenizer: Tokenizer, chat: Chat
) -> list[tuple[int, ...] | str]:
    """Ids of each conversation, or why it has none."""
    has_template = bool(tokenizer.chat_template)
    if chat == "template" and not has_template:
        raise ValueError(
            "chat = 'template' needs a tokenizer with a chat template, got one without;"
            " use 'auto' or 'plain'"
        )
    spelling = spelling_of(tokenizer)
    marked = [
        [Message(turn.role, spelling.marked(turn.content)) for turn in turns]
        for turns in conversations
    ]
    if chat == "plain" or not has_template:
        texts: list[str | DoesNotFit] = [
            "\n\n".join(turn.content for turn in turns) for turns in marked
        ]
    else:
        texts = [_templated(turns, tokenizer) for turns in marked]
    encoded = iter(spelling.encoded([text for text in texts if isinstance(text, str)]))
    opening = _opening_ids(tokenizer)
    return [
        str(text) if isinstance(text, DoesNotFit) else _opened(next(encoded), opening)
        for text in texts
    ]


def _templated(turns: Sequence[Message], tokenizer: Tokenizer) -> str | DoesNotFit:
    try:
        return tokenizer.apply_chat_template(
            [{"role": turn.role, "content": turn.content} for turn in turns],
            add_generation_prompt=True,
            tokenize=False,
        )
    except Exception as error:  # A template is a program: it may raise anything.
        fault = shortened(str(error) or type(error).__name__)
        return DoesNotFit(f"the chat template refuses it: {fault}")


def _opening_ids(tokenizer: Tokenizer) -> tuple[int, ...]:
    """What the tokenizer itself puts before any text, e.g. BOS; never what it appends,
    since a prompt that ends with EOS asks for nothing.
    """
    around_nothing = tokenizer("", add_special_tokens=True)["input_ids"]
    begins = around_nothing[:1] == [tokenizer.bos_token_id]
    return (tokenizer.bos_token_id,) if begins else ()


def _opened(
    ids: Sequence[int] | ValueError, opening: tuple[int, ...]
) -> tuple[int, ...] | str:
    if isinstance(ids, ValueError):
        return str(ids)
    start = 0
    while opening and start < len(ids) and ids[start] == opening[0]:
        start += 1
    if start == len(ids):
        return "the tokenizer finds no token in it"
    return (*opening, *ids[start:])
