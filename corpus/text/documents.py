"""Reads the documents of an input file of any input format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from corpus.text.drops import Rejected
from corpus.text.grouped_documents import (
    FoundDocument,
    grouped_json_documents,
    grouped_parquet_documents,
    grouped_table_documents,
)
from corpus.text.inputs import InputFormat
from corpus.text.json_documents import json_documents
from corpus.text.tables import table_documents
from corpus.text.text_documents import text_documents
from pipeline_config.data_schema import CorpusConfig

_DELIMITERS = {"csv": ",", "tsv": "\t"}


def parse_documents(
    stream: BinaryIO, input_format: InputFormat, corpus: CorpusConfig
) -> Iterator[FoundDocument | Rejected]:
    """Yield the documents of a plain or compressed file in order, as they were read.

    :param corpus: says what a document is, and which fields or columns have its text and group.
    :raises RejectedFileError: nothing of the file can be used.
    """
    field, group = corpus.text_field, corpus.group_field
    if group is None or input_format in ("text", "sentences"):
        for found in _texts(stream, input_format, corpus):
            yield FoundDocument(found) if isinstance(found, str) else found
    elif input_format == "jsonl":
        yield from grouped_json_documents(stream, field, group)
    elif input_format == "parquet":
        yield from grouped_parquet_documents(stream, field, group)
    else:
        yield from grouped_table_documents(stream, _DELIMITERS[input_format], field, group)


def _texts(
    stream: BinaryIO, input_format: InputFormat, corpus: CorpusConfig
) -> Iterator[str | Rejected]:
    if input_format == "jsonl":
        return json_documents(stream, corpus.text_field)
    if input_format == "parquet":
        # Takes a second to import, and most corpora have no Parquet file.
        from corpus.text.parquet_documents import parquet_documents

        return parquet_documents(stream, corpus.text_field)
    if input_format in _DELIMITERS:
        return table_documents(stream, _DELIMITERS[input_format], corpus.text_field)
    return text_documents(stream, corpus.documents_of_text)
