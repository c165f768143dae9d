"""A chat template is a program that came with the weights: here it runs within bounds.

The text is what transformers would render, from its own environment of filters and
tags. Steps, sizes and seconds are counted while the template runs, so that a loop
without end, or a text that would fill the memory, ends with an error. Nothing is shared
between threads but the compiled template.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache, wraps
from typing import Any

from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

SECONDS = 2.0
"""Of its thread's computing that one conversation may take."""
CHARACTERS = 20_000_000
"""That one operation may make; a prompt has a thousand times less."""
WORK = 200_000_000
"""Characters that all operations of one conversation may make together."""
ALIKE = ("trim_blocks", "lstrip_blocks", "keep_trailing_newline", "autoescape")
UNBOUNDED = ("lipsum", "striptags", "urlize", "wordwrap", "xmlattr")
"""What makes text without end or takes time without end, and no chat needs."""
WIDTH = re.compile(r"\d{4,}")
"""A field of a format that is wider than any text needs."""


class TemplateWithoutEnd(ValueError):
    """A template that took more time or made more text than a prompt can need."""

    def __init__(self, message: str, out_of_time: bool = False) -> None:
        super().__init__(message)
        self.out_of_time = out_of_time


class _Budget:
    """What one rendering has left."""

    def __init__(self, step: int) -> None:
        self.step = step
        """Characters that a turn of a loop may write at least: the template's own."""
        self.work = WORK
        self.deadline = time.thread_time() + SECONDS

    def spend(self, size: int) -> None:
        self.work -= size
        if size > CHARACTERS or self.work < 0:
            raise TemplateWithoutEnd(
                f"a chat template must make at most {CHARACTERS} characters, got more"
            )
        if time.thread_time() > self.deadline:
            raise TemplateWithoutEnd(
                f"a chat template must end within {SECONDS:g} s, got no end",
                out_of_time=True,
            )


_budget: ContextVar[_Budget] = ContextVar("budget")


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Counts turns of loops, calls, filters and what is computed."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """The operation, if its result can be held."""
        if operator == "**":
            _budget.get().spend(_size(left) if right < 2 else _power(left, right))
        elif operator == "*":
            _budget.get().spend(_product(left, right))
        elif operator == "%" and isinstance(left, str):
            _require_narrow(left)
        result = super().call_binop(context, operator, left, right)
        _budget.get().spend(_size(result))
        return result

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """The call, if what it can make of its arguments can be held."""
        method = getattr(__obj, "__wrapped__", __obj)
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str) and method.__name__.startswith("format"):
            _require_narrow(owner)
        _require_bounded(owner, (*args, *kwargs.values()))
        return super().call(__context, __obj, *args, **kwargs)

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        """Loops and joined texts are counted, wherever they stand."""
        for loop in source.find_all(nodes.For):
            loop.iter = _filtered(loop.iter, "_turns")
        for joined in list(source.find_all(nodes.Concat)):
            joined.nodes = [_filtered(nodes.Concat(joined.nodes), "_joined")]
        return super()._generate(source, *args, **kwargs)


def bound_template(tokenizer: Any) -> None:
    """From now on the tokenizer's chat template runs within bounds."""
    unbounded = tokenizer.apply_chat_template
    endless: dict[str, str] = {}

    @wraps(unbounded)
    def apply(
        conversation: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = False,
        tokenize: bool = True,
        **options: Any,
    ) -> Any:
        opening = {"add_generation_prompt": add_generation_prompt}
        template = tokenizer.get_chat_template(
            options.get("chat_template"), options.get("tools")
        )
        if template in endless:  # A second prompt would wait as long as the first.
            raise TemplateWithoutEnd(endless[template])
        names = {**tokenizer.special_tokens_map, **options, **opening}
        try:
            text = rendered(template, messages=conversation, **names)
        except TemplateWithoutEnd as error:
            if error.out_of_time:
                endless[template] = str(error)
            raise
        if not tokenize and not options.get("continue_final_message"):
            return text
        return unbounded(conversation, tokenize=tokenize, **options, **opening)

    tokenizer.apply_chat_template = apply


def rendered(template: str, **names: Any) -> str:
    """The text of a chat template.

    Raises:
        TemplateWithoutEnd: it is too long or takes too long.
        Exception: whatever the template itself raises.
    """
    names = {"tools": None, "documents": None, **names}
    token = _budget.set(_Budget(len(template)))
    try:
        pieces: list[str] = []
        for piece in _compiled(template).generate(**names):
            _budget.get().spend(len(piece))
            pieces.append(piece)
        return "".join(pieces)
    finally:
        _budget.reset(token)


@lru_cache(maxsize=16)
def _compiled(template: str) -> Any:
    from transformers.utils.chat_template_utils import _compile_jinja_template

    # Of an empty template: constants are computed, without bounds, as one is compiled.
    ours = _compile_jinja_template("").environment
    bounded: Any = BoundedEnvironment(
        optimized=False,
        extensions=[type(extension) for extension in ours.extensions.values()],
        **{name: getattr(ours, name) for name in ALIKE},
    )
    bounded.globals.update(ours.globals)
    bounded.filters.update({k: _counted(v) for k, v in ours.filters.items()})
    for name in UNBOUNDED:
        bounded.globals.pop(name, None)
        bounded.filters.pop(name, None)
    bounded.filters.update(_turns=_turns, _joined=_joined)
    return bounded.from_string(template)


def _filtered(node: Any, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _turns(items: Iterable[Any]) -> Iterator[Any]:
    budget = _budget.get()
    for item in items:
        budget.spend(budget.step)
        yield item


def _joined(text: str) -> str:
    _budget.get().spend(len(text))
    return text


def _counted(filter: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(filter)
    def counted(*args: Any, **kwargs: Any) -> Any:
        given = args[1:] if getattr(filter, "jinja_pass_arg", None) else args
        if given and filter.__name__ == "do_format":
            _require_narrow(str(given[0]))
        _require_bounded(given[0] if given else None, (*given[1:], *kwargs.values()))
        return filter(*args, **kwargs)

    return counted


def _require_bounded(owner: Any, arguments: Sequence[Any]) -> None:
    """What text methods and filters can make is at most this product."""
    size = 1 + sum(map(_size, arguments))
    _budget.get().spend((1 + _size(owner)) * size)


def _require_narrow(text: str) -> None:
    if WIDTH.search(text) or "*" in text:
        raise TemplateWithoutEnd(
            "a chat template must format into fields of less than 1000 characters"
        )


def _size(value: Any) -> int:
    """Characters, items or digits; a number may be asked to become as many."""
    if isinstance(value, bool) or value is None:
        return 1
    if isinstance(value, int):
        return abs(value)
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list | tuple):
        return len(value) + sum(len(item) for item in value if isinstance(item, str))
    return len(value) if isinstance(value, Mapping | range) else 1


def _product(left: Any, right: Any) -> int:
    if isinstance(left, int) and isinstance(right, int):
        return left.bit_length() + right.bit_length()
    return _size(left) * _size(right)


def _power(left: Any, right: Any) -> int:
    if isinstance(left, int) and isinstance(right, int):
        return left.bit_length() * right
    return 1
