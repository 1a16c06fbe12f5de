"""Checks that the input text of a partition exists, is complete and readable.

Also that the first file of each format has the configured fields or columns.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from corpus.errors import UserError
from corpus.text.documents import parse_documents
from corpus.text.drops import DropReason, Rejected, RejectedFileError
from corpus.text.inputs import (
    InputFormat,
    incomplete_sets,
    input_format,
    input_patterns,
    match_inputs,
    misread_files,
)
from corpus.text.languages import LanguageFilter
from corpus.text.record_documents import RowTokens, record_documents
from corpus.text.shard_contents import DocumentCounts, read_contents
from corpus.tokens.foreign_tokens import ForeignTokens
from corpus.tokens.lineage_vocabulary import given_vocabulary
from pipeline_config import PipelineConfig
from pipeline_config.data_schema import CorpusConfig
from pipeline_store import request_paths, uris
from pipeline_store.layout import StoreLayout

_NAMED = 3
_TRIED_DOCUMENTS = 100
_TRIED_ROWS = 1000
_TRIED_FOR_FIELDS = 20
_FIELD = {
    DropReason.MISSING_FIELD,
    DropReason.FIELD_IS_NOT_TEXT,
    DropReason.MISSING_COLUMN,
    DropReason.COLUMN_IS_NOT_TEXT,
}


def input_problems(config: PipelineConfig, partition: str, store: StoreLayout) -> Iterator[str]:
    """Yield a line for every reason why a partition's text cannot be read."""
    pattern = config.corpus.input_pattern
    files: set[str] = set()
    try:
        parts = input_patterns(pattern, partition, store)
    except uris.PathError as error:
        yield f"corpus.input_pattern: {error}"
        return
    for part in parts or [pattern]:
        try:
            files.update(match_inputs(part, partition, store))
        except UserError as error:
            yield str(error)
    yield from incomplete_sets(sorted(files))
    yield from misread_files(sorted(files), config)
    yield from _no_text(sorted(files), config)
    yield from _other_tokens(sorted(files), config, store)
    if config.corpus.keep_languages:
        try:
            LanguageFilter(config.corpus.keep_languages)
        except UserError as error:
            yield str(error)


def _no_text(files: list[str], config: PipelineConfig) -> Iterator[str]:
    """Yield a line if none of the files has text in it."""
    reasons = []
    for uri in files:
        reason = _why_unusable(uri, config)
        if reason is None:
            return
        reasons.append(f"{uri}: {reason}")
    if reasons:
        more = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
        yield (
            f"corpus.input_pattern: none of the {len(files)} files has text in it "
            f"({', '.join(reasons[:_NAMED])}{more}). Give UTF-8 text, or see corpus.input_format."
        )


def _other_tokens(files: list[str], config: PipelineConfig, store: StoreLayout) -> Iterator[str]:
    """Yield a line if the first file of token rows was made with another vocabulary."""
    uri = next((uri for uri in files if input_format(uri, config) == "tfrecord"), None)
    if uri is None:
        return
    try:
        vocabulary = given_vocabulary(config, store)
    except UserError:
        # Named by the check of the vocabulary already.
        return
    with request_paths.open_stream(uri) as stream:
        found = itertools.islice(record_documents(stream), _TRIED_ROWS)
        try:
            rows = [row for row in found if isinstance(row, RowTokens)]
        except RejectedFileError:
            return
    if vocabulary is not None and rows and (why := ForeignTokens(vocabulary).why_not(rows)):
        yield f"vocabulary.uri: the rows of {uri} were made with another vocabulary: {why}."


class _EnoughSeenError(Exception):
    """Enough documents were unreadable to skip the rest."""


def _why_unusable(uri: str, config: PipelineConfig) -> str | None:
    rejects: list[Rejected] = []

    def reject(rejected: Rejected) -> None:
        rejects.append(rejected)
        if len(rejects) == _TRIED_DOCUMENTS:
            raise _EnoughSeenError

    # Accept any text, so that little of it has to be read.
    any_text = {"min_document_characters": 0, "keep_languages": []}
    corpus = config.corpus.model_copy(update=any_text)
    counts = DocumentCounts()
    with request_paths.open_stream(uri) as stream:
        contents = read_contents(
            stream,
            input_format(uri, config),
            corpus,
            split_sentences=False,
            counts=counts,
            reject=reject,
        )
        try:
            if next(contents, None) is not None:
                return None
        except RejectedFileError as error:
            return error.detail
        except _EnoughSeenError:
            pass
    if rejects:
        return f"{rejects[0].reason}: {rejects[0].detail}"
    return "empty"


def field_problems(config: PipelineConfig, partition: str, store: StoreLayout) -> Iterator[str]:
    """Yield a line for each format whose first file lacks the configured text or group field.

    A partition may mix formats. Formats without fields suffice for a run to start, and the missing
    fields of the others would show only once everything was read.
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
    """Return why none of the first documents has the fields; None if one has, or if unclear."""
    detail = None
    with request_paths.open_stream(uri) as stream:
        try:
            documents = parse_documents(stream, uri_format, corpus)
            for document in itertools.islice(documents, _TRIED_FOR_FIELDS):
                if not isinstance(document, Rejected):
                    return None
                if document.reason in _FIELD:
                    detail = detail or document.detail
        except RejectedFileError as error:
            return error.detail if error.reason in _FIELD else None
    return detail
