"""Runs one after the other and at once: what is done again, and what becomes of copies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from beam_jobs.prepare_corpus import PreparedPartition
from beam_jobs.train_vocabulary import ensure_vocabulary
from corpus.duplicates.indexes import list_indexes
from corpus.errors import BadDataError, UserError
from corpus.mlm_records import document_key
from pipeline_store.formats import PartitionManifest, ShardDecisions, ShardManifest, Split
from pipeline_store.layout import StoreLayout
from tests.beam_jobs.records import document_ids
from tests.beam_jobs.workspace import (
    PARTITION,
    Workspace,
    as_jsonl,
    as_text,
    assert_every_document_is_accounted_for,
    content_sha256,
    documents,
    make_config,
)

EARLIER, LATER = "2026-01-30", "2026-02-01"
REPOSITORY = Path(__file__).parents[2]


def at(workspace: Workspace, partition: str) -> Workspace:
    """Return the same store, to work on another partition."""
    return Workspace(workspace.store, workspace.config, partition)


def reused(prepared: PreparedPartition) -> dict[str, bool]:
    return {Path(outcome.input_uri).name: outcome.reused for outcome in prepared.outcomes}


def dropped(workspace: Workspace, prepared: PreparedPartition) -> dict[str, dict[str, int]]:
    shards = workspace.shards(prepared.manifest)
    assert_every_document_is_accounted_for(shards)
    return {Path(shard.input_uri).name: shard.dropped for shard in shards}


def ids_of(texts: list[str]) -> set[int]:
    return {int(document_key(content_sha256(text)).view("int64")) for text in texts}


def in_order_of_hash(workspace: Workspace, *contents: bytes) -> list[str]:
    """Put files into the partition, named so that of copies the first file's are used."""
    import hashlib

    ordered = sorted(contents, key=lambda data: hashlib.sha256(data).hexdigest())
    for number, data in enumerate(ordered):
        workspace.put(f"{number}.txt", data)
    return [f"{number}.txt" for number in range(len(ordered))]


def test_copies_between_shards_are_used_once(workspace: Workspace) -> None:
    texts = documents(30)
    names = in_order_of_hash(workspace, as_text(texts[:20]), as_text(texts[10:]))
    prepared = workspace.prepare()
    assert dropped(workspace, prepared) == {names[0]: {}, names[1]: {"duplicate": 10}}
    assert document_ids(workspace, prepared.manifest) == ids_of(texts)
    records = sum(prepared.manifest.records.values())

    alone = Workspace(StoreLayout(f"{workspace.store.root}-alone"), workspace.config)
    vocabulary = workspace.store.lineage("default").vocabulary
    alone.config = make_config(vocabulary__uri=vocabulary)
    alone.put("a.txt", as_text(texts))
    assert sum(alone.prepare().manifest.records.values()) == records


def test_copies_are_recognised_in_another_format(workspace: Workspace) -> None:
    texts = documents(20)
    workspace.put("a.txt", as_text(texts))
    workspace.put("b.jsonl", as_jsonl(texts[5:]))
    prepared = workspace.prepare()
    assert sum(prepared.manifest.dropped.values()) == prepared.manifest.dropped["duplicate"] == 15


def test_copies_of_earlier_partitions_are_left_out(workspace: Workspace) -> None:
    texts = documents(40)
    earlier = at(workspace, EARLIER)
    earlier.put("a.txt", as_text(texts[:25]))
    first = earlier.prepare()
    workspace.put("b.txt", as_text(texts[15:]))
    second = workspace.prepare()
    assert second.manifest.dropped == {"duplicate": 10}
    index = second.manifest.duplicate_index
    assert index is not None
    manifest_id = Path(first.manifest_uri).stem
    assert index.snapshot == [f"{EARLIER}/{manifest_id}"]
    assert document_ids(workspace, second.manifest) == ids_of(texts[25:])


def test_keep_uses_every_document(workspace: Workspace) -> None:
    workspace.config = make_config(corpus__duplicates="keep")
    texts = documents(10)
    workspace.put("a.txt", as_text(texts))
    workspace.put("b.txt", as_text([*texts, texts[0]]))
    manifest = workspace.prepare().manifest
    assert (manifest.documents, manifest.dropped) == (21, {})
    assert manifest.duplicate_index is None
    assert not list(Path(workspace.store.root).glob("signatures/*"))


