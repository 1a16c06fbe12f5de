"""What a document is and what is held out together, in real runs of the data job."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from beam_jobs.prepare_corpus import summarize
from corpus.arrays import HeldOutGroups
from corpus.errors import UserError
from corpus.mlm_records import document_key
from corpus.text.content import is_held_out
from corpus.text.split_units import group_draw
from pipeline_store.formats import Split
from tests.beam_jobs.workspace import (
    Workspace,
    as_jsonl,
    as_text,
    content_sha256,
    document,
    documents,
    make_config,
)


def test_files_that_have_no_such_documents_are_refused(workspace: Workspace) -> None:
    workspace.put("a.jsonl", as_jsonl(documents(3)))
    workspace.config = make_config(corpus__document="file")
    with pytest.raises(UserError, match=r"a\.jsonl, which is read as jsonl"):
        workspace.prepare()


@pytest.mark.thorough
def test_paragraphs_of_a_file_share_rows(workspace: Workspace) -> None:
    texts = documents(40)
    for number in range(20):
        workspace.put(f"{number}.txt", as_text(texts[2 * number : 2 * number + 2]))
    paragraphs = workspace.prepare().manifest
    workspace.config = make_config(corpus__document="file", model__lineage_id="files")
    files = workspace.prepare().manifest
    assert (paragraphs.documents, files.documents) == (40, 20)
    assert sum(files.records.values()) < sum(paragraphs.records.values())


@pytest.mark.thorough
def test_a_renamed_or_compressed_file_stays_on_its_side(workspace: Workspace) -> None:
    files = [as_text(documents(3, first=3 * number)) for number in range(20)]
    for number, data in enumerate(files):
        workspace.put(f"{number:02}.txt", data)
    before = workspace.prepare()
    assert summarize(before)["split_by"] == before.manifest.split_by == "file"
    for number, data in enumerate(files):
        (workspace.corpus / f"{number:02}.txt").unlink()
        workspace.put(f"renamed-{19 - number:02}.gz", gzip.compress(data))
    # In another lineage, which knows nothing of the first.
    workspace.config = make_config(model__lineage_id="other")
    after = workspace.prepare()
    for split in Split:
        mine, theirs = (workspace.records(one.manifest, split) for one in (before, after))
        assert sorted(mine) == sorted(theirs) != []


@pytest.mark.thorough
def test_a_revised_file_stays_on_its_side(workspace: Workspace) -> None:
    workspace.config = make_config(corpus__document="file", corpus__validation_fraction=0.4)
    days = ("2026-01-01", "2026-01-02")
    texts = [document(number) for number in range(30)]
    revised = [text.replace(" ", f" revised{number} ", 1) for number, text in enumerate(texts)]
    held_out = []
    for day, files in zip(days, (texts, revised[::-1]), strict=True):
        workspace.partition = day
        for number, text in enumerate(files):
            workspace.put(f"{number:02}.txt", text.encode())
        prepared = workspace.prepare()
        assert not prepared.manifest.dropped
        by_side = {
            side: {
                shard.input_uri.rpartition("/")[2]
                for shard in workspace.shards(prepared.manifest)
                if any(file.records for file in shard.files if file.split is side)
            }
            for side in Split
        }
        assert len(by_side[Split.TRAIN]) + len(by_side[Split.VALIDATION]) == 30
        held_out.append(by_side[Split.VALIDATION])
    assert 4 < len(held_out[0]) < 26
    assert held_out[1] == {f"{29 - int(name[:2]):02}.txt" for name in held_out[0]}
    assert prepared.kept_sides > 0


def test_the_groups_of_held_out_documents_are_known(workspace: Workspace) -> None:
    texts, threads = documents(60), [f"thread {number % 12}" for number in range(58)]
    lines = [{"text": text, "thread": thread} for text, thread in zip(texts, threads, strict=False)]
    lines += [{"text": text, "thread": None} for text in texts[58:]]
    workspace.put("a.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())
    workspace.config = make_config(corpus__group_field="thread", corpus__validation_fraction=0.4)
    manifest = workspace.prepare().manifest
    assert manifest.split_by == "group"
    (shard,) = workspace.shards(manifest)
    assert shard.held_out_groups is not None
    folder = workspace.store.shard(shard.shard_key)
    found = HeldOutGroups.load(f"{folder}/{shard.held_out_groups.path}", shard.held_out_groups)
    expected = {
        int(document_key(content_sha256(text))): group_draw(thread)
        for text, thread in zip(texts, threads, strict=False)
        if is_held_out(np.array([group_draw(thread)], np.uint64), 0.4)
    }
    assert len(set(expected.values())) > 1
    assert dict(zip(found.documents.tolist(), found.draws.tolist(), strict=True)) == expected


def test_a_lineage_refuses_other_documents_and_another_split(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    texts = [document.partition("\n")[0] for document in documents(60)]
    workspace.put("a.txt", as_text([*texts, *documents(1, first=39)]))
    with caplog.at_level("INFO"):
        assert workspace.prepare().manifest.split_by == "document"
    assert "split by document (corpus.split_by): " in caplog.text
    loud = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert any(line.startswith("WARNING: partition 2026-01-31: row fill 0.") for line in loud)
    assert any("one document holds" in line for line in loud)
    for name, value in (("document", "file"), ("split_by", "file")):
        workspace.config = make_config(**{f"corpus__{name}": value})
        with pytest.raises(UserError, match=rf"corpus\.{name}: file is asked for, but partition"):
            workspace.prepare()
