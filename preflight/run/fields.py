"""Checks that the fields or columns that are asked for are in the first file of each format."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from corpus.text.documents import parse_documents
from corpus.text.drops import DropReason, Rejected, RejectedFileError
from corpus.text.inputs import InputFormat, input_format, match_inputs
from pipeline_config import PipelineConfig
from pipeline_config.schema import CorpusConfig
from pipeline_store import request_paths, uris
from pipeline_store.layout import StoreLayout

_TRIED_DOCUMENTS = 20
_FIELD = {
    DropReason.MISSING_FIELD,
    DropReason.FIELD_IS_NOT_TEXT,
    DropReason.MISSING_COLUMN,
    DropReason.COLUMN_IS_NOT_TEXT,
}


def field_problems(config: PipelineConfig, partition: str, store: StoreLayout) -> Iterator[str]:
    """Yield a line for each format whose first file does not have the text's or group's field.

    A partition may mix formats. Those that have no fields are enough for a run to begin, and the
    others would be found wanting only when all of it was read.
    """
    firsts: dict[InputFormat, str] = {}
    for uri in match_inputs(config.corpus.input_pattern, partition, store):
        if uris.size(uri):
            firsts.setdefault(input_format(uri, config), uri)
    for uri_format, uri in firsts.items():
        if detail := _why_missing(uri, uri_format, config.corpus):
            what = "group" if "corpus.group_field" in detail else "text"
            yield (
                f"corpus.{what}_field: {uri}: {detail}. Name the field or column with the {what}."
            )


def _why_missing(uri: str, uri_format: InputFormat, corpus: CorpusConfig) -> str | None:
    """Return why none of the first documents has the fields; None if one has, or all is unclear."""
    detail = None
    with request_paths.open_stream(uri) as stream:
        try:
            documents = parse_documents(stream, uri_format, corpus)
            for document in itertools.islice(documents, _TRIED_DOCUMENTS):
                if not isinstance(document, Rejected):
                    return None
                if document.reason in _FIELD:
                    detail = detail or document.detail
        except RejectedFileError as error:
            return error.detail if error.reason in _FIELD else None
    return detail
