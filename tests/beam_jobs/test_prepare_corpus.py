"""Real runs of the data job in this process, looked at through TensorFlow and the manifests."""

from __future__ import annotations

import gzip
import hashlib
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from beam_jobs.job.shards import ShardProcessor, ShardWork, plan_shard
from beam_jobs.prepare_corpus import prepare
from beam_jobs.train_vocabulary import ensure_vocabulary
from corpus.duplicates.signing import Signer
from corpus.mlm_records import document_key, record_features
from corpus.text.content import Content, ContentMaker, split_of
from corpus.text.reading import InputChangedError
from corpus.tokens.lineage_vocabulary import load_vocabulary
from corpus.tokens.tokenizing import make_tokenizer
from pipeline_store.formats import PartitionManifest, ShardDecisions, Split
from tests.beam_jobs.workspace import (
    PARTITION,
    Workspace,
    as_jsonl,
    as_text,
    assert_every_document_is_accounted_for,
    documents,
    make_config,
)

Arrays = dict[str, np.ndarray]


def parse(workspace: Workspace, manifest: PartitionManifest, split: Split) -> Arrays:
    masking = workspace.config.masking
    types = {"int64": tf.int64, "float32": tf.float32}
    spec = {
        feature.name: tf.io.FixedLenFeature(
            [
                feature.size(
                    max_seq_length=masking.max_seq_length,
                    max_predictions_per_seq=masking.max_predictions_per_seq,
                )
            ],
            types[feature.dtype],
        )
        for feature in record_features(masked=True, next_sentence=False)
    }
    parsed = tf.io.parse_example(workspace.records(manifest, split), spec)
    return {name: tensor.numpy() for name, tensor in parsed.items()}


def unmasked(rows: Arrays) -> np.ndarray:
    """Put the original tokens back."""
    tokens = rows["input_ids"].copy()
    row, slot = np.nonzero(rows["masked_lm_weights"])
    tokens[row, rows["masked_lm_positions"][row, slot]] = rows["masked_lm_ids"][row, slot]
    return tokens


def test_records_hold_the_tokens_of_the_documents(workspace: Workspace) -> None:
    texts = documents(60)
    workspace.put("a.txt", as_text(texts[:30]))
    workspace.put("b.jsonl.gz", gzip.compress(as_jsonl(texts[30:])))
    manifest = workspace.prepare().manifest
    vocabulary = load_vocabulary(workspace.config, workspace.store)
    tokenizer = make_tokenizer(vocabulary, do_lower_case=True)
    maker = ContentMaker(workspace.config.corpus, "text")

    found: dict[int, list[int]] = defaultdict(list)
    sides: dict[int, Split] = {}
    for split in Split:
        rows = parse(workspace, manifest, split)
        lengths = rows["input_mask"].sum(axis=1)
        for tokens, length, key in zip(
            unmasked(rows), lengths, rows["document_id"][:, 0], strict=True
        ):
            assert tokens[0] == vocabulary.ids["[CLS]"]
            assert tokens[length - 1] == vocabulary.ids["[SEP]"]
            assert not tokens[length:].any()
            found[int(key)] += tokens[1 : length - 1].tolist()
            assert sides.setdefault(int(key), split) is split
        assert not rows["segment_ids"].any()
        assert lengths.sum() == manifest.tokens[split]
        assert len(lengths) == manifest.records[split]

    assert len(found) == len(texts) == manifest.documents
    for text in texts:
        content = maker.content_of(text)
        assert isinstance(content, Content)
        key = int(document_key(content.sha256).view(np.int64))
        assert found[key] == tokenizer.encode([text])[0].tolist()
        assert sides[key] is split_of(content.sha256, workspace.config.corpus.validation_fraction)
    assert_every_document_is_accounted_for(workspace.shards(manifest))


