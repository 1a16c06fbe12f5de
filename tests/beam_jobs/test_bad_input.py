"""Every kind of bad input has a defined outcome: a message, or dead letters with counts."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.conversion import ShardConverter, ShardOutputs
from beam_jobs.errors import BadDataError
from beam_jobs.record_files import DeadLetterWriter, RecordWriter
from beam_jobs.vocabulary import SPECIAL_TOKENS, Vocabulary
from pipeline_store.formats import Split
from tests.beam_jobs.workspace import (
    Workspace,
    as_jsonl,
    as_text,
    assert_every_document_is_accounted_for,
    documents,
    make_config,
)

GOOD = as_text(documents(50))
TRUNCATED = gzip.compress(as_text(documents(400, first=100)))[:-9]
DAMAGED = bytearray(gzip.compress(as_text(documents(40, first=100))))
DAMAGED[-40] ^= 0xFF

CASES = {
    "invalid UTF-8": ("bad.txt", b"fine\n\nbad \xff\n\nfine too", 3, {"invalid_utf8": 1}),
    "NUL": ("bad.txt", b"fine " * 50 + b"\n\nbad \0", 2, {"nul_character": 1}),
    "binary": ("bad.txt", bytes(range(256)) * 8, 1, {"binary_file": 1}),
    "binary in gzip": ("bad.gz", gzip.compress(bytes(999)), 1, {"binary_file": 1}),
    "damaged gzip": ("bad.gz", bytes(DAMAGED), None, {"corrupt_gzip": None}),
    "truncated gzip": ("bad.txt.gz", TRUNCATED, None, {"truncated_gzip": None}),
    "wrong JSON": ("bad.jsonl", b'{"text": "a b"}\n{"text"\n', 2, {"invalid_json": 1}),
    "missing field": ("bad.jsonl", b'{"body": "a"}\n', 1, {"missing_field": 1}),
    "number for text": ("bad.jsonl", b'{"text": 1}\n', 1, {"field_is_not_text": 1}),
    "lone surrogate": ("bad.jsonl", b'{"text": "\\udfff"}\n', 1, {"lone_surrogate": 1}),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_documents_become_dead_letters_and_the_rest_is_used(
    workspace: Workspace, name: str
) -> None:
    file_name, data, documents_read, dropped = CASES[name]
    workspace.put("good.txt", GOOD)
    bad = workspace.put(file_name, data)
    workspace.config = make_config(corpus__max_bad_fraction=1.0)
    manifest = workspace.prepare().manifest
    assert_every_document_is_accounted_for(workspace.shards(manifest))
    (shard,) = [s for s in workspace.shards(manifest) if s.input_uri == str(bad)]
    assert shard.dropped.keys() == dropped.keys()
    if documents_read is not None:
        assert (shard.documents, shard.dropped) == (documents_read, dropped)
    (reason,) = dropped
    for letter in workspace.dead_letters(shard):
        assert letter["file"] == str(bad)
        assert letter["reason"] == reason
        assert letter["detail"]
        assert {"offset", "line"} <= letter.keys()
    if shard.dropped[reason] == shard.documents:
        assert all(shard.files[split].records == 0 for split in Split)


def test_dead_letter_says_where_the_document_is(workspace: Workspace) -> None:
    workspace.config = make_config(corpus__max_bad_fraction=1.0)
    workspace.put("a.txt", GOOD + b"\n" + b"first line\nbad \xe9\n")
    manifest = workspace.prepare().manifest
    (letter,) = workspace.dead_letters(workspace.shards(manifest)[0])
    assert letter["offset"] == len(GOOD) + 1
    assert letter["line"] == GOOD.count(b"\n") + 2


def test_nothing_of_a_truncated_file_is_used(workspace: Workspace) -> None:
    workspace.config = make_config(corpus__max_bad_fraction=1.0)
    workspace.put("good.txt", GOOD)
    workspace.put("bad.gz", TRUNCATED)
    manifest = workspace.prepare().manifest
    assert manifest.documents == 50 + manifest.dropped["truncated_gzip"]
    written = {shard.files[Split.TRAIN].documents > 0 for shard in workspace.shards(manifest)}
    assert written == {True, False}


@pytest.mark.parametrize("name", CASES)
def test_too_much_bad_input_fails_and_names_reason_and_file(
    workspace: Workspace, name: str
) -> None:
    file_name, data, _, dropped = CASES[name]
    workspace.put("good.txt", GOOD)
    workspace.prepare()
    bad = workspace.put(file_name, data)
    with pytest.raises(BadDataError) as caught:
        workspace.prepare()
    message = str(caught.value)
    assert "corpus.max_bad_fraction=0.01" in message
    assert str(bad) in message
    assert next(iter(dropped)) in message
    assert "\n" not in message


def test_a_little_bad_input_is_tolerated(workspace: Workspace) -> None:
    workspace.put("a.txt", as_text(documents(150)) + b"\n\xff\n")
    manifest = workspace.prepare().manifest
    assert (manifest.documents, manifest.dropped) == (151, {"invalid_utf8": 1})


def test_failed_partition_gets_no_manifest(workspace: Workspace) -> None:
    workspace.put("good.txt", GOOD)
    workspace.prepare()
    lineage = workspace.store.lineage(workspace.config.model.lineage_id)
    before = list(Path(lineage.root).rglob("*.json"))
    workspace.put("bad.txt", b"\xff\n\n" * 5)
    with pytest.raises(BadDataError):
        workspace.prepare()
    assert list(Path(lineage.root).rglob("*.json")) == before


def test_small_binary_file_among_much_text_is_tolerated(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    workspace.put("good.txt", as_text(documents(400)))
    bad = workspace.put("thumbnail.jpg", bytes(range(256)) * 2)
    manifest = workspace.prepare().manifest
    assert manifest.dropped == {"binary_file": 1}
    assert f"{bad}: 1 of 1 documents cannot be read" in caplog.text


def test_vocabulary_is_not_trained_on_garbage(workspace: Workspace) -> None:
    bad = workspace.put("bad.txt", bytes(range(256)) * 8)
    with pytest.raises(BadDataError, match="binary_file") as caught:
        workspace.prepare()
    assert str(bad) in str(caught.value)
    assert not list(Path(workspace.store.root).glob("lineages/**/*"))


@pytest.mark.parametrize("data", [b"", b"\n\n \n", gzip.compress(b"")])
def test_empty_files_are_no_error_beside_others(
    workspace: Workspace, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    workspace.put("good.txt", GOOD)
    empty = workspace.put("empty.txt", data)
    manifest = workspace.prepare().manifest
    assert (manifest.documents, manifest.dropped) == (50, {})
    assert len(manifest.shards) == 2
    assert f"{empty} holds no document" in caplog.text


def test_empty_files_alone_are_an_error(workspace: Workspace) -> None:
    workspace.put("good.txt", GOOD)
    workspace.prepare()
    (workspace.corpus / "good.txt").unlink()
    empty = workspace.put("empty.txt", b"")
    with pytest.raises(BadDataError, match="no training record") as caught:
        workspace.prepare()
    assert str(empty) in str(caught.value)


def test_documents_without_tokens_are_counted_as_empty(workspace: Workspace) -> None:
    workspace.put("a.jsonl", as_jsonl([*documents(20), "", "\u200b", "\u0007"]))
    manifest = workspace.prepare().manifest
    assert (manifest.documents, manifest.dropped) == (23, {"empty": 3})


def test_one_document_only_is_warned_about(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    text = "\n".join(line for line in GOOD.decode().splitlines() if line)
    workspace.config = make_config(corpus__validation_fraction=0.001)
    workspace.put("a.txt", text.encode())
    workspace.prepare()
    assert "is a blank line missing between documents?" in caplog.text


LETTERS = Vocabulary((*SPECIAL_TOKENS, *"abcdefghij", *(f"##{sign}" for sign in "abcdefghij")))
CONVERTER = ShardConverter(make_config(vocabulary__size=300), LETTERS)


@settings(max_examples=150, deadline=None)
@given(
    data=st.one_of(
        st.binary(max_size=300),
        st.lists(st.text(max_size=20)).map(lambda parts: "\n\n".join(parts).encode()),
        st.lists(st.text(max_size=9)).map(
            lambda parts: "\n".join(json.dumps({"text": part}) for part in parts).encode()
        ),
        st.binary(max_size=200).map(gzip.compress),
    ),
    input_format=st.sampled_from(["text", "sentences", "jsonl"]),
)
def test_any_bytes_end_in_records_or_counts(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, input_format: str
) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    writers = {split: RecordWriter(folder / split) for split in Split}
    outputs = ShardOutputs(writers, DeadLetterWriter(folder / "letters", "input"))
    statistics = CONVERTER.convert(io.BytesIO(data), input_format, outputs)  # type: ignore[arg-type]
    for writer in (*writers.values(), outputs.dead_letters):
        writer.close()
    written = sum(counts.documents for counts in statistics.splits.values())
    assert statistics.documents == written + sum(statistics.dropped.values())
    for split, counts in statistics.splits.items():
        assert writers[split].records == counts.records
