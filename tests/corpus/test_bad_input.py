"""Every kind of bad input has a defined outcome: a message, or dead letters with counts."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.errors import BadDataError, UserError
from corpus.rows.conversion import ShardConverter, ShardOutputs, row_sets
from corpus.rows.record_files import DeadLetterWriter, RecordWriter
from corpus.text.drops import BAD_FILE, count_bad, is_rejected_file
from corpus.text.inputs import InputFormat
from corpus.tokens.vocabulary import SPECIAL_TOKENS, Vocabulary
from pipeline_store.formats import ShardDecisions
from tests.beam_jobs.workspace import (
    Workspace,
    as_jsonl,
    as_text,
    assert_every_document_is_accounted_for,
    documents,
    make_config,
)
from tests.corpus.input_bytes import COMPRESS, any_bytes, as_parquet, wrapped

GOOD = as_text(documents(50))
MANY = as_text(documents(400, first=100))
PARQUET = as_parquet(["a"], "body")

# What one file of a partition is, how many documents it counts as (None: depends on how far it was
# read), and the reason for which one document of it, or all of it, is not used.
CASES: dict[str, tuple[bytes, int | None, str]] = {
    "utf8.txt": (b"fine\n\nbad \xff\n\nfine too", 3, "invalid_utf8"),
    "nul.txt": (b"fine " * 50 + b"\n\nbad \0", 2, "nul_character"),
    "binary.txt": (bytes(range(256)) * 8, 1, "binary_file"),
    "binary.gz": (gzip.compress(bytes(999)), 1, "binary_file"),
    "json.txt": (as_jsonl(documents(2)), 1, "wrong_format"),
    "json.jsonl": (b'{"text": "a b"}\n{"text"\n', 2, "invalid_json"),
    "field.jsonl": (b'{"body": "a"}\n', 1, "missing_field"),
    "number.jsonl": (b'{"text": 1}\n', 1, "field_is_not_text"),
    "surrogate.jsonl": (b'{"text": "\\udfff"}\n', 1, "lone_surrogate"),
    "column.csv": (b"id,body\n1,a\n", 1, "missing_column"),
    "columns.csv": (b"id,text\n1,a\n2,b,c\n", 2, "wrong_column_count"),
    "behind.csv": (b'id,text\n1,c\n2,"b" c\n', 2, "invalid_csv"),
    "quote.tsv": (b'id\ttext\n1\ta\n2\t"b\n', 1, "unclosed_quote"),
    "column.parquet": (PARQUET, 1, "missing_column"),
    "cut.parquet": (PARQUET[:-9], 1, "corrupt_parquet"),
    "text.parquet": (b"some text", 1, "wrong_format"),
} | {f"cut.{kind}": (compress(MANY)[:-9], None, f"truncated_{kind}")
     for kind, compress in COMPRESS.items()}  # fmt: skip


def test_bad_documents_become_dead_letters_and_the_rest_is_used(workspace: Workspace) -> None:
    workspace.put("good.txt", GOOD)
    for name, (data, _, _) in CASES.items():
        workspace.put(name, data)
    workspace.config = make_config(corpus__max_bad_fraction=1.0)
    manifest = workspace.prepare().manifest
    shards = {Path(shard.input_uri).name: shard for shard in workspace.shards(manifest)}
    assert shards.keys() == {"good.txt", *CASES}
    assert_every_document_is_accounted_for(list(shards.values()))
    for name, (_, count, reason) in CASES.items():
        shard = shards[name]
        assert shard.dropped.keys() == {reason}
        assert count in (None, shard.documents)
        letters = workspace.dead_letters(shard)
        assert [letter["reason"] for letter in letters] == [reason]
        assert letters[0]["file"] == shard.input_uri
        assert letters[0]["detail"]
        assert {"offset", "line"} <= letters[0].keys()
        if reason in BAD_FILE:
            assert shard.dropped[reason] == shard.documents
            assert all(file.records == 0 for file in shard.files)
        else:
            assert shard.dropped[reason] == 1


def test_dead_letter_says_where_the_document_is(workspace: Workspace) -> None:
    workspace.config = make_config(corpus__max_bad_fraction=1.0)
    workspace.put("a.txt", GOOD + b"\n" + b"first line\nbad \xe9\n")
    manifest = workspace.prepare().manifest
    (letter,) = workspace.dead_letters(workspace.shards(manifest)[0])
    assert letter["offset"] == len(GOOD) + 1
    assert letter["line"] == GOOD.count(b"\n") + 2


@pytest.mark.parametrize("name", ["utf8.txt", "quote.tsv", "cut.zstd"])
def test_too_much_bad_input_fails_and_names_reason_and_file(
    workspace: Workspace, name: str
) -> None:
    data, _, reason = CASES[name]
    workspace.put("good.txt", GOOD)
    workspace.prepare()
    bad = workspace.put(name, data)
    with pytest.raises(BadDataError) as caught:
        workspace.prepare()
    message = str(caught.value)
    assert "corpus.max_bad_fraction=0.01" in message
    assert str(bad) in message
    assert reason in message
    assert "\n" not in message


def test_an_endless_document_weighs_as_much_as_it_is_long(workspace: Workspace) -> None:
    workspace.put("good.txt", as_text(documents(400)))
    workspace.prepare()
    endless = workspace.put("endless.txt", b"no blank line ends this one\n" * 700_000)
    with pytest.raises(BadDataError, match="too_long 1") as caught:
        workspace.prepare()
    assert str(endless) in str(caught.value)
    assert "of the bytes" in str(caught.value)


def test_text_that_the_vocabulary_does_not_know_is_refused(workspace: Workspace) -> None:
    workspace.put("good.txt", GOOD)
    workspace.prepare()
    workspace.put("chinese.txt", as_text(["\u6f22\u5b57" * 300 + str(n) for n in range(50)]))
    with pytest.raises(BadDataError, match=r"tokens are \[UNK\], over .*max_unknown_fraction=0.2"):
        workspace.prepare()


def test_missing_member_of_a_set_stops_the_job(workspace: Workspace) -> None:
    workspace.put("data-00000-of-00002.txt", GOOD)
    with pytest.raises(UserError, match=r"are missing: data-00001-of-00002\.txt\."):
        workspace.prepare()


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


@pytest.mark.parametrize(
    "data", [b"", b"\n\n \n", gzip.compress(b"")], ids=["empty", "blank", "gzip of nothing"]
)
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
CONFIG = make_config(vocabulary__size=300)
CONVERTER = ShardConverter(CONFIG, LETTERS)
FORMATS: tuple[InputFormat, ...] = get_args(InputFormat)


@settings(max_examples=200, deadline=None)
@given(data=wrapped(any_bytes()), input_format=st.sampled_from(FORMATS))
def test_any_bytes_end_in_records_or_counts(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, input_format: InputFormat
) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    writers = {rows: RecordWriter(folder / str(n)) for n, rows in enumerate(row_sets(CONFIG))}
    outputs = ShardOutputs(writers, DeadLetterWriter(folder / "letters", "input"))
    decisions = ShardDecisions(duplicates=[], near_duplicates=[])
    statistics = CONVERTER.convert(io.BytesIO(data), input_format, decisions, outputs)
    for writer in (*writers.values(), outputs.dead_letters):
        writer.close()
    written = sum(counts.documents for counts in statistics.rows.values())
    assert statistics.documents == written + sum(statistics.dropped.values())
    bad = count_bad(statistics.dropped)
    letters = (folder / "letters").read_bytes().count(b"\n")
    assert letters == (bool(bad) if is_rejected_file(statistics.dropped) else bad)
    for rows, counts in statistics.rows.items():
        assert writers[rows].records == counts.records
