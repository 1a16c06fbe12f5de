"""The shapes of the rows that a configuration asks for."""

from __future__ import annotations

from typing import NamedTuple

from pipeline_config.schema import MaskingConfig, PipelineConfig
from pipeline_config.span_counts import FRAME


class Corrupted(NamedTuple):
    """Tokens of what is made of a text, ``</s>`` included."""

    source: int
    target: int


def row_shapes(config: PipelineConfig) -> list[tuple[str, int, int]]:
    """Return the shapes of the rows that are written, the main one first.

    :returns: for each shape the prefix of its settings, max_seq_length, max_predictions_per_seq.
    """
    masking = config.masking
    shapes = [("", masking.max_seq_length, masking.max_predictions_per_seq)]
    if masking.extra_max_seq_length is not None:
        extra = (masking.extra_max_seq_length, masking.extra_max_predictions_per_seq)
        shapes.append(("extra_", *extra))
    return shapes


def longest_corrupted(masking: MaskingConfig, max_seq_length: int) -> Corrupted:
    """Return the lengths that a full row becomes; a shorter one becomes no longer."""
    tokens = max_seq_length - FRAME
    hidden, spans = masking.span_counts(tokens)
    return Corrupted(source=tokens - hidden + spans + 1, target=hidden + spans + 1)
