"""A store with a vocabulary and labelled tasks, and ways to look at what was made of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from beam_jobs.labelled.verdict import TaskRefusedError
from beam_jobs.prepare_task import PreparedTask, prepare_task, try_task
from corpus.tokens.lineage_vocabulary import create_vocabulary
from corpus.tokens.vocabulary import Vocabulary
from pipeline_store import uris
from pipeline_store.formats import FileDigest, TaskManifest, TaskSplit
from pipeline_store.layout import StoreLayout
from tests.beam_jobs.workspace import document, make_config
from tests.corpus.converted import VOCABULARY

NAME = "toy"
LINEAGE = "default"
TRAIN, VALIDATION, TEST, PREDICT = TaskSplit


def sentence(number: int) -> str:
    """Return a text of its own."""
    return document(number, sentences=1)


def rows(count: int, labels: Sequence[str] = ("neg", "pos"), first: int = 0) -> list[list[str]]:
    """Return different texts whose labels take turns."""
    return [[sentence(first + n), labels[n % len(labels)]] for n in range(count)]


def tsv(lines: Sequence[Sequence[str]], header: Sequence[str] = ("text", "label")) -> str:
    """Return a table; an empty header is none."""
    return "".join("\t".join(line) + "\n" for line in ([header] if header else []) + list(lines))


def jsonl(lines: Sequence[Sequence[Any]], names: Sequence[str] = ("text", "label")) -> str:
    """Return an object a line."""
    return "".join(json.dumps(dict(zip(names, line, strict=True))) + "\n" for line in lines)


@dataclass
class TaskBench:
    """A store and one task in it."""

    store: StoreLayout
    max_seq_length: int = 128

    @property
    def folder(self) -> Path:
        """Folder of the task."""
        return Path(self.store.task(NAME).root)

    def describe(self, **settings: Any) -> None:
        """Write ``task.toml``."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in settings.items()]
        (self.folder / "task.toml").write_text("".join(lines))

    def put(self, name: str, content: str | bytes) -> Path:
        """Write an input file."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def prepare(self, *pipeline_args: str) -> PreparedTask:
        """Run the job."""
        return prepare_task(
            self.store,
            NAME,
            lineage_id=LINEAGE,
            max_seq_length=self.max_seq_length,
            pipeline_args=pipeline_args,
        )

    def refusal(self) -> list[str]:
        """Try the job, which has to refuse the task; return why."""
        with pytest.raises(TaskRefusedError) as caught:
            self.tried()
        return caught.value.reasons

    def tried(self) -> dict[str, Any]:
        """Do all of the job and keep nothing."""
        return try_task(self.store, NAME, lineage_id=LINEAGE, max_seq_length=self.max_seq_length)

    def file(self, prepared: PreparedTask, digest: FileDigest) -> bytes:
        """Return a file that a manifest names."""
        data = uris.read(uris.join(prepared.manifest_uri.rpartition("/")[0], digest.path))
        assert len(data) == digest.bytes
        return data

    def examples(self, prepared: PreparedTask, split: TaskSplit) -> list[dict[str, npt.NDArray]]:
        """Return the features of all records of a split, found by the offset index."""
        found = prepared.manifest.splits[split]
        data = self.file(prepared, found.data)
        offsets = np.frombuffer(self.file(prepared, found.index), "<u8").tolist()
        assert len(offsets) == found.records + 1
        assert offsets[-1] == len(data)
        # A frame is 12 bytes of length and checksum, the record, 4 bytes of checksum.
        return [_features(data[a + 12 : b - 4]) for a, b in itertools.pairwise(offsets)]

    def sources(self, prepared: PreparedTask, split: TaskSplit) -> list[tuple[str, int]]:
        """Return file name and line of each record of a split."""
        found = prepared.manifest.splits[split]
        pairs = np.frombuffer(self.file(prepared, found.sources), "<i8").reshape(-1, 2)
        files = prepared.manifest.files
        return [(files[number].rpartition("/")[2], line) for number, line in pairs.tolist()]

    def letters(self, prepared: PreparedTask) -> list[dict[str, Any]]:
        """Return the dead letters."""
        assert prepared.manifest.dead_letter is not None
        lines = self.file(prepared, prepared.manifest.dead_letter).decode().splitlines()
        return [json.loads(line) for line in lines]


def make_bench(root: Path, vocabulary: Vocabulary = VOCABULARY) -> TaskBench:
    """Return a bench with a lineage; its vocabulary is a small one of syllables unless told."""
    store = StoreLayout(str(root))
    config = make_config(vocabulary__kind=vocabulary.kind)
    create_vocabulary(vocabulary, "a test", config, store.lineage(LINEAGE))
    return TaskBench(store)


def words(example: dict[str, npt.NDArray]) -> str:
    """Return an example's tokens without padding."""
    ids = example["input_ids"][: int(example["input_mask"].sum())]
    return " ".join(VOCABULARY.tokens[i] for i in ids)


def label_counts(manifest: TaskManifest, split: TaskSplit) -> dict[str, int]:
    """Return the examples of a split by label."""
    return manifest.splits[split].labels


def _features(record: bytes) -> dict[str, npt.NDArray]:
    features = tf.train.Example.FromString(record).features.feature
    return {
        name: np.array(feature.float_list.value, np.float32)
        if feature.HasField("float_list")
        else np.array(feature.int64_list.value, np.int64)
        for name, feature in features.items()
    }
