"""Corpora of very many tiny records, and the memory that reading them takes.

``python -m tests.training.large_corpus FOLDER`` reads batches of the corpus in a folder and prints
what it found as JSON. It is a process of its own, as a process has one peak of memory only.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_store.formats import FileDigest, RecordFile, Split
from pipeline_store.layout import StoreLayout
from tests.training.corpora import tiny_config
from trained_models.phases import Phase
from trained_models.record_sources import PhaseSources, RecordSource, RowFormat

ROWS = RowFormat(max_seq_length=1, max_predictions_per_seq=1, masked=False, next_sentence=False)
BATCH = 4096
# Numbers are stored behind this one: all of them then take four bytes in a protocol buffer.
FIRST_NUMBER = 1 << 21


def phase(records: int) -> Phase:
    """Return two epochs and a bit more."""
    return Phase("main", 0, 2 * records // BATCH + 2, 1, 1, BATCH)


def serialized(numbers: np.ndarray) -> np.ndarray:
    """Return the records of these numbers, uint8 [R, bytes]: real examples that hold the number."""
    import tensorflow as tf

    example = tf.train.Example()
    for feature in ROWS.features:
        example.features.feature[feature.name].int64_list.value.append(1)
    example.features.feature["input_ids"].int64_list.value[0] = FIRST_NUMBER
    template = example.SerializeToString(deterministic=True)
    place = template.index(b"\x80\x80\x80\x01")
    records = np.tile(np.frombuffer(template, np.uint8), (len(numbers), 1))
    for byte, shift in enumerate((0, 7, 14, 21)):
        more = 0x80 if byte < 3 else 0
        records[:, place + byte] = (numbers + FIRST_NUMBER) >> shift & 0x7F | more
    return records


def write(folder: Path, *, shards: int, records: int) -> int:
    """Write a corpus and return the size of its files.

    :param records: of each shard.
    """
    files = [_write_shard(folder / str(shard), shard * records, records) for shard in range(shards)]
    listing = [file.model_dump(mode="json") for file in files]
    (folder / "files.json").write_text(json.dumps(listing))
    return sum(file.data.bytes + file.index.bytes for file in files)


def _write_shard(folder: Path, first: int, records: int) -> RecordFile:
    folder.mkdir()
    content = serialized(np.arange(first, first + records))
    framed = np.zeros((records, content.shape[1] + 16), np.uint8)
    framed[:, :8] = np.frombuffer(np.uint64(content.shape[1]).tobytes(), np.uint8)
    framed[:, 12:-4] = content
    offsets = np.arange(records + 1, dtype="<u8") * framed.shape[1]
    return RecordFile(
        split=Split.TRAIN,
        max_seq_length=ROWS.max_seq_length,
        max_predictions_per_seq=ROWS.max_predictions_per_seq,
        masked=ROWS.masked,
        data=_write(folder / "records", framed),
        index=_write(folder / "index", offsets),
        records=records,
        documents=1,
        tokens=1,
        masked_tokens=0,
    )


def _write(path: Path, values: np.ndarray) -> FileDigest:
    values.tofile(path)
    sha256 = hashlib.sha256(values.data).hexdigest()
    return FileDigest(path=path.name, bytes=values.nbytes, sha256=sha256)


def sources(folder: Path) -> list[RecordSource]:
    """Return the record files of a corpus that was written."""
    listing = json.loads((folder / "files.json").read_text())
    files = [RecordFile.model_validate(file) for file in listing]
    return [
        RecordSource(str(shard), str(folder / str(shard)), file, next_sentence=False)
        for shard, file in enumerate(files)
    ]


def read(sources: list[RecordSource], steps: list[int]) -> int:
    """Read some steps through the input pipeline, compare every byte, and return the rows."""
    import tensorflow as tf

    from training.input.data import TrainingBatches, load_training_data

    records = sum(source.file.records for source in sources)
    parts = [PhaseSources(phase(records), sources, [])]
    data = load_training_data(parts, StoreLayout("/nowhere"), tiny_config())
    order, reader = data.parts[0].order, data.parts[0].reader
    batches = TrainingBatches(data, tf.distribute.OneDeviceStrategy("/cpu:0"))
    for step in steps:
        numbers = order.rows(tf.constant(step, tf.int64)).numbers.numpy()
        (batch,) = next(batches.take(step, 1))
        found = batch["input_word_ids"].numpy()[:, 0]
        np.testing.assert_array_equal(found, numbers + FIRST_NUMBER)
        assert b"".join(reader.read(numbers)) == serialized(numbers).tobytes()
    return len(steps) * BATCH


def peak() -> int:
    """Return the most memory that this process has had, in bytes.

    Not from ``resource.getrusage``, which begins with the peak of the process that started this
    one: https://man7.org/linux/man-pages/man5/proc_pid_status.5.html
    """
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def measure(folder: Path) -> dict[str, Any]:
    """Read a small part of a corpus, then all of it, and return what the second took on top."""
    everything = sources(folder)
    records = sum(source.file.records for source in everything)
    read(everything[:1], [0, 1, 2])
    before = peak()
    end = records // BATCH
    steps = [0, 1, end // 3, end - 1, end, end + 1, 2 * end - 1, 2 * end, 2 * end + 1]
    rows = read(everything, steps)
    return {"records": records, "rows_compared": rows, "peak": peak(), "peak_before": before}


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]))))
