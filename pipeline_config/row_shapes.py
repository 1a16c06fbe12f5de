"""The shapes of the rows that a configuration asks for, and how much T5's span corruption hides.

That is plain Python: masking itself asks it, too. As ``random_spans_noise_mask`` of
google-research/text-to-text-transfer-transformer; arXiv 1910.10683, section 3.1.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pipeline_config.data_schema import MaskingConfig
    from pipeline_config.schema import PipelineConfig

FRAME = 2
"""Tokens of a row that are no text: one before it and one behind it."""

SENTINELS = 100
"""Of every T5 vocabulary."""


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


class SpanCounts(NamedTuple):
    """Of a text: tokens that are hidden, and the spans that they are in."""

    hidden: int
    spans: int


def span_counts(tokens: int, masked_lm_prob: float, mean_span_tokens: float) -> SpanCounts:
    """Return how much is hidden of a text; of a single token nothing.

    Something is left before each span.

    :param tokens: of the text, without its frame.
    """
    if tokens <= 1:
        return SpanCounts(0, 0)
    hidden = min(max(round(tokens * masked_lm_prob), 1), tokens - 1)
    return SpanCounts(hidden, min(max(round(hidden / mean_span_tokens), 1), tokens - hidden))
