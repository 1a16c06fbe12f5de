"""Reads the texts of a file, example by example. Unusable examples are included, with the reason.

Files are read by the data job's own reader (docs/reference/finetuning-data.md), with one
difference: the data job skips unusable examples.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from corpus.labelled.labels import Unusable
from corpus.labelled.reading import FORMATS, file_format, read_examples
from corpus.text.compression import CODEC_BYTES, find_codec
from corpus.text.drops import DropReason, RejectedFileError
from corpus.text.inputs import COMPRESSED_SUFFIXES, InputFormat
from pipeline_config import TaskConfig
from pipeline_store import request_paths, uris
from trained_models.errors import BadDataError, UserError
from trained_models.importing.sources import local_files, split

_CORRUPT = {
    ".gz": DropReason.CORRUPT_GZIP,
    ".bz2": DropReason.CORRUPT_BZ2,
    ".zst": DropReason.CORRUPT_ZSTD,
    ".xz": DropReason.CORRUPT_XZ,
}


class TextRow(NamedTuple):
    """An example: its first line (for Parquet its row), counted from 1, and its texts.

    ``error`` is the reason if there are no texts, otherwise empty.
    """

    line: int
    texts: tuple[str, ...]
    error: str = ""


def read_texts(uri: str, task: TaskConfig) -> Iterator[TextRow]:
    """Yield the examples of a plain or compressed file in order, skipping empty lines.

    :param task: names the columns of the texts, and may name the format.
    :raises FileNotFoundError: the file is missing.
    :raises UserError: its format is unknown, or it lacks a column of texts.
    :raises BadDataError: it is damaged, or a quote in it is never closed.
    """
    folder, name = split(uri)
    input_format = file_format(uri, task)
    if input_format not in FORMATS:
        raise UserError(
            f"{uri} ends in none of .{', .'.join(FORMATS)} (also before "
            f"{', '.join(COMPRESSED_SUFFIXES)}), so its format is not known; rename it."
        )
    request_paths.require(uri)
    with local_files(folder, [name]) as local, (local / name).open("rb") as stream:
        if not uris.is_cloud(uri):
            request_paths.require_opened(stream)
        try:
            _check_beginning(stream, name, input_format)
            for found in read_examples(stream, input_format, task, labelled=False):
                if isinstance(found, Unusable):
                    yield TextRow(found.line, (), f"{found.reason}: {found.detail}")
                else:
                    yield TextRow(found.line, found.texts)
        except RejectedFileError as error:
            kind = UserError if error.reason is DropReason.MISSING_COLUMN else BadDataError
            raise kind(
                f"{uri} cannot be used: {error.reason}: {error.detail}. Correct it, or copy it "
                "here again."
            ) from error


def _check_beginning(stream: BinaryIO, name: str, input_format: InputFormat) -> None:
    """Check that a file begins as its suffix requires; the reader goes by content alone.

    The number of answers is not checked against anything, so a file that lost its beginning must
    not pass for a short one.

    :raises RejectedFileError: it does not begin like that.
    """
    head = stream.read(CODEC_BYTES)
    stream.seek(0)
    suffix = next((end for end in COMPRESSED_SUFFIXES if name.lower().endswith(end)), None)
    if suffix is not None and find_codec(head) is None:
        raise RejectedFileError(_CORRUPT[suffix], f"it does not begin as {suffix} files do")
    if input_format == "parquet" and not head:
        raise RejectedFileError(DropReason.CORRUPT_PARQUET, "the file is empty")
