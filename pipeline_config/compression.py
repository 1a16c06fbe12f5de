"""Settings of the smaller models that are made from a fine-tuned classifier, and their steps."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pipeline_config import patterns
from pipeline_config.sections import Fraction, Section

STUDENT, TRIM = "student", "trim"
FLOAT32, FLOAT16, DYNAMIC_RANGE = "tflite_float32", "tflite_float16", "tflite_dynamic_range"
TFLITE = (FLOAT32, FLOAT16, DYNAMIC_RANGE)

ChildName = Annotated[str, Field(pattern=patterns.CHILD)]


def steps_of(child: str) -> tuple[str, ...]:
    """Return the steps that make a child, in order: ``student``, ``trim``, a :data:`TFLITE`."""
    return tuple(child.split("+"))


class CompressionConfig(Section):
    """Smaller models of the best classifier of each task, and what they must not lose."""

    children: list[ChildName] = Field(
        [],
        max_length=15,
        description="Smaller models to make of the best classifier of each task, by their steps: "
        "student, trim, and one of tflite_float32, tflite_float16, tflite_dynamic_range, joined "
        "by + in this order.",
    )
    layers: int = Field(3, ge=1, le=48, description="Layers of a student.")
    num_train_epochs: float = Field(
        3.0, gt=0.0, le=1000.0, description="Passes of a student over its examples."
    )
    learning_rate: float = Field(1e-4, gt=0.0, le=1.0, description="A student's peak rate.")
    teacher_weight: Fraction = Field(
        0.5,
        description="Share of the parent's logits in the loss of a labeled example; the rest is "
        "its label's. 0 and no unlabeled texts: layers are dropped and the rest recovers.",
    )
    use_unlabeled: bool = Field(
        True,
        description="A student also copies the parent's logits on the texts that the task names "
        "by predict.",
    )
    temperature: float = Field(
        2.0, ge=1.0, le=100.0, description="What logits are divided by where students copy them."
    )
    max_metric_loss: Fraction = Field(
        0.02,
        description="How much lower than its parent's a child's metric may be: the lower end of "
        "the 95% interval of the difference.",
    )
    min_agreement: Fraction = Field(
        0.97, description="Share of answers that a conversion has to leave as they were."
    )
    max_megabytes: float | None = Field(
        None, gt=0.0, description="Largest file with a child's weights, 10^6 bytes. Empty: any."
    )
    max_latency_ms: float | None = Field(
        None,
        gt=0.0,
        description="Largest median time for one row on one thread, milliseconds. Empty: any.",
    )
