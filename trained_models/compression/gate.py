"""Decides whether a smaller model may replace its parent, from measurements of the written file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from pipeline_config.compression import (
    DYNAMIC_RANGE,
    FLOAT16,
    FLOAT32,
    TFLITE,
    CompressionConfig,
    steps_of,
)
from pipeline_store.formats import ChildComparison, ModelFigures

WEIGHTS_TOLERANCE = 0.02
"""How far the number of weights in a file may be from the number by its sizes: converters leave
out segment types and add constants."""
LEAST_SHARE = 0.9
"""Share of the weights that must have the type that a step names: small ones stay as they are."""
LARGEST_COVERED_DIFFERENCE = 1e-4
"""Of logits on covered text, between float32 programs that differ in the order of operations."""
TYPES: Mapping[str, str] = {
    FLOAT32: "float32",
    FLOAT16: "float16",
    DYNAMIC_RANGE: "int8",
}
"""The type of the weights of a file after a step."""


def reasons_against(
    name: str,
    settings: CompressionConfig,
    *,
    parent: ModelFigures,
    child: ModelFigures,
    comparison: ChildComparison,
) -> list[str]:
    """Return the reasons to refuse a child, a sentence each; none if it is accepted.

    :param name: the child's name, which lists its steps.
    :param parent: figures of the parent as a SavedModel.
    """
    steps = steps_of(name)
    return [
        *_broken(child, comparison),
        *_not_done(steps, parent, child),
        *_otherwise(settings, comparison),
        *_too_much(settings, child, comparison),
    ]


def _broken(child: ModelFigures, comparison: ChildComparison) -> Iterator[str]:
    numbers = (child.value, child.loss, comparison.difference, comparison.interval.low)
    if not all(map(math.isfinite, numbers)):
        yield "Its outputs on the test examples are not all finite numbers: the file is broken."


def _not_done(steps: tuple[str, ...], parent: ModelFigures, child: ModelFigures) -> Iterator[str]:
    off = abs(child.parameters - child.expected_parameters) / child.expected_parameters
    if off > WEIGHTS_TOLERANCE:
        yield (
            f"The file has {child.parameters:,} weights; its layers and vocabulary make "
            f"{child.expected_parameters:,}. A step did nothing, or too much."
        )
    if steps[-1] in TFLITE:
        wanted = TYPES[steps[-1]]
        share = child.types.get(wanted, 0.0)
        if share < LEAST_SHARE:
            yield (
                f"{share:.0%} of its weights are {wanted}, and {steps[-1]} makes at least "
                f"{LEAST_SHARE:.0%} so: the converter left them as they were."
            )
    if steps != (FLOAT32,) and child.megabytes >= parent.megabytes:
        yield (
            f"Its file has {child.megabytes:.2f} MB and its parent's {parent.megabytes:.2f}: "
            "nothing was saved."
        )


def _otherwise(settings: CompressionConfig, comparison: ChildComparison) -> Iterator[str]:
    if comparison.conversion_agreement < settings.min_agreement:
        yield (
            f"{comparison.conversion_agreement:.2%} of its answers are those of the model that "
            f"was converted; compression.min_agreement is {settings.min_agreement:.2%}."
        )
    difference = comparison.covered_difference
    # A comparison with NaN is false.
    if difference is not None and not difference <= LARGEST_COVERED_DIFFERENCE:
        yield (
            f"On text that its vocabulary covers its logits differ by {difference:.1e} from its "
            f"parent's, more than {LARGEST_COVERED_DIFFERENCE:g}: rows of the embeddings are not "
            "those of their tokens."
        )


def _too_much(
    settings: CompressionConfig, child: ModelFigures, comparison: ChildComparison
) -> Iterator[str]:
    low = comparison.interval.low
    if low < -settings.max_metric_loss:
        yield (
            f"Its {child.metric} may be {-low:.4f} lower than its parent's (difference "
            f"{comparison.difference:+.4f}, 95% interval {low:+.4f} to "
            f"{comparison.interval.high:+.4f} on {child.examples} examples); "
            f"compression.max_metric_loss is {settings.max_metric_loss:g}."
        )
    most = settings.max_megabytes
    if most is not None and child.megabytes > most:
        yield f"It has {child.megabytes:.2f} MB; compression.max_megabytes is {most:g}."
    limit = settings.max_latency_ms
    if limit is not None and child.p50_ms > limit:
        yield (
            f"A row takes {child.p50_ms:.2f} ms (median, one thread); compression.max_latency_ms "
            f"is {limit:g}."
        )
