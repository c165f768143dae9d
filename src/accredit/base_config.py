"""The base of everything a recipe can set. Loads no torch."""

import difflib
import re
from collections.abc import Sequence
from types import NoneType
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator


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
    def _none_is_a_word(cls, content: Any) -> Any:
        """TOML has no none: the word stands for it where a key may be none."""
        if not isinstance(content, dict):
            return content
        optional = {
            key
            for key, field in cls.model_fields.items()
            if NoneType in get_args(field.annotation)
        }
        return {
            key: None if key in optional and is_none(value) else value
            for key, value in content.items()
        }


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
                f"{key} is read by {by} only, got {getattr(config, key)} without it; "
                "leave it out"
            )


PLACEHOLDERS = ("{prompt}", "{answer}")


def require_placeholders(key: str, template: str) -> None:
    """Nothing, where a template is empty or holds the prompt and no misspelled name.

    Raises:
        ValueError: the prompt has no place in it, or a name is nearly a known one.
    """
    if template and "{prompt}" not in template:
        raise ValueError(
            f"{key} must hold {{prompt}}, where the problem goes, got {template!r}; "
            "e.g. '{prompt} Answer: {answer}'"
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
