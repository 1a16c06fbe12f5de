"""Every document of a shard is yielded or counted, whatever the bytes are."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.text.content import MAX_SENTENCE_CHARACTERS, Content
from corpus.text.drops import BAD_FILE, HARMLESS, DropReason, Rejected, RejectedFileError
from corpus.text.inputs import InputFormat
from corpus.text.shard_contents import DocumentCounts, read_contents
from pipeline_config.data_schema import CorpusConfig
from tests.corpus.input_bytes import (
    COMPRESS,
    NAMES,
    any_bytes,
    as_csv,
    as_parquet,
    as_records,
    wrapped,
)

FORMATS: tuple[InputFormat, ...] = get_args(InputFormat)


@dataclass
class Reading:
    """What came of a shard."""

    contents: list[Content] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    counts: DocumentCounts = field(default_factory=DocumentCounts)
    error: RejectedFileError | None = None

    @property
    def texts(self) -> list[str]:
        return [" ".join(content.sentences) for content in self.contents]


def read(
    data: bytes | BinaryIO,
    input_format: InputFormat = "text",
    *,
    split_sentences: bool = False,
    **settings: Any,
) -> Reading:
    stream = io.BytesIO(data) if isinstance(data, bytes) else data
    found = Reading()
    contents = read_contents(
        stream,
        input_format,
        CorpusConfig(**settings),
        split_sentences=split_sentences,
        counts=found.counts,
        reject=found.rejected.append,
    )
    try:
        found.contents += contents
    except RejectedFileError as error:
        found.error = error
    return found


DOCUMENTS = ["One. Two.", "Three\nand four.", "One. Two.", "\u00c9t\u00e9."]
ENCODED: dict[InputFormat, bytes] = {
    "text": "\n\n".join(DOCUMENTS).encode(),
    "sentences": "\n\n".join(DOCUMENTS).encode(),
    "jsonl": "".join(json.dumps({"text": text}) + "\n" for text in DOCUMENTS).encode(),
    "csv": as_csv(DOCUMENTS),
    "tsv": as_csv(DOCUMENTS, "\t"),
    "parquet": as_parquet(DOCUMENTS),
}


@pytest.mark.parametrize("input_format", ENCODED)
@pytest.mark.parametrize("kind", [None, *COMPRESS])
def test_same_documents_are_the_same_in_all_formats(
    input_format: InputFormat, kind: str | None
) -> None:
    data = ENCODED[input_format]
    found = read(data if kind is None else COMPRESS[kind](data), input_format)
    assert found.texts == ["One. Two.", "Three and four.", "One. Two.", "\u00c9t\u00e9."]
    assert [content.ordinal for content in found.contents] == [0, 1, 2, 3]
    assert [content.sha256 for content in found.contents] == [
        content.sha256 for content in read(ENCODED["text"]).contents
    ]
    assert (found.counts.documents, found.counts.dropped) == (4, {})


def test_ordinals_count_what_is_not_used() -> None:
    found = read(b"long enough\n\n\xff\n\nshort\n\nlong enough too", min_document_characters=8)
    assert [content.ordinal for content in found.contents] == [0, 3]
    assert found.counts.documents == 4
    assert found.counts.dropped == {"invalid_utf8": 1, "too_short": 1}
    assert [rejected.reason for rejected in found.rejected] == ["invalid_utf8"]


def test_unwanted_documents_are_counted_by_reason() -> None:
    english = "The committee decided that the report should be published by the end of the year."
    german = "Der Ausschuss hat beschlossen, dass der Bericht vor Jahresende erscheinen soll."
    rows = ["", "\u00ad", "short", english, german]
    data = "".join(json.dumps({"text": row}) + "\n" for row in rows).encode()
    found = read(data, "jsonl", min_document_characters=10, keep_languages=["en"])
    assert found.texts == [english]
    assert found.counts.dropped == {"empty": 2, "too_short": 1, "other_language": 1}
    assert found.rejected == []


class Bad(NamedTuple):
    """Bytes, how they are read, and what the dead letter says."""

    input_format: InputFormat
    data: bytes
    reason: str
    detail: str


TABLE = as_parquet(["text"])
BAD_INPUT = {
    "invalid UTF-8": Bad(
        "text",
        b"fine\n\nbad \xff\n\nfine too",
        "invalid_utf8",
        "no UTF-8 after 4 bytes: invalid start byte",
    ),
    "NUL": Bad("text", b"fine " * 50 + b"\n\nbad \0", "nul_character", "after 4 characters"),
    "binary": Bad(
        "text",
        bytes(range(256)) * 8,
        "binary_file",
        "200 of the first 2048 bytes are control characters; this is no text",
    ),
    "wrong JSON": Bad(
        "jsonl",
        b'{"text": "a b"}\n{"text"\n',
        "invalid_json",
        "Expecting ':' delimiter: line 1 column 8 (char 7)",
    ),
    "missing field": Bad(
        "jsonl",
        b'{"body": "a"}\n',
        "missing_field",
        "no field 'text' (corpus.text_field) in an object of 1 field(s)",
    ),
    "number for text": Bad(
        "jsonl",
        b'{"text": 1}\n',
        "field_is_not_text",
        "the field 'text' (corpus.text_field) is of type int",
    ),
    "lone surrogate": Bad(
        "jsonl",
        b'{"text": "\\udfff"}\n',
        "lone_surrogate",
        "the field 'text' (corpus.text_field) has half a surrogate pair after 0 characters",
    ),
    "missing column": Bad(
        "csv",
        b"id,body\n1,a\n",
        "missing_column",
        "no column 'text' (corpus.text_field); the file has 2 column(s); columns are separated by "
        "','",
    ),
    "unclosed quote": Bad(
        "csv",
        b'id,text\n1,a\n2,"b\n',
        "unclosed_quote",
        "the quote that is open in the record of line 3 is not closed by the end of the file",
    ),
    "stray quote": Bad("csv", b'text\n"a" b\nfine\n', "invalid_csv", "',' expected after '\"'"),
    "columns": Bad(
        "tsv", b"id\ttext\n1\ta\tb\n", "wrong_column_count", "3 columns; the header has 2"
    ),
    "corrupt Parquet": Bad(
        "parquet",
        TABLE[:-4] + b"????",
        "corrupt_parquet",
        "damaged, or cut short: reading it stops after 0 rows (ArrowInvalid)",
    ),
    "Parquet without the column": Bad(
        "parquet",
        as_parquet(["a"], "body"),
        "missing_column",
        "no column 'text' (corpus.text_field); the file has 1 column(s)",
    ),
    "Parquet of numbers": Bad(
        "parquet",
        as_parquet([1], "text"),
        "column_is_not_text",
        "the column 'text' (corpus.text_field) is of type int64, not text",
    ),
    "Parquet as text": Bad(
        "text",
        TABLE,
        "wrong_format",
        "Parquet data, but it is read as text; end its name in .parquet or set input_format",
    ),
    "text as Parquet": Bad(
        "parquet",
        b"some text",
        "wrong_format",
        "no Parquet file, for it does not begin with PAR1; give it another name or set "
        "input_format",
    ),
    "TFRecord of something else": Bad(
        "tfrecord", as_records([b"\x0a\xff"]), "invalid_record", "no tf.train.Example"
    ),
    "corrupt TFRecord": Bad(
        "tfrecord",
        as_records([b"", b"a"])[:-1],
        "corrupt_tfrecord",
        "the file ends within a record; it is read as TFRecords, see corpus.input_format",
    ),
    "text as TFRecord": Bad(
        "tfrecord",
        b"some text",
        "wrong_format",
        "the file ends within a record; it is read as TFRecords, see corpus.input_format",
    ),
    "JSON as text": Bad(
        "text",
        b'{"text": "a"}\n',
        "wrong_format",
        "it begins like JSON, but it is read as text; end its name in .jsonl (one object a line) "
        "or set corpus.input_format",
    ),
} | {
    f"truncated {kind}": Bad(
        "text",
        compress(b"some text\n\n" * 500)[:-3],
        f"truncated_{kind}",
        f"the {NAMES[kind]} data ends before its end mark",
    )
    for kind, compress in COMPRESS.items()
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_message_for_bad_input(name: str) -> None:
    input_format, data, reason, detail = BAD_INPUT[name]
    found = read(data, input_format)
    if reason in BAD_FILE:
        assert found.error is not None
        assert (found.error.reason, found.error.detail) == (reason, detail)
        assert found.counts.dropped == {reason: found.counts.documents}
    else:
        (rejected,) = found.rejected
        assert (rejected.reason, rejected.detail) == (reason, detail)
        assert found.counts.dropped == {reason: 1}
        assert found.counts.documents == len(found.contents) + 1


def test_every_reason_is_a_bad_file_harmless_or_a_bad_document() -> None:
    documents = {case.reason for case in BAD_INPUT.values()} - BAD_FILE | {"too_long"}
    assert documents | BAD_FILE | HARMLESS == set(DropReason)


@pytest.mark.parametrize("input_format", FORMATS)
def test_empty_file_has_no_documents(input_format: InputFormat) -> None:
    for data in (b"", *(compress(b"") for compress in COMPRESS.values())):
        found = read(data, input_format)
        assert found == Reading()


class Repeated:
    """A stream of one piece many times over, which is never all in memory."""

    def __init__(self, head: bytes, piece: bytes, times: int, tail: bytes) -> None:
        self._parts: Iterator[bytes] = iter([head, *[piece] * times, tail])

    def read(self, size: int = -1) -> bytes:
        return next(self._parts, b"")


ENDLESS = """
import sys, tracemalloc
from tests.corpus.test_read_contents import Repeated, read
input_format, head, tail = sys.argv[1:]
def stream(megabytes):
    return Repeated(head.encode(), b"x" * (1 << 20), megabytes, tail.encode())
