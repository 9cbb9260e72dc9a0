"""What all settings have in common."""

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
    """A bare name stands for the settings of that kind with their defaults."""
    return {"kind": value} if isinstance(value, str) else value
