"""The units that are trained on or held out as a whole: documents, groups or files.

Each unit has a draw, a number of 64 bits that depends on its content alone, and is held out if
:func:`corpus.text.content.is_held_out` is true of that number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.text.content import is_held_out
from corpus.text.inputs import InputFormat
from pipeline_config.data_schema import CorpusConfig
from pipeline_config.rules import documents_of
from pipeline_store.formats import SplitUnit

TRAIN, HELD_OUT = 1, 2
"""Sides as bits, so that sides of several manifests can be added up."""
HASH_BYTES = 16
"""Bytes of a content's SHA-256 that identify a document."""
LEAST_FILES = 20
"""Fewer files of several documents are not used as units: each is too large a part of the text."""
_DRAW_BYTES = 8


class FileOfDocuments(NamedTuple):
    """An input file as a unit: its format, how many documents of it can be used, and its draw."""

    input_format: InputFormat
    documents: int
    draw: int


def group_draw(group: str) -> int:
    """Return the draw of the records with a value of ``corpus.group_field``."""
    return _draw(group.encode(errors="surrogatepass"))


def file_draw(hashes: bytes) -> int:
    """Return the draw of a file.

    :param hashes: the first ``HASH_BYTES`` of the hashes of its usable documents, in order. So the
        draw depends neither on the file's name nor on its compression or line ends.
    """
    return _draw(hashes)


def _draw(data: bytes) -> int:
    return int.from_bytes(hashlib.sha256(data).digest()[:_DRAW_BYTES], "little")


def unit_of_new_lineage(corpus: CorpusConfig, files: Iterable[FileOfDocuments]) -> SplitUnit:
    """Return the split unit of a lineage whose first partition consists of these files."""
    if corpus.split_by != "auto":
        return corpus.split_by
    if corpus.duplicates == "keep":
        return "document"
    if corpus.group_field is not None:
        return "group"
    # Files of records are parts of a set, cut where it was convenient.
    several = {
        file.draw
        for file in files
        if file.documents > 1 and "blank_line" in documents_of(file.input_format)
    }
    return "file" if len(several) >= LEAST_FILES else "document"


def held_out_files(
    draws: npt.NDArray[np.uint64],
    documents: npt.NDArray[np.int64],
    validation_fraction: float,
    known: npt.NDArray[np.uint8] | None = None,
) -> npt.NDArray[np.bool_]:
    """Return which files of a partition are held out.

    If none would be, the one with the smallest draw is, unless it is the only one or its side is
    known.

    :param draws: shape [F].
    :param documents: how many each has, shape [F]; a file without any is no unit.
    :param known: the side that the lineage has them on, 0 if on none, shape [F].
    """
    is_unit = documents > 0
    sides = np.zeros(len(draws), np.uint8) if known is None else known
    drawn = is_held_out(draws, validation_fraction)
    held_out = np.where(sides > 0, sides == HELD_OUT, drawn) & is_unit
    if not held_out.any() and len(np.unique(draws[is_unit])) > 1:
        free = draws[is_unit & (sides == 0)]
        held_out = is_unit & (sides == 0) & (draws == free.min(initial=np.iinfo(np.uint64).max))
    return held_out
