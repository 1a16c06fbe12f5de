"""The documents of an input file, in each of the input formats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from corpus.text.drops import Rejected
from corpus.text.inputs import InputFormat
from corpus.text.json_documents import json_documents
from corpus.text.tables import table_documents
from corpus.text.text_documents import text_documents

_DELIMITERS = {"csv": ",", "tsv": "\t"}


def parse_documents(
    stream: BinaryIO, input_format: InputFormat, text_field: str
) -> Iterator[str | Rejected]:
    """Yield the documents of a plain or compressed file in order, as they were read.

    :param text_field: the field of a ``jsonl`` object, or the column of a table, with the text.
    :raises RejectedFileError: nothing of the file can be used.
    """
    if input_format == "jsonl":
        return json_documents(stream, text_field)
    if input_format == "parquet":
        # Takes a second to import, and most corpora have none.
        from corpus.text.parquet_documents import parquet_documents

        return parquet_documents(stream, text_field)
    if input_format in _DELIMITERS:
        return table_documents(stream, _DELIMITERS[input_format], text_field)
    return text_documents(stream)
