"""Preparing a task notes which of its test examples lie in the lineage's training text."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_jobs.labelled.pipeline import run_plainly
from beam_jobs.labelled.preparation import Preparation, plan_preparation
from beam_jobs.labelled.training_text import note_training_text
from corpus.duplicates.indexes import store_documents
from corpus.duplicates.lookup import sign_texts
from corpus.duplicates.signatures import IndexedDocuments
from pipeline_config.data_schema import CorpusConfig
from pipeline_store import uris
from pipeline_store.formats import FormatError, TaskManifest, TaskOverlap
from tests.beam_jobs.labelled.tasks import (
    LINEAGE,
    NAME,
    TEST,
    TaskBench,
    jsonl,
    make_bench,
    rows,
    sentence,
    tsv,
)
from tests.beam_jobs.manifests import partition_manifest
from tests.beam_jobs.workspace import document

COPIED = document(900)
NEAR = COPIED.replace(COPIED.split()[20], "changed", 1)
EDGE = "\u2460 " + document(901)
"""Its first sign is a 1 in a circle, which NFKC makes a 1."""


class Lineage:
    """A bench whose lineage has partitions, of which only manifests and indexes are there."""

    def __init__(self, folder: Path) -> None:
        self.bench: TaskBench = make_bench(folder)
        self.lineage = self.bench.store.lineage(LINEAGE)

    def partition(
        self,
        name: str,
        *texts: str,
        index: bool = True,
        sketches: bool = True,
        **corpus: Any,
    ) -> None:
        """Write a partition that trains on texts."""
        signed = sign_texts(texts, CorpusConfig(**corpus))
        order = np.lexsort((signed.hashes[:, 1], signed.hashes[:, 0]))
        assert signed.sketches is not None
        documents = IndexedDocuments(
            signed.hashes[order],
            np.zeros(len(order), bool),
            signed.sketches[order] if sketches else None,
        )
        found = store_documents(self.lineage, name, documents, []) if index else None
        manifest = partition_manifest(
            self.bench.store,
            [],
            partition=name,
            duplicate_index=found,
            settings={"corpus": corpus},
        )
        manifest.write(self.lineage.manifest(name, "m1"))

    def prepare(self) -> tuple[Preparation, TaskManifest]:
        """Prepare the task, found done if it is."""
        plan = plan_preparation(self.bench.store, NAME, lineage_id=LINEAGE, max_seq_length=128)
        manifest = plan.done() or plan.commit(run_plainly(plan.job))
        note_training_text(plan, manifest)
        return plan, manifest

    def noted(self, preparation: Preparation, partition: str) -> TaskOverlap:
        """Return what was noted of a partition."""
        layout = preparation.layout
        return TaskOverlap.load(layout.overlap(preparation.key, LINEAGE, partition, "m1"))


@pytest.fixture
def lineage(tmp_path: Path) -> Lineage:
    return Lineage(tmp_path)


def describe(bench: TaskBench, tests: list[list[str]]) -> None:
    """Describe a task with these test examples."""
    bench.describe(kind="classification", train="train.tsv", test="test.jsonl")
    bench.put("train.tsv", tsv(rows(60)))
    bench.put("test.jsonl", jsonl(tests))


def test_copies_and_near_copies_are_noted_by_partition(lineage: Lineage) -> None:
    others = rows(3, first=500)
    describe(lineage.bench, [others[0], [COPIED, "pos"], others[1], [NEAR, "neg"], others[2]])
    lineage.partition("day-1", document(7), COPIED)
    lineage.partition("day-2", document(8))
    lineage.partition("equal", COPIED, sketches=False)
    lineage.partition("kept", COPIED, index=False)
    found, _ = lineage.prepare()
    ids = {name: lineage.noted(found, name) for name in ("day-1", "day-2", "equal", "kept")}
    assert {name: (one.exact, one.near) for name, one in ids.items()} == {
        "day-1": ([1], [3]),
        "day-2": ([], []),
        "equal": ([1], None),
        "kept": (None, None),
    }
    assert {one.examples for one in ids.values()} == {5}


def test_a_partition_that_came_later_is_looked_up_and_no_other_again(lineage: Lineage) -> None:
    describe(lineage.bench, [[COPIED, "pos"], *rows(4, first=500)])
    lineage.partition("day-1", document(7))
    found, manifest = lineage.prepare()
    first = uris.read(found.layout.overlap(found.key, LINEAGE, "day-1", "m1"))
    [index] = [uri for uri in uris.list_files(lineage.lineage.partitions) if ".npz" in uri]
    uris.delete(index)
    lineage.partition("day-2", COPIED)
    again, same = lineage.prepare()
    assert (again.key, same) == (found.key, manifest)
    assert lineage.noted(again, "day-2").exact == [0]
    assert uris.read(found.layout.overlap(found.key, LINEAGE, "day-1", "m1")) == first


def test_texts_are_normalized_as_those_of_the_partition(lineage: Lineage) -> None:
    describe(lineage.bench, [[EDGE, "pos"], *rows(4, first=500)])
    lineage.partition("plain", EDGE)
    lineage.partition("other", EDGE, unicode_normalization="NFKC")
    found, _ = lineage.prepare()
    assert lineage.noted(found, "plain").exact == lineage.noted(found, "other").exact == [0]


def test_either_text_of_a_pair_counts(lineage: Lineage) -> None:
    pairs = [[sentence(n), sentence(n + 50), label] for n, label in enumerate(["neg", "pos"] * 15)]
    tests = [[sentence(300), COPIED, "pos"], [COPIED, NEAR, "neg"], [sentence(301), NEAR, "pos"]]
    names = ("text", "other", "label")
    bench = lineage.bench
    bench.describe(
        kind="classification",
        text_pair_column="other",
        max_truncated_fraction=1.0,
        train="train.jsonl",
        test="test.jsonl",
    )
    # The texts to be found are longer than rows are.
    bench.put("train.jsonl", jsonl(pairs, names))
    bench.put("test.jsonl", jsonl(tests, names))
    lineage.partition("day-1", COPIED)
    found, _ = lineage.prepare()
    noted = lineage.noted(found, "day-1")
    assert (noted.exact, noted.near) == ([0, 1], [2])


def test_test_examples_that_were_drawn_from_the_training_file_are_looked_up(
    lineage: Lineage,
) -> None:
    bench = lineage.bench
    bench.describe(kind="classification", train="train.tsv", test_fraction=0.3)
    bench.put("train.tsv", tsv(rows(80)))
    lines = dict(enumerate((text for text, _ in rows(80)), 2))
    lineage.partition("day-1", *lines.values())
    lineage.partition("day-2", *[text for line, text in lines.items() if line % 2])
    found, manifest = lineage.prepare()
    count = manifest.splits[TEST].records
    assert lineage.noted(found, "day-1").exact == list(range(count))
    folder = found.manifest_uri.rpartition("/")[0]
    sources = uris.read(uris.join(folder, manifest.splits[TEST].sources.path))
    places = np.frombuffer(sources, "<i8").reshape(-1, 2)[:, 1]
    assert lineage.noted(found, "day-2").exact == np.flatnonzero(places % 2).tolist()


def test_a_damaged_index_is_named(lineage: Lineage) -> None:
    describe(lineage.bench, rows(5, first=500))
    lineage.partition("day-1", COPIED)
    [index] = [uri for uri in uris.list_files(lineage.lineage.partitions) if ".npz" in uri]
    uris.write(index, b"x" + hashlib.sha256().digest())
    with pytest.raises(FormatError, match="is damaged: its SHA-256 should be"):
        lineage.prepare()
