"""The examples of a prepared task, verified, as arrays in memory. Parsing needs TensorFlow."""

from __future__ import annotations

import hashlib
import itertools
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_store import uris
from pipeline_store.formats import (
    FileDigest,
    FormatError,
    TaskManifest,
    TaskRecords,
    TaskSplit,
)
from trained_models.errors import BadDataError, UserError
from training.input.records import FOOTER_BYTES, HEADER_BYTES

Arrays = dict[str, npt.NDArray[Any]]

MAX_BYTES = 4 << 30
"""Maximum size of a split in memory. An example takes 12 bytes per token of max_seq_length."""

TOKEN_FEATURES = {
    "input_ids": "input_word_ids",
    "input_mask": "input_mask",
    "segment_ids": "input_type_ids",
}
"""Model input names by the feature names of a record."""

LABELS = "label_ids"
_RECORDS_AT_ONCE = 8192


@dataclass(frozen=True)
class Examples:
    """The examples of one split.

    :param inputs: model inputs, int32 [N, S] each; or the features of a frozen encoder.
    :param labels: int32 [N]; with several labels float32 [N, L]; for a regression float32 [N]; None
        for the split to predict.
    """

    inputs: Arrays
    labels: npt.NDArray[Any] | None

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    @property
    def known_labels(self) -> npt.NDArray[Any]:
        """Return the labels.

        :raises ValueError: the examples have none.
        """
        if self.labels is None:
            raise ValueError("these examples are there to be predicted and have no labels")
        return self.labels

    def take(self, rows: npt.NDArray[np.int64]) -> Examples:
        """Return some of the examples."""
        labels = None if self.labels is None else self.labels[rows]
        return Examples({name: values[rows] for name, values in self.inputs.items()}, labels)


@dataclass(frozen=True)
class Task:
    """A prepared task: its manifest and the manifest's URI."""

    uri: str
    manifest: TaskManifest

    @classmethod
    def load(cls, uri: str) -> Task:
        """Read a manifest.

        :raises FileNotFoundError: the manifest is missing.
        :raises FormatError: it is damaged.
        """
        return cls(uri, TaskManifest.load(uri))

    @property
    def outputs(self) -> int:
        """Return the number of a model's outputs per example."""
        return len(self.manifest.labels) or 1

    def records(self, split: TaskSplit) -> TaskRecords:
        """Return the files of a split.

        :raises UserError: the task has no such examples.
        """
        records = self.manifest.splits.get(split)
        if records is None or not records.records:
            raise UserError(
                f"Task {self.manifest.name!r} ({self.uri}) has no {split} examples. Name files for "
                f"them in its task.toml, and prepare it again."
            )
        return records

    def examples(self, split: TaskSplit) -> Examples:
        """Read a split.

        :raises UserError: the task has no such examples, or more than MAX_BYTES of them.
        :raises FormatError: a file does not verify.
        :raises BadDataError: the records are not what the manifest says.
        """
        records = self.records(split)
        self._check_size(split, records)
        folder = self.uri.rpartition("/")[0]
        data = _read_verified(uris.join(folder, records.data.path), records.data)
        index = _read_verified(uris.join(folder, records.index.path), records.index)
        serialized = _cut(data, index, records, uris.join(folder, records.data.path))
        parts = [
            self._parse(serialized[begin : begin + _RECORDS_AT_ONCE], split, begin)
            for begin in range(0, len(serialized), _RECORDS_AT_ONCE)
        ]
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        labels = joined.pop(LABELS, None)
        return Examples(joined, labels)

    def _check_size(self, split: TaskSplit, records: TaskRecords) -> None:
        length = self.manifest.max_seq_length
        size = records.records * 4 * (len(TOKEN_FEATURES) * length + self.outputs)
        if size > MAX_BYTES:
            raise UserError(
                f"Task {self.manifest.name!r}: its {records.records:,} {split} examples of "
                f"{length} tokens take {size:,} bytes of memory; at most {MAX_BYTES:,} are read. "
                "Give it fewer examples, or prepare it with a smaller "
                "finetuning.max_seq_length."
            )

    def _parse(self, serialized: list[bytes], split: TaskSplit, first: int) -> Arrays:
        import tensorflow as tf

        manifest, length = self.manifest, self.manifest.max_seq_length
        spec = {name: tf.io.FixedLenFeature([length], tf.int64) for name in TOKEN_FEATURES}
        spec["example_id"] = tf.io.FixedLenFeature([1], tf.int64)
        if split is not TaskSplit.PREDICT:
            size = self.outputs if manifest.label_kind == "multi_label" else 1
            kind = tf.float32 if manifest.label_kind == "regression" else tf.int64
            spec[LABELS] = tf.io.FixedLenFeature([size], kind)
        try:
            parsed = tf.io.parse_example(serialized, spec)
        except tf.errors.InvalidArgumentError as error:
            raise BadDataError(
                f"{self.uri}: its {split} records do not hold what the manifest says "
                f"({error.message}). Prepare the task again."
            ) from error
        arrays = {name: value.numpy() for name, value in parsed.items()}
        ids = arrays.pop("example_id")[:, 0]
        if not np.array_equal(ids, np.arange(first, first + len(ids))):
            raise BadDataError(
                f"{self.uri}: its {split} records are not in the order of their example_id. "
                "Prepare the task again."
            )
        found = {TOKEN_FEATURES[n]: arrays[n].astype(np.int32) for n in TOKEN_FEATURES}
        if LABELS in arrays:
            found[LABELS] = self._labels(arrays[LABELS], split)
        return found

    def _labels(self, values: npt.NDArray[Any], split: TaskSplit) -> npt.NDArray[Any]:
        """Return labels in the type that a loss takes, checked: an id out of range would crash."""
        kind = self.manifest.label_kind
        if kind == "regression":
            valid = np.isfinite(values)
        else:
            valid = (values >= 0) & (values < (2 if kind == "multi_label" else self.outputs))
        if not valid.all():
            row = int(np.argwhere(~valid)[0, 0])
            raise BadDataError(
                f"{self.uri}: {split} example {row} has the label {values[row].tolist()}, which "
                f"this {kind} task with {self.outputs} outputs cannot have. Prepare it again."
            )
        if kind == "multi_label":
            return values.astype(np.float32)
        return values[:, 0].astype(np.int32 if kind == "classification" else np.float32)


def _read_verified(uri: str, digest: FileDigest) -> bytes:
    try:
        data = uris.read(uri)
    except FileNotFoundError as error:
        raise FormatError(f"{uri} is missing; its manifest names it.") from error
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 != digest.sha256:
        raise FormatError(
            f"{uri} is damaged: its SHA-256 is {sha256}; its manifest says {digest.sha256}."
        )
    return data


def _cut(data: bytes, index: bytes, records: TaskRecords, uri: str) -> list[bytes]:
    """Return the records of a TFRecord file, by its offset index."""
    offsets = [offset for (offset,) in struct.iter_unpack("<Q", index)]
    cuts = list(itertools.pairwise(offsets))
    rising = all(end - begin > HEADER_BYTES + FOOTER_BYTES for begin, end in cuts)
    if not rising or len(cuts) != records.records or (offsets[0], offsets[-1]) != (0, len(data)):
        raise BadDataError(
            f"{uri}: its index has {len(offsets)} offsets that do not cut its {len(data)} bytes "
            f"into {records.records} records. Prepare the task again."
        )
    return [data[begin + HEADER_BYTES : end - FOOTER_BYTES] for begin, end in cuts]
