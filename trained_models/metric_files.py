"""Writes and reads metrics of a training for other programs: JSON lines in immutable files.

Object stores cannot append, so a process that trains writes a sequence of small files,
``<process>-<chunk>.jsonl``, and a reader joins them. Names sort in the order of writing: processes
are numbered as they start, and a random part distinguishes two that start at the same time.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pipeline_config.unquoted import fault
from pipeline_store import uris
from trained_models.errors import BadDataError

Record = dict[str, Any]
"""An event: ``kind``, ``step``, ``time`` and the fields of its kind, see :data:`FIELDS`."""

START, LOOP, HELD_OUT, ROLLBACK, CHECKPOINT = "start", "loop", "held_out", "rollback", "checkpoint"

FIELDS = {
    START: ("train_steps", "peak_flops_per_second"),
    LOOP: (
        *("steps", "loss", "learning_rate", "gradient_norm", "tokens", "seconds"),
        *("tokens_per_second", "steps_per_second", "input_wait_fraction"),
        *("model_tflops_per_second", "mfu", "memory_bytes", "peak_memory_bytes"),
        *("next_sentence_loss", "next_sentence_accuracy"),
    ),
    HELD_OUT: (
        *("loss", "perplexity", "accuracy", "masked_tokens"),
        *("macro_f1", "micro_f1", "matthews", "pearson", "spearman", "examples"),
    ),
    ROLLBACK: ("from_step", "reason"),
    CHECKPOINT: (),
}
"""The fields of each kind, besides the three that all have. A value that is not known is absent."""


class MetricFiles:
    """The records of one process, collected in memory until they are published."""

    def __init__(self, folder_uri: str) -> None:
        self._folder_uri = folder_uri
        processes = {_process(uri) for uri in uris.list_files(folder_uri)}
        self._process = f"{len(processes):04d}_{uuid.uuid4().hex[:8]}"
        self._chunks = 0
        self._lines: list[str] = []

    def add(self, kind: str, step: int, **fields: float | str | None) -> None:
        """Record an event after a number of steps.

        :param kind: a key of :data:`FIELDS`.
        :param fields: None: not known, left out. Numbers that are not finite become null, as JSON
            has none.
        """
        record: Record = {"kind": kind, "step": step, "time": datetime.now(UTC).isoformat()}
        record |= {name: value for name, value in fields.items() if value is not None}
        finite = {name: _finite(value) for name, value in record.items()}
        self._lines.append(json.dumps(finite, allow_nan=False))

    def publish(self) -> None:
        """Write what was added since the last time into a file of its own."""
        if not self._lines:
            return
        name = f"{self._process}-{self._chunks:06d}.jsonl"
        uris.write(uris.join(self._folder_uri, name), ("\n".join(self._lines) + "\n").encode())
        self._chunks += 1
        self._lines.clear()


def _process(uri: str) -> str:
    return uri.rpartition("/")[2].partition("-")[0]


def _finite(value: float | str) -> float | str | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read(folder_uri: str) -> list[Record]:
    """Return the records of the single path from step 0 to the newest, in order of the steps.

    A process that starts from a checkpoint, or rolls back to one, repeats the steps after it:
    earlier records of these are left out.

    :raises BadDataError: a line is not a record.
    """
    path: list[Record] = []
    for record in _all(folder_uri):
        if record["kind"] in (START, ROLLBACK):
            path = [earlier for earlier in path if _still_counts(earlier, record)]
        path.append(record)
    # Checkpoints are committed while training goes on, so they are reported late.
    return sorted(path, key=lambda record: int(record["step"]))


def _still_counts(earlier: Record, turn: Record) -> bool:
    """Return whether a record still counts after training restarted at the step of another."""
    if earlier["kind"] != ROLLBACK:
        return bool(earlier["step"] <= turn["step"])
    # A rollback is not part of its checkpoint: a process that starts from there repeats it.
    return turn["kind"] == ROLLBACK or bool(earlier["step"] < turn["step"])


def _all(folder_uri: str) -> Iterator[Record]:
    for uri in uris.list_files(folder_uri):
        for number, line in enumerate(uris.read(uri).decode().splitlines(), start=1):
            try:
                record: Record = json.loads(line)
                FIELDS[record["kind"]], int(record["step"])
            except (ValueError, KeyError, TypeError) as error:
                raise BadDataError(
                    f"{uri}, line {number}, is no metrics record ({fault(error)}). The file is "
                    "damaged, or another version of this program wrote it; move it away to read "
                    "the others."
                ) from None
            yield record
