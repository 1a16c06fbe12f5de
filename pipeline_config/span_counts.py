"""How much T5's span corruption hides of a text. Plain Python: masking itself asks it, too.

As ``random_spans_noise_mask`` of google-research/text-to-text-transfer-transformer; arXiv
1910.10683, section 3.1.4.
"""

from __future__ import annotations

from typing import NamedTuple

FRAME = 2
"""Tokens of a row that are no text: one before it and one behind it."""

SENTINELS = 100
"""Of every T5 vocabulary."""


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
