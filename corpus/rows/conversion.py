"""The core of the data job, without Beam or the store: converts one shard's bytes to records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.errors import UserError
from corpus.mlm_records import document_key
from corpus.rows.masked_records import RecordBuilder
from corpus.rows.plans import Documents
from corpus.rows.record_files import DeadLetterWriter, RecordWriter
from corpus.rows.shard_statistics import RowSet, RowSetStatistics, ShardStatistics, row_sets
from corpus.rows.shard_writer import ShardWriter
from corpus.text.content import Content, split_of
from corpus.text.drops import DropReason, Rejected, RejectedFileError
from corpus.text.inputs import InputFormat
from corpus.text.shard_contents import DocumentCounts, read_contents
from corpus.text.split_units import group_draw
from corpus.tokens.foreign_tokens import ForeignTokens
from corpus.tokens.tokenizing import make_tokenizer
from corpus.tokens.vocabulary import SEP, UNK, Vocabulary
from pipeline_config import PipelineConfig
from pipeline_store.formats import ShardDecisions, Split


def decided(
    contents: Iterable[Content],
    decisions: ShardDecisions,
    validation_fraction: float,
    counts: DocumentCounts,
) -> Iterator[tuple[Content, Split]]:
    """Yield the documents that are used with their sides, in order.

    :param decisions: the decisions on documents that depend on other ones.
    :param counts: the documents that are left out are counted here.
    :raises ValueError: a document that is decided on is missing.
    """
    fates: dict[int, DropReason | Split] = {
        **dict.fromkeys(decisions.train, Split.TRAIN),
        **dict.fromkeys(decisions.validation, Split.VALIDATION),
        **dict.fromkeys(decisions.near_duplicates, DropReason.NEAR_DUPLICATE),
        **dict.fromkeys(decisions.duplicates, DropReason.DUPLICATE),
    }
    for content in contents:
        fate = fates.pop(content.ordinal, None)
        if isinstance(fate, DropReason):
            counts.drop(fate)
        else:
            yield content, fate or split_of(content.sha256, validation_fraction)
    if fates:
        raise ValueError(
            f"{len(fates)} documents are decided on but cannot be used, the first is number "
            f"{min(fates)} of {counts.documents}: the decisions are of another file or setting."
        )


__all__ = [
    "RECIPE_VERSION",
    "RowSet",
    "RowSetStatistics",
    "ShardConverter",
    "ShardOutputs",
    "ShardStatistics",
    "row_sets",
]

# Part of every shard's key. Raise it when equal input and settings give other bytes than before.
RECIPE_VERSION = 2
BATCH_CHARACTERS = 1 << 19
# Rare new words are forgotten after this much text, so that the batches make no difference.
_BLOCK_CHARACTERS = 1 << 23


class ShardOutputs(NamedTuple):
    """The writers of a shard's records and rejected documents."""

    records: Mapping[RowSet, RecordWriter]
    dead_letters: DeadLetterWriter

    def clear(self) -> None:
        """Discard what was written."""
        for writer in (*self.records.values(), self.dead_letters):
            writer.clear()


class _Batch(NamedTuple):
    """Documents with their sides; ``ends_block``: rare new words are forgotten after it."""

    contents: list[Content]
    sides: list[Split]
    ends_block: bool


