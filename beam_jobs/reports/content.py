"""The numbers and words of the report on a partition's data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from corpus.rows import waste
from corpus.text.drops import HARMLESS, DropReason, count_bad
from pipeline_store import uris
from pipeline_store.formats import PartitionManifest, RecordFile, ShardManifest, Split

SHARDS_SHOWN = 25
WORDS_SHOWN = 60

_CUT_SHORT = "The compressed file ends too early; nothing of it is used."
_DAMAGED = "The compressed file is damaged; nothing of it is used."
MEANINGS: dict[str, str] = {
    DropReason.INVALID_UTF8: "A byte is not UTF-8; often the file has another encoding.",
    DropReason.NUL_CHARACTER: "It has a NUL character, which no text has.",
    DropReason.LONE_SURROGATE: "It has half of a surrogate pair, which no text has.",
    DropReason.INVALID_JSON: "The line is not JSON.",
    DropReason.MISSING_FIELD: "The object has no field corpus.text_field.",
    DropReason.FIELD_IS_NOT_TEXT: "The field corpus.text_field holds something else than text.",
    DropReason.INVALID_CSV: "The record is not CSV; often a quote stands where none may.",
    DropReason.WRONG_COLUMN_COUNT: "The record has more or fewer columns than the header.",
    DropReason.TOO_LONG: "Larger than any document; often there are no blank lines between them.",
    DropReason.BINARY_FILE: "The file is not text; nothing of it is used.",
    DropReason.WRONG_FORMAT: "The file has another format than its name says; nothing is used.",
    DropReason.TRUNCATED_GZIP: _CUT_SHORT,
    DropReason.CORRUPT_GZIP: _DAMAGED,
    DropReason.TRUNCATED_BZ2: _CUT_SHORT,
    DropReason.CORRUPT_BZ2: _DAMAGED,
    DropReason.TRUNCATED_ZSTD: _CUT_SHORT,
    DropReason.CORRUPT_ZSTD: _DAMAGED,
    DropReason.TRUNCATED_XZ: _CUT_SHORT,
    DropReason.CORRUPT_XZ: _DAMAGED,
    DropReason.UNCLOSED_QUOTE: "A quote in the table is never closed; nothing of the file is used.",
    DropReason.MISSING_COLUMN: "The table has no column corpus.text_field; nothing is used.",
    DropReason.COLUMN_IS_NOT_TEXT: "The column corpus.text_field holds no text; nothing is used.",
    DropReason.CORRUPT_TFRECORD: "The TFRecord file is damaged; what comes after that is not used.",
    DropReason.INVALID_RECORD: "A TFRecord holds no row for BERT; dead_letter says what is wrong.",
    DropReason.LARGE_PAGE: "A page of the Parquet file is over 256 MiB; nothing of it is used.",
    DropReason.CORRUPT_PARQUET: "The Parquet file is damaged; nothing of it is used.",
    DropReason.DUPLICATE: "Equal to a document that came earlier.",
    DropReason.NEAR_DUPLICATE: "Similar to a document that came earlier.",
    DropReason.EMPTY: "No token is left after cleaning.",
    DropReason.TOO_SHORT: "Shorter than corpus.min_document_characters.",
    DropReason.OTHER_LANGUAGE: "In none of the languages of corpus.keep_languages.",
}


@dataclass(frozen=True)
class Rows:
    """The rows of one split and length, over all shards."""

    split: Split
    max_seq_length: int
    masked: bool
    documents: int
    records: int
    tokens: int
    masked_tokens: int

    @property
    def fill(self) -> float | None:
        """Share of the positions of a row that hold text, [CLS] and [SEP] included."""
        return _share(self.tokens, self.records * self.max_seq_length)

    @property
    def mask_rate(self) -> float | None:
        """Share of the tokens that are to be predicted; None where the trainer masks."""
        return _share(self.masked_tokens, self.tokens) if self.masked else None


@dataclass(frozen=True)
class Drop:
    """Documents that are not used, for one reason."""

    reason: str
    count: int
    share: float | None
    bad: bool
    meaning: str


@dataclass(frozen=True)
class ShardRow:
    """One input file."""

    name: str
    input_uri: str
    documents: int
    bad: int
    dropped: int
    tokens: int
    fill: float | None
    unknown: float | None
    dead_letter: str | None

    @property
    def badness(self) -> tuple[float, float, float]:
        """Larger is worse: unreadable documents, then dropped ones, then unknown tokens."""
        documents = max(self.documents, 1)
        return self.bad / documents, self.dropped / documents, self.unknown or 0.0


@dataclass(frozen=True)
class Bar:
    """A bar of a histogram."""

    label: str
    count: int


@dataclass(frozen=True)
class ReportContent:
    """Everything the page shows.

    :param shards: each with the URI of its ``shard.json``.
    """

    manifest: PartitionManifest
    manifest_id: str
    manifest_uri: str
    shards: list[tuple[str, ShardManifest]]

    @cached_property
    def rows(self) -> list[Rows]:
        """Rows by split and length, the main length first."""
        found: dict[tuple[int, Split], list[RecordFile]] = defaultdict(list)
        for _, shard in self.shards:
            for file in shard.files:
                found[file.max_seq_length, file.split].append(file)
        main = self.manifest.max_seq_length
        in_order = sorted(
            found, key=lambda key: (key[0] != main, key[0], list(Split).index(key[1]))
        )
        return [_rows(found[key]) for key in in_order]

    @property
    def dropped(self) -> list[Drop]:
        """Reasons why documents are not used, the most frequent one first."""
        counts = self.manifest.dropped.items()
        return [
            Drop(
                reason=reason,
                count=count,
                share=_share(count, self.manifest.documents),
                bad=reason not in HARMLESS,
                meaning=MEANINGS.get(reason, ""),
            )
            for reason, count in sorted(counts, key=lambda item: (-item[1], item[0]))
            if count
        ]

    @property
    def documents_dropped(self) -> int:
        """Documents that are in no record."""
        return sum(self.manifest.dropped.values())

    @property
    def unknown_rate(self) -> float | None:
        """Share of the text's tokens that are [UNK]."""
        statistics = self.manifest.statistics
        return _share(statistics.unknown_tokens, statistics.text_tokens)

    @property
    def tokens(self) -> int:
        """Tokens in the rows of the main length."""
        return sum(self.manifest.tokens.values())

    @property
    def fill(self) -> float | None:
        """Row fill of the main length."""
        places = sum(self.manifest.records.values()) * self.manifest.max_seq_length
        return _share(self.tokens, places)

    @property
    def warnings(self) -> list[str]:
        """Warnings of what the rows waste."""
        return waste.warnings(self.manifest)

    @property
    def mask_rate(self) -> float | None:
        """Share of tokens to be predicted, over all masked rows of the main length."""
        main = self.manifest.max_seq_length
        masked = [rows for rows in self.rows if rows.masked and rows.max_seq_length == main]
        return _share(sum(r.masked_tokens for r in masked), sum(r.tokens for r in masked))

    @property
    def configured_mask_rate(self) -> float | None:
        """``masking.masked_lm_prob``, if the manifest has it."""
        value = self.manifest.settings.get("masking", {}).get("masked_lm_prob")
        return float(value) if isinstance(value, int | float) else None

    @property
    def duplicates(self) -> int:
        """Documents left out as equal or similar to earlier ones."""
        reasons = (DropReason.DUPLICATE, DropReason.NEAR_DUPLICATE)
        return sum(self.manifest.dropped.get(reason, 0) for reason in reasons)

    @property
    def document_lengths(self) -> list[Bar]:
        """Used documents by their tokens, in powers of two, without gaps."""
        counts = self.manifest.statistics.document_tokens
        if not counts:
            return []
        return [
            Bar(_power_label(power), counts.get(power, 0))
            for power in range(min(counts), max(counts) + 1)
        ]

    @property
    def row_fill(self) -> list[Bar]:
        """Rows of the main length by the share that is text, in sixteenths."""
        counts = self.manifest.statistics.row_tokens
        if not counts:
            return []
        return [Bar(f"{k * 6.25:g}", counts.get(k, 0)) for k in range(16)]

    @property
    def nearly_full(self) -> float | None:
        """Share of the rows of the main length whose last sixteenth has text in it."""
        counts = self.manifest.statistics.row_tokens
        return _share(counts.get(15, 0), sum(counts.values()))

    @property
    def median_length(self) -> str | None:
        """Label of the range of lengths that the median document is in."""
        counts = self.manifest.statistics.document_tokens
        left = (sum(counts.values()) + 1) // 2
        for power in sorted(counts):
            left -= counts[power]
            if left <= 0:
                return _power_label(power)
        return None

    @property
    def new_words(self) -> list[tuple[str, int]]:
        """Most frequent words that the vocabulary splits."""
        words = self.manifest.statistics.new_words.items()
        return sorted(words, key=lambda item: (-item[1], item[0]))[:WORDS_SHOWN]

    @cached_property
    def all_shards(self) -> list[ShardRow]:
        """All input files, the worst first."""
        rows = [_shard_row(uri, shard, self.manifest.max_seq_length) for uri, shard in self.shards]
        return sorted(rows, key=lambda row: (*(-value for value in row.badness), row.input_uri))

    @property
    def worst_shards(self) -> list[ShardRow]:
        """The worst input files, as many as a page can show."""
        return self.all_shards[:SHARDS_SHOWN]

    @property
    def dead_letters(self) -> list[ShardRow]:
        """Files with unreadable documents, most of them first."""
        rows = [row for row in self.all_shards if row.dead_letter is not None]
        return sorted(rows, key=lambda row: (-row.bad, row.input_uri))

    @property
    def input_bytes(self) -> int:
        """Size of all input files as they lie in the store."""
        return sum(shard.input_bytes for _, shard in self.shards)

    @property
    def libraries(self) -> list[tuple[str, str]]:
        """Libraries with the versions that made the shards."""
        versions: dict[str, set[str]] = defaultdict(set)
        for _, shard in self.shards:
            for name, version in shard.libraries.items():
                versions[name].add(version)
        return [(name, ", ".join(sorted(versions[name]))) for name in sorted(versions)]

    @property
    def settings(self) -> list[tuple[str, str]]:
        """The settings that the records depend on."""
        sections: dict[str, dict[str, Any]] = self.manifest.settings
        return [
            (f"{section}.{name}", _setting(value))
            for section, values in sections.items()
            for name, value in values.items()
        ]


