"""Computes the shapes of a configuration's rows, and how much T5's span corruption hides.

It is plain Python because masking itself uses it too. Follows ``random_spans_noise_mask`` of
google-research/text-to-text-transfer-transformer; arXiv 1910.10683, section 3.1.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pipeline_config.data_schema import MaskingConfig
    from pipeline_config.schema import PipelineConfig

FRAME = 2
"""Tokens of a row that are not text: one at its start and one at its end."""

SENTINELS = 100
"""Sentinel tokens in every T5 vocabulary."""


class Corrupted(NamedTuple):
    """Token counts of a corrupted text's source and target, ``</s>`` included."""

    source: int
    target: int


def row_shapes(config: PipelineConfig) -> list[tuple[str, int, int]]:
    """Return the shapes of the rows that are written, the main shape first.

    :returns: for each shape the prefix of its settings, max_seq_length, max_predictions_per_seq.
    """
    masking = config.masking
    shapes = [("", masking.max_seq_length, masking.max_predictions_per_seq)]
    if masking.extra_max_seq_length is not None:
        extra = (masking.extra_max_seq_length, masking.extra_max_predictions_per_seq)
        shapes.append(("extra_", *extra))
    return shapes


def longest_corrupted(masking: MaskingConfig, max_seq_length: int) -> Corrupted:
    """Return the source and target lengths of a full row; shorter rows do not exceed them."""
    tokens = max_seq_length - FRAME
    hidden, spans = masking.span_counts(tokens)
    return Corrupted(source=tokens - hidden + spans + 1, target=hidden + spans + 1)


class SpanCounts(NamedTuple):
    """Number of hidden tokens of a text, and of the spans that they form."""

    hidden: int
    spans: int


def span_counts(tokens: int, masked_lm_prob: float, mean_span_tokens: float) -> SpanCounts:
    """Return how much of a text is hidden; a single token stays visible.

    At least one token is left before each span.

    :param tokens: number of tokens of the text, without its frame.
    """
    if tokens <= 1:
        return SpanCounts(0, 0)
    hidden = min(max(round(tokens * masked_lm_prob), 1), tokens - 1)
    return SpanCounts(hidden, min(max(round(hidden / mean_span_tokens), 1), tokens - hidden))