class ShardConverter:
    """Turns shards into records.

    The bytes depend on input, vocabulary, configuration and decisions alone.

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
        self._tokenizer = make_tokenizer(vocabulary, config.vocabulary.do_lower_case)
        self._builders = {rows: self._record_builder(rows) for rows in row_sets(config)}
        self._batch_characters = batch_characters

    @cached_property
    def _foreign_tokens(self) -> ForeignTokens:
        return ForeignTokens(self._vocabulary)

    def _record_builder(self, rows: RowSet) -> RecordBuilder:
        copies = self._config.masking.dupe_factor if rows.split == Split.TRAIN else 1
        return RecordBuilder(
            self._config.masking,
            self._vocabulary,
            max_seq_length=rows.max_seq_length,
            max_predictions_per_seq=rows.max_predictions_per_seq,
            copies=copies if rows.masked else 0,
        )

    def convert(
        self,
        stream: BinaryIO,
        input_format: InputFormat,
        decisions: ShardDecisions,
        outputs: ShardOutputs,
        report: Callable[[ShardStatistics], None] = lambda statistics: None,
    ) -> ShardStatistics:
        """Write a shard's records.

        Nothing is written of a file that is binary, cut short or damaged. It counts as the number
        of documents that were read before this was found, and at least as one.

        :param stream: the shard's bytes, compressed or not.
        :param decisions: the decisions on its documents that depend on other ones.
        :param report: called after each batch with the statistics so far.
        :raises ValueError: the decisions are about documents that the file does not have.
        """
        statistics = ShardStatistics.of(self._builders)
        sep_id = self._vocabulary.ids[SEP]
        writer = ShardWriter(
            self._config.masking, sep_id, self._builders, outputs.records, statistics
        )
        contents = read_contents(
            stream,
            input_format,
            self._config.corpus,
            split_sentences=self._config.masking.packing == "segment_pair",
            counts=statistics,
            reject=outputs.dead_letters.add,
        )
        fraction = self._config.corpus.validation_fraction
        try:
            for batch in self._batches(decided(contents, decisions, fraction, statistics)):
                writer.add(self._tokenized(batch, statistics))
                if batch.ends_block:
                    statistics.new_words.prune()
                report(statistics)
        except RejectedFileError as error:
            outputs.clear()
            outputs.dead_letters.add(Rejected(error.reason, error.detail, error.offset, line=0))
            return ShardStatistics.of(self._builders, statistics)
        writer.finish()
        report(statistics)
        return statistics

    def _batches(self, chosen: Iterator[tuple[Content, Split]]) -> Iterator[_Batch]:
        contents: list[Content] = []
        sides: list[Split] = []
        in_batch = in_block = 0
        for content, side in chosen:
            contents.append(content)
            sides.append(side)
            size = sum(map(len, content.sentences))
            in_batch, in_block = in_batch + size, in_block + size
            ends_block = in_block >= _BLOCK_CHARACTERS
            if ends_block or in_batch >= self._batch_characters:
                yield _Batch(contents, sides, ends_block)
                contents, sides, in_batch = [], [], 0
                in_block = 0 if ends_block else in_block
        if contents:
            yield _Batch(contents, sides, ends_block=False)

    def _encoded(
        self, contents: list[Content], statistics: ShardStatistics
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Return the tokens of all sentences, one after the other, and how many each has.

        :raises UserError: the documents came as tokens, of another vocabulary.
        """
        if rows := [content.tokens for content in contents if content.tokens is not None]:
            why = self._foreign_tokens.why_not(rows)
            if why is not None:
                raise UserError(f"vocabulary.uri: rows were made with another vocabulary: {why}.")
            pieces = [piece for row in rows for piece in row.pieces]
            return np.concatenate(pieces), np.array([len(piece) for piece in pieces], np.int64)
        between = self._tokenizer.between
        texts = [
            between + text if number and between else text
            for content in contents
            for number, text in enumerate(content.sentences)
        ]
        return self._tokenizer.encode(texts, statistics.new_words)

    def _tokenized(self, batch: _Batch, statistics: ShardStatistics) -> dict[Split, Documents]:
        """Return the documents of each side; those without a token are dropped."""
        ids, lengths = self._encoded(batch.contents, statistics)
        text_ends = np.cumsum(lengths)
        last_texts = np.cumsum([len(content.sentences) for content in batch.contents])
        ends = np.append(0, text_ends)[last_texts]
        starts = np.append(0, ends[:-1])
        keys = np.array([document_key(content.sha256) for content in batch.contents], np.uint64)
        documents = Documents(ids, starts, ends, keys, text_ends[lengths > 0])

        has_tokens = ends > starts
        statistics.drop(DropReason.EMPTY, int(np.count_nonzero(~has_tokens)))
        statistics.count_documents((ends - starts)[has_tokens])
        statistics.unknown_tokens += int(np.count_nonzero(ids == self._vocabulary.ids[UNK]))
        held_out = np.array([side == Split.VALIDATION for side in batch.sides])
        statistics.held_out_groups |= {
            int(key): group_draw(content.group)
            for content, key, is_held_out in zip(batch.contents, keys, held_out, strict=True)
            if is_held_out and content.group is not None
        }
        statistics.count_trained_tokens(ids[np.repeat(~held_out, ends - starts)])
        return {
            Split.TRAIN: documents.select(has_tokens & ~held_out),
            Split.VALIDATION: documents.select(has_tokens & held_out),
        }