def _rows(files: Iterable[RecordFile]) -> Rows:
    files = list(files)
    return Rows(
        split=files[0].split,
        max_seq_length=files[0].max_seq_length,
        masked=files[0].masked,
        documents=sum(file.documents for file in files),
        records=sum(file.records for file in files),
        tokens=sum(file.tokens for file in files),
        masked_tokens=sum(file.masked_tokens for file in files),
    )


def _shard_row(uri: str, shard: ShardManifest, max_seq_length: int) -> ShardRow:
    files = [file for file in shard.files if file.max_seq_length == max_seq_length]
    tokens = sum(file.tokens for file in files)
    letter = shard.dead_letter
    return ShardRow(
        name=shard.input_uri.rpartition("/")[2],
        input_uri=shard.input_uri,
        documents=shard.documents,
        bad=count_bad(shard.dropped),
        dropped=sum(shard.dropped.values()),
        tokens=tokens,
        fill=_share(tokens, sum(file.records for file in files) * max_seq_length),
        unknown=_share(shard.statistics.unknown_tokens, shard.statistics.text_tokens),
        dead_letter=uris.join(uri.rpartition("/")[0], letter.path) if letter else None,
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _power_label(power: int) -> str:
    return f"{2**power:,}-{2 ** (power + 1) - 1:,}" if power else "1"


def _setting(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)
