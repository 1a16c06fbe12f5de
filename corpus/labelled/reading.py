"""Reads the examples of a file of any format, labeled or not; one without text is unusable."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol

from corpus.labelled.labels import ExampleProblem, Label, LabelError, Unusable, parse_label
from corpus.text.cleaning import DocumentError, decode, normalize
from corpus.text.drops import Rejected, RejectedFileError
from corpus.text.inputs import InputFormat, format_of_name
from corpus.text.json_documents import json_objects, texts_of
from corpus.text.tables import table_rows
from pipeline_config import TaskConfig
from pipeline_config.text_to_text import TextTask
from pipeline_store import request_paths

TRIED_FILES = 20
"""How many files of a split are checked before anything is prepared."""
_TRIED_EXAMPLES = 100

FORMATS = ("tsv", "csv", "jsonl", "parquet")
_DELIMITERS = {"csv": ",", "tsv": "\t"}
Columns = Mapping[str, str]
"""Names of columns by what messages call them: the setting, because its value comes from a file."""
_NO_HEADER = "if the file has no header line, name its columns in `columns`"


class Example(NamedTuple):
    """One or two texts, their label (None of those to predict), and where they begin.

    ``line`` counts from 1; in Parquet it is the row.
    """

    texts: tuple[str, ...]
    label: Label | None
    line: int


class _Found(NamedTuple):
    """An example as it is in the file, and the line where it begins."""

    texts: list[str]
    label: Any
    line: int


class FilesAs(Protocol):
    """The format of a task's files, as a :class:`pipeline_config.TaskConfig` describes it."""

    @property
    def input_format(self) -> Literal["auto", "tsv", "csv", "jsonl", "parquet"]:
        """Return the format of all files, or auto."""
        ...

    @property
    def columns(self) -> list[str]:
        """Return the names of columns of files that have no header line."""
        ...

    @property
    def quotechar(self) -> Literal['"', ""]:
        """Return the character that fields may be quoted with."""
        ...

    @property
    def unicode_normalization(self) -> Literal["NFC", "NFKC", "none"]:
        """Return the Unicode normalization form of texts."""
        ...


def file_format(uri: str, task: FilesAs) -> InputFormat:
    """Return the format of one of a task's files."""
    return format_of_name(uri) if task.input_format == "auto" else task.input_format


def read_examples(
    stream: BinaryIO, input_format: InputFormat, task: TaskConfig, *, labelled: bool
) -> Iterator[Example | Unusable]:
    """Yield the examples of a plain or compressed file in order, and those that cannot be used.

    :param labelled: False for files to predict, whose label column is not read.
    :raises RejectedFileError: nothing of the file can be used.
    """
    texts = _text_columns(task)
    label = {_named_by("label_column"): task.label_column} if labelled else {}
    for found in _read(stream, input_format, task, texts, label):
        yield found if isinstance(found, Unusable) else _example(found, task, labelled)


def read_pairs(
    stream: BinaryIO, input_format: InputFormat, task: TextTask
) -> Iterator[Example | Unusable]:
    """Yield texts and their targets, in order, and those that cannot be used.

    :raises RejectedFileError: nothing of the file can be used.
    """
    columns = {
        _named_by("text_column"): task.text_column,
        _named_by("target_column"): task.target_column,
    }
    for found in _read(stream, input_format, task, columns, {}):
        if isinstance(found, Unusable):
            yield found
            continue
        text, target = (_normalized(part, task) for part in found.texts)
        if not target.strip():
            detail = f"no text in the column {_named_by('target_column')}"
            yield Unusable(ExampleProblem.EMPTY_TARGET, detail, found.line)
        elif not has_text(text):
            detail = f"no text in the column {_named_by('text_column')}"
            yield Unusable(ExampleProblem.EMPTY_TEXT, detail, found.line)
        else:
            yield Example((text, target), None, found.line)


