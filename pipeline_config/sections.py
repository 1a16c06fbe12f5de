"""Base class of settings sections, and types that several sections share."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from pipeline_config import patterns


class Mark(Enum):
    """Markers of a setting, in the metadata of its field."""

    BY_INSTALLATION = "only the installation's preset sets it; a request that changes it is refused"
    TEXT_PATH = "path or patterns of text that a request may only choose below the allowed roots"
    MODEL_PATH = "as TEXT_PATH, or below a published version of any lineage"
    TASKS = (
        "names of labelled tasks; what their descriptions name is held to the roots of TEXT_PATH"
    )


Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
TaskName = Annotated[str, Field(pattern=patterns.NAME)]
LARGEST_STEP = 100_000_000
_STEP_NUMBER = TypeAdapter(Annotated[int, Field(ge=1, le=LARGEST_STEP)])


def _auto_or_number(value: object) -> object:
    """Return ``auto`` or a step count; refuse others with one message, not one per union member."""
    if value == "auto":
        return value
    try:
        return _STEP_NUMBER.validate_python(value)
    except ValidationError:
        raise PydanticCustomError(
            "step_count", f"Input should be auto, or a whole number from 1 to {LARGEST_STEP:,}"
        ) from None


StepCount = Annotated[
    int | Literal["auto"],
    BeforeValidator(_auto_or_number),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": patterns.STEPS},
                {"type": "integer", "minimum": 1, "maximum": LARGEST_STEP},
            ]
        }
    ),
]
"""Steps of a run. A form has a text field for them and passes the input on as text."""
UserId = Annotated[str, Field(min_length=1, max_length=200)]


class Section(BaseModel):
    """A group of settings. Unknown names are errors and not ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
