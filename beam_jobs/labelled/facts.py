"""Collects facts on a file's examples without their texts: enough to split and check a task.

Unusable examples are listed in a file, one JSON object per line.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from corpus.labelled.labels import Unusable
from corpus.labelled.reading import read_examples
from corpus.rows.record_files import LocalFile
from corpus.text.cleaning import Cleaner
from corpus.text.drops import RejectedFileError
from corpus.text.inputs import InputFormat
from pipeline_config import TaskConfig
from pipeline_config.data_schema import CorpusConfig
from pipeline_store.formats import TaskSplit

DIGEST_BYTES = 16
NAMED_PLACES = 5
_EXAMPLES_BETWEEN_REPORTS = 1000


@dataclass(frozen=True)
class TaskFile:
    """An input file as it was when it was first read.

    ``number`` counts all files of the task from 0, split by split. ``split``: the split that the
    task's description names it for.
    """

    number: int
    split: TaskSplit
    uri: str
    input_format: InputFormat
    sha256: str
    bytes: int


@dataclass
class Noted:
    """The unusable examples of one reason: their number, and the first ones' lines with details."""

    count: int = 0
    first: list[tuple[int, str]] = field(default_factory=list)

    def add(self, line: int, detail: str) -> None:
        """Add one example."""
        self.count += 1
        if len(self.first) < NAMED_PLACES:
            self.first.append((line, detail))


@dataclass
class FileFacts:
    """The N examples of a file that can be used, and a count of those that cannot.

    ``digests`` uint8 [N, 16]: of each one's text or texts, to recognize copies. ``lines`` int64
    [N]. ``label_counts`` int32 [N]: number of labels of each; ``label_codes`` int32: the labels of
    all examples, concatenated, as indexes into ``label_names``. ``values`` float64 [N]: the numbers
    of a regression.
    """

    file: TaskFile
    digests: npt.NDArray[np.uint8]
    lines: npt.NDArray[np.int64]
    label_counts: npt.NDArray[np.int32]
    label_codes: npt.NDArray[np.int32]
    label_names: list[str]
    values: npt.NDArray[np.float64]
    unusable: dict[str, Noted]

    def __len__(self) -> int:
        return len(self.lines)


class _Cleaned:
    """Digests of texts, by which copies are found; case, space and Unicode form do not matter."""

    def __init__(self) -> None:
        self._cleaner = Cleaner(CorpusConfig(unicode_normalization="NFKC"))

    def digest(self, texts: tuple[str, ...]) -> bytes:
        parts = [self._cleaner.clean(text).casefold().encode() for text in texts]
        # The length before each keeps ("ab", "c") and ("a", "bc") apart.
        joined = b"".join(b"%d:%b" % (len(part), part) for part in parts)
        return hashlib.sha256(joined).digest()[:DIGEST_BYTES]


def collect_facts(
    stream: BinaryIO,
    file: TaskFile,
    task: TaskConfig,
    letters: DeadLetters,
    report: Callable[[int], None] = lambda examples: None,
) -> FileFacts:
    """Read a file and return the facts on its examples.

    A file that is binary, cut short or damaged counts as one unusable example.

    :param letters: receives the unusable examples.
    :param report: called at intervals with the number of examples so far.
    """
    labelled = file.split is not TaskSplit.PREDICT
    cleaned = _Cleaned()
    digests = bytearray()
    lines, counts, codes, values = array("q"), array("i"), array("i"), array("d")
    names: dict[str, int] = {}
    unusable: dict[str, Noted] = {}

    def note(found: Unusable) -> None:
        unusable.setdefault(str(found.reason), Noted()).add(found.line, found.detail)
        letters.add(file.split, file.uri, found)

    try:
        for found in read_examples(stream, file.input_format, task, labelled=labelled):
            if isinstance(found, Unusable):
                note(found)
                continue
            digests += cleaned.digest(found.texts)
            lines.append(found.line)
            labels = found.label if isinstance(found.label, tuple) else ()
            counts.append(len(labels))
            codes.extend(names.setdefault(label, len(names)) for label in labels)
            values.append(found.label if isinstance(found.label, float) else 0.0)
            if len(lines) % _EXAMPLES_BETWEEN_REPORTS == 0:
                report(len(lines))
    except RejectedFileError as error:
        # None of it can be trusted.
        note(Unusable(error.reason, error.detail, 0))
        digests.clear()
        for found_so_far in (lines, counts, codes, values):
            del found_so_far[:]
    return FileFacts(
        file,
        np.frombuffer(bytes(digests), np.uint8).reshape(-1, DIGEST_BYTES),
        np.array(lines, np.int64),
        np.array(counts, np.int32),
        np.array(codes, np.int32),
        list(names),
        np.array(values, np.float64),
        unusable,
    )


class DeadLetters(LocalFile):
    """File of unusable examples: ``split``, ``file``, ``line``, ``reason``, ``detail``; never text.

    Use as a context manager.
    """

    def add(self, split: str, uri: str, unusable: Unusable) -> None:
        """Append one example."""
        letter = {
            "split": str(split),
            "file": uri,
            "line": unusable.line,
            "reason": str(unusable.reason),
            "detail": unusable.detail,
        }
        self.write((json.dumps(letter) + "\n").encode())
