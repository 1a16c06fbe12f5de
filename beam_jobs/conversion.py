"""The core of the data job, free of Beam and of the store: one shard's bytes to its records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

import numpy as np

from beam_jobs.content import Content, split_of
from beam_jobs.documents import Rejected
from beam_jobs.drops import DropReason
from beam_jobs.inputs import InputFormat
from beam_jobs.masked_records import RecordBuilder
from beam_jobs.packing import Rows, pack_rows
from beam_jobs.reading import RejectedFileError
from beam_jobs.record_files import DeadLetterWriter, RecordWriter
from beam_jobs.shard_contents import DocumentCounts, read_contents
from beam_jobs.tokenizing import WordPieceTokenizer
from beam_jobs.vocabulary import CLS, SEP, UNK, Vocabulary
from mlm_records import document_key
from pipeline_config import PipelineConfig
from pipeline_store.formats import Split

# Part of every shard's key. Raise it when equal input and settings give other bytes than before.
RECIPE_VERSION = 1
BATCH_CHARACTERS = 1 << 18


@dataclass
class SplitStatistics:
    """What one record file holds; each of the ``dupe_factor`` copies counts."""

    documents: int = 0
    records: int = 0
    tokens: int = 0
    masked_tokens: int = 0


@dataclass
class ShardStatistics(DocumentCounts):
    """What became of a shard's documents: each is counted in one split or in ``dropped``."""

    unknown_tokens: int = 0
    splits: dict[Split, SplitStatistics] = field(
        default_factory=lambda: {split: SplitStatistics() for split in Split}
    )

    @property
    def tokens(self) -> int:
        """Real tokens written, on both sides of the split."""
        return sum(split.tokens for split in self.splits.values())


class ShardOutputs(NamedTuple):
    """Where a shard's records and rejected documents go."""

    records: Mapping[Split, RecordWriter]
    dead_letters: DeadLetterWriter

    def clear(self) -> None:
        """Forget what was written."""
        for writer in (*self.records.values(), self.dead_letters):
            writer.clear()


class ShardConverter:
    """Turns shards into records; the bytes depend on input, vocabulary and configuration alone.

    :param batch_characters: text converted at once; bounds the memory, changes no byte.
    """

    def __init__(
        self,
        config: PipelineConfig,
        vocabulary: Vocabulary,
        batch_characters: int = BATCH_CHARACTERS,
    ) -> None:
        self._config = config
        self._vocabulary = vocabulary
        self._tokenizer = WordPieceTokenizer(vocabulary, config.vocabulary.do_lower_case)
        self._builder = RecordBuilder(config.masking, vocabulary)
        self._copies = {Split.TRAIN: config.masking.dupe_factor, Split.VALIDATION: 1}
        self._batch_characters = batch_characters

    def convert(
        self,
        stream: BinaryIO,
        input_format: InputFormat,
        outputs: ShardOutputs,
        report: Callable[[ShardStatistics], None] = lambda statistics: None,
    ) -> ShardStatistics:
        """Write a shard's records.

        Nothing is written of a file that is binary, cut short or damaged. It counts as the
        documents that were read before that showed, and at least as one.

        :param stream: the shard's bytes, gzip-compressed or not.
        :param report: called after each batch with the statistics so far.
        """
        statistics = ShardStatistics()
        contents = read_contents(
            stream,
            input_format,
            self._config.corpus.text_field,
            counts=statistics,
            seen=set(),
            reject=outputs.dead_letters.add,
        )
        try:
            for batch in self._batches(contents):
                self._write(batch, outputs, statistics)
                report(statistics)
        except RejectedFileError as error:
            outputs.clear()
            outputs.dead_letters.add(Rejected(error.reason, error.detail, error.offset, line=0))
            return ShardStatistics(statistics.documents, statistics.dropped)
        return statistics

    def _batches(self, contents: Iterator[Content]) -> Iterator[list[Content]]:
        batch: list[Content] = []
        characters = 0
        for content in contents:
            batch.append(content)
            characters += sum(map(len, content.sentences))
            if characters >= self._batch_characters:
                yield batch
                batch, characters = [], 0
        if batch:
            yield batch

    def _write(
        self, batch: list[Content], outputs: ShardOutputs, statistics: ShardStatistics
    ) -> None:
        """Write the records of a batch of documents, in order."""
        rows = self._rows(batch)
        has_rows = np.bincount(rows.documents, minlength=len(batch)) > 0
        statistics.drop(DropReason.EMPTY, len(batch) - int(has_rows.sum()))
        statistics.unknown_tokens += int((rows.tokens == self._vocabulary.ids[UNK]).sum())
        keys = np.array([document_key(content.sha256) for content in batch], np.uint64)
        fraction = self._config.corpus.validation_fraction
        sides = np.array([split_of(content.sha256, fraction) for content in batch])
        for split, counts in statistics.splits.items():
            counts.documents += int((has_rows & (sides == split)).sum())
            mine = rows.select((sides == split)[rows.documents])
            copies = self._copies[split]
            for records in self._builder.build(mine, keys[mine.documents], copies):
                outputs.records[split].write_records(records.examples)
                counts.records += len(records.examples)
                counts.tokens += records.tokens
                counts.masked_tokens += records.masked_tokens

    def _rows(self, batch: list[Content]) -> Rows:
        sentences = [sentence for content in batch for sentence in content.sentences]
        ids, lengths = self._tokenizer.encode(sentences)
        borders = np.cumsum([len(content.sentences) for content in batch])[:-1]
        return pack_rows(
            ids,
            np.split(np.cumsum(lengths), borders),
            max_seq_length=self._config.masking.max_seq_length,
            cls_id=self._vocabulary.ids[CLS],
            sep_id=self._vocabulary.ids[SEP],
        )
