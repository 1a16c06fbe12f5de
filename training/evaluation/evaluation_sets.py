"""Chooses the held-out rows to score: whole documents of a partition, the same for all models."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.arrays import HeldOutGroups
from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import PartitionManifest, Split, SplitUnit
from pipeline_store.layout import StoreLayout
from trained_models import record_sources
from trained_models.errors import UserError
from trained_models.phases import trained_shapes
from trained_models.record_sources import RecordSource
from training.input import examples
from training.input.records import RecordReader

log = logging.getLogger("training")

SCAN_ROWS = 4096


class Sample(NamedTuple):
    """The documents that a set was scored on, 16 hex digits each and sorted, and their hash."""

    document_ids: list[str]
    sha256: str


class Rows(NamedTuple):
    """Chosen rows: their numbers in a reader, and the document of each, both int64 [N].

    Documents are indexes in ``EvaluationSet.document_ids``.
    """

    reader: RecordReader
    rows: npt.NDArray[np.int64]
    documents: npt.NDArray[np.int64]


@dataclass(frozen=True)
class EvaluationSet:
    """The chosen held-out rows of a partition.

    ``rows`` int64 [N]: record numbers in ``reader``. ``documents`` int64 [N]: each row's index in
    ``document_ids``, which are 16 hex digits each and sorted. ``units``: the number of the file or
    group that each document was held out with; None: each was held out alone. ``extra``: the rows
    of the second length of the same documents, if a training reads such rows and the partition has
    them.
    """

    name: str
    manifest_sha256: str
    reader: RecordReader
    rows: npt.NDArray[np.int64]
    documents: npt.NDArray[np.int64]
    document_ids: list[str]
    units: list[int] | None
    extra: Rows | None = None

    @property
    def sample_sha256(self) -> str:
        """Hash of the documents and of everything that determines their masks."""
        masks: list[object] = [self.manifest_sha256]
        for reader in [self.reader, *([self.extra.reader] if self.extra else [])]:
            shape = reader.row_format
            masks += [shape.max_seq_length, shape.max_predictions_per_seq]
        lines = "".join(f"{line}\n" for line in [*masks, *self.document_ids])
        return hashlib.sha256(lines.encode()).hexdigest()


def open_set(
    name: str,
    manifest_uri: str,
    store: StoreLayout,
    config: PipelineConfig,
    kept: Sample | None = None,
) -> EvaluationSet:
    """Choose the rows of one partition to score, from its validation split only.

    :param kept: documents that were drawn before. If the partition was prepared again since, or
        rows of another length are scored, they are drawn anew.
    :raises FileNotFoundError: the manifest is missing.
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
        chosen, first, documents = np.unique(keys[rows], return_index=True, return_inverse=True)
        return EvaluationSet(
            name,
            manifest.content_sha256,
            reader,
            rows,
            documents,
            document_ids=[f"{int(key):016x}" for key in chosen],
            units=split_units(manifest.split_by, sources, chosen, rows[first]),
            extra=_extra_rows(manifest, chosen, store, config),
        )

    if kept is not None:
        before = np.array([int(key, 16) for key in kept.document_ids], np.uint64)
        same = of_rows(np.flatnonzero(np.isin(keys, before)))
        if same.sample_sha256 == kept.sha256:
            return same
        log.info("The documents of set %s are drawn anew: its records are other ones.", name)
    return of_rows(choose_rows(keys, config.evaluation.max_records_per_set))


def _extra_rows(
    manifest: PartitionManifest,
    documents: npt.NDArray[np.uint64],
    store: StoreLayout,
    config: PipelineConfig,
) -> Rows | None:
    """Return the rows of the second length of some documents, [D]; None: there are none to score.

    A partition that was prepared before the recipe had a second length has none.
    """
    _, *extra = trained_shapes(config)
    if not extra or not record_sources.has_rows(manifest, extra[0]):
        return None
    sources = record_sources.record_sources(manifest, Split.VALIDATION, store, config, extra[0])
    reader = RecordReader(sources)
    examples.check_records(reader)
    keys = document_keys(reader)
    rows = np.flatnonzero(np.isin(keys, documents))
    return Rows(reader, rows, np.searchsorted(documents, keys[rows]))


def split_units(
    split_by: SplitUnit,
    sources: Sequence[RecordSource],
    documents: npt.NDArray[np.uint64],
    rows: npt.NDArray[np.int64],
) -> list[int] | None:
    """Return the number of each document's split unit; None: each document is a unit itself.

    A shard is made of one file. Groups that an earlier version has not recorded are unknown.

    :param sources: the record files in the order in which their records are numbered.
    :param documents: keys, shape [D].
    :param rows: the number of a record of each document, shape [D].
    :raises FormatError: a file of groups is missing or damaged.
    """
    if split_by == "file":
        ends = np.cumsum([source.file.records for source in sources])
        units = np.searchsorted(ends, rows, side="right").astype(np.uint64)
    else:
        units = documents.copy()
    for source in sources if split_by == "group" else ():
        if source.held_out_groups is None:
            continue
        uri = uris.join(source.folder, source.held_out_groups.path)
        groups = HeldOutGroups.load(uri, source.held_out_groups)
        _, mine, theirs = np.intersect1d(documents, groups.documents, return_indices=True)
        units[mine] = groups.draws[theirs]
    different, numbers = np.unique(units, return_inverse=True)
    return None if len(different) == len(units) else numbers.tolist()


def document_keys(reader: RecordReader) -> npt.NDArray[np.uint64]:
    """Return the document of every record, uint64 [records]."""
    numbers = np.arange(len(reader), dtype=np.int64)
    parts = [
        examples.parse_document_ids(reader.read(numbers[begin : begin + SCAN_ROWS]))
        for begin in range(0, len(numbers), SCAN_ROWS)
    ]
    return np.concatenate(parts).view(np.uint64)


def choose_rows(keys: npt.NDArray[np.uint64], max_records: int) -> npt.NDArray[np.int64]:
    """Choose whole documents, in an order that depends only on their content, up to a limit.

    :param keys: each record's document, [N].
    :param max_records: maximum number of rows; the first document is chosen even if it exceeds it.
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
    # A hash of the key: the key itself decides the split, so its upper bits are not uniform.
    ranks = np.array(
        [int.from_bytes(hashlib.sha256(key.tobytes()).digest()[:8], "big") for key in documents],
        np.uint64,
    )
    return np.argsort(ranks, kind="stable")
