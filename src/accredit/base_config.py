"""The base of everything a recipe can set. Loads no torch."""

from pydantic import BaseModel, ConfigDict


class BaseConfig(BaseModel):
    """Frozen, strict about names, documented by the text under each field."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )
