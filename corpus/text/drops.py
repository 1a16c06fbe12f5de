"""Reasons why a document is in no record; each document read is in a record or counted here."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class DropReason(StrEnum):
    """Reasons as they appear in manifests and dead-letter files: ``docs/operate/errors.md``."""

    INVALID_UTF8 = "invalid_utf8"
    NUL_CHARACTER = "nul_character"
    LONE_SURROGATE = "lone_surrogate"
    INVALID_JSON = "invalid_json"
    MISSING_FIELD = "missing_field"
    FIELD_IS_NOT_TEXT = "field_is_not_text"
    INVALID_CSV = "invalid_csv"
    WRONG_COLUMN_COUNT = "wrong_column_count"
    TOO_LONG = "too_long"
    BINARY_FILE = "binary_file"
    WRONG_FORMAT = "wrong_format"
    TRUNCATED_GZIP = "truncated_gzip"
    CORRUPT_GZIP = "corrupt_gzip"
    TRUNCATED_BZ2 = "truncated_bz2"
    CORRUPT_BZ2 = "corrupt_bz2"
    TRUNCATED_ZSTD = "truncated_zstd"
    CORRUPT_ZSTD = "corrupt_zstd"
    TRUNCATED_XZ = "truncated_xz"
    CORRUPT_XZ = "corrupt_xz"
    UNCLOSED_QUOTE = "unclosed_quote"
    MISSING_COLUMN = "missing_column"
    COLUMN_IS_NOT_TEXT = "column_is_not_text"
    CORRUPT_PARQUET = "corrupt_parquet"
    LARGE_PAGE = "large_page"
    CORRUPT_TFRECORD = "corrupt_tfrecord"
    INVALID_RECORD = "invalid_record"
    DUPLICATE = "duplicate"
    NEAR_DUPLICATE = "near_duplicate"
    EMPTY = "empty"
    TOO_SHORT = "too_short"
    OTHER_LANGUAGE = "other_language"


# The file is not what it should be, so nothing of it is used.
BAD_FILE = frozenset(
    {
        DropReason.BINARY_FILE,
        DropReason.WRONG_FORMAT,
        DropReason.TRUNCATED_GZIP,
        DropReason.CORRUPT_GZIP,
        DropReason.TRUNCATED_BZ2,
        DropReason.CORRUPT_BZ2,
        DropReason.TRUNCATED_ZSTD,
        DropReason.CORRUPT_ZSTD,
        DropReason.TRUNCATED_XZ,
        DropReason.CORRUPT_XZ,
        DropReason.UNCLOSED_QUOTE,
        DropReason.MISSING_COLUMN,
        DropReason.COLUMN_IS_NOT_TEXT,
        DropReason.CORRUPT_PARQUET,
        DropReason.LARGE_PAGE,
        DropReason.CORRUPT_TFRECORD,
    }
)
# Readable text that is not wanted. Not an error, so it does not count against max_bad_fraction.
HARMLESS = frozenset(
    {
        DropReason.DUPLICATE,
        DropReason.NEAR_DUPLICATE,
        DropReason.EMPTY,
        DropReason.TOO_SHORT,
        DropReason.OTHER_LANGUAGE,
    }
)


class Rejected(NamedTuple):
    """A document that cannot be used: why, and where it begins.

    ``offset`` counts bytes of the uncompressed file from 0 (in Parquet: rows), ``line`` lines from
    1 (in Parquet it is 0).
    """

    reason: DropReason
    detail: str
    offset: int
    line: int


class RejectedFileError(Exception):
    """Nothing of the file can be used."""

    def __init__(self, reason: DropReason, detail: str, offset: int = 0) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.offset = offset


def count_bad(dropped: dict[str, int]) -> int:
    """Return how many of the dropped documents were unreadable."""
    return sum(count for reason, count in dropped.items() if reason not in HARMLESS)


def is_rejected_file(dropped: dict[str, int]) -> bool:
    """Return whether a shard was rejected as a whole."""
    return any(reason in dropped for reason in BAD_FILE)
