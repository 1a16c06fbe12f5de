"""The same records, whatever runs the job: engines, workers, batches, order, kills."""

from __future__ import annotations

import io
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from beam_jobs.train_vocabulary import ensure_vocabulary
from corpus.rows.conversion import ShardConverter, ShardOutputs, ShardStatistics, row_sets
from corpus.rows.record_files import DeadLetterWriter, RecordWriter
from corpus.tokens.lineage_vocabulary import load_vocabulary
from pipeline_store.formats import PartitionManifest, ShardDecisions
from pipeline_store.layout import StoreLayout
from tests.beam_jobs.job_service import job_service
from tests.beam_jobs.workspace import (
    PARTITION,
    Workspace,
    as_text,
    document,
    documents,
    make_config,
)

REPOSITORY = Path(__file__).parents[2]
INPUT = as_text([*documents(60), documents(1)[0], "Ren\u00e9 \u4e2d\u6587"]) + b"\n\n\xff bad\n"
# All that could depend on what came before: copies, near copies, both lengths, joined documents.
SETTINGS: dict[str, Any] = {
    "corpus__duplicates": "near",
    "masking__packing": "full_sentences",
    "masking__extra_max_seq_length": 64,
    "masking__dupe_factor": 2,
}
NAMES = [f"part-{number}.txt" for number in range(5)]


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
    writers = {
        rows: RecordWriter(folder / f"{rows.split}-{rows.max_seq_length}")
        for rows in row_sets(workspace.config)
    }
    outputs = ShardOutputs(writers, DeadLetterWriter(folder / "letters", "input"))
    decisions = ShardDecisions(duplicates=[60], near_duplicates=[7], train=[3], validation=[4])
    statistics = converter.convert(io.BytesIO(INPUT), "text", decisions, outputs)
    for writer in (*writers.values(), outputs.dead_letters):
        writer.close()
    return [path.read_bytes() for path in sorted(folder.iterdir())], statistics


@pytest.mark.parametrize("packing", ["doc_sentences", "full_sentences", "segment_pair"])
def test_batch_size_changes_no_byte(ready: Workspace, tmp_path: Path, packing: str) -> None:
    ready.config = make_config(**SETTINGS | {"masking__packing": packing})
    sizes = (1, 7, 500, 10_000, 1 << 20)
    results = [convert(ready, tmp_path / str(size), size) for size in sizes]
    assert all(results[0][0]), "no file is empty"
    for files, statistics in results:
        assert files == results[0][0]
        assert statistics.data == results[0][1].data


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a vocabulary trained on what :func:`fill` writes."""
    folder = tmp_path_factory.mktemp("vocabulary")
    workspace = Workspace(StoreLayout(str(folder / "store")), make_config())
    fill(workspace, NAMES)
    ensure_vocabulary(workspace.arguments)
    return workspace.store.lineage("default").vocabulary


def fill(workspace: Workspace, names: list[str]) -> None:
    for number, name in enumerate(names):
        texts = documents(12, first=10 * number)
        near_copy = document(7, sentences=40).replace("a", "o", 1)
        workspace.put(name, as_text([*texts, document(7, sentences=40), near_copy]))


def new_workspace(folder: Path, vocabulary: str, **settings: Any) -> Workspace:
    config = make_config(vocabulary__uri=vocabulary, **SETTINGS | settings)
    return Workspace(StoreLayout(str(folder)), config)


@pytest.fixture(scope="module")
def expected(vocabulary: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the hashes of the records that a run in this process makes."""
    workspace = new_workspace(tmp_path_factory.mktemp("expected"), vocabulary)
    fill(workspace, NAMES)
    manifest = workspace.prepare().manifest
    assert manifest.dropped["duplicate"] > 4
    assert manifest.dropped["near_duplicate"] >= 1
    hashes = workspace.record_hashes(manifest)
    assert len(hashes) > 100
    return hashes


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--direct_running_mode=multi_threading", "--direct_num_workers=2"],
        ["--direct_running_mode=multi_processing", "--direct_num_workers=2"],
    ],
    ids=["again", "threads", "processes"],
)
def test_workers_change_no_record(
    options: list[str], vocabulary: str, expected: list[str], tmp_path: Path
) -> None:
    workspace = new_workspace(tmp_path, vocabulary)
    fill(workspace, NAMES)
    assert workspace.record_hashes(workspace.prepare(*options).manifest) == expected


def test_order_of_shards_changes_no_record(
    vocabulary: str, expected: list[str], tmp_path: Path
) -> None:
    workspace = new_workspace(tmp_path, vocabulary)
    fill(workspace, NAMES[::-1])
    assert workspace.record_hashes(workspace.prepare().manifest) == expected


def test_another_seed_gives_other_masks(
    vocabulary: str, expected: list[str], tmp_path: Path
) -> None:
    workspace = new_workspace(tmp_path, vocabulary, masking__random_seed=99)
    fill(workspace, NAMES)
    other = workspace.record_hashes(workspace.prepare().manifest)
    assert len(other) == len(expected)
    # Rows so short that only one token can be masked, and by chance with the same one.
    assert len(set(other) & set(expected)) < 0.05 * len(expected)


# That workers need nothing but pickled functions is also asked of worker processes, above.
@pytest.mark.thorough
def test_pipeline_runs_on_a_separate_job_service(
    vocabulary: str, expected: list[str], tmp_path: Path
) -> None:
    """Its workers get nothing but the pickled functions, over the network."""
    workspace = new_workspace(tmp_path / "store", vocabulary)
    fill(workspace, NAMES)
    with job_service(tmp_path) as options:
        prepared = workspace.prepare(*options)
        assert workspace.record_hashes(prepared.manifest) == expected
        assert not any(outcome.reused for outcome in prepared.outcomes)
        again = workspace.prepare(*options)
    assert all(outcome.reused for outcome in again.outcomes)


def killed_and_finished(workspace: Workspace, folder: Path, kills: int, seed: int) -> list[str]:
    """Kill runs at random moments, let one finish, and return its records' hashes."""
    config = folder / "config.json"
    config.write_bytes(workspace.config.to_bytes())
    command = [sys.executable, "-m", "beam_jobs.prepare_corpus", f"--config={config}"]
    command += [f"--store={workspace.store.root}", f"--partition={PARTITION}"]
    draw = random.Random(seed)
    for _ in range(kills):
        log = folder / "log"
        with log.open("wb") as errors:
            process = subprocess.Popen(
                command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=errors
            )
            deadline = time.monotonic() + 120
            while b" files, " not in log.read_bytes() and process.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.002)
            # From the start of the pipeline on, it takes about a second.
            time.sleep(draw.random())
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
    finished = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    (uri,) = (Path(workspace.store.lineage("default").partitions) / PARTITION).glob("*.json")
    return workspace.record_hashes(PartitionManifest.load(str(uri)))


# One kill, and what is left of it, is in test_commands.py.
@pytest.mark.thorough
def test_kills_change_no_record(vocabulary: str, expected: list[str], tmp_path: Path) -> None:
    workspace = new_workspace(tmp_path / "store", vocabulary)
    fill(workspace, NAMES)
    ensure_vocabulary(workspace.arguments)
    assert killed_and_finished(workspace, tmp_path, kills=4, seed=1) == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_more_kills_change_no_record(
    seed: int, vocabulary: str, expected: list[str], tmp_path: Path
) -> None:
    workspace = new_workspace(tmp_path / "store", vocabulary)
    fill(workspace, NAMES)
    ensure_vocabulary(workspace.arguments)
    assert killed_and_finished(workspace, tmp_path, kills=5, seed=10 + seed) == expected