def test_masks_are_as_in_bert(workspace: Workspace) -> None:
    workspace.put("a.txt", as_text(documents(400)))
    manifest = workspace.prepare().manifest
    ids = load_vocabulary(workspace.config, workspace.store).ids
    masking = workspace.config.masking
    rows = parse(workspace, manifest, Split.TRAIN)
    used = rows["masked_lm_weights"] == 1

    lengths = rows["input_mask"].sum(axis=1)
    expected = np.clip(np.rint(lengths * 0.15), 1, masking.max_predictions_per_seq)
    np.testing.assert_array_equal(used.sum(axis=1), np.minimum(expected, lengths - 2))
    masked_tokens = sum(
        file.masked_tokens
        for shard in workspace.shards(manifest)
        for file in shard.files
        if file.split is Split.TRAIN
    )
    assert masked_tokens == used.sum()

    positions = rows["masked_lm_positions"]
    assert (np.diff(positions, axis=1)[used[:, 1:]] > 0).all()
    assert positions[used].min() >= 1
    assert (positions < (lengths - 1)[:, None])[used].all()
    specials = [ids[name] for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")]
    assert not np.isin(rows["masked_lm_ids"][used], specials).any()
    assert not rows["masked_lm_ids"][~used].any()

    shown = np.take_along_axis(rows["input_ids"], positions, axis=1)[used]
    original = rows["masked_lm_ids"][used]
    predictions = len(shown)
    assert predictions > 5000
    hidden = shown == ids["[MASK]"]
    kept = shown == original
    replaced = ~hidden & ~kept
    # Four standard deviations of a share of 0.8 or 0.1 among this many.
    for share, wanted in ((hidden, 0.8), (kept, 0.1), (replaced, 0.1)):
        tolerance = 4 * np.sqrt(wanted * (1 - wanted) / predictions)
        assert abs(share.mean() - wanted) < tolerance
    assert not np.isin(shown[replaced], specials).any()


def test_copies_are_of_training_rows_and_have_masks_of_their_own(workspace: Workspace) -> None:
    workspace.put("a.txt", as_text(documents(40)))
    once = workspace.prepare().manifest
    workspace.config = make_config(masking__dupe_factor=3)
    thrice = workspace.prepare().manifest
    assert thrice.records[Split.TRAIN] == 3 * once.records[Split.TRAIN]
    assert thrice.tokens[Split.TRAIN] == 3 * once.tokens[Split.TRAIN]
    assert workspace.records(thrice, Split.VALIDATION) == workspace.records(once, Split.VALIDATION)
    rows = parse(workspace, thrice, Split.TRAIN)
    tokens = unmasked(rows)
    np.testing.assert_array_equal(tokens[0::3], tokens[1::3])
    np.testing.assert_array_equal(tokens[0::3], tokens[2::3])
    same = (rows["masked_lm_positions"][0::3] == rows["masked_lm_positions"][1::3]).all(axis=1)
    assert same.mean() < 0.1
    # The first copy is the one that is made without copies.
    assert workspace.records(thrice, Split.TRAIN)[0::3] == workspace.records(once, Split.TRAIN)


def test_manifests_name_files_with_size_and_hash(workspace: Workspace) -> None:
    workspace.put("a.txt", as_text(documents(20)))
    prepared = workspace.prepare()
    assert PartitionManifest.load(prepared.manifest_uri) == prepared.manifest
    (shard,) = workspace.shards(prepared.manifest)
    for record_file in shard.files:
        for digest in (record_file.data, record_file.index):
            data = workspace.file(shard, digest.path)
            assert len(data) == digest.bytes
            assert hashlib.sha256(data).hexdigest() == digest.sha256
    assert (
        shard.input_sha256 == hashlib.sha256((workspace.corpus / "a.txt").read_bytes()).hexdigest()
    )
    assert shard.dead_letter is None
    left = [path for path in Path(workspace.store.root).glob("scratch/*") if path.is_file()]
    assert left == []


def test_second_run_does_no_work(workspace: Workspace) -> None:
    workspace.put("a.txt", as_text(documents(20)))
    workspace.put("b.txt", as_text(documents(20, first=50)))
    first = workspace.prepare()
    before = snapshot(workspace)
    second = workspace.prepare()
    assert [outcome.reused for outcome in first.outcomes] == [False, False]
    assert [outcome.reused for outcome in second.outcomes] == [True, True]
    assert second.manifest == first.manifest
    assert second.manifest_uri == first.manifest_uri
    assert snapshot(workspace) == before


def snapshot(workspace: Workspace) -> dict[str, int]:
    root = Path(workspace.store.root)
    return {str(path): path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}


def test_new_shard_alone_is_processed(workspace: Workspace) -> None:
    workspace.put("a.txt", as_text(documents(20)))
    first = workspace.prepare()
    workspace.put("b.txt", as_text(documents(5, first=50)))
    second = workspace.prepare()
    assert [outcome.reused for outcome in second.outcomes] == [True, False]
    assert second.manifest_uri != first.manifest_uri
    assert second.manifest.documents == 25
    assert set(first.manifest.shards) < set(second.manifest.shards)
    assert PartitionManifest.load(first.manifest_uri) == first.manifest


@pytest.mark.parametrize(
    "changed",
    [
        {"masking__random_seed": 1},
        {"masking__max_seq_length": 64},
        {"corpus__unicode_normalization": "none"},
    ],
)
def test_other_settings_make_other_shards(workspace: Workspace, changed: dict[str, Any]) -> None:
    workspace.put("a.txt", as_text(documents(20)))
    first = workspace.prepare().manifest
    workspace.config = make_config(**changed)
    second = workspace.prepare()
    assert not second.outcomes[0].reused
    assert not set(second.manifest.shards) & set(first.shards)


def test_settings_that_change_no_byte_make_no_other_shards(workspace: Workspace) -> None:
    workspace.put("a.txt", as_text(documents(20)))
    workspace.prepare()
    workspace.config = make_config(
        corpus__input_format="text",
        corpus__max_bad_fraction=0.5,
        corpus__near_duplicate_threshold=0.5,
        training__train_steps=77,
    )
    assert [outcome.reused for outcome in workspace.prepare().outcomes] == [True]


def test_same_bytes_in_another_format_are_another_shard(workspace: Workspace) -> None:
    rows = "".join(f'"{text}"\n' for text in documents(20))
    data = f"text\n{rows}".encode()
    workspace.put("a.csv", data)
    workspace.put("b.txt", data)
    manifest = workspace.prepare().manifest
    assert len(manifest.shards) == 2
    assert manifest.documents == 21


def test_same_file_twice_counts_once(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a.txt", "b.txt"):
        workspace.put(name, as_text(documents(20)))
    prepared = workspace.prepare()
    assert len(prepared.outcomes) == 2
    assert len(prepared.manifest.shards) == 1
    assert prepared.manifest.documents == 20
    assert "is the same as" in caplog.text


def test_duplicate_documents_in_a_shard_are_dropped_and_counted(workspace: Workspace) -> None:
    texts = documents(20)
    reflowed = texts[3].replace("\n", "  \n ")
    workspace.put("a.txt", as_text([*texts, texts[0], reflowed, texts[0]]))
    manifest = workspace.prepare().manifest
    assert (manifest.documents, manifest.dropped) == (23, {"duplicate": 3})
    assert_every_document_is_accounted_for(workspace.shards(manifest))


def test_literal_special_tokens_are_text(workspace: Workspace) -> None:
    special = "Put [MASK] and [SEP] here. " * 20
    workspace.put("a.txt", as_text([*documents(20), special]))
    manifest = workspace.prepare().manifest
    ids = load_vocabulary(workspace.config, workspace.store).ids
    for split in Split:
        tokens = unmasked(parse(workspace, manifest, split))
        assert not (tokens == ids["[MASK]"]).any()
        assert ((tokens == ids["[SEP]"]).sum(axis=1) == 1).all()


def test_prepare_returns_the_manifest(workspace: Workspace) -> None:
    workspace.put("a.txt", as_text(documents(20)))
    ensure_vocabulary(workspace.arguments)
    manifest = prepare(workspace.config, workspace.store.root, PARTITION)
    elsewhere = prepare(
        workspace.config, workspace.store.root, PARTITION, pattern=str(workspace.corpus / "a.*")
    )
    assert manifest == elsewhere
    assert manifest.partition == PARTITION


def work_on(workspace: Workspace, path: Path) -> ShardWork:
    """Return the work on a file without copies."""
    signed = Signer(workspace.config, workspace.store).sign(str(path), lambda *counts: None)
    decisions = ShardDecisions(duplicates=[], near_duplicates=[])
    decisions.create(workspace.store.decisions(decisions.sha256))
    vocabulary = load_vocabulary(workspace.config, workspace.store)
    return plan_shard(signed, decisions.sha256, workspace.config, vocabulary.sha256)


def processor_of(workspace: Workspace) -> ShardProcessor:
    vocabulary = load_vocabulary(workspace.config, workspace.store)
    return ShardProcessor(workspace.config, workspace.store, vocabulary)


def test_of_two_writers_of_a_shard_one_commits_and_no_bytes_are_left(
    workspace: Workspace,
) -> None:
    path = workspace.put("a.txt", as_text(documents(20)))
    ensure_vocabulary(workspace.arguments)
    shard = work_on(workspace, path)
    # Both have found the shard undone before either commits.
    both_converting = threading.Barrier(2, timeout=60)
    outcomes = []

    def work() -> None:
        waited: list[int] = []

        def report(*_: object) -> None:
            if not waited:
                waited.append(both_converting.wait())

        manifest, outcome = processor_of(workspace).process(shard, report)
        outcomes.append((manifest, outcome.reused))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert sorted(reused for _, reused in outcomes) == [False, True]
    assert outcomes[0][0] == outcomes[1][0]
    folder = Path(workspace.store.shard(outcomes[0][0].shard_key))
    named = {digest.path for digest in outcomes[0][0].digests()}
    there = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert there == named | {"shard.json"}


def test_input_that_changes_while_it_is_read_is_not_committed(workspace: Workspace) -> None:
    path = workspace.put("a.txt", as_text(documents(20)))
    ensure_vocabulary(workspace.arguments)
    shard = work_on(workspace, path)
    with path.open("ab") as file:
        file.write(b"\n\nmore\n")
    with pytest.raises(InputChangedError, match=r"a\.txt"):
        processor_of(workspace).process(shard, lambda *counts: None)
    assert not list(Path(workspace.store.root).glob("shards/**/*"))


def test_input_that_changes_while_it_is_signed_is_not_committed(workspace: Workspace) -> None:
    path = workspace.put("a.txt", as_text(documents(300)))

    def append(*_: object) -> None:
        with path.open("ab") as file:
            file.write(b"\n\nmore\n")

    with pytest.raises(InputChangedError, match=r"a\.txt"):
        Signer(workspace.config, workspace.store).sign(str(path), append)
    assert not list(Path(workspace.store.root).glob("signatures/*"))
