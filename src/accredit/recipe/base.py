"""The base of everything a recipe can set. Loads no torch."""

import difflib
import re
from collections.abc import Sequence
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    model_validator,
)

from accredit.text import shortened


class BaseConfig(BaseModel):
    """Frozen, strict about names, documented by the text under each field."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )

    @model_validator(mode="before")
    @classmethod
    def _as_written(cls, content: Any) -> Any:
        """TOML has no none: the word stands for it where a key may be none.

        Otherwise nothing stands for something else, as text for a number.
        """
        if not isinstance(content, dict):
            return content
        optional = {
            key
            for key, field in cls.model_fields.items()
            if NoneType in get_args(field.annotation)
        }
        meant = {
            key: None if key in optional and is_none(value) else value
            for key, value in content.items()
        }
        return meant | {
            key: as_meant(meant[key], leaves(field.annotation))
            for key, field in cls.model_fields.items()
            if meant.get(key) is not None
        }


def leaves(annotation: Any) -> set[Any]:
    """The plain types and the words that an annotation is made of."""
    if get_origin(annotation) is Literal:
        return set(get_args(annotation))
    inner = get_args(annotation)
    return set().union(*map(leaves, inner)) if inner else {annotation}


class NotMeant:
    """A value that pydantic would turn into another kind; shown as what it is."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)


def as_meant(value: Any, kinds: set[Any]) -> Any:
    """The value, made unreadable where text or true stands for a number.

    Nor does a number or a word stand for true.
    """
    if isinstance(value, list | tuple):
        return [as_meant(part, kinds) for part in value]
    numeric = bool(kinds & {int, float})
    text_or_truth = isinstance(value, str | bool) and not kinds & {type(value), value}
    no_truth = bool in kinds and not numeric and not isinstance(value, bool)
    return NotMeant(value) if (numeric and text_or_truth) or no_truth else value


def is_none(value: object) -> bool:
    """Whether somebody wrote none."""
    return isinstance(value, str) and value.lower() == "none"


def require_used(config: BaseModel, keys: Sequence[str], used: bool, by: str) -> None:
    """Nothing, where keys that nobody reads are left at their defaults.

    Args:
        config: Its class says what the defaults are.
        keys: That belong together.
        used: Whether somebody reads them.
        by: Who would, in the words of a recipe.

    Raises:
        ValueError: one was set all the same.
    """
    for key in keys:
        default = type(config).model_fields[key].default
        if not used and getattr(config, key) != default:
            raise ValueError(
                f"{key} is read by {by} only, got {shortened(getattr(config, key))} "
                "without it; leave it out"
            )


PLACEHOLDERS = ("{prompt}", "{answer}")


def require_placeholders(key: str, template: str) -> None:
    """Nothing, where a template is empty or holds the prompt and no misspelled name.

    Raises:
        ValueError: the prompt has no place in it, or a name is nearly a known one.
    """
    if template and "{prompt}" not in template:
        raise ValueError(
            f"{key} must hold {{prompt}}, where the problem goes, got "
            f"{shortened(template)}; e.g. '{{prompt}} Answer: {{answer}}'"
        )
    for name in re.findall(r"\{[a-z]+\}", template):
        meant = difflib.get_close_matches(name, PLACEHOLDERS, n=1, cutoff=0.7)
        if meant and name not in PLACEHOLDERS:
            raise ValueError(f"{key} holds {name}; did you mean {meant[0]}?")


RESERVED = (
    "add_generation_prompt",
    "chat_template",
    "continue_final_message",
    "conversation",
    "documents",
    "max_length",
    "messages",
    "padding",
    "return_assistant_tokens_mask",
    "return_dict",
    "return_tensors",
    "tokenize",
    "tokenizer_kwargs",
    "tools",
    "truncation",
)
"""Arguments of a chat template that are not a user's to set: they decide what a prompt
is."""


def plain_arguments(content: Any) -> Any:
    """A table of names and plain values, as it is.

    Raises:
        ValueError: a name is none, or not the user's, or a value is no plain one.
    """
    key = "sampling.template_arguments"
    if not isinstance(content, dict):
        raise ValueError(f"{key} must be a section of keys, got {str(content)[:80]!r}")
    for name, value in content.items():
        if not str(name).isidentifier() or name in RESERVED:
            raise ValueError(
                f"{key} must name an argument of the chat template's own, such as "
                f"enable_thinking, got {str(name)[:80]!r}; leave it out"
            )
        if not isinstance(value, (bool, int, float, str)) or value != value:
            raise ValueError(
                f"{key}.{name} must be true, false, a number or a text, got "
                f"{str(value)[:80]!r}"
            )
    return content


TemplateArguments = Annotated[
    dict[str, bool | int | float | str], BeforeValidator(plain_arguments)
]
