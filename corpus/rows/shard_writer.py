"""Writes one shard's tokenized documents to its record files."""

from __future__ import annotations

from collections.abc import Mapping

from corpus.rows.masked_records import RecordBuilder
from corpus.rows.packing import DocumentPacker, Packer, StreamPacker
from corpus.rows.plans import Documents, RowPlan
from corpus.rows.record_files import RecordWriter
from corpus.rows.segment_pairs import PairPacker
from corpus.rows.shard_statistics import RowSet, ShardStatistics
from pipeline_config.data_schema import MaskingConfig
from pipeline_store.formats import Split


def make_packer(rows: RowSet, masking: MaskingConfig, sep_id: int) -> Packer:
    """Return the packer that lays documents out in rows.

    Held-out rows never join documents, so that scores by document are right; rows of two segments
    have to.
    """
    if masking.packing == "segment_pair":
        return PairPacker(
            rows.max_seq_length,
            short_seq_prob=masking.short_seq_prob,
            random_seed=masking.random_seed,
        )
    if masking.packing == "full_sentences" and rows.split == Split.TRAIN:
        return StreamPacker(rows.max_seq_length, sep_id)
    return DocumentPacker(rows.max_seq_length)


class ShardWriter:
    """Packs, masks and writes the documents of one shard; counts what it writes.

    :param builders: the builders of the records of each record file.
    :param writers: the writers of the record files.
    """

    def __init__(
        self,
        masking: MaskingConfig,
        sep_id: int,
        builders: Mapping[RowSet, RecordBuilder],
        writers: Mapping[RowSet, RecordWriter],
        statistics: ShardStatistics,
    ) -> None:
        self._main_length = masking.max_seq_length
        self._packers = {rows: make_packer(rows, masking, sep_id) for rows in builders}
        self._builders = builders
        self._writers = writers
        self._statistics = statistics

    def add(self, documents: Mapping[Split, Documents]) -> None:
        """Write the rows that are complete with these documents."""
        for rows, packer in self._packers.items():
            mine = documents[rows.split]
            self._statistics.rows[rows].documents += len(mine.keys)
            self._write(rows, packer.add(mine))

    def finish(self) -> None:
        """Write the rows that are left when the shard ends."""
        for rows, packer in self._packers.items():
            self._write(rows, packer.finish())

    def _write(self, rows: RowSet, plan: RowPlan) -> None:
        counts = self._statistics.rows[rows]
        for records in self._builders[rows].build(plan):
            self._writers[rows].write_records(records.examples)
            counts.records += len(records.examples)
            copies = len(records.examples) // len(records.lengths)
            counts.tokens += int(records.lengths.sum()) * copies
            counts.masked_tokens += records.masked_tokens
            if rows.max_seq_length == self._main_length:
                self._statistics.count_rows(records.lengths, self._main_length)
