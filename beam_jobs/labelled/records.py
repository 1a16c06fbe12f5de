"""Serializes labeled examples as records, with the names of tf-models' classifier data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_jobs.labelled.segments import Frame, lay_out
from corpus.labelled.labels import Label
from corpus.labelled.reading import Example
from corpus.rows.examples import serialize_examples
from corpus.tokens.tokenizing import Tokenizer
from corpus.tokens.vocabulary import Vocabulary
from pipeline_config import TaskConfig


class TaskFeature(NamedTuple):
    """A feature of a labeled record."""

    name: str
    dtype: str


_TOKENS = tuple(TaskFeature(name, "int64") for name in ("input_ids", "input_mask", "segment_ids"))
_EXAMPLE_ID = TaskFeature("example_id", "int64")


class BuiltRecords(NamedTuple):
    """Serialized records of some examples; how many were cut, and their tokens without padding."""

    examples: list[bytes]
    truncated: int
    tokens: int


class TaskRecordBuilder:
    """Makes the records of a task.

    :param labels: in order of their ids.
    """

    def __init__(
        self,
        task: TaskConfig,
        labels: Sequence[str],
        vocabulary: Vocabulary,
        tokenizer: Tokenizer,
        max_seq_length: int,
    ) -> None:
        self._kind = task.kind
        self._texts = 1 if task.text_pair_column is None else 2
        self._ids = {label: number for number, label in enumerate(labels)}
        self._tokenizer = tokenizer
        self._max_seq_length = max_seq_length
        self._frame = Frame.of(vocabulary)

    def build(self, examples: Sequence[Example], first_id: int) -> BuiltRecords:
        """Return the records of R examples; either all of them have labels or none has.

        :param first_id: ``example_id`` of the first one; the others' follow.
        """
        ids, lengths = self._tokenizer.encode([text for one in examples for text in one.texts])
        rows = lay_out(
            ids,
            lengths,
            self._texts,
            max_seq_length=self._max_seq_length,
            frame=self._frame,
        )
        arrays: dict[str, npt.NDArray[Any]] = {
            "input_ids": rows.input_ids,
            "input_mask": rows.input_mask,
            "segment_ids": rows.segment_ids,
            "example_id": np.arange(first_id, first_id + len(examples), dtype=np.int64)[:, None],
        }
        features = [*_TOKENS, _EXAMPLE_ID]
        labels = [one.label for one in examples if one.label is not None]
        if labels:
            arrays["label_ids"] = self._label_ids(labels)
            dtype = "float32" if self._kind == "regression" else "int64"
            features.append(TaskFeature("label_ids", dtype))
        return BuiltRecords(
            serialize_examples(features, arrays),
            int(np.count_nonzero(rows.truncated)),
            int(rows.input_mask.sum()),
        )

    def _label_ids(self, labels: Sequence[Label]) -> npt.NDArray[Any]:
        """Return ids (int64 [R, 1]), 0 or 1 by label (int64 [R, L]) or numbers (float32 [R, 1])."""
        if self._kind == "regression":
            return np.array(labels, np.float32)[:, None]
        found = [one if isinstance(one, tuple) else () for one in labels]
        if self._kind == "classification":
            return np.array([[self._ids[label] for label in one] for one in found], np.int64)
        flags = np.zeros((len(found), len(self._ids)), np.int64)
        for row, one in enumerate(found):
            flags[row, [self._ids[label] for label in one]] = 1
        return flags
