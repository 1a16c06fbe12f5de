"""Which held-out rows are scored: whole documents of one partition, the same for every model."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline_config import PipelineConfig
from pipeline_store.formats import Split
from pipeline_store.layout import StoreLayout
from trained_models import record_sources
from trained_models.errors import UserError
from training.input import examples
from training.input.records import RecordReader

log = logging.getLogger("training")

SCAN_ROWS = 4096


class Sample(NamedTuple):
    """The documents that a set was scored on, 16 hex digits each and sorted, and their hash."""

    document_ids: list[str]
    sha256: str


@dataclass(frozen=True)
class EvaluationSet:
    """The chosen held-out rows of a partition.

    ``rows`` int64 [N]: record numbers in ``reader``. ``documents`` int64 [N]: each row's index in
    ``document_ids``, which are 16 hex digits each and sorted.
    """

    name: str
    manifest_sha256: str
    reader: RecordReader
    rows: npt.NDArray[np.int64]
    documents: npt.NDArray[np.int64]
    document_ids: list[str]

    @property
    def sample_sha256(self) -> str:
        """Hash of the documents and, by what decides them, of their masks."""
        shape = self.reader.row_format
        masks = [self.manifest_sha256, shape.max_seq_length, shape.max_predictions_per_seq]
        lines = "".join(f"{line}\n" for line in [*masks, *self.document_ids])
        return hashlib.sha256(lines.encode()).hexdigest()


def open_set(
    name: str,
    manifest_uri: str,
    store: StoreLayout,
    config: PipelineConfig,
    kept: Sample | None = None,
) -> EvaluationSet:
    """Choose the rows to score of one partition: only of its validation split.

    :param kept: documents that were drawn before. If the partition was prepared anew since, or rows
        of another length are scored, they are drawn anew.
    :raises FileNotFoundError: the manifest is gone.
    :raises UserError: it does not fit the configuration, or holds no validation records.
    :raises BadDataError: its records do not fit the configuration.
    """
    manifest = record_sources.load_manifest(manifest_uri, store, config)
    sources = record_sources.record_sources(manifest, Split.VALIDATION, store, config)
    if not sources:
        raise UserError(
            f"Set {name!r} ({manifest_uri}) has no validation records. Give the partition more "
            "documents, or raise corpus.validation_fraction and prepare it again."
        )
    reader = RecordReader(sources)
    examples.check_records(reader)
    keys = document_keys(reader)

    def of_rows(rows: npt.NDArray[np.int64]) -> EvaluationSet:
        chosen, documents = np.unique(keys[rows], return_inverse=True)
        document_ids = [f"{int(key):016x}" for key in chosen]
        return EvaluationSet(name, manifest.content_sha256, reader, rows, documents, document_ids)

    if kept is not None:
        before = np.array([int(key, 16) for key in kept.document_ids], np.uint64)
        same = of_rows(np.flatnonzero(np.isin(keys, before)))
        if same.sample_sha256 == kept.sha256:
            return same
        log.info("The documents of set %s are drawn anew: its records are other ones.", name)
    return of_rows(choose_rows(keys, config.evaluation.max_records_per_set))


def document_keys(reader: RecordReader) -> npt.NDArray[np.uint64]:
    """Return the document of every record, uint64 [records]."""
    numbers = np.arange(len(reader), dtype=np.int64)
    parts = [
        examples.parse_document_ids(reader.read(numbers[begin : begin + SCAN_ROWS]))
        for begin in range(0, len(numbers), SCAN_ROWS)
    ]
    return np.concatenate(parts).view(np.uint64)


def choose_rows(keys: npt.NDArray[np.uint64], max_records: int) -> npt.NDArray[np.int64]:
    """Choose whole documents, in an order that only depends on their content, up to a limit.

    :param keys: each record's document, [N].
    :param max_records: most rows to choose; a first document larger than it is chosen all the same.
    :returns: the record numbers of the chosen documents, ascending.
    """
    documents, sizes = np.unique(keys, return_counts=True)
    order = hashed_order(documents)
    fits = np.cumsum(sizes[order]) <= max_records
    fits[0] = True
    return np.flatnonzero(np.isin(keys, documents[order][fits]))


def hashed_order(documents: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return the order in which documents are chosen, which only depends on their content, [D].

    :param documents: their keys, [D].
    """
    # A hash of the key: the key itself decides the split, so its upper bits are not spread evenly.
    ranks = np.array(
        [int.from_bytes(hashlib.sha256(key.tobytes()).digest()[:8], "big") for key in documents],
        np.uint64,
    )
    return np.argsort(ranks, kind="stable")
