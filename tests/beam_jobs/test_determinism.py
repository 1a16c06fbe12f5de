from __future__ import annotations

import io
from pathlib import Path

import pytest

from beam_jobs.conversion import ShardConverter, ShardOutputs, ShardStatistics
from beam_jobs.lineage_vocabulary import load_vocabulary
from beam_jobs.record_files import DeadLetterWriter, RecordWriter
from beam_jobs.train_vocabulary import ensure_vocabulary
from pipeline_store.formats import Split
from pipeline_store.layout import StoreLayout
from tests.beam_jobs.workspace import Workspace, as_text, documents, make_config

INPUT = as_text([*documents(60), documents(1)[0], "Ren\u00e9 \u4e2d\u6587"]) + b"\n\n\xff bad\n"


@pytest.fixture
def ready(workspace: Workspace) -> Workspace:
    workspace.put("a.txt", as_text(documents(60)))
    ensure_vocabulary(workspace.arguments)
    return workspace


def convert(
    workspace: Workspace, folder: Path, batch_characters: int
) -> tuple[list[bytes], ShardStatistics]:
    vocabulary = load_vocabulary(workspace.config, workspace.store)
    converter = ShardConverter(workspace.config, vocabulary, batch_characters)
    folder.mkdir()
    writers = {split: RecordWriter(folder / split) for split in Split}
    outputs = ShardOutputs(writers, DeadLetterWriter(folder / "letters", "input"))
    statistics = converter.convert(io.BytesIO(INPUT), "text", outputs)
    for writer in (*writers.values(), outputs.dead_letters):
        writer.close()
    return [path.read_bytes() for path in sorted(folder.iterdir())], statistics


def test_batch_size_changes_no_byte(ready: Workspace, tmp_path: Path) -> None:
    ready.config = make_config(masking__dupe_factor=2)
    sizes = (1, 7, 500, 10_000, 1 << 20)
    results = [convert(ready, tmp_path / str(size), size) for size in sizes]
    assert results[0][0][2], "the training file is not empty"
    assert all(result == results[0] for result in results)


def bytes_by_input(workspace: Workspace, *pipeline_args: str) -> dict[str, list[bytes]]:
    """Run the data job; return each shard's files by the hash of its input."""
    manifest = workspace.prepare(*pipeline_args).manifest
    return {
        shard.input_sha256: [
            workspace.file(shard, digest.path)
            for split in Split
            for digest in (shard.files[split].data, shard.files[split].index)
        ]
        for shard in workspace.shards(manifest)
    }


def fill(workspace: Workspace, names: list[str]) -> None:
    for number, name in enumerate(names):
        workspace.put(name, as_text(documents(15, first=20 * number)))


def test_engine_workers_and_order_change_no_byte(tmp_path: Path) -> None:
    names = [f"part-{number}.txt" for number in range(5)]
    ways = {
        "one worker": (names, ()),
        "again": (names, ()),
        "other order": (names[::-1], ()),
        "two threads": (
            names,
            ("--direct_running_mode=multi_threading", "--direct_num_workers=2"),
        ),
    }
    results = {}
    vocabulary = tmp_path / "vocab.txt"
    for way, (files, arguments) in ways.items():
        workspace = Workspace(StoreLayout(str(tmp_path / way)), make_config())
        if vocabulary.exists():
            workspace.config = make_config(vocabulary__uri=str(vocabulary))
        fill(workspace, files)
        results[way] = bytes_by_input(workspace, *arguments)
        lineage = workspace.store.lineage(workspace.config.model.lineage_id)
        vocabulary.write_bytes(Path(lineage.vocabulary).read_bytes())
    assert len(results["one worker"]) == 5
    for way, result in results.items():
        assert result == results["one worker"], way


def test_another_seed_gives_other_masks(ready: Workspace) -> None:
    one = bytes_by_input(ready)
    ready.config = make_config(masking__random_seed=99)
    other = bytes_by_input(ready)
    assert one.keys() == other.keys()
    assert all(one[key][0] != other[key][0] for key in one)