read(stream(1), input_format)
tracemalloc.start()
found = read(stream(200), input_format)
print(tracemalloc.get_traced_memory()[1] >> 20)
assert len(found.contents) == 2, found
(rejected,) = found.rejected
print(rejected.reason, rejected.offset, rejected.line)
"""


@pytest.mark.parametrize(
    ("input_format", "head", "tail"),
    [
        ("text", "first\n\n", "\n\nlast"),
        ("sentences", "first\n\nsecond line\n", "\nline\n\nlast"),
        ("jsonl", '{"text": "first"}\n', '\n{"text": "last"}\n'),
        ("csv", "text\nfirst\n", "\nlast\n"),
    ],
)
def test_line_of_200_mb_takes_no_memory(input_format: str, head: str, tail: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDLESS, input_format, head, tail],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    peak, reason, offset, line = done.stdout.split()
    # The line's limit, joined with one more block, twice.
    assert int(peak) <= 60
    assert reason == "too_long"
    assert int(offset) in {head.rindex("\n") + 1, head.index("\n\n") + 2 if "\n\n" in head else -1}
    assert int(line) >= 2


@settings(max_examples=400, deadline=None)
@given(
    data=wrapped(any_bytes()),
    input_format=st.sampled_from(FORMATS),
    split_sentences=st.booleans(),
)
def test_any_bytes_end_in_contents_or_counts(
    data: bytes, input_format: InputFormat, split_sentences: bool
) -> None:
    found = read(data, input_format, split_sentences=split_sentences, min_document_characters=3)
    dropped = found.counts.dropped
    if found.error is not None:
        assert dropped == {found.error.reason: found.counts.documents}
        assert found.error.reason in BAD_FILE
        assert found.error.detail
        assert found.error.offset >= 0
        return
    assert found.counts.documents == len(found.contents) + sum(dropped.values())
    assert len(found.rejected) == sum(n for reason, n in dropped.items() if reason not in HARMLESS)
    ordinals = [content.ordinal for content in found.contents]
    assert ordinals == sorted(set(ordinals))
    assert all(0 <= ordinal < found.counts.documents for ordinal in ordinals)
    for content in found.contents:
        for sentence in content.sentences:
            assert 0 < len(sentence) <= MAX_SENTENCE_CHARACTERS
            assert sentence == " ".join(sentence.split())
            assert "\0" not in sentence
