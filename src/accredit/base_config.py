"""The base of everything a recipe can set. Loads no torch."""

from types import NoneType
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, model_validator


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
