"""What one document is, by ``corpus.document``: in each format, and where it is impossible."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.duplicates.signing import identify
from corpus.errors import UserError
from corpus.text import compression, text_documents
from corpus.text.content import Content
from corpus.text.drops import DropReason, Rejected
from corpus.text.inputs import InputFormat, misread_files, refuse_misread
from corpus.text.shard_contents import DocumentCounts, read_contents
from pipeline_config import PipelineConfig
from pipeline_config.data_schema import CorpusConfig
from pipeline_config.rules import violations
from tests.beam_jobs.workspace import as_jsonl, make_config

TEXT = b"\n\nOne.\nTwo.\n \n\n Three.\r\n\r\nFour.\n"
DATA_SHA256 = "835f2c659ef6b34e80f5a713bd72d2796991cf596cfb7708aefe7652b7d8ab9c"
"""Of the default settings, before there was ``corpus.document``."""


def contents(data: bytes, input_format: InputFormat = "text", **corpus: Any) -> list[Content]:
    return list(
        read_contents(
            io.BytesIO(data),
            input_format,
            CorpusConfig(**corpus),
            split_sentences=False,
            counts=DocumentCounts(),
            reject=lambda rejected: pytest.fail(str(rejected)),
        )
    )


def texts(data: bytes, input_format: InputFormat = "text", **corpus: Any) -> list[str]:
    return [" ".join(content.sentences) for content in contents(data, input_format, **corpus)]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("auto", ["One. Two.", "Three.", "Four."]),
        ("blank_line", ["One. Two.", "Three.", "Four."]),
        ("line", ["One.", "Two.", "Three.", "Four."]),
        ("file", ["One. Two. Three. Four."]),
    ],
)
def test_what_a_document_of_a_text_file_is(document: str, expected: list[str]) -> None:
    assert texts(TEXT, document=document) == expected
    assert texts(b" \n\n ", document=document) == []


@pytest.mark.parametrize("document", ["auto", "blank_line"])
def test_berts_own_format_stays_as_it_is(document: str) -> None:
    found = contents(TEXT, "sentences", document=document)
    assert [content.sentences for content in found] == [["One.", "Two."], ["Three."], ["Four."]]


@pytest.mark.parametrize("document", ["auto", "record"])
def test_a_record_is_a_document_whatever_blank_lines_it_has(document: str) -> None:
    assert texts(as_jsonl(["One.\n\nTwo.", "Three."]), "jsonl", document=document) == [
        "One. Two.",
        "Three.",
    ]


@settings(max_examples=200, deadline=None)
@given(
    data=st.lists(st.sampled_from([b"a", b"b c", b"\n", b"\r\n", b" ", b"x" * 9])).map(b"".join),
    size=st.integers(1, 9),
    rule=st.sampled_from(["line", "file"]),
)
def test_blocks_make_no_difference(
    data: bytes, size: int, rule: text_documents.DocumentRule
) -> None:
    blocks = iter([data[begin : begin + size] for begin in range(0, len(data), size)])
    found = list(text_documents._Splitter(0, rule).split(blocks))
    whole = [data] if data.strip() else []
    expected = whole if rule == "file" else [line for line in data.split(b"\n") if line.strip()]
    assert [text.split() for text in found if isinstance(text, str)] == [
        text.decode().split() for text in expected
    ]
    assert len(found) == len(expected)


@pytest.mark.parametrize(
    ("rule", "words", "kept"),
    [
        ("line", "a line is a document (corpus.document)", ["short", "also"]),
        ("file", "the file is one document (corpus.document)", []),
    ],
)
def test_what_is_too_long_is_said_by_the_rule(
    monkeypatch: pytest.MonkeyPatch,
    rule: text_documents.DocumentRule,
    words: str,
    kept: list[str],
) -> None:
    monkeypatch.setattr(compression, "BLOCK_BYTES", 7)
    monkeypatch.setattr(text_documents, "MAX_DOCUMENT_BYTES", 20)
    data = b"short\n" + b"x" * 50 + b"\nalso"
    found = list(text_documents.text_documents(io.BytesIO(data), rule))
    assert [text for text in found if isinstance(text, str)] == kept
    (long,) = (one for one in found if isinstance(one, Rejected))
    assert (long.reason, long.detail) == (DropReason.TOO_LONG, f"over 0 MiB; {words}")
    assert long.line == (2 if rule == "line" else 1)


@pytest.mark.parametrize(
    ("input_format", "document", "use"),
    [
        ("text", "record", "use blank_line or file or line, or auto."),
        ("sentences", "file", "use blank_line, or auto."),
        ("sentences", "line", "use blank_line, or auto."),
        ("jsonl", "file", "use record, or auto."),
        ("csv", "blank_line", "use record, or auto."),
        ("tsv", "line", "use record, or auto."),
        ("parquet", "file", "use record, or auto."),
    ],
)
def test_impossible_combinations_are_refused(input_format: str, document: str, use: str) -> None:
    corpus = CorpusConfig.model_validate({"input_format": input_format, "document": document})
    (line,) = violations(PipelineConfig(corpus=corpus))
    assert line == (
        f"corpus.document: {document} cannot be a document of corpus.input_format={input_format}; "
        f"{use}"
    )


def test_with_formats_by_name_the_files_are_looked_at() -> None:
    config = make_config(corpus__document="file")
    assert list(misread_files(["a.txt", "b.md"], config)) == []
    (line,) = misread_files(["a.txt", "b.jsonl.gz", "c.jsonl"], config)
    assert line == (
        "corpus.document: file cannot be a document of b.jsonl.gz, which is read as jsonl; use "
        "record for such files, or auto, or name a pattern without them."
    )
    with pytest.raises(UserError, match=r"b\.jsonl\.gz"):
        refuse_misread(["b.jsonl.gz"], config)
    refuse_misread(["a.jsonl"], make_config(corpus__document="record"))


def test_what_was_prepared_before_keeps_its_keys(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(TEXT)
    old = PipelineConfig()
    keys = {
        document: (config.data_sha256, identify(str(path), config).signature_key)
        for document in ("auto", "blank_line", "record", "line", "file")
        for config in [old.model_copy(update={"corpus": CorpusConfig(document=document)})]
    }
    assert keys["auto"] == (DATA_SHA256, "ac7b8840d1fefaff0ced8eac8d2c537a")
    assert keys["auto"] == keys["blank_line"] == keys["record"]
    assert len(set(keys.values())) == 3
