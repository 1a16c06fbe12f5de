"""Records that ruin a training step, in files that verify: what a bug in the data job would write.

A step of a training reads the ruined record the first time that the step comes by, and not again
when its records are passed over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from pipeline_store import uris
from pipeline_store.formats import ShardManifest
from tests.training.corpora import TinyStore
from trained_models import record_sources
from trained_models.record_sources import RecordSource

# A word that no text has, and more weight than everything else in the batch.
UNSEEN_WORD, HEAVY = 120, 1000.0

Ruin = Callable[[Any], None]


def not_a_number(features: Any) -> None:
    """Give every prediction a weight that makes the loss NaN."""
    weights = features["masked_lm_weights"].float_list.value
    weights[:] = [float("nan")] * len(weights)


def surprise(features: Any) -> None:
    """Ask for words that cannot be guessed, and make them count: a finite spike of the loss."""
    weights = features["masked_lm_weights"].float_list.value
    weights[:] = [HEAVY] * len(weights)
    words = features["masked_lm_ids"].int64_list.value
    words[:] = [UNSEEN_WORD] * len(words)


def poison(
    store: TinyStore,
    manifest: str,
    step: int,
    ruin: Ruin,
    replay: Sequence[str] = (),
) -> None:
    """Ruin one new record that a step of the first phase reads.

    :param step: counted from 0, as if no records were passed over.
    :param replay: manifests that are replayed besides.
    """
    sources = record_sources.phase_sources([manifest], replay, store.layout, store.config)
    order = store.training_data(manifest, replay=replay).parts[0].order
    numbers = order.rows(tf.constant(step, tf.int64)).numbers.numpy().tolist()
    number = next(number for number in numbers if number < order.new_records)
    for source in sources[0].new:
        if number < source.file.records:
            rewrite(source, [number], ruin)
            return
        number -= source.file.records
    raise AssertionError(f"record {number} is not in the files of {manifest}")


def rewrite(source: RecordSource, numbers: Iterable[int], ruin: Ruin) -> None:
    """Change some records of a file, and the manifest that names the file."""
    path = Path(source.data_uri)
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
    for number in numbers:
        example = tf.train.Example.FromString(records[number])
        ruin(example.features.feature)
        changed = example.SerializeToString()
        assert len(changed) == len(records[number]), "the offset index would be wrong"
        records[number] = changed
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)

    uri = uris.join(source.folder, "shard.json")
    shard = ShardManifest.load(uri)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    files = [
        file.model_copy(update={"data": file.data.model_copy(update={"sha256": sha256})})
        if file == source.file
        else file
        for file in shard.files
    ]
    shard.model_copy(update={"files": files}).write(uri)
