"""Finds test examples of a prepared task in the text that a lineage trains on.

They are looked up, manifest by manifest, in the indexes by which the data job finds copies of
documents. Each result is stored next to the task's records, so no manifest is searched twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt

from beam_jobs.labelled.pipeline import verified
from beam_jobs.labelled.preparation import Preparation
from corpus.duplicates.lookup import find_trained, sign_texts
from corpus.duplicates.signatures import IndexedDocuments, Signatures
from corpus.errors import reading
from corpus.labelled.reading import Example, read_examples
from corpus.text.lineage_rules import load_manifests
from pipeline_config.data_schema import CorpusConfig
from pipeline_store import uris
from pipeline_store.formats import PartitionManifest, TaskManifest, TaskOverlap, TaskSplit

log = logging.getLogger(__name__)

NEAR_THRESHOLD: float = CorpusConfig().near_duplicate_threshold
"""The similarity from which texts count as near copies, whatever threshold a partition used: the
default of corpus.near_duplicate_threshold, because no manifest records that setting."""


def note_training_text(preparation: Preparation, manifest: TaskManifest) -> None:
    """Look up the test examples in the manifests of the lineage that were not searched yet.

    :raises FormatError: an index is missing or damaged.
    :raises InputChangedError: an input file of the task changed since it was identified.
    """
    lineage_id = preparation.job.lineage_id
    texts = _TestTexts(preparation, manifest)
    for uri, partition in load_manifests(preparation.job.store.lineage(lineage_id)).items():
        manifest_id = uri.rpartition("/")[2].removesuffix(".json")
        place = preparation.layout.overlap(
            preparation.key, lineage_id, partition.partition, manifest_id
        )
        if not uris.exists(place):
            found = _look_up(texts, uri, partition)
            found.create(place)
            log.info("%s", _said(found))


def _look_up(texts: _TestTexts, uri: str, partition: PartitionManifest) -> TaskOverlap:
    folder, _, name = uri.rpartition("/")
    exact: list[int] | None = None
    near: list[int] | None = None
    if partition.duplicate_index is not None:
        digest = partition.duplicate_index.data
        index = IndexedDocuments.load(uris.join(folder, digest.path), digest)
        form = partition.settings.get("corpus", {}).get("unicode_normalization")
        signed = texts.signed(CorpusConfig() if form is None else _corpus(str(form)))
        found = find_trained(signed, index, NEAR_THRESHOLD)
        exact = texts.examples(found.exact)
        if found.near is not None:
            near = sorted({*texts.examples(found.near)} - {*exact})
    return TaskOverlap(
        task=texts.task,
        lineage_id=partition.lineage_id,
        partition=partition.partition,
        manifest_id=name.removesuffix(".json"),
        examples=texts.count,
        exact=exact,
        near=near,
        near_threshold=NEAR_THRESHOLD,
    )


def _corpus(form: str) -> CorpusConfig:
    return CorpusConfig.model_validate({"unicode_normalization": form})


def _said(found: TaskOverlap) -> str:
    where = f"{found.lineage_id}/{found.partition}"
    if found.exact is None:
        return (
            f"task {found.task!r}: whether test examples are in {where} is not known; it was "
            "prepared without signatures (corpus.duplicates=keep)."
        )
    near = "near copies not known" if found.near is None else f"{len(found.near)} near copies"
    return (
        f"task {found.task!r}: of {found.examples} test examples {len(found.exact)} are training "
        f"documents of {where}, {near}."
    )


@dataclass
class _TestTexts:
    """The texts of the test examples, read when they are first needed."""

    preparation: Preparation
    manifest: TaskManifest

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.manifest.name

    @property
    def count(self) -> int:
        """Number of test examples."""
        return self.manifest.splits[TaskSplit.TEST].records

    def signed(self, corpus: CorpusConfig) -> Signatures:
        """Return the signatures of the T texts; they depend on the Unicode normalization."""
        form = corpus.unicode_normalization
        if form not in self._signed:
            self._signed[form] = sign_texts([text for _, text in self._texts], corpus)
        return self._signed[form]

    def examples(self, flags: npt.NDArray[np.bool_]) -> list[int]:
        """Return the ids of the examples with a flagged text; ``flags`` has shape [T]."""
        return np.unique(self._owners[flags]).tolist()

    @cached_property
    def _signed(self) -> dict[str, Signatures]:
        return {}

    @cached_property
    def _owners(self) -> npt.NDArray[np.int64]:
        return np.array([example_id for example_id, _ in self._texts], np.int64)

    @cached_property
    def _texts(self) -> list[tuple[int, str]]:
        """Read example ids and texts, in order of the files."""
        records = self.manifest.splits[TaskSplit.TEST]
        folder = self.preparation.manifest_uri.rpartition("/")[0]
        data = uris.read(uris.join(folder, records.sources.path))
        places = np.frombuffer(data, "<i8").reshape(-1, 2).tolist()
        ids = {(file, line): number for number, (file, line) in enumerate(places)}
        return [
            (ids[file, one.line], text)
            for file in sorted({file for file, _ in places})
            for one in self._read(file)
            if (file, one.line) in ids
            for text in one.texts
        ]

    def _read(self, number: int) -> Iterator[Example]:
        job = self.preparation.job
        file = job.files[number]
        with reading(file.uri), verified(file) as source:
            stream = cast("BinaryIO", source)
            for found in read_examples(stream, file.input_format, job.task, labelled=True):
                if isinstance(found, Example):
                    yield found
