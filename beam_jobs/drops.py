"""Why a document is not in the records. Every document read is in a record or counted here."""

from __future__ import annotations

from enum import StrEnum


class DropReason(StrEnum):
    """Reasons as they appear in manifests and dead-letter files."""

    INVALID_UTF8 = "invalid_utf8"
    NUL_CHARACTER = "nul_character"
    LONE_SURROGATE = "lone_surrogate"
    INVALID_JSON = "invalid_json"
    MISSING_FIELD = "missing_field"
    FIELD_IS_NOT_TEXT = "field_is_not_text"
    TOO_LONG = "too_long"
    BINARY_FILE = "binary_file"
    TRUNCATED_GZIP = "truncated_gzip"
    CORRUPT_GZIP = "corrupt_gzip"
    DUPLICATE = "duplicate"
    EMPTY = "empty"


# The file is not what it should be, so nothing of it is used.
BAD_FILE = frozenset(
    {DropReason.BINARY_FILE, DropReason.TRUNCATED_GZIP, DropReason.CORRUPT_GZIP},
)
# Readable text that adds nothing. Not an error, so it does not count against max_bad_fraction.
HARMLESS = frozenset({DropReason.DUPLICATE, DropReason.EMPTY})


def count_bad(dropped: dict[str, int]) -> int:
    """Return how many of the dropped documents were unreadable."""
    return sum(count for reason, count in dropped.items() if reason not in HARMLESS)


def is_rejected_file(dropped: dict[str, int]) -> bool:
    """Return whether a shard was given up as a whole."""
    return any(reason in dropped for reason in BAD_FILE)