def test_partitions_without_an_index_are_named(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    earlier = at(workspace, EARLIER)
    earlier.config = make_config(corpus__duplicates="keep")
    earlier.put("a.txt", as_text(documents(10)))
    earlier.prepare()
    workspace.put("b.txt", as_text(documents(10)))
    assert workspace.prepare().manifest.dropped == {}
    assert f"corpus.duplicates=keep are not found: {EARLIER}" in caplog.text


def test_one_new_shard_is_one_shard_to_process(workspace: Workspace) -> None:
    for number in range(4):
        workspace.put(f"{number}.txt", as_text(documents(10, first=20 * number)))
    workspace.prepare()
    before = files_below(workspace, "shards")
    workspace.put("new.txt", as_text(documents(10, first=200)))
    prepared = workspace.prepare()
    assert reused(prepared) == {f"{n}.txt": True for n in range(4)} | {"new.txt": False}
    after = files_below(workspace, "shards")
    assert before.items() <= after.items()
    new = {path.split("/")[1] for path in after.keys() - before.keys()}
    assert len(new) == 1


def files_below(workspace: Workspace, folder: str) -> dict[str, int]:
    root = Path(workspace.store.root)
    found = [path for path in (root / folder).rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.stat().st_mtime_ns for path in found}


def test_a_new_shard_that_takes_documents_over_changes_exactly_their_shard(
    workspace: Workspace,
) -> None:
    texts = documents(60)
    contents = [as_text(texts[:20]), as_text(texts[20:40]), as_text([*texts[40:], texts[0]])]
    names = in_order_of_hash(workspace, *contents)
    # Whichever of the two files with the document is first, the other one has to change.
    holders = [name for name in names if texts[0] in (workspace.corpus / name).read_text()]
    first_holder = (workspace.corpus / holders[0]).read_bytes()
    (workspace.corpus / holders[0]).unlink()
    workspace.prepare()
    (workspace.corpus / holders[0]).write_bytes(first_holder)
    prepared = workspace.prepare()
    assert {name for name, was_done in reused(prepared).items() if not was_done} == set(holders)
    assert dropped(workspace, prepared)[holders[1]] == {"duplicate": 1}
    assert document_ids(workspace, prepared.manifest) == ids_of(texts)


def test_backfill_leaves_newer_partitions_alone(workspace: Workspace) -> None:
    texts = documents(40)
    workspace.put("b.txt", as_text(texts[15:]))
    newer = workspace.prepare()
    before = {path: Path(path).read_bytes() for path in [newer.manifest_uri]}
    shards = files_below(workspace, "shards")

    earlier = at(workspace, EARLIER)
    earlier.put("a.txt", as_text(texts[:25]))
    backfill = earlier.prepare()
    assert backfill.manifest.dropped == {}
    assert backfill.manifest.duplicate_index is not None
    assert backfill.manifest.duplicate_index.snapshot == []
    assert {path: Path(path).read_bytes() for path in before} == before
    assert shards.items() <= files_below(workspace, "shards").items()

    # Run again, the newer partition leaves out what the backfill now owns.
    again = workspace.prepare()
    assert again.manifest_uri != newer.manifest_uri
    assert again.manifest.dropped == {"duplicate": 10}


def test_order_of_processing_does_not_matter_within_a_partition(tmp_path: Path) -> None:
    texts = documents(50)
    contents = {
        "a.txt": as_text(texts[:30]),
        "b.txt": as_text(texts[20:]),
        "c.jsonl": as_jsonl([*texts[5:10], *texts[40:45]]),
    }
    seed = Workspace(StoreLayout(str(tmp_path / "seed")), make_config())
    seed.put("a.txt", as_text(texts))
    ensure_vocabulary(seed.arguments)
    vocabulary = seed.store.lineage("default").vocabulary
    found = []
    for number, order in enumerate([["a.txt", "b.txt", "c.jsonl"], ["c.jsonl", "b.txt", "a.txt"]]):
        workspace = Workspace(
            StoreLayout(str(tmp_path / str(number))), make_config(vocabulary__uri=vocabulary)
        )
        # One file more in every run; the last run sees all of them.
        for name in order:
            workspace.put(name, contents[name])
            prepared = workspace.prepare()
        found.append((dropped(workspace, prepared), workspace.record_hashes(prepared.manifest)))
    assert found[0] == found[1]


def similar_to(text: str) -> str:
    """Return a document with some words of another place in it."""
    words = text.split(" ")
    words[len(words) // 2] = "changed"
    return " ".join(words)


def long_documents(count: int, first: int = 0) -> list[str]:
    from tests.beam_jobs.workspace import document

    return [document(number, sentences=40) for number in range(first, first + count)]


def test_near_duplicates_are_left_out_and_counted(workspace: Workspace) -> None:
    workspace.config = make_config(corpus__duplicates="near")
    texts = long_documents(20)
    names = in_order_of_hash(
        workspace, as_text([*texts, similar_to(texts[3])]), as_text([similar_to(texts[4])])
    )
    prepared = workspace.prepare()
    assert prepared.manifest.dropped == {"near_duplicate": 2}
    by_name = dropped(workspace, prepared)
    assert sum(by_name[name].get("near_duplicate", 0) for name in names) == 2
    assert prepared.manifest.documents == 22
    assert workspace.prepare().manifest_uri == prepared.manifest_uri


def test_near_duplicates_of_earlier_partitions_are_left_out(workspace: Workspace) -> None:
    workspace.config = make_config(corpus__duplicates="near")
    texts = long_documents(20)
    earlier = at(workspace, EARLIER)
    earlier.put("a.txt", as_text(texts))
    earlier.prepare()
    workspace.put("b.txt", as_text([*map(similar_to, texts[:5]), *long_documents(5, first=50)]))
    assert workspace.prepare().manifest.dropped == {"near_duplicate": 5}


def test_a_backfill_takes_the_sides_of_newer_partitions(workspace: Workspace) -> None:
    workspace.config = make_config(corpus__duplicates="near", corpus__validation_fraction=0.5)
    texts = long_documents(40)
    later = at(workspace, LATER)
    later.put("a.txt", as_text(texts))
    newer = later.prepare().manifest
    copies = [similar_to(text) for text in texts]
    workspace.put("b.txt", as_text(copies))
    prepared = workspace.prepare()
    assert prepared.manifest.dropped == {}
    assert prepared.kept_sides > 5
    for split in Split:
        sides = [
            document_ids(later, newer, split),
            document_ids(workspace, prepared.manifest, split),
        ]
        originals = {text for text in texts if ids_of([text]) <= sides[0]}
        assert sides[1] == ids_of([similar_to(text) for text in originals])
    # They are decided like that once and for all.
    assert workspace.prepare().manifest_uri == prepared.manifest_uri


def test_a_document_keeps_its_side(workspace: Workspace) -> None:
    texts = documents(60)
    workspace.put("a.txt", as_text(texts))
    first = workspace.prepare().manifest
    workspace.config = make_config(corpus__validation_fraction=0.6)
    workspace.put("b.txt", as_text(documents(60, first=100)))
    second = workspace.prepare()
    held_out = document_ids(workspace, second.manifest, Split.VALIDATION)
    assert held_out & ids_of(texts) == document_ids(workspace, first, Split.VALIDATION)
    assert len(held_out - ids_of(texts)) > 20
    assert second.kept_sides > 10


def test_files_that_cannot_be_read_own_nothing(workspace: Workspace) -> None:
    import gzip

    workspace.config = make_config(corpus__max_bad_fraction=0.9)
    texts = documents(30)
    whole = gzip.compress(as_text(texts))
    workspace.put("good.txt", as_text(texts))
    workspace.put("cut.txt.gz", whole[: len(whole) * 3 // 4])
    ensure_vocabulary(workspace.arguments)
    prepared = workspace.prepare()
    assert document_ids(workspace, prepared.manifest) == ids_of(texts)


@pytest.mark.thorough
def test_two_runs_at_once_agree(workspace: Workspace, tmp_path: Path) -> None:
    texts = documents(80)
    for number in range(6):
        workspace.put(f"{number}.txt", as_text(texts[10 * number : 10 * number + 25]))
    ensure_vocabulary(workspace.arguments)
    config = tmp_path / "config.json"
    config.write_bytes(workspace.config.to_bytes())
    command = [sys.executable, "-m", "beam_jobs.prepare_corpus", f"--config={config}"]
    command += [f"--store={workspace.store.root}", f"--partition={PARTITION}"]
    runs = [
        subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    for run in runs:
        _, errors = run.communicate(timeout=300)
        assert run.returncode == 0, errors.decode()
    lineage = workspace.store.lineage("default")
    (index,) = list_indexes(lineage)
    manifest = PartitionManifest.load(lineage.manifest(PARTITION, index.manifest_id))
    assert document_ids(workspace, manifest) == ids_of(texts[:75])
    shards = [ShardManifest.load(uri) for uri in manifest.shards]
    assert_every_document_is_accounted_for(shards)
    named = {f"{shard.shard_key}/{digest.path}" for shard in shards for digest in shard.digests()}
    there = {path.removeprefix("shards/") for path in files_below(workspace, "shards")}
    assert there == named | {f"{shard.shard_key}/shard.json" for shard in shards}
    assert workspace.prepare().manifest == manifest


def test_gone_signatures_are_named(workspace: Workspace) -> None:
    workspace.put("a.txt", as_text(documents(10)))
    workspace.prepare()
    (data,) = Path(workspace.store.root).glob("signatures/*.npz")
    data.unlink()
    with pytest.raises(UserError, match=rf"{data.name} is gone"):
        workspace.prepare()


def test_gone_records_are_named(workspace: Workspace) -> None:
    workspace.put("a.txt", as_text(documents(10)))
    (shard,) = workspace.shards(workspace.prepare().manifest)
    (Path(workspace.store.shard(shard.shard_key)) / shard.files[0].data.path).unlink()
    with pytest.raises(BadDataError, match=r"Delete shard\.json"):
        workspace.prepare()


def test_decisions_are_stored_by_their_hash(workspace: Workspace) -> None:
    texts = documents(10)
    workspace.put("a.txt", as_text([*texts, texts[3], texts[3]]))
    (shard,) = workspace.shards(workspace.prepare().manifest)
    decisions = ShardDecisions.load(workspace.store.decisions(shard.decisions_sha256))
    assert decisions.duplicates == [10, 11]
    assert decisions.sha256 == shard.decisions_sha256