def _read(
    stream: BinaryIO,
    input_format: InputFormat,
    task: FilesAs,
    texts: Columns,
    label: Columns,
) -> Iterator[_Found | Unusable]:
    if input_format == "jsonl":
        return _of_json(stream, texts, label)
    if input_format == "parquet":
        return _of_parquet(stream, texts, label)
    return _of_table(stream, input_format, task, texts, label)


def _example(found: _Found, task: TaskConfig, labelled: bool) -> Example | Unusable:
    try:
        label = parse_label(found.label, task) if labelled else None
    except LabelError as error:
        return Unusable(error.reason, error.detail, found.line)
    texts = tuple(_normalized(text, task) for text in found.texts)
    for shown, text in zip(_text_columns(task), texts, strict=True):
        if not has_text(text):
            detail = f"no text in the column {shown}"
            return Unusable(ExampleProblem.EMPTY_TEXT, detail, found.line)
    return Example(texts, label, found.line)


def _normalized(text: str, task: FilesAs) -> str:
    return text if text.isascii() else normalize(task.unicode_normalization, text)


def has_text(text: str) -> bool:
    """Return whether a text has a character that becomes a token.

    Letters, digits, symbols and punctuation marks do; spaces, control characters, and combining
    marks that stand alone do not.
    """
    if text.isascii():
        return any("!" <= sign <= "~" for sign in text)
    return any(unicodedata.category(sign)[0] in "LNPS" for sign in text if sign != "\ufffd")


def _text_columns(task: TaskConfig) -> Columns:
    columns = {_named_by("text_column"): task.text_column}
    if task.text_pair_column is not None:
        columns[_named_by("text_pair_column")] = task.text_pair_column
    return columns


def _named_by(setting: str) -> str:
    return f"that {setting} names"


def _of_table(
    stream: BinaryIO, input_format: InputFormat, task: FilesAs, texts: Columns, label: Columns
) -> Iterator[_Found | Unusable]:
    rows = table_rows(
        stream,
        _DELIMITERS[input_format],
        {**texts, **label},
        columns=task.columns,
        quotechar=task.quotechar,
        hint="" if task.columns else _NO_HEADER,
    )
    for row in rows:
        if isinstance(row, Rejected):
            yield Unusable(row.reason, row.detail, row.line)
        else:
            yield _Found(row.values[: len(texts)], row.values[-1] if label else None, row.line)


def _of_json(stream: BinaryIO, texts: Columns, label: Columns) -> Iterator[_Found | Unusable]:
    for found in json_objects(stream, {**texts, **label}):
        try:
            if isinstance(found, Rejected):
                raise DocumentError(found.reason, found.detail)
            values = texts_of(found.fields, texts)
        except DocumentError as error:
            yield Unusable(error.reason, error.detail, found.line)
            continue
        yield _Found(
            values, next((found.fields[name] for name in label.values()), None), found.line
        )


def _of_parquet(stream: BinaryIO, texts: Columns, label: Columns) -> Iterator[_Found | Unusable]:
    # Takes a second to import, and most tasks have no Parquet file.
    from corpus.text.parquet_documents import parquet_rows, text_of_bytes

    for number, row in enumerate(parquet_rows(stream, texts, label), 1):
        try:
            values = [text_of_bytes(value) for value in row[: len(texts)]]
            value = row[-1] if label else None
            yield _Found(values, decode(value) if isinstance(value, bytes) else value, number)
        except DocumentError as error:
            yield Unusable(error.reason, error.detail, number)


def why_unusable(uri: str, read: Callable[[BinaryIO], Iterator[Example | Unusable]]) -> str | None:
    """Return why the first examples of a file cannot be used; None: one of them can.

    :param read: as :func:`read_examples`.
    """
    first: Unusable | None = None
    with request_paths.open_stream(uri) as stream:
        try:
            for found in itertools.islice(read(stream), _TRIED_EXAMPLES):
                if isinstance(found, Example):
                    return None
                first = first or found
        except RejectedFileError as error:
            return error.detail
    if first is None:
        return "there is no example in it"
    return f"none of its first examples can be used; line {first.line}: {first.detail}"
