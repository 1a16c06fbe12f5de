"""One host of several that train together: the trainer, and what it reads and writes noted down.

``python -m tests.training.host NOTES [trainer's arguments]``. ``HOST_DIES_AT=n`` kills it, as
SIGKILL does, when it is about to read its nth share of a batch.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_store import uris
from training import train
from training.input.records import RecordReader


class Notes:
    """Lines of JSON: what the host did, in order."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, kind: str, what: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps([kind, what]) + "\n")

    def of(self, kind: str) -> list[Any]:
        lines = self._path.read_text().splitlines()
        return [what for found, what in map(json.loads, lines) if found == kind]


def take_notes(notes: Notes, dies_at: int | None) -> None:
    """Note which records are read for training, and which files come into the store."""
    read, upload, reads = RecordReader.read, uris.upload, 0

    def noting_read(reader: RecordReader, numbers: npt.NDArray[np.int64]) -> list[bytes]:
        nonlocal reads
        reads += 1
        if reads == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        notes.add("read", numbers.tolist())
        return read(reader, numbers)

    def noting_upload(path: str, uri: str) -> None:
        notes.add("upload", uri)
        upload(path, uri)

    RecordReader.read = noting_read  # type: ignore[method-assign]
    uris.upload = noting_upload


if __name__ == "__main__":
    dies_at = os.environ.get("HOST_DIES_AT")
    take_notes(Notes(Path(sys.argv[1])), int(dies_at) if dies_at else None)
    sys.exit(train.main(sys.argv[2:]))
