"""What is held out as a whole: groups and files, their draws, and what a lineage keeps."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpus.arrays import load_npz
from corpus.duplicates.decisions import Decided, decide
from corpus.duplicates.minhash import short_sketches_of
from corpus.duplicates.signatures import Signatures, sign
from corpus.errors import UserError
from corpus.text.content import Content, split_of
from corpus.text.drops import DropReason, Rejected
from corpus.text.inputs import InputFormat
from corpus.text.lineage_rules import kept_unit
from corpus.text.shard_contents import DocumentCounts, read_contents
from corpus.text.split_units import FileOfDocuments, group_draw, unit_of_new_lineage
from corpus.tokens.held_out_text import HeldOut
from pipeline_config.data_schema import CorpusConfig
from pipeline_store import uris
from pipeline_store.formats import FileDigest, PartitionManifest, Split, SplitUnit
from pipeline_store.layout import StoreLayout
from tests.beam_jobs.manifests import partition_manifest
from tests.beam_jobs.workspace import as_text, make_config
from tests.corpus.input_bytes import as_csv, as_parquet

CORPUS = CorpusConfig(validation_fraction=0.3)


def contents(
    data: bytes, input_format: InputFormat = "text", **settings: Any
) -> tuple[list[Content], list[Rejected]]:
    rejected: list[Rejected] = []
    found = read_contents(
        io.BytesIO(data),
        input_format,
        CorpusConfig(**settings),
        split_sentences=False,
        counts=DocumentCounts(),
        reject=rejected.append,
    )
    return list(found), rejected


def file_of(texts: list[str], groups: list[str | None] | None = None) -> Signatures:
    names = groups or [None] * len(texts)
    made = [
        Content([text], hashlib.sha256(text.encode()).digest(), number, group)
        for number, (text, group) in enumerate(zip(texts, names, strict=True))
    ]
    return sign(made, sketch=short_sketches_of, with_groups=groups is not None)


def sides(files: list[list[str]], decided: Decided) -> dict[str, Split]:
    """Return the sides of the texts that are used."""
    found = {}
    for texts, decisions in zip(files, decided.shards, strict=True):
        for number, text in enumerate(texts):
            own = split_of(hashlib.sha256(text.encode()).digest(), CORPUS.validation_fraction)
            moved = dict.fromkeys(decisions.train, Split.TRAIN)
            moved |= dict.fromkeys(decisions.validation, Split.VALIDATION)
            if number not in {*decisions.duplicates, *decisions.near_duplicates}:
                found[text] = moved.get(number, own)
    return found


def paragraphs(file: int, count: int = 6) -> list[str]:
    return [f"text {number} of file {file}" for number in range(count)]


FILES = [paragraphs(number) for number in range(30)]


def by_file(files: list[list[str]], earlier: list[Decided], others: list[Decided]) -> Decided:
    return decide(
        [file_of(texts) for texts in files],
        [one.owned for one in earlier],
        [one.owned for one in others],
        CORPUS,
        "file",
    )


def test_the_documents_of_a_file_are_on_one_side() -> None:
    found = sides(FILES, by_file(FILES, [], []))
    held_out = [texts for texts in FILES if found[texts[0]] is Split.VALIDATION]
    assert 4 <= len(held_out) <= 14
    assert all(len({found[text] for text in texts}) == 1 for texts in FILES)


def test_the_side_of_a_file_is_not_that_of_its_place_or_neighbors() -> None:
    found = sides(FILES, by_file(FILES, [], []))
    backwards = FILES[::-1]
    assert sides(backwards, by_file(backwards, [], [])) == found
    few = FILES[3:17]
    assert sides(few, by_file(few, [], [])).items() <= found.items()


def test_a_file_that_grows_stays_where_it_was() -> None:
    before = by_file(FILES, [], [])
    was = sides(FILES, before)
    grown = [[*texts, *(f"{text} more" for text in texts[:5])] for texts in FILES]
    for earlier in ([before], []):
        now = sides(grown, by_file(grown, earlier, [] if earlier else [before]))
        for texts in grown:
            assert {now[text] for text in texts if text in now} == {was[texts[0]]}


def test_a_paragraph_of_many_files_moves_none_of_them() -> None:
    shared = [["All rights reserved.", *texts] for texts in FILES]
    first = by_file(shared, [], [])
    found = sides(shared, first)
    assert all(len({found[text] for text in texts}) == 1 for texts in FILES)
    assert {found[texts[0]] for texts in FILES} == {Split.TRAIN, Split.VALIDATION}
    later = [["All rights reserved.", *(f"{text} later" for text in texts)] for texts in FILES]
    now = sides(later, by_file(later, [first], []))
    assert {now[texts[1]] for texts in later} == {Split.TRAIN, Split.VALIDATION}


def test_what_is_known_on_the_other_side_than_its_file_is_left_out() -> None:
    first = by_file(FILES, [], [])
    was = sides(FILES, first)
    guest = FILES[0][0]
    others = [[guest, *(f"{text} new" for text in texts)] for texts in FILES]
    for texts in others:
        now = sides([texts, ["x", "y"]], by_file([texts, ["x", "y"]], [], [first]))
        assert now.get(guest, was[guest]) == was[guest]
        assert len({now[text] for text in texts if text in now}) == 1


def test_one_file_is_held_out_where_none_would_be() -> None:
    few = CORPUS.model_copy(update={"validation_fraction": 1e-9})
    decided = decide([file_of(texts) for texts in FILES], [], [], few, "file")
    moved = [decisions.validation for decisions in decided.shards if decisions.validation]
    assert moved == [[0, 1, 2, 3, 4, 5]]
    alone = decide([file_of(FILES[0])], [], [], few, "file")
    assert alone.shards[0].validation == []


def test_a_group_is_never_on_both_sides() -> None:
    texts = [[f"text {number} in {file}" for number in range(40)] for file in range(5)]
    groups: list[list[str | None]] = [[f"g{number % 25}" for number in range(40)]] * 5
    files = [file_of(*both) for both in zip(texts, groups, strict=True)]
    decided = decide(files, [], [], CORPUS, "group")
    found = sides(texts, decided)
    by_group: dict[str | None, set[Split]] = {}
    for names, group in zip(texts, groups, strict=True):
        for text, name in zip(names, group, strict=True):
            by_group.setdefault(name, set()).add(found[text])
    assert all(len(one) == 1 for one in by_group.values())
    assert set.union(*by_group.values()) == {Split.TRAIN, Split.VALIDATION}
    held_out = group_draw("g1") / 2.0**64 < CORPUS.validation_fraction
    assert by_group["g1"] == {Split.VALIDATION if held_out else Split.TRAIN}
    # Of a later partition, too, and where a backfill brings a text into another group.
    later = [[f"{text} later" for text in texts[0]]]
    again = decide([file_of(later[0], groups[0])], [decided.owned], [], CORPUS, "group")
    now = sides(later, again)
    for name, text in zip(groups[0], later[0], strict=True):
        assert {now[text]} == by_group[name]
    other = [[texts[0][1], "new"]]
    torn = decide([file_of(other[0], ["g0", "g0"])], [], [decided.owned], CORPUS, "group")
    now = sides(other, torn)
    assert now.get(texts[0][1], found[texts[0][1]]) == found[texts[0][1]]
    assert {*now.values()} == by_group["g0"]


def test_a_record_without_a_group_is_on_its_own() -> None:
    texts = [f"text {number}" for number in range(50)]
    decided = decide([file_of(texts, [None] * 50)], [], [], CORPUS, "group")
    assert decided.shards == decide([file_of(texts)], [], [], CORPUS).shards


ROWS = [("a", "One."), ("b", "Two."), ("a", "Three."), (None, "Four."), (7, "Five.")]


def test_groups_are_read_in_each_format() -> None:
    lines = "".join(json.dumps({"thread": g, "text": t}) + "\n" for g, t in ROWS).encode()
    table = "thread,text\n" + "".join(f"{'' if g is None else g},{t}\n" for g, t in ROWS)
    expected = [(t, g if g is None else str(g)) for g, t in ROWS]
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    names = [g if g is None else str(g) for g, _ in ROWS]
    pq.write_table(pa.table({"thread": names, "text": [t for _, t in ROWS]}), sink)
    for data, kind in ((lines, "jsonl"), (table.encode(), "csv"), (sink.getvalue(), "parquet")):
        found, rejected = contents(data, kind, group_field="thread")  # type: ignore[arg-type]
        assert not rejected
        assert [(one.sentences[0], one.group) for one in found] == expected


@pytest.mark.parametrize(
    ("value", "reason"),
    [({}, DropReason.MISSING_FIELD), ({"thread": [1]}, DropReason.FIELD_IS_NOT_TEXT)],
)
def test_a_record_whose_group_cannot_be_read_is_rejected(
    value: dict[str, Any], reason: DropReason
) -> None:
    data = json.dumps({"text": "One."} | value).encode()
    found, rejected = contents(data, "jsonl", group_field="thread")
    assert not found
    assert rejected[0].reason is reason
    assert "'thread' (corpus.group_field)" in rejected[0].detail


def test_a_table_without_the_column_is_refused() -> None:
    with pytest.raises(Exception, match=r"no column 'thread' \(corpus.group_field\)"):
        contents(as_csv(["One."]), "csv", group_field="thread")
    with pytest.raises(Exception, match=r"no column 'thread' \(corpus.group_field\)"):
        contents(as_parquet(["One."]), "parquet", group_field="thread")


def test_signatures_keep_the_groups(tmp_path: Path) -> None:
    for signed in (file_of(["a", "b"], ["g", None]), file_of(["a", "b"])):
        data = signed.to_bytes()
        uri = str(tmp_path / "s.npz")
        uris.write(uri, data)
        digest = FileDigest.of("s.npz", data)
        loaded = Signatures.load(uri, digest)
        assert ("groups" in load_npz(uri, digest)) == (signed.groups is not None)
        for mine, theirs in zip(signed, loaded, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("settings", "input_format", "count", "expected"),
    [
        ({}, "text", 20, "file"),
        ({}, "sentences", 20, "file"),
        ({}, "text", 19, "document"),
        ({}, "jsonl", 50, "document"),
        ({"duplicates": "keep"}, "text", 50, "document"),
        ({"group_field": "thread"}, "jsonl", 1, "group"),
        ({"group_field": "thread", "split_by": "document"}, "jsonl", 1, "document"),
        ({"split_by": "file"}, "jsonl", 2, "file"),
        ({"split_by": "document"}, "text", 50, "document"),
    ],
)
def test_what_a_new_lineage_is_split_by(
    settings: dict[str, Any], input_format: InputFormat, count: int, expected: SplitUnit
) -> None:
    files = [FileOfDocuments(input_format, 2, draw) for draw in range(count)]
    assert unit_of_new_lineage(CorpusConfig(**settings), files) == expected


def test_files_of_one_document_and_copies_of_files_are_no_reason() -> None:
    files = [FileOfDocuments("text", 1, draw) for draw in range(50)]
    copies = [FileOfDocuments("text", 9, draw % 10) for draw in range(50)]
    assert unit_of_new_lineage(CorpusConfig(), files + copies) == "document"


def manifest(split_by: SplitUnit = "document", **corpus: Any) -> PartitionManifest:
    store = StoreLayout("/store")
    return partition_manifest(store, [], split_by=split_by, settings={"corpus": corpus})


def test_a_lineage_keeps_the_unit_it_began_with() -> None:
    assert kept_unit(make_config(), [], "day") is None
    assert kept_unit(make_config(corpus__split_by="file"), [], "day") is None
    assert kept_unit(make_config(), [manifest()], "day") == "document"
    assert kept_unit(make_config(corpus__group_field="a"), [manifest()], "day") == "document"
    assert kept_unit(make_config(), [manifest("file")], "day") == "file"
    blank = make_config(corpus__document="blank_line")
    assert kept_unit(blank, [manifest(), manifest()], "day") == "document"
    assert kept_unit(make_config(corpus__document="file"), [manifest(document="file")], "day")


def test_general_text_decides_for_itself_alone() -> None:
    general = manifest()
    config = make_config(evaluation__general_partition=general.partition)
    assert kept_unit(config, [general], "day") is None
    assert kept_unit(config, [general], general.partition) == "document"
    domain = manifest("file").model_copy(update={"partition": "day"})
    assert kept_unit(config, [domain, general], "next-day") == "file"


@pytest.mark.parametrize(
    ("asked", "before", "words"),
    [
        ({"document": "file"}, manifest(), "corpus.document: file is asked for, but partition"),
        ({}, manifest(document="line"), "was prepared with corpus.document=line"),
        ({"split_by": "file"}, manifest(), "corpus.split_by: file is asked for"),
        ({"duplicates": "keep"}, manifest("file"), "corpus.duplicates: keep is asked for"),
        ({}, manifest("group", group_field="a"), "corpus.group_field: None is asked for"),
        (
            {"group_field": "a", "validation_fraction": 0.2},
            manifest("group", group_field="a", validation_fraction=0.1),
            "corpus.validation_fraction: 0.2 is asked for",
        ),
    ],
)
def test_another_rule_than_the_lineages_is_refused(
    asked: dict[str, Any], before: PartitionManifest, words: str
) -> None:
    config = make_config(**{f"corpus__{name}": value for name, value in asked.items()})
    with pytest.raises(UserError, match=r"use a new model\.lineage_id") as caught:
        kept_unit(config, [before], "day")
    assert words in str(caught.value)


def test_a_manifest_by_document_is_written_as_before() -> None:
    assert b"split_by" not in manifest().to_bytes()
    assert PartitionManifest.parse(manifest("file").to_bytes(), "m").split_by == "file"


def test_the_vocabulary_sees_nothing_of_what_is_held_out(tmp_path: Path) -> None:
    paths = []
    for number, texts in enumerate(FILES):
        paths.append(str(tmp_path / f"{number:02}.txt"))
        uris.write(paths[-1], as_text(texts))
    config = make_config(corpus__validation_fraction=0.3)
    held_out = HeldOut(paths, config)
    found = sides(FILES, by_file(FILES, [], []))
    for path in paths:
        for content in contents(uris.read(path))[0]:
            assert (content in held_out) == (found[content.sentences[0]] is Split.VALIDATION)
    by_document = HeldOut(paths[:19], config)
    for content in contents(uris.read(paths[0]))[0]:
        assert (content in by_document) == (split_of(content.sha256, 0.3) is Split.VALIDATION)


def test_a_renamed_or_compressed_file_stays_on_its_side(tmp_path: Path) -> None:
    config = make_config(corpus__validation_fraction=0.3)
    names: dict[str, list[str]] = {name: [] for name in ("before", "after")}
    for number, texts in enumerate(FILES):
        for name, stem, data in (
            ("before", f"{number:02}.txt", as_text(texts)),
            ("after", f"{29 - number:02}-renamed.gz", gzip.compress(as_text(texts))),
        ):
            names[name].append(str(tmp_path / name / stem))
            uris.write(names[name][-1], data)
    before, after = (HeldOut(sorted(paths), config) for paths in names.values())
    found = [one for path in names["before"] for one in contents(uris.read(path))[0]]
    assert [one in before for one in found] == [one in after for one in found]
    assert any(one in before for one in found)


def test_the_vocabulary_sees_nothing_of_held_out_groups(tmp_path: Path) -> None:
    rows = [{"text": f"text {number}", "by": f"g{number % 7}"} for number in range(70)]
    path = str(tmp_path / "a.jsonl")
    uris.write(path, "".join(json.dumps(row) + "\n" for row in rows).encode())
    held_out = HeldOut([path], make_config(corpus__group_field="by"))
    for content in contents(uris.read(path), "jsonl", group_field="by")[0]:
        assert content.group is not None
        assert (content in held_out) == (group_draw(content.group) / 2.0**64 < 0.1)
