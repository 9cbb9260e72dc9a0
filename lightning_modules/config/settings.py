"""Base class of all settings."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Base of all settings: unknown keys are errors, types are not guessed, nothing changes later."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        validate_default=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


def from_name(value: Any) -> Any:
    """Return the settings of a kind with their defaults if the value is a bare name."""
    return {"kind": value} if isinstance(value, str) else value
